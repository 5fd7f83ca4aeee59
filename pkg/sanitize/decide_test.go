package sanitize_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// expected is what the plugin knows of the device of clean.
func expected() sanitize.Expected {
	return sanitize.Expected{Digest: digest, Device: sanitize.NewDevice(0x1234, 0x1111)}
}

// ended is a sanitizer that ended with the result of clean.
func ended() sanitize.Observed {
	return sanitize.Observed{ImageID: "registry.example/sanitizer@" + digest, Terminated: true, Reason: "Completed", Message: clean}
}

func dirty(t *testing.T) string {
	return with(t, `"verdict":"Clean",`, `"verdict":"Dirty","reason":"bar0 keeps its data",`)
}

func unknown(t *testing.T) string {
	return with(t, `"verdict":"Clean",`, `"verdict":"Unknown","reason":"the device is off the bus",`)
}

func TestDecide(t *testing.T) {
	const otherDigest = "sha256:ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
	for name, row := range map[string]struct {
		change  func(*sanitize.Observed)
		verdict sanitize.Verdict
		reason  string
	}{
		"clean":                 {func(*sanitize.Observed) {}, sanitize.Clean, ""},
		"clean, then deleted":   {func(o *sanitize.Observed) { o.Deleted = true }, sanitize.Clean, ""},
		"dirty":                 {func(o *sanitize.Observed) { o.ExitCode, o.Reason, o.Message = 3, "Error", dirty(t) }, sanitize.Dirty, "bar0 keeps its data"},
		"dirty, then deleted":   {func(o *sanitize.Observed) { o.ExitCode, o.Deleted, o.Message = 3, true, dirty(t) }, sanitize.Dirty, "bar0 keeps its data"},
		"dirty, then evicted":   {func(o *sanitize.Observed) { o.ExitCode, o.Reason, o.Message = 3, "Evicted", dirty(t) }, sanitize.Dirty, "bar0 keeps its data"},
		"unknown":               {func(o *sanitize.Observed) { o.ExitCode, o.Reason, o.Message = 4, "Error", unknown(t) }, sanitize.Unknown, "off the bus"},
		"unknown, then deleted": {func(o *sanitize.Observed) { o.ExitCode, o.Deleted, o.Message = 4, true, unknown(t) }, sanitize.Unknown, "off the bus"},
		"clean and exit code 3": {func(o *sanitize.Observed) { o.ExitCode = 3 }, sanitize.Unknown, "exit code 3, and its result says Clean"},
		"dirty and exit code 0": {func(o *sanitize.Observed) { o.Message = dirty(t) }, sanitize.Unknown, "exit code 0, and its result says Dirty"},
		"clean and exit code 4": {func(o *sanitize.Observed) { o.ExitCode = 4 }, sanitize.Unknown, "they must agree"},
		"clean and exit code 1": {func(o *sanitize.Observed) { o.ExitCode = 1 }, sanitize.Unknown, "exit code 1"},
		"wrong arguments":       {func(o *sanitize.Observed) { o.ExitCode, o.Message = 2, "" }, sanitize.Unknown, "correct the profile's command"},
		"crash":                 {func(o *sanitize.Observed) { o.ExitCode = 139 }, sanitize.Unknown, "signal 11"},
		"started twice":         {func(o *sanitize.Observed) { o.Restarts = 1 }, sanitize.Unknown, "2 times"},
		"no result":             {func(o *sanitize.Observed) { o.Message = "" }, sanitize.Unknown, "wrote no termination message"},
		"wrong JSON":            {func(o *sanitize.Observed) { o.Message = "{" }, sanitize.Unknown, "not usable"},
		"1 MiB":                 {func(o *sanitize.Observed) { o.Message = strings.Repeat("x", 1<<20) }, sanitize.Unknown, "1048576 bytes"},
		"two documents":         {func(o *sanitize.Observed) { o.Message += clean }, sanitize.Unknown, "not usable"},
		"a repeated verdict":    {func(o *sanitize.Observed) { o.Message = with(t, `"kind"`, `"verdict":"Clean","kind"`) }, sanitize.Unknown, "duplicate"},
		"NUL bytes":             {func(o *sanitize.Observed) { o.Message += "\x00" }, sanitize.Unknown, "NUL"},
		"clean without checks":  {func(o *sanitize.Observed) { o.Message, _, _ = strings.Cut(clean, `,"checks"`); o.Message += "}" }, sanitize.Unknown, "checks is missing"},
		"a check of 0 bytes":    {func(o *sanitize.Observed) { o.Message = with(t, "16777216", "0") }, sanitize.Unknown, "bytes is 0"},
		"another device":        {func(o *sanitize.Observed) { o.Message = with(t, "0x1111", "0x1112") }, sanitize.Unknown, "about device 0x1234:0x1112"},
		"another vendor":        {func(o *sanitize.Observed) { o.Message = with(t, "0x1234", "0x10de") }, sanitize.Unknown, "about device 0x10de:0x1111"},
		"another dirty device": {func(o *sanitize.Observed) {
			o.ExitCode, o.Message = 3, strings.Replace(dirty(t), "0x1111", "0x1112", 1)
		}, sanitize.Unknown, "about device"},
		"another image":          {func(o *sanitize.Observed) { o.ImageID = "registry.example/sanitizer@" + otherDigest }, sanitize.Unknown, "want the image with " + digest},
		"another image, evicted": {func(o *sanitize.Observed) { o.ImageID, o.Reason = "a@"+otherDigest, "Evicted" }, sanitize.Unknown, "want the image with"},
		"another image, running": {func(o *sanitize.Observed) { o.ImageID, o.Terminated = "a@"+otherDigest, false }, sanitize.Unknown, "want the image with"},
		"the digest in a name":   {func(o *sanitize.Observed) { o.ImageID = "a/" + digest + "@" + otherDigest }, sanitize.Unknown, "want the image with"},
		"the digest, and more":   {func(o *sanitize.Observed) { o.ImageID += "@" + otherDigest }, sanitize.Unknown, "want the image with"},
		"an image that was loaded": {
			func(o *sanitize.Observed) { o.ImageID = digest }, sanitize.Unknown, "must be pulled by its digest",
		},
		"no image":                    {func(o *sanitize.Observed) { o.ImageID = "" }, sanitize.Unknown, "no imageID"},
		"out of memory":               {func(o *sanitize.Observed) { o.Reason, o.ExitCode, o.Message = "OOMKilled", 137, "" }, sanitize.Unknown, "OOMKilled"},
		"out of memory, clean":        {func(o *sanitize.Observed) { o.Reason = "OOMKilled" }, sanitize.Unknown, "OOMKilled"},
		"out of memory, deleted":      {func(o *sanitize.Observed) { o.Reason, o.ExitCode, o.Deleted = "OOMKilled", 137, true }, sanitize.Unknown, "OOMKilled"},
		"deadline":                    {func(o *sanitize.Observed) { o.Reason, o.ExitCode, o.Message = "DeadlineExceeded", 143, "" }, sanitize.Unknown, "did not end in time"},
		"deadline, clean":             {func(o *sanitize.Observed) { o.Reason = "DeadlineExceeded" }, sanitize.Unknown, "did not end in time"},
		"deadline, not terminated":    {func(o *sanitize.Observed) { o.Reason, o.Terminated = "DeadlineExceeded", false }, sanitize.Unknown, "did not end in time"},
		"deadline, deleted":           {func(o *sanitize.Observed) { o.Reason, o.Terminated, o.Deleted = "DeadlineExceeded", false, true }, sanitize.Unknown, "did not end in time"},
		"evicted":                     {func(o *sanitize.Observed) { o.Reason, o.ExitCode, o.Message = "Evicted", 137, "" }, sanitize.Interrupted, "Evicted"},
		"evicted, not terminated":     {func(o *sanitize.Observed) { o.Reason, o.Terminated = "Evicted", false }, sanitize.Interrupted, "Evicted"},
		"evicted, clean":              {func(o *sanitize.Observed) { o.Reason = "Evicted" }, sanitize.Interrupted, "Evicted"},
		"node shut down":              {func(o *sanitize.Observed) { o.Reason, o.ExitCode = "Terminated", 143 }, sanitize.Interrupted, "Terminated"},
		"not admitted":                {func(o *sanitize.Observed) { *o = sanitize.Observed{Reason: "OutOfmemory"} }, sanitize.Interrupted, "OutOfmemory"},
		"lost in a reboot":            {func(o *sanitize.Observed) { o.Reason, o.ExitCode, o.Message = "ContainerStatusUnknown", 137, "" }, sanitize.Interrupted, "ContainerStatusUnknown"},
		"pod deleted":                 {func(o *sanitize.Observed) { *o = sanitize.Observed{Deleted: true} }, sanitize.Interrupted, "deleted"},
		"pod deleted while it runs":   {func(o *sanitize.Observed) { o.Deleted, o.Terminated, o.Reason = true, false, "" }, sanitize.Interrupted, "deleted"},
		"ended by the deletion":       {func(o *sanitize.Observed) { o.Deleted, o.ExitCode, o.Message = true, 143, "" }, sanitize.Interrupted, "deleted"},
		"killed by the deletion":      {func(o *sanitize.Observed) { o.Deleted, o.ExitCode, o.Message = true, 137, "" }, sanitize.Interrupted, "deleted"},
		"killed, and not deleted":     {func(o *sanitize.Observed) { o.ExitCode, o.Message = 137, "" }, sanitize.Unknown, "signal 9"},
		"crashed, then deleted":       {func(o *sanitize.Observed) { o.Deleted, o.ExitCode, o.Message = true, 1, "" }, sanitize.Unknown, "exit code 1"},
		"never ended":                 {func(o *sanitize.Observed) { o.Terminated, o.Reason = false, "" }, sanitize.Unknown, "has not ended"},
		"never started":               {func(o *sanitize.Observed) { *o = sanitize.Observed{} }, sanitize.Unknown, "has not ended"},
		"VM did not start":            {func(o *sanitize.Observed) { o.Reason, o.ExitCode = "StartError", 128 }, sanitize.Unknown, "StartError"},
		"a reason that nobody knows":  {func(o *sanitize.Observed) { o.Reason = "NewInKubernetes" }, sanitize.Unknown, "NewInKubernetes"},
		"a reason with escapes, long": {func(o *sanitize.Observed) { o.Reason = "\x1b\n" + strings.Repeat("x", 9999) }, sanitize.Unknown, "xxx"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ended()
			row.change(&got)
			o := sanitize.Decide(expected(), got)
			if o.Verdict != row.verdict || !strings.Contains(o.Reason, row.reason) || (row.verdict == sanitize.Clean) != (o.Reason == "") {
				t.Errorf("got %s because %q, want %s because %q", o.Verdict, o.Reason, row.verdict, row.reason)
			}
			if len(o.Reason) > sanitize.MaxReason || strings.ContainsAny(o.Reason, "\n\x00\x1b") {
				t.Errorf("the reason %q is not one printable line", o.Reason)
			}
			if o.Verdict == sanitize.Clean && o.Result == nil || o.Verdict == sanitize.Interrupted && o.Result != nil {
				t.Errorf("%s: the result is %+v", o.Verdict, o.Result)
			}
		})
	}
}

// TestDecideWantsADigest refuses an image that the profile names without a digest, whatever ran.
func TestDecideWantsADigest(t *testing.T) {
	for _, profile := range []string{"", "latest", "sha256:", strings.ToUpper(digest), digest + "0"} {
		want, got := expected(), ended()
		want.Digest, got.ImageID = profile, "a@"+profile
		if o := sanitize.Decide(want, got); o.Verdict != sanitize.Unknown || o.Result != nil {
			t.Errorf("digest %q: got %s, want Unknown without a result", profile, o.Verdict)
		}
	}
}

func version(name, value string) sanitize.Measurement {
	return sanitize.Measurement{Name: name, Algorithm: sanitize.Version, Value: value}
}

func TestDecideFirmware(t *testing.T) {
	const measured = "vbios: version 90.04.30"
	hash := sanitize.Measurement{Name: "vbios", Algorithm: sanitize.SHA256, Value: strings.Repeat("0", 64)}
	for name, row := range map[string]struct {
		policy   sanitize.FirmwarePolicy
		accepted []sanitize.Measurement
		verdict  sanitize.Verdict
		changes  []string
	}{
		"the first measurement":            {sanitize.Require, nil, sanitize.Clean, nil},
		"the same":                         {sanitize.Require, []sanitize.Measurement{version("vbios", "90.04.30")}, sanitize.Clean, nil},
		"changed":                          {sanitize.Require, []sanitize.Measurement{version("vbios", "90.04.29")}, sanitize.Dirty, []string{measured + ", was version 90.04.29"}},
		"changed, and only recorded":       {sanitize.Record, []sanitize.Measurement{version("vbios", "90.04.29")}, sanitize.Clean, []string{measured + ", was version 90.04.29"}},
		"changed, and no policy":           {sanitize.Ignore, []sanitize.Measurement{version("vbios", "90.04.29")}, sanitize.Clean, nil},
		"changed, and a policy of nobody":  {"Requier", []sanitize.Measurement{version("vbios", "90.04.30")}, sanitize.Unknown, nil},
		"of another algorithm":             {sanitize.Require, []sanitize.Measurement{hash}, sanitize.Dirty, []string{measured + ", was sha256 " + hash.Value}},
		"no longer measured":               {sanitize.Require, []sanitize.Measurement{version("vbios", "90.04.30"), version("inforom", "1")}, sanitize.Dirty, []string{"inforom: not measured, was version 1"}},
		"no longer measured, and recorded": {sanitize.Record, []sanitize.Measurement{version("vbios", "90.04.30"), version("inforom", "1")}, sanitize.Clean, []string{"inforom: not measured, was version 1"}},
		"one more that also changed": {
			sanitize.Require,
			[]sanitize.Measurement{version("inforom", "1")},
			sanitize.Dirty,
			[]string{"inforom: not measured, was version 1", measured + ", not measured before"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := expected()
			want.Firmware, want.Accepted = row.policy, row.accepted
			o := sanitize.Decide(want, ended())
			var changes []string
			for _, c := range o.Changes {
				changes = append(changes, c.String())
			}
			if diff := cmp.Diff(row.changes, changes); diff != "" || o.Verdict != row.verdict {
				t.Errorf("got %s because %q, want %s; changes (-want +got):\n%s", o.Verdict, o.Reason, row.verdict, diff)
			}
			if o.OnlyFirmware() != (row.verdict == sanitize.Dirty) {
				t.Errorf("OnlyFirmware: got %t", o.OnlyFirmware())
			}
		})
	}
}

// TestAddedMeasurement: a piece that was not measured before can't have changed.
func TestAddedMeasurement(t *testing.T) {
	want, got := expected(), ended()
	want.Firmware, want.Accepted = sanitize.Require, []sanitize.Measurement{version("vbios", "90.04.30")}
	got.Message = with(t, `"firmware":[`, `"firmware":[{"name":"inforom","algorithm":"version","value":"1"},`)
	o := sanitize.Decide(want, got)
	if o.Verdict != sanitize.Clean || len(o.Changes) != 1 || !o.Changes[0].Added() || o.OnlyFirmware() {
		t.Errorf("got %s because %q with the changes %v", o.Verdict, o.Reason, o.Changes)
	}
}

// TestRequiredFirmware refuses a result without measurements where they are required, also as a device's first.
func TestRequiredFirmware(t *testing.T) {
	want, got := expected(), ended()
	want.Firmware = sanitize.Require
	got.Message = with(t, `,"firmware":[{"name":"vbios","algorithm":"version","value":"90.04.30"}]`, "")
	if o := sanitize.Decide(want, got); o.Verdict != sanitize.Unknown || o.OnlyFirmware() {
		t.Errorf("got %s because %q, want Unknown", o.Verdict, o.Reason)
	}
}

// TestDirtyBeforeFirmware: a device with data is not one that only waits for its firmware to be accepted.
func TestDirtyBeforeFirmware(t *testing.T) {
	want, got := expected(), ended()
	want.Firmware, want.Accepted = sanitize.Require, []sanitize.Measurement{version("vbios", "1")}
	got.ExitCode, got.Message = 3, dirty(t)
	if o := sanitize.Decide(want, got); o.Verdict != sanitize.Dirty || o.OnlyFirmware() || len(o.Changes) != 1 {
		t.Errorf("got %s because %q, changes %v, only firmware %t", o.Verdict, o.Reason, o.Changes, o.OnlyFirmware())
	}
}

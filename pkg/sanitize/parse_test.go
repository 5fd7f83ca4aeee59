package sanitize_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
)

// clean is a complete result with all fields.
const clean = `{"apiVersion":"kata-vfio.dev/v1alpha1","kind":"SanitizeResult","verdict":"Clean",` +
	`"device":{"vendor":"0x1234","device":"0x1111","serial":"S-1"},` +
	`"checks":[{"name":"bar0","method":"FillVerifyZeroVerify","verdict":"Clean","bytes":16777216,"pattern":"random seed, address-dependent","seconds":1.5}],` +
	`"firmware":[{"name":"vbios","algorithm":"version","value":"90.04.30"}]}`

// with returns clean with a part of it replaced, which must be there.
func with(t testing.TB, old, replacement string) string {
	t.Helper()
	if !strings.Contains(clean, old) {
		t.Fatalf("the document has no %s", old)
	}
	return strings.Replace(clean, old, replacement, 1)
}

func TestParse(t *testing.T) {
	got, err := sanitize.Parse([]byte(" \n" + clean + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := &sanitize.Result{
		APIVersion: sanitize.APIVersion, Kind: sanitize.Kind, Verdict: sanitize.Clean,
		Device: &sanitize.Device{Vendor: "0x1234", Device: "0x1111", Serial: "S-1"},
		Checks: []sanitize.Check{{
			Name: "bar0", Method: "FillVerifyZeroVerify", Verdict: sanitize.Clean, Bytes: 1 << 24,
			Pattern: "random seed, address-dependent", Seconds: 1.5,
		}},
		Firmware: []sanitize.Measurement{{Name: "vbios", Algorithm: sanitize.Version, Value: "90.04.30"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	document, err := got.Encode()
	if err != nil || string(document) != clean {
		t.Errorf("Encode: got %s, %v; want the document that was parsed", document, err)
	}
}

// TestParseUnknown accepts what a sanitizer can say that found no device.
func TestParseUnknown(t *testing.T) {
	got, err := sanitize.Parse([]byte(`{"apiVersion":"kata-vfio.dev/v1alpha1","kind":"SanitizeResult","verdict":"Unknown","reason":"no device"}`))
	if err != nil || got.Device != nil || got.Reason != "no device" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestParseRefuses(t *testing.T) {
	const check = `{"name":"bar0","method":"FillVerifyZeroVerify","verdict":"Clean","bytes":16777216,"pattern":"random seed, address-dependent","seconds":1.5}`
	const vbios = `{"name":"vbios","algorithm":"version","value":"90.04.30"}`
	for name, row := range map[string]struct{ message, want string }{
		"nothing":                         {"", "wrote no termination message"},
		"spaces":                          {" \n\t", "wrote no termination message"},
		"no JSON":                         {"all good", "parse the result"},
		"a list":                          {"[" + clean + "]", "parse the result"},
		"null":                            {"null", `want a SanitizeResult`},
		"cut off":                         {clean[:len(clean)-1], "parse the result"},
		"1 MiB":                           {strings.Repeat(" ", 1<<20) + clean, "has 1048941 bytes"},
		"1 MiB of nothing":                {strings.Repeat("[", 1<<20), "has 1048576 bytes"},
		"4097 bytes":                      {clean + strings.Repeat(" ", 4097-len(clean)), "has 4097 bytes"},
		"nested deeply":                   {strings.Repeat("[", 4096), "parse the result"},
		"two documents":                   {clean + "\n" + clean, "parse the result"},
		"text after the document":         {clean + " done", "parse the result"},
		"NUL bytes after the document":    {clean + "\x00", "NUL"},
		"NUL bytes inside":                {with(t, "S-1", "S\x001"), "NUL"},
		"an escaped NUL":                  {with(t, "S-1", `S\u0000`), "device.serial"},
		"not UTF-8":                       {with(t, "S-1", "S\xff"), "not UTF-8"},
		"a byte order mark":               {"\ufeff" + clean, "parse the result"},
		"an unknown field":                {with(t, `"verdict"`, `"extra":1,"verdict"`), `unknown field "extra"`},
		"an unknown field of a check":     {with(t, `"name":"bar0"`, `"name":"bar0","extra":1`), `unknown field`},
		"a repeated verdict":              {with(t, `"verdict":"Clean",`, `"verdict":"Dirty","reason":"x","verdict":"Clean",`), `duplicate field "verdict"`},
		"a repeated field of a check":     {with(t, `"bytes":16777216`, `"bytes":0,"bytes":16777216`), `duplicate field`},
		"a field in other case":           {with(t, `"verdict":"Clean",`, `"Verdict":"Clean",`), "unknown field"},
		"no apiVersion":                   {with(t, `"apiVersion":"kata-vfio.dev/v1alpha1",`, ""), "want a SanitizeResult"},
		"another version":                 {with(t, "v1alpha1", "v1"), "want a SanitizeResult"},
		"another kind":                    {with(t, "SanitizeResult", "List"), "want a SanitizeResult"},
		"no kind":                         {with(t, `"kind":"SanitizeResult",`, ""), "want a SanitizeResult"},
		"no verdict":                      {with(t, `"verdict":"Clean",`, ""), "verdict is missing"},
		"verdict null":                    {with(t, `"verdict":"Clean"`, `"verdict":null`), "verdict is missing"},
		"another verdict":                 {with(t, `"verdict":"Clean"`, `"verdict":"clean"`), `verdict is "clean"`},
		"the verdict Interrupted":         {with(t, `"verdict":"Clean",`, `"verdict":"Interrupted","reason":"x",`), "verdict is"},
		"dirty without a reason":          {with(t, `"verdict":"Clean",`, `"verdict":"Dirty",`), "reason is missing"},
		"dirty with an empty reason":      {with(t, `"verdict":"Clean",`, `"verdict":"Dirty","reason":" ",`), "reason is missing"},
		"a reason of two lines":           {with(t, `"verdict":"Clean",`, `"verdict":"Dirty","reason":"a\nb",`), "want one line"},
		"a reason for the terminal":       {with(t, `"verdict":"Clean",`, `"verdict":"Dirty","reason":"\u001b[31m",`), "want one line"},
		"a reason that turns text around": {with(t, `"verdict":"Clean",`, `"verdict":"Dirty","reason":"\u202e",`), "want one line"},
		"a long reason":                   {with(t, `"verdict":"Clean",`, `"verdict":"Dirty","reason":"`+strings.Repeat("x", 1025)+`",`), "1025 bytes"},
		"clean without a device":          {with(t, `"device":{"vendor":"0x1234","device":"0x1111","serial":"S-1"},`, ""), "device is missing"},
		"a device without a vendor":       {with(t, `"vendor":"0x1234",`, ""), "device.vendor"},
		"an id without 0x":                {with(t, "0x1234", "1234"), "device.vendor"},
		"an id in capitals":               {with(t, "0x1111", "0x11AB"), "device.device"},
		"an id that is a number":          {with(t, `"0x1234"`, "4660"), "parse the result"},
		"clean without checks":            {with(t, "["+check+"]", "[]"), "checks is missing or empty"},
		"clean and checks null":           {with(t, "["+check+"]", "null"), "checks is missing or empty"},
		"clean and no list of checks":     {with(t, `"checks":[`+check+`],`, ""), "checks is missing or empty"},
		"a check of 0 bytes":              {with(t, "16777216", "0"), "checks[0].bytes is 0"},
		"a check of -1 bytes":             {with(t, "16777216", "-1"), "parse the result"},
		"a check of 1.5 bytes":            {with(t, "16777216", "1.5"), "parse the result"},
		"a check of 2^64 bytes":           {with(t, "16777216", "18446744073709551616"), "parse the result"},
		"a check without bytes":           {with(t, `"bytes":16777216,`, ""), "checks[0].bytes is missing"},
		"a check without seconds":         {with(t, `,"seconds":1.5`, ""), "checks[0].seconds is missing"},
		"a check with seconds null":       {with(t, `"seconds":1.5`, `"seconds":null`), "checks[0].seconds is missing"},
		"a check of less than no time":    {with(t, "1.5", "-1.5"), "checks[0].seconds"},
		"a check of endless time":         {with(t, "1.5", "1e999"), "parse the result"},
		"a check without a name":          {with(t, `"name":"bar0",`, ""), "checks[0].name"},
		"a check with a space in a name":  {with(t, "bar0", "bar 0"), "checks[0].name"},
		"a check with a long name":        {with(t, "bar0", strings.Repeat("b", 64)), "checks[0].name"},
		"a check without a method":        {with(t, `"method":"FillVerifyZeroVerify",`, ""), "checks[0].method"},
		"a check without a verdict":       {with(t, `Verify","verdict":"Clean",`, `Verify",`), "checks[0].verdict is missing"},
		"a clean result of a dirty check": {with(t, `Verify","verdict":"Clean"`, `Verify","verdict":"Dirty","reason":"x"`), "checks[0].verdict is Dirty"},
		"a dirty check without a reason":  {with(t, `Verify","verdict":"Clean"`, `Verify","verdict":"Dirty"`), "checks[0].reason is missing"},
		"two checks of one name":          {with(t, check, check+","+check), "checks[1].name"},
		"33 checks":                       {with(t, check, strings.Repeat(`{"bytes":1,"seconds":1},`, 32)+`{"bytes":1,"seconds":1}`), "33 entries"},
		"a pattern that is not ASCII":     {with(t, "random seed", "zufällig"), "checks[0].pattern"},
		"two measurements of one name":    {with(t, vbios, vbios+","+vbios), "firmware[1].name"},
		"33 measurements":                 {with(t, vbios, strings.Repeat(`{},`, 32)+"{}"), "33 entries"},
		"an unknown algorithm":            {with(t, `"version"`, `"md5"`), "firmware[0].algorithm"},
		"an empty measurement":            {with(t, "90.04.30", ""), "firmware[0].value"},
		"a long measurement":              {with(t, "90.04.30", strings.Repeat("9", 257)), "firmware[0].value"},
		"a short hash":                    {with(t, `"version","value":"90.04.30"`, `"sha256","value":"ab"`), "firmware[0].value"},
		"a hash in capitals":              {with(t, `"version","value":"90.04.30"`, `"sha256","value":"`+strings.Repeat("AB", 32)+`"`), "firmware[0].value"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := sanitize.Parse([]byte(row.message))
			if err == nil {
				t.Fatalf("got %+v, want an error with %q", got, row.want)
			}
			if !strings.Contains(err.Error(), row.want) || len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\n\x00\x1b") {
				t.Errorf("got %q, want one short line with %q", err, row.want)
			}
		})
	}
}

// TestEncodeRefuses refuses to write what Parse refuses to read.
func TestEncodeRefuses(t *testing.T) {
	r := &sanitize.Result{APIVersion: sanitize.APIVersion, Kind: sanitize.Kind, Verdict: sanitize.Clean}
	if document, err := r.Encode(); err == nil {
		t.Errorf("got %s, want an error: a clean result has checks", document)
	}
}

func TestDeviceOf(t *testing.T) {
	got := sanitize.NewDevice(pci.VendorNVIDIA, 0x1eb8)
	if want := (sanitize.Device{Vendor: "0x10de", Device: "0x1eb8"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"read: input/output error":      "read: input/output error",
		"two\nlines\x00 and \x1b[1mout": "two lines and [1mout",
		"broken \xff here":              "broken here",
		strings.Repeat("ä", 600):        strings.Repeat("ä", 510) + "...",
	} {
		if got := sanitize.OneLine(text); got != want {
			t.Errorf("OneLine(%q): got %q, want %q", text, got, want)
		}
	}
}

// TestWorse orders the verdicts.
func TestWorse(t *testing.T) {
	for _, row := range []struct{ a, b, want sanitize.Verdict }{
		{sanitize.Clean, sanitize.Clean, sanitize.Clean},
		{sanitize.Clean, sanitize.Unknown, sanitize.Unknown},
		{sanitize.Dirty, sanitize.Unknown, sanitize.Dirty},
		{sanitize.Clean, sanitize.Dirty, sanitize.Dirty},
		{sanitize.Clean, "", sanitize.Unknown},
	} {
		if got := row.a.Worse(row.b); got != row.want || row.b.Worse(row.a) != row.want {
			t.Errorf("%q and %q: got %s, want %s", row.a, row.b, got, row.want)
		}
	}
}

// FuzzParse: whatever is read can be written, and is then read as the same, and no error shows control characters.
func FuzzParse(f *testing.F) {
	f.Add(clean)
	f.Add(`{"apiVersion":"kata-vfio.dev/v1alpha1","kind":"SanitizeResult","verdict":"Unknown","reason":"no device"}`)
	f.Add(with(f, `"verdict":"Clean",`, `"verdict":"Dirty","reason":"bar0 \u00e4",`))
	f.Add(clean + clean)
	f.Add(clean + "\x00")
	f.Add(`{"verdict":"Clean","verdict":"Dirty"}`)
	f.Fuzz(func(t *testing.T, message string) {
		got, err := sanitize.Parse([]byte(message))
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x00\x1b") {
				t.Errorf("the error %q is not one printable line", err)
			}
			return
		}
		document, err := got.Encode()
		if err != nil {
			t.Fatalf("%+v was read and can't be written: %v", got, err)
		}
		again, err := sanitize.Parse(document)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, again, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("read, written and read (-first +second):\n%s", diff)
		}
		if got.Verdict == sanitize.Clean && (got.Device == nil || len(got.Checks) == 0) {
			t.Errorf("a clean result without device or checks: %s", message)
		}
	})
}

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command/commandtest"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// UIDs of the claims in testdata.
const (
	oneUID1 = "9f1c2d3e-4b5a-6978-8796-a5b4c3d2e1f0"
	oneUID2 = "9f1c2d3e-4b5a-6978-8796-a5b4c3d2e1f1"
)

// newRoot returns the root of a node with a GPU alone, one with its audio
// function, one with companions, VFs, and one beside a busy disk. It is a plain
// tree: nothing acts on what is written to it.
func newRoot(t *testing.T) string {
	t.Helper()
	k := sysfstest.New(t)
	k.AddGPU(0x3b)
	k.AddGPUWithAudio(0x62, 15)
	k.AddNIC(0x21, 2)
	k.AddWithBusyMate(0x50, 20)
	k.AddGPUWithCompanions(0x70)
	return k.Root()
}

// result is the result of a command for its caller.
type result struct {
	stdout, stderr string
	code           int
}

// invoke runs the command line as main does.
func invoke(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := newCommand(&stdout, &stderr)
	cmd.SetArgs(append([]string{}, args...)) // nil would be our own command line
	code := 0
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		code = fail(&stderr, err)
	}
	return result{stdout.String(), stderr.String(), code}
}

// tree returns the files below a directory with their content, except for locks.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		content := d.Type().String()
		if d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = string(data)
		}
		all[path] = content
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// golden compares output with a file, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// TestPlanOutput: what plan prints, the same each time, and touches nothing.
func TestPlanOutput(t *testing.T) {
	root := newRoot(t)
	before := tree(t, root)
	for _, claim := range []string{"one", "pair", "three"} {
		for _, format := range []string{"table", "json", "yaml"} {
			t.Run(claim+" "+format, func(t *testing.T) {
				args := []string{"plan", "--root", root, "-f", "testdata/" + claim + "-claim.yaml", "-o", format}
				first := invoke(t, args...)
				if first.code != 0 || first.stderr != "" {
					t.Fatalf("exit code %d: %s", first.code, first.stderr)
				}
				golden(t, claim+"-plan."+format, first.stdout)
				for line := range strings.SplitSeq(first.stdout, "\n") {
					if strings.TrimRight(line, " ") != line || len(line) > 110 {
						t.Errorf("line ends in blanks or has more than 110 columns: %q", line)
					}
				}
				again := invoke(t, append([]string{"prepare", "--dry-run"}, args[1:]...)...)
				if again.stdout != first.stdout {
					t.Errorf("prepare --dry-run differs (-plan +dry run):\n%s", cmp.Diff(first.stdout, again.stdout))
				}
			})
		}
	}
	if diff := cmp.Diff(before, tree(t, root)); diff != "" {
		t.Errorf("plan touched the node (-before +after):\n%s", diff)
	}
}

// TestPlanSteps: the part that machines rely on.
func TestPlanSteps(t *testing.T) {
	got := invoke(t, "plan", "--root", newRoot(t), "-f", "testdata/one-claim.yaml", "-o", "json")
	var pl struct {
		Steps []struct{ Operation, Address, DriverBefore, DriverAfter string }
	}
	if err := json.Unmarshal([]byte(got.stdout), &pl); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, s := range pl.Steps {
		lines = append(lines, s.Operation+" "+s.Address+" "+s.DriverBefore+" > "+s.DriverAfter)
	}
	want := []string{"unbind 0000:3b:00.0 nvidia > ", "override 0000:3b:00.0  > ", "probe 0000:3b:00.0  > vfio-pci"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

// TestRefusal: it names culprit, driver and fix, one reason to a line.
func TestRefusal(t *testing.T) {
	root := newRoot(t)
	got := invoke(t, "plan", "--root", root, "-f", "testdata/refused-claim.yaml", "-o", "json")
	if got.code != exitRefused || got.stdout != "" {
		t.Errorf("exit code %d, stdout %q", got.code, got.stdout)
	}
	golden(t, "refused.stderr", got.stderr)
}

// TestUsage: what is wrong with the command line or an input is said before
// anything is touched, with exit code 2.
// TestPlanComparesThePoolOfANamedNode: a claim of worker-1 is none of worker-2, which has
// functions at the same addresses.
func TestPlanComparesThePoolOfANamedNode(t *testing.T) {
	root := newRoot(t)
	for _, verb := range [][]string{{"plan"}, {"prepare", "--dry-run"}} {
		args := slices.Concat(verb, []string{"--root", root, "-f", "testdata/one-claim.yaml", "--node-name"})
		if got := invoke(t, slices.Concat(args, []string{"worker-1"})...); got.code != 0 {
			t.Errorf("%v on its node: exit code %d: %s", verb, got.code, got.stderr)
		}
		got := invoke(t, slices.Concat(args, []string{"worker-2"})...)
		if got.code != exitRefused || !strings.Contains(got.stderr, "allocated from pool worker-1/kata-vfio.dev, but the names of this node's pools begin with worker-2/kata-vfio.dev") {
			t.Errorf("%v on another node: exit code %d: %s", verb, got.code, got.stderr)
		}
	}
}

func TestUsage(t *testing.T) {
	root := newRoot(t)
	before := tree(t, root)
	const claim = "testdata/one-claim.yaml"
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"unknown command":                     {[]string{"bind"}, `unknown command "bind"`},
		"unknown flag":                        {[]string{"status", "--rot", "/"}, "unknown flag: --rot"},
		"unknown format":                      {[]string{"status", "-o", "xml"}, `--output "xml": want table, json or yaml`},
		"argument of status":                  {[]string{"status", "x"}, `unexpected argument "x"`},
		"plan without a claim":                {[]string{"plan"}, "name its file with -f claim.yaml"},
		"no such claim file":                  {[]string{"plan", "-f", "testdata/nothing.yaml"}, "no such file"},
		"a claim of others":                   {[]string{"plan", "-f", "testdata/foreign-claim.yaml"}, "kata-vfio.dev"},
		"a malformed claim":                   {[]string{"plan", "-f", "command_test.go"}, "claim file command_test.go"},
		"unprepare of nothing":                {[]string{"unprepare"}, "the claim's UID"},
		"unprepare of two":                    {[]string{"unprepare", "a", "b"}, "want one argument"},
		"no such root":                        {[]string{"status", "--root", "testdata/nothing"}, "no such file"},
		"no such root, plan":                  {[]string{"plan", "--root", "testdata/nothing", "-f", claim}, "no such file"},
		"no such config":                      {[]string{"plan", "--config", "testdata/nothing", "-f", claim}, "read the node config"},
		"a config that is none":               {[]string{"plan", "--config", claim, "-f", claim}, "node config testdata/one-claim.yaml"},
		"run without a node":                  {[]string{"run", "--node-name", ""}, "$NODE_NAME"},
		"run on a node with a long name":      {[]string{"run", "--node-name", strings.Repeat("n", 220)}, "has 220 characters"},
		"run in another format":               {[]string{"run", "--node-name", "n", "--log-format", "xml"}, "want text or json"},
		"run at another level":                {[]string{"run", "--node-name", "n", "--log-level", "trace"}, "want debug, info, warn or error"},
		"run with a collector that is no URL": {[]string{"run", "--node-name", "n", "--otlp-endpoint", "collector:4317"}, "want a URL"},
		"run with public profiles":            {[]string{"run", "--node-name", "n", "--pprof", ":9457"}, "want a loopback address"},
		"an unknown profile":                  {[]string{"run", "--node-name", "n", "--audit-profile", "x"}, `there is no such profile`},
		"a certificate alone":                 {[]string{"run", "--node-name", "n", "--metrics-cert-file", "tls.crt"}, "set both or neither"},
		"a key alone":                         {[]string{"run", "--node-name", "n", "--metrics-key-file", "tls.key"}, "set both or neither"},
		"an open certificate":                 {[]string{"run", "--node-name", "n", "--metrics-open", "--metrics-cert-file", "tls.crt", "--metrics-key-file", "tls.key"}, "--metrics-open serves plain HTTP"},
		"an unknown severity":                 {[]string{"run", "--node-name", "n", "--audit-taint", "x"}, "want one of critical, high, medium, low, info, off"},
		"looks without end":                   {[]string{"run", "--node-name", "n", "--audit-every", "1ms"}, "want a second or more"},
		"events for less than no time":        {[]string{"run", "--node-name", "n", "--ledger-retention", "-1h"}, "--ledger-retention -1h0m0s: want a positive duration"},
		"a ledger below nothing":              {[]string{"run", "--node-name", "n", "--ledger-max-bytes", "-1"}, "--ledger-max-bytes -1: want a positive number"},
		"a retention by hand":                 {[]string{"drain", "--ledger-retention", "1h", "0000:3b:00.0"}, "unknown flag: --ledger-retention"},
		"looks too seldom":                    {[]string{"run", "--node-name", "n", "--audit-every", "1h"}, "and 15m0s at most"},
		"prepare a plain tree":                {[]string{"prepare", "-f", claim}, "is a plain directory and not the kernel's sysfs"},
		"unprepare there":                     {[]string{"unprepare", oneUID1}, "plan, status and --dry-run work on such a tree"},
		"recover there":                       {[]string{"recover"}, "is a plain directory"},
	} {
		t.Run(name, func(t *testing.T) {
			args := tt.args
			if !strings.Contains(strings.Join(args, " "), "--root") && args[0] != "bind" {
				args = append(args, "--root", root)
			}
			got := invoke(t, args...)
			if got.code != exitUsage || !strings.Contains(got.stderr, tt.want) || got.stdout != "" {
				t.Errorf("exit code %d, stderr %q, stdout %q; want 2 and %q", got.code, got.stderr, got.stdout, tt.want)
			}
			if strings.Count(strings.TrimSpace(got.stderr), "\n") > 1 {
				t.Errorf("more than one error:\n%s", got.stderr)
			}
		})
	}
	if diff := cmp.Diff(before, tree(t, root)); diff != "" {
		t.Errorf("the node was touched (-before +after):\n%s", diff)
	}
}

// TestWarnings: a rule of the config that fits nothing may be why a claim is
// refused, so both are said.
func TestWarnings(t *testing.T) {
	got := invoke(t, "plan", "--root", newRoot(t), "--config", "testdata/node.yaml", "-f", "testdata/one-claim.yaml")
	if got.code != exitRefused {
		t.Errorf("exit code %d", got.code)
	}
	golden(t, "warnings.stderr", got.stderr)
}

// TestWhyNot: without privileges, and on a read-only /sys, there is one clear
// error with the way out.
func TestWhyNot(t *testing.T) {
	for _, tt := range []struct {
		access error
		want   string
	}{
		{nil, ""},
		{unix.EROFS, "mount it read-write"},
		{unix.EACCES, "run as root"},
		{unix.EPERM, "run as root"},
		{unix.ENOENT, "has no PCI bus"},
		{unix.EIO, "input/output error"},
	} {
		err := whyNot("/host/sys", true, tt.access)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.access, err, tt.want)
		}
	}
}

// seed puts records of an earlier boot into the node's journal.
func seed(t *testing.T, root string) {
	t.Helper()
	seedOf(t, root, "boot-1")
}

// bootID returns the boot of the node at root.
func bootID(t *testing.T, root string) string {
	t.Helper()
	boot, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(boot))
}

// seedOf puts records of a boot into the node's journal.
func seedOf(t *testing.T, root, boot string) {
	t.Helper()
	for file, state := range map[string]journal.State{"one": journal.Prepared, "three": journal.Quarantined} {
		got := invoke(t, "plan", "--root", root, "-f", "testdata/"+file+"-claim.yaml", "-o", "json")
		rec := journal.Record{Kind: journal.Claim, State: state, BootID: boot, Since: "2026-11-20T10:00:00Z"}
		if err := json.Unmarshal([]byte(got.stdout), &rec.Plan); err != nil {
			t.Fatal(err)
		}
		if state == journal.Quarantined {
			rec.Reason = "reset 0000:62:00.0 by vfio_hot_reset: input/output error"
		}
		store, err := journal.Open(filepath.Join(root, "var/lib/kata-vfio/journal"))
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Save(&rec); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStatusOutput: who has what, for people and for machines.
func TestStatusOutput(t *testing.T) {
	root := newRoot(t)
	if got := invoke(t, "status", "--root", root); !strings.HasPrefix(got.stdout, "There is no journal in "+root) || got.code != 0 {
		t.Errorf("of a node where the plugin never was: %+v", got)
	}
	if _, err := journal.Open(filepath.Join(root, "var/lib/kata-vfio/journal")); err != nil {
		t.Fatal(err)
	}
	if got := invoke(t, "status", "--root", root); got.stdout != "No claim has a device of this node.\n" || got.code != 0 {
		t.Errorf("of an idle node: %+v", got)
	}
	if got := invoke(t, "status", "--root", root, "-o", "json"); got.stdout != "{\n  \"records\": []\n}\n" {
		t.Errorf("of an idle node: %+v", got)
	}
	seedOf(t, root, bootID(t, root))
	before := tree(t, root)
	for _, format := range []string{"table", "json", "yaml"} {
		got := invoke(t, "status", "--root", root, "-o", format)
		if got.code != 0 || got.stderr != "" {
			t.Errorf("exit code %d: %s", got.code, got.stderr)
		}
		golden(t, "status."+format, got.stdout)
	}
	for _, uid := range []string{oneUID1, oneUID2} {
		got := invoke(t, "unprepare", "--dry-run", "--root", root, uid)
		golden(t, "release-"+uid[len(uid)-1:]+".table", got.stdout)
	}
	if got := invoke(t, "unprepare", "--dry-run", "--root", root, "nobody"); !strings.Contains(got.stdout, "nobody has nothing on this node") {
		t.Errorf("of a claim that is not here: %+v", got)
	}
	if diff := cmp.Diff(before, tree(t, root)); diff != "" {
		t.Errorf("the node was touched (-before +after):\n%s", diff)
	}
}

// TestUnprepareDryRunAfterARestart shows that nothing of an earlier boot is reset or bound, as Unprepare does it.
func TestUnprepareDryRunAfterARestart(t *testing.T) {
	root := newRoot(t)
	seed(t, root)
	got := invoke(t, "unprepare", "--dry-run", "--root", root, oneUID1)
	if got.stdout != "The node was restarted since claim "+oneUID1+" was prepared: only its record and its CDI spec are removed.\n" {
		t.Errorf("%+v", got)
	}
	got = invoke(t, "unprepare", "--dry-run", "--root", root, oneUID2) // a quarantine is tested again, for which it is bound first
	if !strings.Contains(got.stdout, "1     unbind     0000:21:02.0  igbvf -> -") {
		t.Errorf("%+v", got)
	}
}

// TestProvisionShowsWhatItWouldDo: and fails where the config can't be had.
func TestProvisionShowsWhatItWouldDo(t *testing.T) {
	root := newRoot(t)
	config := filepath.Join(t.TempDir(), "node.yaml")
	write := func(rules string) {
		text := "apiVersion: " + v1alpha1.APIVersion + "\nkind: NodeConfig\nvirtualFunctions: " + rules + "\n"
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("[]")
	if got := invoke(t, "provision", "--root", root, "--config", config, "--dry-run"); got.code != 0 || got.stdout != "The node's config names no virtualFunctions.\n" {
		t.Errorf("nothing asked for: %+v", got)
	}
	write(`[{pf: "0000:21:00.0", count: 4, eswitchMode: Switchdev}]`) // this tree has no kernel to ask
	if got := invoke(t, "provision", "--root", root, "--config", config, "--dry-run"); got.code != exitFailed ||
		!containsAll(got.stdout, []string{"4 switchdev", "left as it is"}) || !strings.Contains(got.stderr, "eswitchMode: read the eswitch mode of 0000:21:00.0: find the node's network namespace") {
		t.Errorf("a mode: %+v", got)
	}
	write(`[{pf: "0000:21:00.0", count: 4}, {pf: ens9, count: 1}]`)
	got := invoke(t, "provision", "--root", root, "--config", config, "--dry-run")
	for _, words := range [][]string{{"0000:21:00.0", "4", "would change"}, {"ens9", "left as it is"}} {
		if !slices.ContainsFunc(strings.Split(got.stdout, "\n"), func(line string) bool { return containsAll(line, words) }) {
			t.Errorf("no line with %v:\n%s", words, got.stdout)
		}
	}
	if got.code != exitFailed || !strings.Contains(got.stderr, "ens9") || !strings.Contains(got.stderr, "no such PF") {
		t.Errorf("code %d, stderr %q", got.code, got.stderr)
	}
	if got := invoke(t, "provision", "--root", root, "--config", config, "--dry-run", "-o", "json"); !strings.Contains(got.stdout, `"want": 4`) {
		t.Errorf("json: %s", got.stdout)
	}
}

// TestProvisionSaysWhatFailed: a PF whose change began is not as it was, because its VFs are removed first.
func TestProvisionSaysWhatFailed(t *testing.T) {
	for want, p := range map[string]plan.Provision{
		"failed":        {Have: 4, Want: 8, Refused: "write sriov_numvfs: no space", Failed: true},
		"left as it is": {Have: 4, Want: 8, Refused: "a VF is in use"},
		"right":         {Have: 8, Want: 8},
		"changed":       {Have: 4, Want: 8},
	} {
		var out strings.Builder
		if err := printProvisions(&out, "table", []plan.Provision{p}, false); err != nil || !strings.HasSuffix(out.String(), "  "+want+"\n") {
			t.Errorf("%+v: got %q, %v; want the result %q", p, &out, err, want)
		}
	}
}

func containsAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

// TestStatusOfAFunctionThatIsNotClean: a user who asks why a pod's start takes a reset
// more finds it here.
func TestStatusOfAFunctionThatIsNotClean(t *testing.T) {
	root := newRoot(t)
	store, err := journal.Open(filepath.Join(root, "var/lib/kata-vfio/journal"))
	if err != nil {
		t.Fatal(err)
	}
	mark := journal.ResetMark{Address: pci.Address{Bus: 0x3b}, Claim: "7d2f1c90", Why: "the node went down before a reset", Since: "2026-01-02T03:04:05Z"}
	if err := store.MarkNeedsReset(t.Context(), mark); err != nil {
		t.Fatal(err)
	}
	want := "No claim has a device of this node.\n\n0000:3b:00.0 has had no proven reset since claim 7d2f1c90, 2026-01-02T03:04:05Z: " +
		"the node went down before a reset; the next claim whose class asks for resets has it reset first\n"
	if got := invoke(t, "status", "--root", root); got.stdout != want || got.code != 0 {
		t.Errorf("%+v, want\n%s", got, want)
	}
	if got := invoke(t, "status", "--root", root, "-o", "json"); !strings.Contains(got.stdout, `"why": "the node went down before a reset"`) {
		t.Errorf("json: %s", got.stdout)
	}
}

// TestStatusOfADamagedRecordAlone: whose devices it tells of is not known, and not
// said to be nobody's.
func TestStatusOfADamagedRecordAlone(t *testing.T) {
	root := newRoot(t)
	dir := filepath.Join(root, "var/lib/kata-vfio/journal")
	if _, err := journal.Open(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, oneUID2+".json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := invoke(t, "status", "--root", root)
	if got.code != exitFailed || strings.Contains(got.stdout, "No claim has a device") || !strings.Contains(got.stdout, "It is unknown which claims") {
		t.Errorf("%+v", got)
	}
}

// TestStatusOfADamagedRecord: the others are shown, the file is named, and the
// exit code tells a script.
func TestStatusOfADamagedRecord(t *testing.T) {
	root := newRoot(t)
	seed(t, root)
	path := filepath.Join(root, "var/lib/kata-vfio/journal", oneUID2+".json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := invoke(t, "status", "--root", root)
	if got.code != exitFailed || !strings.Contains(got.stdout, oneUID1) || !strings.Contains(got.stderr, path) {
		t.Errorf("%+v", got)
	}
	got = invoke(t, "status", "--root", root, "-o", "json")
	if !strings.Contains(got.stdout, `"damaged": [`) || !strings.Contains(got.stdout, path) {
		t.Errorf("json: %s", got.stdout)
	}
}

// TestExitCodes: each kind of error has its own, also when wrapped.
func TestExitCodes(t *testing.T) {
	refused := &rule.RefusedError{}
	for _, tt := range []struct {
		err  error
		want int
	}{
		{errors.New("x"), exitFailed},
		{command.Usagef("x"), exitUsage},
		{errors.Join(errors.New("x"), refused), exitRefused},
	} {
		if got := exitCode(tt.err); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.err, got, tt.want)
		}
	}
}

// TestRefusalWithOtherErrors: what failed beside a refusal is said too, and no text reaches the terminal as a command.
func TestRefusalWithOtherErrors(t *testing.T) {
	refused := &rule.RefusedError{Subject: "claim a/b", Verdicts: []rule.Verdict{{
		Device: "gpu", Text: "it has \x1b[2J", Code: rule.NotIsolated, Fix: "move it", Err: errors.New("a cause"),
	}}}
	const refusal = "kata-vfio-plugin: claim a/b is refused:\n  gpu: it has \\x1b[2J (NotIsolated)\n      fix: move it\n"
	for _, tt := range []struct {
		err  error
		want string
	}{
		{refused, refusal},
		{fmt.Errorf("plan: %w", refused), refusal},
		{errors.Join(refused, errors.New("close the ledger: no space")), refusal + "kata-vfio-plugin: close the ledger: no space\n"},
		{fmt.Errorf("prepare: %w", errors.Join(errors.New("undo"), fmt.Errorf("plan: %w", refused))), "kata-vfio-plugin: undo\n" + refusal},
	} {
		var got strings.Builder
		if code := fail(&got, tt.err); code != exitRefused || got.String() != tt.want {
			t.Errorf("%v: exit code %d and\n%swant %d and\n%s", tt.err, code, &got, exitRefused, tt.want)
		}
	}
}

// TestCompletion: the shell offers what fits.
func TestCompletion(t *testing.T) {
	root := newRoot(t)
	seed(t, root)
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"formats":     {[]string{"status", "-o", ""}, "table\njson\nyaml\n"},
		"claims":      {[]string{"unprepare", "--root", root, ""}, oneUID1 + "\tteam-a/train\n" + oneUID2 + "\tteam-a/three\n"},
		"only one":    {[]string{"unprepare", "--root", root, oneUID1, ""}, ":4"},
		"no argument": {[]string{"status", ""}, ":4"},
		"YAML files":  {[]string{"plan", "-f", ""}, "yaml\nyml\njson\n:8"},
	} {
		got := invoke(t, append([]string{"__complete"}, tt.args...)...)
		if !strings.HasPrefix(got.stdout, tt.want) {
			t.Errorf("%s: %q, want %q", name, got.stdout, tt.want)
		}
	}
}

// TestHelp: every command says what it does, by example where it takes input,
// and what its exit codes mean.
func TestHelp(t *testing.T) {
	for _, cmd := range newCommand(nil, nil).Commands() {
		if cmd.Name() == "version" || cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		help := invoke(t, cmd.Name(), "--help").stdout
		if !strings.Contains(help, "Examples:") || cmd.Name() != "run" && !strings.Contains(help, "Exit codes:") {
			t.Errorf("help of %s lacks examples or exit codes:\n%s", cmd.Name(), help)
		}
	}
	if got := invoke(t); got.code != 0 || !strings.Contains(got.stdout, "Available Commands:") {
		t.Errorf("without arguments: %+v", got)
	}
	if got := invoke(t, "version"); got.code != 0 || strings.TrimSpace(got.stdout) == "" {
		t.Errorf("version: %+v", got)
	}
}

func TestCommandsAreAlike(t *testing.T) { commandtest.Check(t, newCommand(io.Discard, io.Discard)) }

// TestStatusOfANodeThatRefusesClaims: the plugin says so in the file that it writes when it publishes, and only that of this boot
// counts.
func TestStatusOfANodeThatRefusesClaims(t *testing.T) {
	root := newRoot(t)
	boot, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "run/kata-vfio/published.json")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{strings.TrimSpace(string(boot)): true, "earlier": false} {
		content := `{"bootID": "` + id + `", "devices": [], "notReady": {"obstacle": "DiskFull", "text": "free 20 MiB there"}}`
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, format := range []string{"table", "json"} {
			got := invoke(t, "status", "--root", root, "-o", format)
			if strings.Contains(got.stdout, "DiskFull") != want || strings.Contains(got.stdout, "free 20 MiB there") != want {
				t.Errorf("boot %s: %+v; want why the node refuses claims: %t", id, got, want)
			}
		}
	}
}

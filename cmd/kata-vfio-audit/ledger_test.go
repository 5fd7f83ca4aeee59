package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// ledgerNode is a node's root with a ledger, of a hostile tenant's claim too, and
// the anchors of its writes.
func ledgerNode(t *testing.T) (root string, anchors []string) {
	t.Helper()
	root = t.TempDir()
	w, err := writer.Open(t.Context(), writer.Config{Dir: filepath.Join(root, ledger.DefaultDir), Node: "gpu-07"})
	if err != nil {
		t.Fatal(err)
	}
	gpu := pci.Address{Bus: 0x3b}
	for _, e := range []ledger.Event{
		{Type: ledger.Prepare, Claim: &ledger.Claim{UID: "u-1", Namespace: "tenant-a", Name: "gpu"}, Devices: []ledger.Device{{Address: gpu}}},
		{
			Type: ledger.Bind, Claim: &ledger.Claim{UID: "u-1", Namespace: "tenant-a", Name: "gpu"},
			Devices: []ledger.Device{{Address: gpu, DriverBefore: new(""), DriverAfter: new("vfio-pci")}},
		},
		{Type: ledger.Reset, Reset: &ledger.ResetProof{Method: "flr", OK: true, Match: true, Milliseconds: 118, Set: []pci.Address{gpu}}},
		{Type: ledger.Refusal, Result: ledger.Refused, Reason: "\x1b[31mred\nline", Claim: &ledger.Claim{UID: "u-2", Namespace: "tenant-b", Name: "x"}},
	} {
		if e.Result == "" {
			e.Result = ledger.OK
		}
		signed, err := w.Append(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		anchors = append(anchors, signed)
	}
	return root, anchors
}

// file writes data to a file of the test's.
func file(t *testing.T, data string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLedgerShow(t *testing.T) {
	root, _ := ledgerNode(t)
	stdout, stderr, err := execute(t, "ledger", "show", "--root", root)
	if err != nil || stderr != "" {
		t.Fatalf("%v, %s", err, stderr)
	}
	for _, want := range []string{"SEQ", "no driver -> vfio-pci", "flr, 118 ms; registers as before; memory not checked", "tenant-a/gpu", "0000:3b:00.0"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not in\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "\x1b") || strings.Count(stdout, "\n") != 5 {
		t.Errorf("a tenant's text changes the table:\n%s", stdout)
	}
	for line, want := range map[string]int{
		"--claim tenant-a/gpu": 2, "--claim u-2": 1, "--device 0000:3b:00.0": 3, "--type reset,bind": 2, "--since 1h": 4, "--until 2020-01-01": 0,
	} {
		stdout, _, err := execute(t, append([]string{"ledger", "show", "-o", "ndjson", "--root", root}, strings.Fields(line)...)...)
		if got := strings.Count(stdout, "\n"); err != nil || got != want {
			t.Errorf("%s: %d events, %v", line, got, err)
		}
	}
	stdout, _, err = execute(t, "ledger", "show", "-o", "json", "--root", root)
	var doc struct{ Events []ledger.Event }
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil || len(doc.Events) != 4 {
		t.Errorf("%v, %d events", err, len(doc.Events))
	}
	if err != nil {
		t.Error(err)
	}
}

func TestLedgerVerify(t *testing.T) {
	root, anchors := ledgerNode(t)
	all := file(t, strings.Join(anchors, "\n"))
	stdout, _, err := execute(t, "ledger", "verify", "--root", root)
	if err != nil || !strings.Contains(stdout, "can't tell whether") {
		t.Errorf("without an anchor: %v\n%s", err, stdout)
	}
	stdout, _, err = execute(t, "ledger", "verify", "--root", root, "--anchor", all, "--key", filepath.Join(root, ledger.DefaultDir, "key.pub"))
	if err != nil || !strings.Contains(stdout, "4 match: events 0 to 3") {
		t.Errorf("with anchors: %v\n%s", err, stdout)
	}
	name := filepath.Join(root, ledger.DefaultDir, ledger.SegmentName(0))
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(strings.Replace(string(data), `"ms":118`, `"ms":119`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, _, err = execute(t, "ledger", "verify", "--root", root, "-o", "json")
	var r ledger.Report
	if jsonErr := json.Unmarshal([]byte(stdout), &r); exitCode(err) != exitLedger || jsonErr != nil || len(r.Problems) != 1 || r.Problems[0].Line != 7 {
		t.Errorf("changed: %v, %v, %+v", err, jsonErr, r)
	}
	if _, _, err := execute(t, "ledger", "prove", "1", "--root", root); exitCode(err) != exitLedger {
		t.Errorf("proof from a changed ledger: %v", err)
	}
}

// TestLedgerVerifyLeavesOutForeignText: whoever can annotate a claim or write an Event must not be able to say that a node's ledger was
// changed. What the plugin wrote into its own entry counts.
func TestLedgerVerifyLeavesOutForeignText(t *testing.T) {
	root, anchors := ledgerNode(t)
	forged := "kata-vfio.dev/gpu-07 999999 " + strings.Repeat("A", 43) + "= — kata-vfio.dev/gpu-07 " + strings.Repeat("A", 96)
	claim := func(text, annotation, pool string) string {
		return fmt.Sprintf(`{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"namespace":"team-a","name":"train","annotations":{"a":%q}},
			"status":{"devices":[{"driver":"kata-vfio.dev","pool":%q,"device":"gpu","data":{"ledger":%q}}]}}`, annotation, pool, ledger.OneLine(text))
	}
	event := func(text string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Event","metadata":{"namespace":"team-a","name":"e"},"message":%q}`, text)
	}
	list := func(objects ...string) string {
		return `{"apiVersion":"v1","kind":"List","items":[` + strings.Join(objects, ",") + `]}`
	}
	for name, test := range map[string]struct {
		input string
		code  int
		says  string
	}{
		"an honest entry":                      {list(claim(anchors[3], "", "gpu-07")), 0, "1 match"},
		"an honest entry of a pool of VFs":     {list(claim(anchors[3], "", "gpu-07/pf-0000-5e-00-0")), 0, "1 match"},
		"an honest Event":                      {list(event("prepared; ledger " + ledger.OneLine(anchors[2]))), 0, "1 match"},
		"a forged annotation":                  {list(claim(anchors[3], forged, "gpu-07"), event(forged)), 0, "left out (1): the ledger's key did not sign what ResourceClaim team-a/train has"},
		"a forged Event alone":                 {list(event(forged)), 0, "what Event team-a/e has"},
		"a forged entry of another node":       {list(claim(anchors[3], "", "gpu-07"), claim(forged, "", "gpu-08")), 0, "left out (1)"},
		"a forged entry of the node":           {list(claim(forged, "", "gpu-07")), exitLedger, "did not sign an anchor of size 999999"},
		"a typed list":                         {`{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaimList","items":[` + strings.Replace(claim(forged, "", "gpu-07"), `"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim",`, "", 1) + `]}`, exitLedger, "did not sign"},
		"a forged line of a log":               {"I say: " + forged + "\nledger " + ledger.OneLine(anchors[1]), 0, "1 match"},
		"a forged text of YAML":                {"apiVersion: v1\nkind: Event\nmessage: " + forged + "\n", 0, "left out (1)"},
		"a forged note in a file of the admin": {forged + "\n", exitLedger, "did not sign"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, _, err := execute(t, "ledger", "verify", "--root", root, "--anchor", file(t, test.input))
			if code := exitCodeOf(err); code != test.code || !strings.Contains(stdout, test.says) {
				t.Errorf("exit code %d (%v), want %d with %q:\n%s", code, err, test.code, test.says, stdout)
			}
		})
	}
	if _, _, err := execute(t, "ledger", "verify", "--dir", t.TempDir(), "--anchor", file(t, list(event(forged)))); exitCode(err) == exitLedger {
		t.Errorf("an Event makes a ledger that never was a deleted one: %v", err)
	}
}

func TestLedgerProve(t *testing.T) {
	root, anchors := ledgerNode(t)
	key := filepath.Join(root, ledger.DefaultDir, "key.pub")
	for _, args := range [][]string{{"2"}, {"--from", file(t, anchors[1])}} {
		proof, _, err := execute(t, append([]string{"ledger", "prove", "--root", root}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		stdout, _, err := execute(t, "ledger", "verify", "--proof", file(t, proof), "--key", key)
		if err != nil || !strings.Contains(stdout, "✓") || !strings.Contains(stdout, "gpu-07, as it was with 4 events") {
			t.Errorf("%v: %v\n%s", args, err, stdout)
		}
		_, _, err = execute(t, "ledger", "verify", "--proof", file(t, strings.Replace(proof, "118", "119", 1)+" "), "--key", key)
		if changed := strings.Contains(proof, "118"); changed != (exitCode(err) == exitLedger) {
			t.Errorf("%v, changed: %v", args, err)
		}
	}
}

// TestLedgerThatWasDeletedIsFound by every command that answers from it, by whatever still knows of it.
func TestLedgerThatWasDeletedIsFound(t *testing.T) {
	deleted := func(left ...string) (root, anchor string) {
		t.Helper()
		root, anchors := ledgerNode(t)
		place := filepath.Join(root, ledger.DefaultDir)
		for _, e := range readDir(t, place) {
			if slices.Contains(left, e) {
				continue
			}
			if err := os.Remove(filepath.Join(place, e)); err != nil {
				t.Fatal(err)
			}
		}
		if len(left) == 0 {
			if err := os.Remove(place); err != nil {
				t.Fatal(err)
			}
		}
		return root, file(t, anchors[3])
	}
	nothing, anchor := deleted()
	keyed, keyedAnchor := deleted(ledger.PublicKeyFile)
	empty, _ := deleted("append.lock")
	worked, _ := deleted()
	if err := os.MkdirAll(filepath.Join(worked, journal.DefaultDir), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, question := range []string{"ledger verify", "pod a/b", "claim a/b", "device 0000:3b:00.0", "neighbours a/b", "who"} {
		for line, want := range map[string]int{
			" --root " + nothing:                            exitFailed,
			" --root " + nothing + " --anchor " + anchor:    exitLedger,
			" --root " + keyed:                              exitLedger,
			" --root " + keyed + " --anchor " + keyedAnchor: exitLedger,
			" --root " + empty:                              exitFailed,
			" --root " + empty + " --anchor " + anchor:      exitLedger,
			" --root " + worked:                             exitLedger,
			" --dir " + nothing + "/none":                   exitFailed,
			" --dir /no/such --anchor " + anchor:            exitLedger,
		} {
			_, _, err := execute(t, strings.Fields(question+line)...)
			if err == nil || exitCode(err) != want {
				t.Errorf("%s%s: %v, want exit code %d", question, line, err, want)
			}
		}
	}
	stdout, _, _ := execute(t, "ledger", "verify", "--root", keyed, "--anchor", keyedAnchor)
	if !strings.Contains(stdout, "the events are missing") || !strings.Contains(stdout, "an anchor has the size 4, and the ledger 0") {
		t.Errorf("the report:\n%s", stdout)
	}
	for _, command := range []string{"show", "prove 0"} {
		for root, want := range map[string]int{keyed: exitLedger, worked: exitLedger, nothing: exitFailed} {
			_, _, err := execute(t, strings.Fields("ledger "+command+" --root "+root)...)
			if err == nil || exitCode(err) != want {
				t.Errorf("%s: %v, want exit code %d", command, err, want)
			}
		}
	}
	if stdout, _, _ := execute(t, "pod", "a/b", "--root", worked, "--anchor", anchor); strings.Contains(stdout, "lies beside it") || strings.Contains(stdout, "was compared with") {
		t.Errorf("it claims a key, or that no anchor was given:\n%s", stdout)
	}
}

func readDir(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestLedgerExitCodes(t *testing.T) {
	root, anchors := ledgerNode(t)
	other, _ := ledgerNode(t)
	keyless, _ := ledgerNode(t)
	if err := os.Remove(filepath.Join(keyless, ledger.DefaultDir, "key.pub")); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]int{
		"verify --root " + root:                                              0,
		"verify --root " + t.TempDir():                                       exitFailed,
		"verify --root " + keyless:                                           exitLedger,
		"verify --root " + root + " --key nonsense":                          exitUsage,
		"verify --root " + root + " --anchor " + file(t, "nothing"):          exitUsage,
		"verify --root " + root + " --anchor /no/such/file":                  exitUsage,
		"verify --root " + other + " --anchor " + file(t, anchors[0]):        exitLedger,
		"verify --root " + root + " --proof " + file(t, "{}"):                exitUsage,
		"show --root " + root + " --since nonsense":                          exitUsage,
		"show --root " + root + " --device nonsense":                         exitUsage,
		"show --root " + root + " --type nonsense":                           exitUsage,
		"prove --root " + root:                                               exitUsage,
		"prove --root " + root + " 99":                                       exitFailed,
		"prove --root " + other + " --from " + file(t, anchors[0]):           exitLedger,
		"prove --root " + root + " 1 --from " + file(t, anchors[0]):          exitUsage,
		"prove --root " + root + " --from " + file(t, anchors[0]+anchors[1]): exitUsage,
	} {
		_, _, err := execute(t, append([]string{"ledger"}, strings.Fields(line)...)...)
		got := 0
		if err != nil {
			got = exitCode(err)
		}
		if got != want {
			t.Errorf("%s: exit code %d, want %d: %v", line, got, want, err)
		}
	}
}

package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// server is a node in good order, and unsafeServer one where VFIO's no-IOMMU mode is on.
func server(t *testing.T) *board.Tree {
	t.Helper()
	tree := board.Server(t)
	tree.Put("usr/share/misc/pci.ids", "10de  NVIDIA Corporation\n") // in place of this machine's, which is long
	return tree
}

func unsafeServer(t *testing.T) *board.Tree {
	t.Helper()
	tree := server(t)
	tree.SetParameter("vfio", "enable_unsafe_noiommu_mode", "Y")
	return tree
}

func put(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "waivers.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const waived = `waivers:
- {rule: IOM-003, scope: "*", until: "2999-12-31", reason: a test machine, author: alice}
`

// code is the exit code of a command line.
func code(t *testing.T, args ...string) (int, string) {
	t.Helper()
	stdout, _, err := execute(t, args...)
	return exitCodeOf(err), stdout
}

func exitCodeOf(err error) int {
	if err == nil {
		return 0
	}
	return exitCode(err)
}

// TestFailOnGatesAndSeverityShows: neither changes the other's effect, in any
// format.
func TestFailOnGatesAndSeverityShows(t *testing.T) {
	good, bad := server(t).Root(), unsafeServer(t).Root()
	lenient := put(t, waived)
	for _, format := range report.Formats() {
		for about, c := range map[string]struct {
			args  []string
			code  int
			shown bool
		}{
			"a good node": {[]string{"--root", good}, 0, false},
			"a bad one":   {[]string{"--root", bad}, exitFindings, true},
			"less shown":  {[]string{"--root", bad, "--severity", "critical", "--fail-on", "low"}, exitFindings, true},
			"waived":      {[]string{"--root", bad, "--waivers", lenient}, 0, true},
		} {
			got, out := code(t, append([]string{"node", "-o", format}, c.args...)...)
			if got != c.code {
				t.Errorf("%s, %s: exit code %d, want %d", format, about, got, c.code)
			}
			if c.shown && !strings.Contains(out, "IOM-003") || out == "" {
				t.Errorf("%s, %s: the finding is not shown:\n%s", format, about, out)
			}
		}
	}
}

// TestMachinesSeeEveryCheck by default.
func TestMachinesSeeEveryCheck(t *testing.T) {
	_, out := code(t, "node", "-o", "json", "--root", unsafeServer(t).Root())
	var doc finding.Report
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range doc.Findings {
		got = append(got, f.ID)
	}
	for _, c := range checks(t) {
		if !slices.Contains(got, c.ID) {
			t.Errorf("%s is not among the findings", c.ID)
		}
	}
	if doc.Findings[0].ID != "IOM-003" || doc.Findings[0].State != finding.Fail || doc.Summary.Verdict != finding.Fail {
		t.Errorf("first %+v, summary %+v", doc.Findings[0], doc.Summary)
	}
}

// TestExitCodes: a failure outweighs what could not be told.
func TestExitCodes(t *testing.T) {
	for about, c := range map[string]struct {
		states []finding.State
		strict bool
		code   int
	}{
		"nothing":                   {nil, true, 0},
		"good":                      {[]finding.State{finding.Pass, finding.NotApplicable, finding.Waived, finding.Manual}, true, 0},
		"unknown":                   {[]finding.State{finding.Pass, finding.Unknown}, false, 0},
		"unknown, strict":           {[]finding.State{finding.Pass, finding.Unknown}, true, exitUndetermined},
		"error, strict":             {[]finding.State{finding.Error}, true, exitUndetermined},
		"failure":                   {[]finding.State{finding.Fail, finding.Pass}, false, exitFindings},
		"failure, unknown, strict":  {[]finding.State{finding.Fail, finding.Unknown}, true, exitFindings},
		"failure not strict either": {[]finding.State{finding.Unknown, finding.Fail}, false, exitFindings},
	} {
		r := &finding.Report{}
		for _, state := range c.states {
			r.Findings = append(r.Findings, finding.Finding{ID: "IOM-001", State: state, Severity: rule.High, Waiver: &finding.Waiver{}})
		}
		r.Finish()
		j := &judging{strict: c.strict, failAt: rule.High, show: rule.Info, format: "table"}
		if got := exitCodeOf(j.finish(io.Discard, &report.Document{Report: r})); got != c.code {
			t.Errorf("%s: exit code %d, want %d", about, got, c.code)
		}
	}
	r := &finding.Report{Findings: []finding.Finding{{ID: "IOM-001", State: finding.Fail, Severity: rule.Medium}}}
	r.Finish()
	j := &judging{failAt: rule.High, format: "json"}
	if err := j.finish(io.Discard, &report.Document{Report: r}); err != nil {
		t.Errorf("a failure below the severity: %v", err)
	}
}

// TestLedgerThatFailsHasItsOwnExitCode: with any severity, and if nothing else fails.
func TestLedgerThatFailsHasItsOwnExitCode(t *testing.T) {
	tree := server(t)
	name := ledger.DefaultDir + "/" + ledger.SegmentName(0)
	tree.Put(name, strings.Replace(tree.Text(name), `"t1"`, `"t9"`, 1))
	if got, stdout := code(t, "node", "--root", tree.Root(), "--fail-on", "critical"); got != exitLedger || !strings.Contains(stdout, "OBS-001") {
		t.Errorf("exit code %d, want %d:\n%s", got, exitLedger, stdout)
	}
	accepted := put(t, `waivers:
- {rule: OBS-001, scope: "*", until: "2999-12-31", reason: looked into, author: alice}
- {rule: OBS-003, scope: "*", until: "2999-12-31", reason: looked into, author: alice}
`)
	if got, stdout := code(t, "node", "--root", tree.Root(), "--waivers", accepted); got != 0 {
		t.Errorf("exit code %d where it is accepted:\n%s", got, stdout)
	}
}

func TestFormatsAreReadByTheirReaders(t *testing.T) {
	root := unsafeServer(t).Root()
	_, out := code(t, "node", "-o", "sarif", "--root", root)
	log, err := sarif.FromString(out)
	if err != nil || log.Validate() != nil {
		t.Errorf("sarif: %v, %v", err, log.Validate())
	}
	_, out = code(t, "node", "-o", "junit", "--root", root)
	var suites struct {
		Failures int `xml:"failures,attr"`
	}
	if err := xml.Unmarshal([]byte(out), &suites); err != nil || suites.Failures != 1 {
		t.Errorf("junit: %v, %d failures", err, suites.Failures)
	}
	_, out = code(t, "node", "-o", "csv", "--root", root)
	if rows, err := csv.NewReader(strings.NewReader(out)).ReadAll(); err != nil || len(rows) < len(checks(t))+1 {
		t.Errorf("csv: %v, %d rows", err, len(rows))
	}
	for _, format := range []string{"ndjson", "ocsf"} {
		_, out = code(t, "node", "-o", format, "--root", root)
		for text := range strings.Lines(out) {
			if !json.Valid([]byte(text)) {
				t.Errorf("%s: %s", format, text)
			}
		}
	}
}

func TestNodeRefusesWhatCantBeMeant(t *testing.T) {
	root := server(t).Root()
	for about, c := range map[string]struct {
		args []string
		want string
	}{
		"format":           {[]string{"-o", "xml"}, "want one of table, wide"},
		"profile":          {[]string{"--profile", "paranoid"}, "no such profile"},
		"severity":         {[]string{"--severity", "bad"}, "--severity \"bad\": want one of critical"},
		"fail-on":          {[]string{"--fail-on", "all"}, "--fail-on \"all\": want one of"},
		"no waivers":       {[]string{"--waivers", filepath.Join(root, "none")}, "no such file"},
		"a waiver of none": {[]string{"--waivers", put(t, strings.Replace(waived, "IOM-003", "IOM-999", 1))}, `line 2: there is no rule "IOM-999"`},
		"an empty reason":  {[]string{"--waivers", put(t, strings.Replace(waived, "a test machine", "''", 1))}, "line 2: reason wants a text"},
	} {
		_, _, err := execute(t, append([]string{"node", "--root", root}, c.args...)...)
		if err == nil || exitCode(err) != exitUsage || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", about, err)
		}
	}
}

func TestExpiredWaiverCountsAgain(t *testing.T) {
	file := put(t, strings.Replace(waived, "2999-12-31", "2020-01-31", 1))
	got, out := code(t, "node", "--root", unsafeServer(t).Root(), "--waivers", file)
	if got != exitFindings || !strings.Contains(out, "the waiver by alice ended with 2020-01-31: a test machine") {
		t.Errorf("exit code %d:\n%s", got, out)
	}
}

// TestHostileNodeDoesNothing: escape sequences in files are shown, not obeyed.
func TestHostileNodeDoesNothing(t *testing.T) {
	tree := unsafeServer(t)
	tree.Put("proc/sys/kernel/hostname", "n\x1b[2J\u202e\u009b1m\x1b]8;;http://evil\x1b\\\n")
	tree.Put("proc/cmdline", "\x1b[31m\x07 quiet\n")
	for _, format := range report.Formats() {
		_, out := code(t, "node", "-o", format, "--root", tree.Root())
		if i := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && (r != '\t' || format != "html") && output.Obeyed(r) }); i >= 0 {
			t.Errorf("%s writes %q", format, out[i:min(i+20, len(out))])
		}
	}
}

func TestExplain(t *testing.T) {
	stdout, _, err := execute(t, "explain", "iom-003")
	if err != nil || !strings.Contains(stdout, "IOM-003  Ensure that VFIO's no-IOMMU mode is off") || strings.Contains(stdout, "On ") {
		t.Errorf("%v:\n%s", err, stdout)
	}
	stdout, _, err = execute(t, "explain", "IOM-003", "--root", unsafeServer(t).Root())
	for _, want := range []string{"fail: node: enable_unsafe_noiommu_mode is on", "enable_unsafe_noiommu_mode = \"Y\""} {
		if err != nil || !strings.Contains(stdout, want) {
			t.Errorf("no %s: %v:\n%s", want, err, stdout)
		}
	}
	var doc struct {
		ID       string
		Findings []finding.Finding
	}
	stdout, _, err = execute(t, "explain", "IOM-003", "-o", "json", "--root", unsafeServer(t).Root(), "--waivers", put(t, waived))
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil || doc.ID != "IOM-003" || len(doc.Findings) != 1 || doc.Findings[0].State != finding.Waived {
		t.Errorf("%v, %+v", err, doc)
	}
	for _, args := range [][]string{{"explain"}, {"explain", "IOM-999"}, {"explain", "IOM-001", "IOM-003"}, {"explain", "IOM-003", "--profile", "x"}, {"explain", "K8S-001", "--root", "/"}, {"explain", "Held", "--root", "/"}} {
		if _, _, err := execute(t, args...); err == nil || exitCode(err) != exitUsage {
			t.Errorf("%v: %v", args, err)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// TestExplainAsksAllForWhatIsAboutAll: of what the others say no more is told.
func TestExplainAsksAllForWhatIsAboutAll(t *testing.T) {
	tree := server(t)
	tree.CutConfig(tree.Devices["gpu0"])
	got, stdout := code(t, "explain", "OBS-004", "--root", tree.Root())
	if got != 0 || !strings.Contains(stdout, "have no answer: ") || strings.Contains(stdout, "no other check") {
		t.Errorf("exit code %d:\n%s", got, stdout)
	}
}

func TestChecksAndProfiles(t *testing.T) {
	for line, want := range map[string]string{
		"checks":                                 "IOM-003   critical  plugin  Ensure that VFIO's no-IOMMU mode is off\n",
		"explain K8S-001":                        "group     Cluster\n",
		"explain grouPnotviable":                 "GroupNotViable  A function of the IOMMU group is in use by the host",
		"explain Held -o md":                     "# Held\n",
		"__complete explain Hel":                 "Held\tAnother claim has the function, or one that must go with it\n",
		"checks -o md":                           "### IOM-003\n",
		"checks -o json":                         `"id": "IOM-003"`,
		"checks --mapping nist-800-53":           "SC-39 Process Isolation (direct)\n",
		"checks --mapping nist-800-53 -o json":   `"control": "AU-9(3)"`,
		"checks --mapping iso-27017 -o md":       "| CLD.9.5.1 Segregation",
		"profiles":                               "multi-tenant: untrusted tenants share the node (the default)\n",
		"profiles -o json":                       `"name": "confidential"`,
		"__complete explain IOM-00":              "IOM-003\tEnsure that VFIO's no-IOMMU mode is off\n",
		"__complete checks --mapping n":          "nist-800-53\n",
		"__complete node --profile s":            "single-tenant\n",
		"__complete waive --until 2027-01-01 IO": "IOM-003",
	} {
		stdout, _, err := execute(t, strings.Fields(line)...)
		if err != nil || !strings.Contains(stdout, want) {
			t.Errorf("%s: %v, no %s:\n%s", line, err, want, stdout)
		}
	}
	for _, line := range []string{"checks --mapping hipaa", "checks -o xml", "checks x", "profiles -o md"} {
		if _, _, err := execute(t, strings.Fields(line)...); err == nil || exitCode(err) != exitUsage {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestWaive(t *testing.T) {
	file := filepath.Join(t.TempDir(), "waivers.yaml")
	args := []string{"waive", "iom-003", "--scope", "*", "--until", "2999-12-31", "--reason", "a test machine", "--author", "alice"}
	printed, _, err := execute(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	if out, _, err := execute(t, append(args, "--waivers", file)...); err != nil || out != "" {
		t.Fatalf("%v, %s", err, out)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(printed, string(written)); diff != "" {
		t.Errorf("(-printed +written):\n%s", diff)
	}
	if got, out := code(t, "node", "--root", unsafeServer(t).Root(), "--waivers", file); got != 0 || !strings.Contains(out, "accepted until 2999-12-31 by alice: a test machine") {
		t.Errorf("exit code %d:\n%s", got, out)
	}
	for about, args := range map[string][]string{
		"again":       append(args, "--waivers", file),
		"no reason":   {"waive", "IOM-003", "--scope", "*", "--until", "2999-12-31", "--author", "alice"},
		"past day":    {"waive", "IOM-003", "--scope", "*", "--until", "2020-01-01", "--author", "alice", "--reason", "x"},
		"wrong day":   {"waive", "IOM-003", "--scope", "*", "--until", "soon", "--author", "alice", "--reason", "x"},
		"no rule":     {"waive", "IOM-999", "--scope", "*", "--until", "2999-12-31", "--author", "alice", "--reason", "x"},
		"wrong file":  append(slices.Clone(args), "--waivers", put(t, "waivers: yes")),
		"a directory": append(slices.Clone(args), "--waivers", t.TempDir()),
	} {
		if _, _, err := execute(t, args...); err == nil || exitCode(err) != exitUsage {
			t.Errorf("%s: %v", about, err)
		}
	}
	after, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(after, written) {
		t.Errorf("what was refused changed the file: %v\n%s", err, after)
	}
}

// TestHeadlineSaysWhatIsJudged where no plugin publishes anything.
func TestHeadlineSaysWhatIsJudged(t *testing.T) {
	tree := server(t)
	if _, out := code(t, "node", "--root", tree.Root()); !strings.Contains(out, "judged as the default config would publish: ") {
		t.Errorf("of a node without a plugin:\n%s", out)
	}
	tree.Put("run/kata-vfio/published.json", `{"bootID":"","devices":[]}`)
	if _, out := code(t, "node", "--root", tree.Root()); strings.Contains(out, "would publish") {
		t.Errorf("of a node with one:\n%s", out)
	}
}

// TestFailureNeverShowsTheRulesTitle: the title describes the good state.
func TestFailureNeverShowsTheRulesTitle(t *testing.T) {
	root := unsafeServer(t).Root()
	for _, format := range []string{"table", "md"} {
		if _, out := code(t, "node", "-o", format, "--root", root); strings.Contains(out, "no-IOMMU mode is off") || !strings.Contains(out, "mode is on, which lets VMs have devices without an IOMMU") {
			t.Errorf("%s:\n%s", format, out)
		}
	}
}

// TestFindingsNameNoFileOfAnArchive: what the kernel and containerd answer has no path on the node, whatever file an archive keeps it in.
func TestFindingsNameNoFileOfAnArchive(t *testing.T) {
	for _, tree := range []*board.Tree{server(t), board.New(t)} {
		stdout, _, _ := execute(t, "node", "--root", tree.Root(), "-o", "json")
		if at := strings.Index(stdout, `"/kata-vfio/`); at >= 0 {
			t.Errorf("a finding names a file that nodes don't have: %.200s", stdout[at:])
		}
	}
}

// checks returns all checks of a node.
func checks(tb testing.TB) []check.Check {
	tb.Helper()
	all, err := check.Catalogue()
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

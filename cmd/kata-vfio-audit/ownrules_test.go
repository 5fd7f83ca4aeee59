package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/archive"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
)

// ownRules passes on a server in good order, and fails where the kernel's messages are open to all.
const ownRules = `rules:
- id: ORG-001
  title: Ensure that users can't read the kernel's messages
  severity: high
  why: They have addresses of the kernel.
  fix: put kernel.dmesg_restrict=1 into /etc/sysctl.d
  settings:
  - {sysctl: kernel.dmesg_restrict, values: ["1"]}
- id: ORG-002
  title: Ensure that few files can be open
  severity: low
  why: Each takes memory of the kernel.
  fix: put fs.file-max into /etc/sysctl.d
  settings:
  - {sysctl: fs.file-max, values: ["4096"]}
`

// writeRules writes a file of rules, and returns its name.
func writeRules(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "own.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// openServer fails ORG-001.
func openServer(t *testing.T) string {
	t.Helper()
	tree := server(t)
	tree.Put("proc/sys/kernel/dmesg_restrict", "0\n")
	tree.Put("proc/sys/fs/file-max", "4096\n")
	return tree.Root()
}

// TestOwnRulesInEveryFormat: a failure of an own rule is reported, and fails the run, as one of the product's.
func TestOwnRulesInEveryFormat(t *testing.T) {
	root, rules := openServer(t), writeRules(t, ownRules)
	for _, format := range report.Formats() {
		got, out := code(t, "node", "--root", root, "--rules", rules, "-o", format)
		if got != exitFindings || !strings.Contains(out, "ORG-001") || !strings.Contains(strings.ReplaceAll(out, `\_`, "_"), "kernel.dmesg_restrict is 0") {
			t.Errorf("%s: exit code %d, want %d and the failure of ORG-001:\n%.3000s", format, got, exitFindings, out)
		}
	}
	if got, out := code(t, "node", "--root", root); strings.Contains(out, "ORG-") {
		t.Errorf("without --rules: exit code %d, and the rules of another run:\n%s", got, out)
	}
}

// TestOwnRulesAreWaived: by the waivers of the same file as all others. Without the rules, a waiver of one is an error.
func TestOwnRulesAreWaived(t *testing.T) {
	root, rules := openServer(t), writeRules(t, ownRules)
	waivers, _, err := execute(t, "waive", "org-001", "--rules", rules, "--scope", "kernel.dmesg_restrict", "--until", "2999-12-31", "--reason", "SEC-1", "--author", "alice")
	if err != nil {
		t.Fatal(err)
	}
	file := put(t, waivers)
	got, out := code(t, "node", "--root", root, "--rules", filepath.Dir(rules), "--waivers", file, "-o", "json")
	var doc finding.Report
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatal(err)
	}
	for _, f := range doc.Findings {
		if f.ID == "ORG-001" && f.State != finding.Waived {
			t.Errorf("exit code %d, ORG-001 is %s, want waived", got, f.State)
		}
	}
	if len(doc.RuleFiles) != 1 || doc.RuleFiles[0].Name != rules || strings.Join(doc.RuleFiles[0].Rules, " ") != "ORG-001 ORG-002" {
		t.Errorf("rule files %+v, want %s with both rules", doc.RuleFiles, rules)
	}
	_, _, err = execute(t, "node", "--root", root, "--waivers", file)
	if err == nil || exitCode(err) != exitUsage || !strings.Contains(err.Error(), `there is no rule "ORG-001"; give your own rules with --rules`) {
		t.Errorf("without --rules: error %v, want that there is no such rule", err)
	}
}

// TestOwnRulesOfArchives: collect copies what the rules read, eval asks them, and says so if it is not told to.
func TestOwnRulesOfArchives(t *testing.T) {
	root, rules := openServer(t), writeRules(t, ownRules)
	with, without := filepath.Join(t.TempDir(), "with.tgz"), filepath.Join(t.TempDir(), "without.tgz")
	for file, more := range map[string][]string{with: {"--rules", rules}, without: nil} {
		if _, _, err := execute(t, append([]string{"collect", "--root", root, "--file", file}, more...)...); err != nil {
			t.Fatal(err)
		}
	}
	a, err := archive.Open(with)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	if f := a.Manifest.RuleFiles; len(f) != 1 || strings.Join(f[0].Rules, " ") != "ORG-001 ORG-002" {
		t.Errorf("the manifest has the files %+v, want one with both rules", f)
	}
	if out, _, err := execute(t, "rules", "test", rules, "--root", with, "--expect", "ORG-001=fail", "--expect", "ORG-002=pass"); err != nil {
		t.Errorf("with what the rules read: %v\n%s", err, out)
	}
	// fs.file-max is in no archive by itself. What was not collected is unknown.
	out, _, err := execute(t, "rules", "test", rules, "--root", without, "--expect", "ORG-001=fail", "--expect", "ORG-002=unknown")
	if err != nil || !strings.Contains(out, "not collected") {
		t.Errorf("without: %v, want ORG-002 unknown because of the archive:\n%s", err, out)
	}
	_, warnings, _ := execute(t, "eval", with)
	if want := "these rules were asked when the archive was collected, and are not asked now: " + rules; !strings.Contains(warnings, want) {
		t.Errorf("eval without the rules warns %q, want %q", warnings, want)
	}
	if _, warnings, _ = execute(t, "eval", with, "--rules", rules); strings.Contains(warnings, "not asked") {
		t.Errorf("eval with the rules warns %q, want nothing of them", warnings)
	}
}

func TestRulesTest(t *testing.T) {
	root, rules := openServer(t), writeRules(t, ownRules)
	for about, c := range map[string]struct {
		args []string
		code int
		text string
	}{
		"rules in order":          {[]string{rules}, 0, "2 rules in order; --root judges a node or an archive by them"},
		"results":                 {[]string{rules, "--root", root}, 0, "ORG-002  pass              fs.file-max=4096"},
		"results as they must be": {[]string{rules, "--root", root, "--expect", "ORG-001=fail"}, 0, "ORG-001  fail    fail"},
		"another result":          {[]string{rules, "--root", root, "--expect", "ORG-001=pass"}, exitFindings, "ORG-001 is fail, want pass"},
		"no rule of this ID":      {[]string{rules, "--root", root, "--expect", "ORG-009=pass"}, exitUsage, `--expect "ORG-009=pass": the files have no rule "ORG-009"`},
		"no such state":           {[]string{rules, "--root", root, "--expect", "ORG-001=bad"}, exitUsage, `--expect "ORG-001=bad": want ID=STATE with one of the states [fail error`},
		"nothing to judge":        {[]string{rules, "--expect", "ORG-001=pass"}, exitUsage, "--expect needs --root"},
		"no file":                 {nil, exitUsage, "want a file of rules"},
		"a missing file":          {[]string{"/nowhere.yaml"}, exitUsage, "your own rules: stat /nowhere.yaml: no such file or directory"},
		"a directory without any": {[]string{t.TempDir()}, exitUsage, "has no .yaml or .yml file"},
		"a wrong rule":            {[]string{writeRules(t, strings.Replace(ownRules, "high", "huge", 1))}, exitUsage, "own.yaml: line 4: ORG-001: severity: want one of"},
	} {
		t.Run(about, func(t *testing.T) {
			stdout, _, err := execute(t, append([]string{"rules", "test"}, c.args...)...)
			if err != nil {
				stdout += err.Error()
			}
			if exitCodeOf(err) != c.code || !strings.Contains(stdout, c.text) {
				t.Errorf("exit code %d, want %d, and want %q in\n%s", exitCodeOf(err), c.code, c.text, stdout)
			}
		})
	}
}

// TestOwnRulesAreExplained: with the node, the command and in the list of checks, as the product's are.
func TestOwnRulesAreExplained(t *testing.T) {
	root, rules := openServer(t), writeRules(t, ownRules)
	for _, c := range []struct{ line, want string }{
		{"explain ORG-001 --rules " + rules, "by hand   `sysctl kernel.dmesg_restrict`"},
		{"explain ORG-001 --rules " + rules, "wants     sysctl kernel.dmesg_restrict: 1\n          read in /proc/sys/kernel/dmesg_restrict; for the next boot, sysctl.d and /etc/sysctl.conf\nfile      "},
		{"explain ORG-001 -o md --rules " + rules, "- Wants: sysctl kernel.dmesg\\_restrict: 1 (read in /proc/sys/kernel/dmesg\\_restrict;"},
		{"explain ORG-002 -o json --rules " + rules, `"kind": "sysctl",`},
		{"explain ORG-002 -o json --rules " + rules, `"file": "` + rules + ` line 9",`},
		{"explain org-001 --rules " + rules + " --root " + root, "fail: kernel.dmesg_restrict: kernel.dmesg_restrict is 0; want 1"},
		{"checks --rules " + rules, "ORG-002   low               Ensure that few files can be open"},
	} {
		stdout, _, err := execute(t, strings.Fields(c.line)...)
		if err != nil || !strings.Contains(stdout, c.want) {
			t.Errorf("%s: %v, want %q in\n%s", c.line, err, c.want, stdout)
		}
	}
	if _, _, err := execute(t, "explain", "ORG-001"); err == nil {
		t.Error("explain without --rules: no error, want that there is no such check")
	}
}

// TestCandidateNamesOwnRules: for people and for machines, as the audit of the node as it is does.
func TestCandidateNamesOwnRules(t *testing.T) {
	root, rules := openServer(t), writeRules(t, ownRules)
	_, out := code(t, "node", "--candidate", "--root", root, "--rules", rules)
	if want := "\n  with 2 rules of "; !strings.Contains(out, want) || !strings.Contains(out, "ORG-001") {
		t.Errorf("got\n%s\nwant %q, and ORG-001 among the failures", out, want)
	}
	_, out = code(t, "node", "--candidate", "--root", root, "--rules", rules, "-o", "json")
	var c audit.Candidate
	if err := json.Unmarshal([]byte(out), &c); err != nil {
		t.Fatal(err)
	}
	if len(c.RuleFiles) != 1 || c.RuleFiles[0].Name != rules {
		t.Errorf("rule files %+v, want %s", c.RuleFiles, rules)
	}
}

// TestRulesAreReadAgain: a ConfigMap may change under an audit that runs for months. A wrong file changes nothing.
func TestRulesAreReadAgain(t *testing.T) {
	file := writeRules(t, ownRules)
	j := &judging{profile: finding.MultiTenant, ownRules: []string{file}}
	if err := j.checkProfile(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("rules: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := j.rereadRules(); err == nil || len(j.rules.Own) != 2 {
		t.Errorf("with a wrong file: error %v and %d rules, want one and the 2 that were read before", err, len(j.rules.Own))
	}
	first, _, ok := strings.Cut(ownRules, "- id: ORG-002")
	if !ok {
		t.Fatal("the rules have no ORG-002")
	}
	if err := os.WriteFile(file, []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := j.rereadRules(); err != nil || len(j.rules.Own) != 1 {
		t.Errorf("with one rule less: error %v and %d rules, want 1", err, len(j.rules.Own))
	}
	doc, err := (&tree{root: openServer(t)}).judge(t.Context(), j, j.checks)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range doc.Findings {
		if f.ID == "ORG-002" {
			t.Error("a rule that was removed is asked")
		}
	}
}

package finding_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

const good = `# signed off by the security board
waivers:
  # until the firmware is replaced
  - rule: IOM-013
    scope: 0000:3b:00.0
    until: 2027-03-31
    reason: the driver needs identity (SEC-1234)
    author: alice
  - {rule: IOM-001, scope: "*", until: "2027-01-01", reason: a test machine, author: bob}
`

func rules() []string { return []string{"IOM-001", "IOM-013"} }

func first() finding.Waiver {
	return finding.Waiver{
		Rule: "IOM-013", Scope: "0000:3b:00.0", Until: "2027-03-31", Reason: "the driver needs identity (SEC-1234)", Author: "alice",
	}
}

func second() finding.Waiver {
	return finding.Waiver{Rule: "IOM-001", Scope: "*", Until: "2027-01-01", Reason: "a test machine", Author: "bob"}
}

func TestParse(t *testing.T) {
	for about, c := range map[string]struct {
		content string
		want    []finding.Waiver
	}{
		"two":          {good, []finding.Waiver{first(), second()}},
		"an empty one": {"", nil},
		"comments":     {"# none yet\n", nil},
		"no list":      {"waivers:\n", nil},
		"empty list":   {"waivers: []\n", nil},
		"a null":       {"null\n", nil},
	} {
		got, err := finding.ParseWaivers([]byte(c.content), rules())
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", about, err, diff)
		}
	}
}

func TestParseNamesTheLinesThatAreWrong(t *testing.T) {
	for about, c := range map[string]struct{ from, to, want string }{
		"another top":       {"waivers:\n", "waiver:\n", "line 2: want `waivers:`"},
		"unknown rule":      {"IOM-013", "IOM-999", `line 4: there is no rule "IOM-999"`},
		"a wrong day":       {"2027-03-31", "2027-02-30", `line 6: until wants a day as 2027-03-31, not "2027-02-30"`},
		"a moment":          {"2027-03-31", "2027-03-31T00:00:00Z", "line 6: until wants a day"},
		"unknown field":     {"    author: alice", "    by: alice", `line 8: unknown field "by"; line 4: author is missing`},
		"missing reason":    {"    reason: the driver needs identity (SEC-1234)\n", "", "line 4: reason is missing"},
		"an empty reason":   {"the driver needs identity (SEC-1234)", "''", "line 7: reason wants a text"},
		"a null":            {"the driver needs identity (SEC-1234)", "~", "line 7: reason wants a text"},
		"a list as scope":   {"0000:3b:00.0", "[a, b]", "line 5: scope wants a text"},
		"a field twice":     {"    author: alice", "    author: alice\n    author: eve", "line 9: author is given twice"},
		"a waiver twice":    {`IOM-001, scope: "*"`, `IOM-013, scope: "0000:3b:00.0"`, `line 9: IOM-013 for "0000:3b:00.0" is waived in line 4 already`},
		"two documents":     {"  - {rule", "---\n  - {rule", "want one document only"},
		"no YAML":           {"waivers:", "waivers: [", "line "},
		"an alias":          {"reason: a test machine", "reason: *x", "unknown anchor"},
		"a word as list":    {good, "waivers: yes\n", "line 1: want a list of waivers"},
		"a word as waiver":  {good, "waivers: [yes]\n", "line 1: want a waiver with"},
		"a list at the top": {good, "- rule: IOM-001\n", "line 1: want `waivers:`"},
		"a huge file":       {good, strings.Repeat("#", finding.MaxWaivers+1), "larger than"},
	} {
		_, err := finding.ParseWaivers([]byte(strings.Replace(good, c.from, c.to, 1)), rules())
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %s", about, err, c.want)
		}
	}
}

func TestAddKeepsWhatIsThere(t *testing.T) {
	added := finding.Waiver{Rule: "IOM-001", Scope: "claim t1/a", Until: "2027-05-01", Reason: "yes: #1 \"quoted\"", Author: "carol"}
	for about, c := range map[string]struct {
		content string
		before  []finding.Waiver
	}{
		"to two":          {good, []finding.Waiver{first(), second()}},
		"to nothing":      {"", nil},
		"to an empty one": {"# none yet\nwaivers: []\n", nil},
		"to no list":      {"# none yet\nwaivers:\n", nil},
	} {
		changed, err := finding.AddWaivers([]byte(c.content), added, rules())
		if err != nil {
			t.Errorf("%s: %v", about, err)
			continue
		}
		got, err := finding.ParseWaivers(changed, rules())
		if diff := cmp.Diff(append(c.before, added), got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s\n%s", about, err, diff, changed)
		}
		for line := range strings.Lines(c.content) {
			if strings.Contains(line, "#") && !strings.Contains(string(changed), strings.TrimSpace(line)) {
				t.Errorf("%s loses the comment %s:\n%s", about, line, changed)
			}
		}
	}
}

func TestAddRefusesWhatParseWould(t *testing.T) {
	for about, c := range map[string]struct {
		content string
		add     finding.Waiver
		want    string
	}{
		"the same again": {good, first(), "is waived in line 4 already"},
		"to a wrong one": {"waivers: yes", second(), "line 1: want a list"},
		"without reason": {"", finding.Waiver{Rule: "IOM-001", Scope: "*", Until: "2027-01-01", Author: "bob"}, "reason wants a text"},
		"unknown rule":   {"", finding.Waiver{Rule: "IOM-1", Scope: "*", Until: "2027-01-01", Reason: "x", Author: "bob"}, `there is no rule "IOM-1"`},
		"wrong day":      {"", finding.Waiver{Rule: "IOM-001", Scope: "*", Until: "soon", Reason: "x", Author: "bob"}, "until wants a day"},
	} {
		if _, err := finding.AddWaivers([]byte(c.content), c.add, rules()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", about, err, c.want)
		}
	}
}

// FuzzParse: no file makes it panic, what it accepts is whole, and one more can be
// added to it.
func FuzzParse(f *testing.F) {
	f.Add(good)
	f.Add("waivers: &a [*a]")
	f.Add("a: &a [1]\nwaivers: [*a, *a]")
	f.Fuzz(func(t *testing.T, content string) {
		waivers, err := finding.ParseWaivers([]byte(content), rules())
		if err != nil {
			return
		}
		for _, w := range waivers {
			if w.Rule == "" || w.Scope == "" || w.Until == "" || w.Reason == "" || w.Author == "" {
				t.Errorf("accepted %+v", w)
			}
		}
		added := finding.Waiver{Rule: "IOM-001", Scope: "no other has this", Until: "2027-01-01", Reason: "x", Author: "y"}
		changed, err := finding.AddWaivers([]byte(content), added, rules())
		if err != nil {
			t.Fatalf("add: %v", err)
		}
		if again, err := finding.ParseWaivers(changed, rules()); err != nil || len(again) != len(waivers)+1 {
			t.Errorf("%d waivers, then %d (%v)", len(waivers), len(again), err)
		}
	})
}

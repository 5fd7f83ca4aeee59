package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/docs"
)

// The documents that say what was run with real Kata.
const (
	cases    = "test/e2e/README.md"
	security = ".github/SECURITY.md"
	upstream = "deploy/kata-upstream.md"
)

var (
	caseThere = regexp.MustCompile(`\{name: "(\w+)",.*\}`)
	// A case's name follows the word, and further ones follow it: "case `A`", "cases `A`, `B` and `C`".
	casesNamed = regexp.MustCompile("\\b[Cc]ases? (`[A-Z]\\w+`(?:(?:,| and|, and) `[A-Z]\\w+`)*)")
	caseRow    = regexp.MustCompile("(?m)^\\| `([A-Z]+[a-z]\\w+)` \\|")
	chosen     = regexp.MustCompile(`KATA_VFIO_NODE_RUN=('[^']+'|\S+)`)
	wasRun     = regexp.MustCompile(`pass(?:es)? with Kata (\S+) \((\w+)\) and QEMU (\S+), on .*?, (\w+ \d{4})\b`)
)

// nodeCases are the names of the cases on a node. Those of a contract are for Kata, too.
func nodeCases(t *testing.T) (all, withKata []string) {
	t.Helper()
	for _, m := range caseThere.FindAllStringSubmatch(docs.Read(t, "test/e2e/node_test.go"), -1) {
		all = append(all, m[1])
		if strings.Contains(m[0], "contract: true") {
			withKata = append(withKata, m[1])
		}
	}
	for _, m := range caseThere.FindAllStringSubmatch(docs.Read(t, "test/e2e/kata_test.go"), -1) {
		all, withKata = append(all, m[1]), append(withKata, m[1])
	}
	if len(withKata) < 30 {
		t.Fatalf("the source has %d cases with Kata: its form has changed", len(withKata))
	}
	return all, withKata
}

func TestCasesThatDocumentsNameExist(t *testing.T) {
	all, _ := nodeCases(t)
	for _, path := range docs.All(t) {
		text := docs.Read(t, path)
		for _, names := range casesNamed.FindAllStringSubmatch(text, -1) {
			for _, name := range regexp.MustCompile(`\w+`).FindAllString(strings.ReplaceAll(names[1], " and ", " "), -1) {
				if !slices.Contains(all, name) {
					t.Errorf("%s: there is no case %s", path, name)
				}
			}
		}
		for _, m := range chosen.FindAllStringSubmatch(text, -1) {
			checkChoice(t, path, strings.Trim(m[1], "'"), all)
		}
	}
}

// checkChoice reports each alternative of a pattern that no case's name matches.
func checkChoice(t *testing.T, path, pattern string, all []string) {
	t.Helper()
	for one := range strings.SplitSeq(pattern, "|") {
		match, err := regexp.Compile(one)
		if err != nil || !slices.ContainsFunc(all, match.MatchString) {
			t.Errorf("%s: KATA_VFIO_NODE_RUN=%s chooses no case by %q (%v)", path, pattern, one, err)
		}
	}
}

// TestTableHasEachCaseWithKata, in whatever order.
func TestTableHasEachCaseWithKata(t *testing.T) {
	_, want := nodeCases(t)
	var got []string
	for _, m := range caseRow.FindAllStringSubmatch(docs.Section(t, cases, "With real Kata"), -1) {
		got = append(got, m[1])
	}
	for _, name := range want {
		if !slices.Contains(got, name) {
			t.Errorf("%s: the table of cases with real Kata lacks %s", cases, name)
		}
	}
	for _, name := range got {
		if !slices.Contains(want, name) {
			t.Errorf("%s: the table of cases with real Kata has %s, which there is not", cases, name)
		}
	}
}

// TestDocumentsAgreeOnWhatWasRunWithKata: the table of cases says which versions ran and when, and the others repeat it.
func TestDocumentsAgreeOnWhatWasRunWithKata(t *testing.T) {
	m := wasRun.FindStringSubmatch(strings.ReplaceAll(docs.Section(t, cases, "With real Kata"), "\n", " "))
	if m == nil {
		t.Fatalf("%s does not say which versions of Kata and QEMU ran, and when", cases)
	}
	version, commit, qemu, month := m[1], m[2], m[3], m[4]
	compatibility := docs.Section(t, "README.md", "What is proven")
	for _, row := range []string{
		"Kata, Go runtime | " + version + " with QEMU " + qemu + " in " + month, "Kata, Rust runtime | " + version, month,
	} {
		if !strings.Contains(compatibility, row) {
			t.Errorf("README.md: the compatibility table lacks %q", row)
		}
	}
	for path, text := range map[string]string{security: "Kata " + version, upstream: "Kata " + version + " (commit " + commit} {
		if !strings.Contains(docs.Read(t, path), text) {
			t.Errorf("%s lacks %q, which was run", path, text)
		}
	}
	if len(casesNamed.FindAllString(docs.Read(t, security), -1)) == 0 {
		t.Errorf("%s names no case", security)
	}
}

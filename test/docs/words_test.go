package docs_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/test/docs"
)

// style is a rule of vale's: the words of a substitution, or of an existence check.
type style struct {
	Message string
	Swap    map[string]string
	Tokens  []string
}

// TestDocumentsAvoidBannedWords checks what `make lint` checks with vale, by the same lists.
func TestDocumentsAvoidBannedWords(t *testing.T) {
	words, you := readStyle(t, "Words"), readStyle(t, "You")
	for _, path := range docs.All(t) {
		for line, text := range prose(docs.Read(t, path)) {
			for _, fault := range append(words.faults(text), you.faults(text)...) {
				t.Errorf("%s:%d: %s", path, line, fault)
			}
		}
	}
}

func TestBannedWordsAreFound(t *testing.T) {
	words, you := readStyle(t, "Words"), readStyle(t, "You")
	for text, want := range map[string]string{
		"The claim is prepared Anew.":  "again",
		"A process who has it.":        "the tenant, process or user that has",
		"Functions are given away.":    "assign",
		"It is somebody else's.":       "another, and name it",
		"We restart it.":               "Write 'you'",
		"An amended record is canned.": "",
		"Use `mend` here.":             "",
		"US dollars are not we-words":  "Write 'you'",
	} {
		var found []string
		for _, line := range prose(text) {
			found = append(found, append(words.faults(line), you.faults(line)...)...)
		}
		if got := strings.Join(found, "; "); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%q: found %q, want %q", text, got, want)
		}
	}
}

func readStyle(t *testing.T, name string) style {
	t.Helper()
	var s style
	if err := yaml.Unmarshal([]byte(docs.Read(t, "test/tools/vale/styles/House/"+name+".yml")), &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Swap)+len(s.Tokens) == 0 {
		t.Fatalf("the style %s has no words", name)
	}
	return s
}

// faults are the messages for a line of text.
func (s style) faults(text string) []string {
	var all []string
	for _, pattern := range slices.Sorted(maps.Keys(s.Swap)) {
		if word := find(pattern, text); word != "" {
			all = append(all, fmt.Sprintf(s.Message, s.Swap[pattern], word))
		}
	}
	for _, pattern := range s.Tokens {
		if word := find(pattern, text); word != "" {
			all = append(all, fmt.Sprintf(s.Message, word))
		}
	}
	return all
}

func find(pattern, text string) string {
	return regexp.MustCompile(`(?i)\b(?:` + pattern + `)\b`).FindString(text)
}

// prose are the lines of a document by their numbers, without code and without the targets of links.
func prose(text string) map[int]string {
	lines, code := map[int]string{}, false
	inline := regexp.MustCompile("`[^`]*`|\\]\\([^)]*\\)")
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		} else if !code && !strings.HasPrefix(line, "    ") {
			lines[i+1] = inline.ReplaceAllString(line, "")
		}
	}
	return lines
}

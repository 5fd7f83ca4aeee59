package docs_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/docs"
)

// Who is on call pastes the blocks: each variable is set in its entry or at the document's top, and nothing stands for a value.
func TestRunbookCanBePasted(t *testing.T) {
	blocks := regexp.MustCompile("(?ms)^## |^ *```sh\n(.*?)^ *```$")
	sets, uses := regexp.MustCompile(`(?m)(?:^|\s)([A-Z]+)=`), regexp.MustCompile(`\$([A-Z]+)`)
	placeholder := regexp.MustCompile(`(?:^|[ =/])(?:[A-Z]{2,})(?:$|[ :/])|<[a-z]`)
	top, entry, inEntry := map[string]bool{}, map[string]bool{}, false
	for _, m := range blocks.FindAllStringSubmatch(docs.Read(t, "deploy/RUNBOOK.md"), -1) {
		if m[1] == "" {
			entry, inEntry = map[string]bool{}, true
			continue
		}
		for _, set := range sets.FindAllStringSubmatch(m[1], -1) {
			entry[set[1]], top[set[1]] = true, top[set[1]] || !inEntry
		}
		for _, use := range uses.FindAllStringSubmatch(m[1], -1) {
			if !entry[use[1]] && !top[use[1]] {
				t.Errorf("$%s is not set before:\n%s", use[1], m[1])
			}
		}
		for line := range strings.Lines(m[1]) {
			code, _, _ := strings.Cut(line, " #")
			if placeholder.MatchString(strings.TrimSpace(code)) {
				t.Errorf("a word stands for a value, which a variable could have: %s", code)
			}
		}
		bash := exec.CommandContext(t.Context(), "bash", "-n")
		bash.Stdin = strings.NewReader(m[1])
		if out, err := bash.CombinedOutput(); err != nil {
			t.Errorf("%v: %s:\n%s", err, out, m[1])
		}
	}
	if !top["NODE"] || !top["P"] {
		t.Errorf("the document's top sets %v", top)
	}
}

// Who is woken at night reads first what is broken for whom, and whether it can wait.
func TestRunbookSaysImpactAndUrgency(t *testing.T) {
	_, text, _ := strings.Cut(docs.Read(t, "deploy/RUNBOOK.md"), "\n## ")
	impact := regexp.MustCompile(`(?m)\A.+\n\n\*\*Impact\*\*: .+\. \*\*Urgency\*\*: .+\.$`)
	for entry := range strings.SplitSeq(text, "\n## ") {
		if title, _, _ := strings.Cut(entry, "\n"); title != "Collect a support bundle" && !impact.MatchString(entry) {
			t.Errorf("%q does not begin with its impact and urgency", title)
		}
	}
}

// TestRunbookLogIsReadable: what the function log prints of a line of the plugin's log.
func TestRunbookLogIsReadable(t *testing.T) {
	_, script, found := strings.Cut(docs.Read(t, "deploy/RUNBOOK.md"), "--since=1h | ")
	script, _, ends := strings.Cut(script, "; }\n")
	if !found || !ends {
		t.Fatal("the function log has no filter")
	}
	for line, want := range map[string]string{
		`{"time":"2026-11-28T12:00:00Z","level":"INFO","msg":"claim prepared","claim":"team-a/train","resets":2}`: `2026-11-28T12:00:00Z INFO claim prepared  "claim":"team-a/train","resets":2`,
		`{"time":"2026-11-28T12:00:00Z","level":"INFO","msg":"serves"}`:                                           `2026-11-28T12:00:00Z INFO serves  `,
		`panic: no JSON`: `panic: no JSON`,
	} {
		sh := exec.CommandContext(t.Context(), "sh", "-c", script)
		sh.Stdin = strings.NewReader(line + "\n")
		out, err := sh.CombinedOutput()
		if got := strings.TrimSuffix(string(out), "\n"); err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
}

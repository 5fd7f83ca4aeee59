package bootstrap

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func numbered(n int, change func(int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(change(i))
	}
	return b.String()
}

func plain(i int) string { return fmt.Sprintf("line %d\n", i) }

// apply is patch(1) without its leniency: each hunk must fit where it says it does.
func apply(t *testing.T, before, text string) string {
	t.Helper()
	old := strings.SplitAfter(before, "\n")
	var b strings.Builder
	next := 0 // of old
	text = strings.ReplaceAll(text, "\n\\ No newline at end of file\n", "\x00")
	for line := range strings.SplitSeq(text, "\n") {
		var from, size, to, newSize int
		if n, _ := fmt.Sscanf(line, "@@ -%d,%d +%d,%d @@", &from, &size, &to, &newSize); n == 4 {
			for ; next < from-min(size, 1); next++ {
				b.WriteString(old[next])
			}
			if got := strings.Count(b.String(), "\n") + min(newSize, 1); got != to {
				t.Fatalf("%s: it begins at line %d of the new version", line, got)
			}
			continue
		}
		for part := range strings.SplitAfterSeq(line+"\n", "\x00") {
			part = strings.TrimSuffix(strings.TrimRight(part, "\n")+"\n", "\x00\n")
			if part == "\n" || strings.HasPrefix(part, "--- ") || strings.HasPrefix(part, "+++ ") {
				continue
			}
			if part[0] != '+' {
				if old[next] != part[1:] {
					t.Fatalf("line %d is %q, the hunk has %q", next+1, old[next], part)
				}
				next++
			}
			if part[0] != '-' {
				b.WriteString(part[1:])
			}
		}
	}
	return b.String() + strings.Join(old[next:], "")
}

func TestUnifiedPatchesOneVersionToTheOther(t *testing.T) {
	at := func(which ...int) func(int) string {
		return func(i int) string {
			if slices.Contains(which, i) {
				return "changed\n"
			}
			return plain(i)
		}
	}
	for _, c := range []struct{ name, before, after string }{
		{"a new file", "", "a\nb\n"},
		{"a file that goes", "a\nb\n", ""},
		{"a change at the start", numbered(20, plain), numbered(20, at(0))},
		{"a change at the end", numbered(20, plain), numbered(20, at(19))},
		{"changes that are near", numbered(40, plain), numbered(40, at(10, 14))},
		{"changes that touch", numbered(40, plain), numbered(40, at(10, 17))},
		{"changes that are far", numbered(60, plain), numbered(60, at(5, 12, 40))},
		{"lines added", numbered(20, plain), "new\n" + numbered(20, plain) + "new\n"},
		{"no line break at the end", "a\nb", "a\nb\nc"},
		{"a line break at the end", "a\nb", "a\nb\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := unified("a/file", "b/file", []byte(c.before), []byte(c.after))
			got := apply(t, c.before, text)
			if d := cmp.Diff(c.after, got); d != "" {
				t.Errorf("patched (-want +got):\n%s\nby\n%s", d, text)
			}
		})
	}
}

func TestUnifiedOfEqualFilesIsEmpty(t *testing.T) {
	if text := unified("a", "b", []byte("x\n"), []byte("x\n")); text != "" {
		t.Errorf("got %q", text)
	}
	if text := unified("a", "b", []byte("x\x00"), []byte("x\n")); text != "binary files a and b differ\n" {
		t.Errorf("got %q", text)
	}
}

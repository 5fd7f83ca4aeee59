// Package docs reads the project's documents for the tests of what they name: commands, fields, headings and files.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Root is the directory of the module, by its go.mod above the test's directory.
func Root(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			tb.Fatal("no directory above the test has a go.mod")
		}
	}
}

// All are the paths of the documents that people wrote, from Root. Test data is left out.
func All(tb testing.TB) []string {
	tb.Helper()
	root := Root(tb)
	var all []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{".git", "bin", "testdata"}, entry.Name()) {
			return filepath.SkipDir
		}
		if !entry.IsDir() && strings.HasSuffix(path, ".md") {
			rel, _ := filepath.Rel(root, path) // path is below root
			all = append(all, rel)
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// Read is a document's text, by its path from Root.
func Read(tb testing.TB, path string) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(Root(tb), path))
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// Section is the text below a heading, up to the next heading of its level or a higher one.
func Section(tb testing.TB, path, heading string) string {
	tb.Helper()
	text := Read(tb, path)
	start := regexp.MustCompile(`(?m)^(#+) ` + regexp.QuoteMeta(heading) + `$`).FindStringSubmatchIndex(text)
	if start == nil {
		tb.Fatalf("%s has no heading %q", path, heading)
	}
	level, section := start[3]-start[2], text[start[1]:]
	if end := regexp.MustCompile(fmt.Sprintf(`(?m)^#{1,%d} `, level)).FindStringIndex(section); end != nil {
		section = section[:end[0]]
	}
	return section
}

// Anchors are those of a document's headings, as GitHub makes them.
func Anchors(tb testing.TB, path string) map[string]bool {
	tb.Helper()
	anchors := map[string]bool{}
	for line := range strings.Lines(WithoutCode(Read(tb, path))) {
		if _, heading, ok := strings.Cut(strings.TrimRight(line, "\n"), "# "); ok && strings.HasPrefix(line, "#") {
			anchors[anchor(heading)] = true
		}
	}
	return anchors
}

func anchor(heading string) string {
	kept := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(kept, " ", "-")
}

// WithoutCode is a text without its fenced blocks: what looks like a heading or a link there is none.
func WithoutCode(text string) string {
	return regexp.MustCompile("(?ms)^ *```.*?^ *```$").ReplaceAllString(text, "")
}

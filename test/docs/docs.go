// Package docs reads the project's documents for the tests of what they name: commands, fields, headings and files.
package docs

import (
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

// Section is the text below a heading, up to the next heading of its level or a higher one. An empty heading stands for what
// comes before the first below the title. Lines in fenced blocks are not headings.
func Section(tb testing.TB, path, heading string) string {
	tb.Helper()
	var lines []string
	fenced, level := false, 0
	for line := range strings.Lines(Read(tb, path)) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		signs, title, _ := strings.Cut(strings.TrimSpace(line), " ")
		isHeading := !fenced && signs != "" && strings.Trim(signs, "#") == "" && title != ""
		switch {
		case level == 0 && isHeading && (title == heading || heading == ""):
			level = max(len(signs), 1)
			if heading == "" {
				level++ // the title is the document's
			}
		case level > 0 && isHeading && len(signs) <= level:
			return strings.Join(lines, "")
		case level > 0:
			lines = append(lines, line)
		}
	}
	if level == 0 {
		tb.Fatalf("%s has no heading %q", path, heading)
	}
	return strings.Join(lines, "")
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

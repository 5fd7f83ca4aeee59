package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/docs"
)

// The front page of the repository is read to its end.
func TestREADMEIsShort(t *testing.T) {
	if lines := strings.Count(docs.Read(t, "README.md"), "\n"); lines > 150 {
		t.Errorf("README.md has %d lines, and 150 are the most: move what grew to the README.md of its folder", lines)
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	for _, path := range docs.All(t) {
		for _, link := range links(docs.Read(t, path)) {
			checkLink(t, path, link)
		}
	}
}

// ours is this repository on GitHub, which the alerts name.
const ours = "https://github.com/kata-vfio/kata-vfio/blob/main/"

// links are the targets of a text's links that lead into the repository.
func links(text string) []string {
	inline := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	var all []string
	for _, m := range inline.FindAllStringSubmatch(docs.WithoutCode(text), -1) {
		if !strings.Contains(m[1], "://") || strings.HasPrefix(m[1], ours) {
			all = append(all, m[1])
		}
	}
	return all
}

func checkLink(t *testing.T, from, link string) {
	t.Helper()
	file, anchor, _ := strings.Cut(link, "#")
	target := from
	if rest, ok := strings.CutPrefix(file, ours); ok {
		target = rest
	} else if file != "" {
		target = filepath.Join(filepath.Dir(from), file)
	}
	info, err := os.Stat(filepath.Join(docs.Root(t), target))
	if err != nil {
		t.Errorf("%s: the link %s leads nowhere: %v", from, link, err)
		return
	}
	if anchor != "" && (info.IsDir() || !docs.Anchors(t, target)[anchor]) {
		t.Errorf("%s: the link %s names a heading that %s lacks", from, link, target)
	}
}

package archive

import (
	"archive/tar"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// unpackerNear is an unpacker that has as many entries and bytes as are allowed except for some.
func unpackerNear(t *testing.T, entries int, bytes int64) (*unpacker, string) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	a, err := newAnswers(&Manifest{})
	if err != nil {
		t.Fatal(err)
	}
	u := &unpacker{
		root: root, dir: root, dirName: ".", answers: a, known: map[string]bool{}, made: map[string]bool{".": true},
		contents: contents{entries: maxEntries - entries, total: maxTotal - bytes}, tar: tar.NewReader(strings.NewReader("")),
	}
	t.Cleanup(func() { u.leave() })
	return u, dir
}

// TestDirectoriesOfArchivesCount: a file of no byte below 60 directories of its own takes 60 blocks and inodes of the auditor's disk.
func TestDirectoriesOfArchivesCount(t *testing.T) {
	deep := func(n int) string { return fmt.Sprintf("node/%d/", n) + strings.Repeat("a/", 58) + "f" }
	for name, c := range map[string]struct {
		entries int
		bytes   int64
		header  func(n int) tar.Header
		taken   int // entries of the archive that are unpacked
		want    string
	}{
		"entries, of implied directories": {150, 1 << 20, func(n int) tar.Header { return tar.Header{Name: deep(n), Typeflag: tar.TypeReg} }, 2, "more than"},
		"bytes, of implied directories":   {1000, 130 * bytesOfDir, func(n int) tar.Header { return tar.Header{Name: deep(n), Typeflag: tar.TypeReg} }, 2, "too large"},
		"entries, of directories":         {10, 1 << 20, func(n int) tar.Header { return tar.Header{Name: fmt.Sprintf("node/%d/", n), Typeflag: tar.TypeDir} }, 5, "more than"},
		"entries, of one directory again": {10, 1 << 20, func(int) tar.Header { return tar.Header{Name: "node/x/", Typeflag: tar.TypeDir} }, 9, "more than"},
		"bytes, of directories":           {100, 5 * bytesOfDir, func(n int) tar.Header { return tar.Header{Name: fmt.Sprintf("node/%d/", n), Typeflag: tar.TypeDir} }, 5, "too large"},
		"entries, of links": {10, 1 << 20, func(n int) tar.Header {
			return tar.Header{Name: fmt.Sprintf("node/%d", n), Typeflag: tar.TypeSymlink, Linkname: "x"}
		}, 10, "more than"},
		"entries, of files":                   {10, 1 << 20, func(n int) tar.Header { return tar.Header{Name: fmt.Sprintf("node/%d", n), Typeflag: tar.TypeReg} }, 10, "more than"},
		"files of one directory, at no price": {10, bytesOfDir, func(n int) tar.Header { return tar.Header{Name: fmt.Sprintf("node/x/%d", n), Typeflag: tar.TypeReg} }, 9, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			u, dir := unpackerNear(t, c.entries, c.bytes)
			for n := range c.taken {
				if h := c.header(n); u.readFile(&h) != nil {
					t.Fatalf("entry %d of %d is refused", n+1, c.taken)
				}
			}
			h := c.header(c.taken)
			if err := u.readFile(&h); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("entry %d: %v, want %q", c.taken+1, err, c.want)
			}
			first := strings.TrimPrefix(strings.TrimSuffix(h.Name, "/f"), "node/")
			if _, err := os.Lstat(filepath.Join(dir, first)); err == nil && h.Typeflag == tar.TypeReg && strings.HasSuffix(h.Name, "/f") {
				t.Error("the directories of the refused entry were made")
			}
		})
	}
}

package archive

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestWriterCountsAsReadersDo: readers must not refuse an archive that was written.
func TestWriterCountsAsReadersDo(t *testing.T) {
	entries := map[string]*entry{
		"a/b/file": {read: true, opened: true, data: []byte("text")}, "a/b/known": {opened: true}, "a/link": {link: true, target: "b"},
		"a/c": {listed: true}, "d/e/f/g": {read: true, opened: true}, "absent": {}, ".": {listed: true},
	}
	var out bytes.Buffer
	w := &writer{tar: tar.NewWriter(&out), made: map[string]bool{}}
	for _, place := range []string{".", "a/b/file", "a/b/known", "a/c", "a/link", "absent", "d/e/f/g"} {
		if err := w.entry(place, entries[place]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.tar.Close(); err != nil {
		t.Fatal(err)
	}
	u, _ := unpackerNear(t, 1000, 1<<20)
	before := u.contents
	u.tar = tar.NewReader(&out)
	if err := u.readFiles(); err != nil {
		t.Fatal(err)
	}
	if want := (contents{u.entries - before.entries, u.total - before.total}); w.contents != want || want.entries < 10 {
		t.Errorf("the writer counts %+v, and the reader %+v", w.contents, want)
	}
}

// TestArchiveThatNobodyReadsIsNotWritten: it fails where it is made, where something can be left out.
func TestArchiveThatNobodyReadsIsNotWritten(t *testing.T) {
	for name, c := range map[string]struct {
		contents contents
		data     int
		says     string
	}{
		"too many files":   {contents{entries: maxEntries - 5}, 0, "more than 524288 files and directories"},
		"too many bytes":   {contents{total: maxTotal - 4<<10 - 20}, 10, "is too large: 10 bytes"},
		"too large a file": {contents{}, maxFile + 1, "is too large: 67108865 bytes"},
	} {
		w := &writer{tar: tar.NewWriter(io.Discard), made: map[string]bool{}, contents: c.contents}
		var err error
		for n := range 5 {
			if err = w.entry(fmt.Sprintf("a/%d", n), &entry{read: true, opened: true, data: make([]byte, c.data)}); err != nil {
				break
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	for place, target := range map[string]string{
		"proc/7/root":                           strings.Repeat("x", maxPath+1),
		strings.Repeat("a/", maxDepth) + "b":    "c",
		"sys/" + strings.Repeat("x", maxPath-3): "c",
		"../etc/passwd":                         "c",
	} {
		w := &writer{tar: tar.NewWriter(io.Discard), made: map[string]bool{}}
		if err := w.entry(place, &entry{link: true, target: target}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%.128q", place)) {
			t.Errorf("link %.128q to %.128q: %v", place, target, err)
		}
	}
	l := &limited{to: io.Discard, left: 10}
	if _, err := l.Write(make([]byte, 10)); err != nil {
		t.Error(err)
	}
	if _, err := l.Write(make([]byte, 1)); err == nil {
		t.Error("a stream of 11 bytes is written, and readers read 10")
	}
}

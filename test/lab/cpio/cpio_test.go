package cpio_test

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/test/lab/cpio"
)

// list reads an archive back, from the format's description.
func list(t *testing.T, archive []byte) []string {
	t.Helper()
	field := func(header []byte, i int) int {
		n, err := strconv.ParseInt(string(header[6+8*i:14+8*i]), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		return int(n)
	}
	round := func(n int) int { return (n + 3) &^ 3 }
	var entries []string
	for at := 0; at < len(archive); {
		header := archive[at : at+110]
		if string(header[:6]) != "070701" {
			t.Fatalf("the magic at %d is %q", at, header[:6])
		}
		nameAt, nameSize, size := at+110, field(header, 11), field(header, 6)
		dataAt := round(nameAt + nameSize)
		entries = append(entries, fmt.Sprintf("%s %o %q",
			archive[nameAt:nameAt+nameSize-1], field(header, 1), archive[dataAt:dataAt+size]))
		at = round(dataAt + size)
	}
	return entries
}

func TestWriter(t *testing.T) {
	var out bytes.Buffer
	w := cpio.NewWriter(&out)
	w.File("init", 0o755, []byte("hello"))
	w.File("modules/a/b.ko", 0o644, []byte("1234"))
	w.Dir("modules")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`init 100755 "hello"`, `modules 40755 ""`, `modules/a 40755 ""`, `modules/a/b.ko 100644 "1234"`, `TRAILER!!! 0 ""`,
	}
	if diff := cmp.Diff(want, list(t, out.Bytes())); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

type brokenWriter struct{}

var errBroken = errors.New("broken")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestWriterError(t *testing.T) {
	w := cpio.NewWriter(brokenWriter{})
	w.File("init", 0o755, nil)
	if err := w.Close(); !errors.Is(err, errBroken) {
		t.Errorf("Close: %v, want %v", err, errBroken)
	}
}

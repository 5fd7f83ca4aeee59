package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestHashTree(t *testing.T) {
	hash := func(files fstest.MapFS) string {
		t.Helper()
		sum, err := hashTree(files)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	one := hash(fstest.MapFS{"a": {Data: []byte("x")}, "b": {Data: []byte("y")}})
	for name, other := range map[string]fstest.MapFS{
		"another text": {"a": {Data: []byte("x")}, "b": {Data: []byte("z")}},
		"another name": {"a": {Data: []byte("x")}, "c": {Data: []byte("y")}},
		"another cut":  {"a": {Data: []byte("xb 1\ny")}},
	} {
		if hash(other) == one {
			t.Errorf("%s, the same hash", name)
		}
	}
	if again := hash(fstest.MapFS{"b": {Data: []byte("y")}, "a": {Data: []byte("x")}}); again != one {
		t.Errorf("the same files, the hashes %s and %s", one, again)
	}
}

// bzImage is an image with a payload, one setup sector and the payload 64 bytes into what follows.
func bzImage(payload []byte) []byte {
	const sectors, offset = 1, 64
	image := make([]byte, (sectors+1)*512+offset)
	image[0x1f1] = sectors
	copy(image[0x202:], "HdrS")
	binary.LittleEndian.PutUint32(image[0x248:], offset)
	binary.LittleEndian.PutUint32(image[0x24c:], uint32(len(payload)))
	return append(image, payload...)
}

func TestZstdPayload(t *testing.T) {
	packed := []byte("\x28\xb5\x2f\xfdpacked")
	got, err := zstdPayload(bzImage(append(slices.Clip(packed), 1, 2, 3, 4)))
	if err != nil || !bytes.Equal(got, packed) {
		t.Errorf("the payload is %q, %v; want %q", got, err, packed)
	}
	for name, image := range map[string][]byte{
		"empty":          nil,
		"not a kernel":   make([]byte, 4096),
		"cut":            bzImage(packed)[:1090],
		"not compressed": bzImage([]byte("plain text 1234")),
	} {
		if _, err := zstdPayload(image); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestSpanIterator(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "interval_tree.c"), filepath.Join(dir, "itspan.c")
	text := "before\n#ifdef CONFIG_INTERVAL_TREE_SPAN_ITER\nvoid span(void);\n#endif\nafter\n"
	if err := os.WriteFile(from, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	b := &build{}
	if err := b.spanIterator(from, to); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(got); !strings.HasSuffix(s, "void span(void);\n") || !strings.Contains(s, `MODULE_LICENSE("GPL")`) {
		t.Errorf("the cut file is %q", s)
	}
	if err := os.WriteFile(from, []byte("no such section"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := b.spanIterator(from, to); err == nil {
		t.Error("no error for a file without the section")
	}
}

// Prune touches images only, whatever else the directory has.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(CacheVariable, dir)
	c, err := cached()
	if err != nil {
		t.Fatal(err)
	}
	const old = "0123456789abcdef"
	for _, name := range []string{c.Key, c.Key + ".log", old, old + ".log", old + ".building", "mine", "0123456789abcdef0"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Prune(); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 4 {
		t.Errorf("after Prune there are %v", left)
	}
}

// A directory without its description is not an image.
func TestOpenUnfinished(t *testing.T) {
	if _, err := open(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open: %v, want that it does not exist", err)
	}
}

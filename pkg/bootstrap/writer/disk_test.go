package writer_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/writer"
)

func open(t *testing.T) (*writer.Disk, string) {
	t.Helper()
	root := t.TempDir()
	d, err := writer.OpenDisk(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d, root
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestDiskFindsWrittenFiles(t *testing.T) {
	d, root := open(t)
	if err := d.Write("a", []byte("one"), state.NewImage(0o640)); err != nil {
		t.Fatal(err)
	}
	found, err := d.Look("a")
	if err != nil || string(found.Content) != "one" || found.Mode != 0o640 || found.Sum != state.Sum([]byte("one")) || found.Kind != state.RegularFile {
		t.Errorf("found %+v, %v", found, err)
	}
	if err := d.Symlink("b", "a"); err != nil {
		t.Fatal(err)
	}
	if err := d.Symlink("b", "../elsewhere"); err != nil {
		t.Fatal(err)
	}
	if found, err = d.Look("b"); err != nil || found.Kind != state.Link || found.Target != "../elsewhere" {
		t.Errorf("found %+v, %v", found, err)
	}
	for range 2 {
		if err := errors.Join(d.Remove("a"), d.Remove("b"), d.Remove("none/c"), d.RemoveDir("none")); err != nil {
			t.Error(err)
		}
	}
	if left := names(t, root); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestStagedFileTakesItsPlaceOrLeavesNothing(t *testing.T) {
	d, root := open(t)
	if err := d.Write("a", []byte("one"), state.NewImage(0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		commit bool
		want   string
	}{{false, "one"}, {true, "two"}} {
		commit, discard, err := d.Stage("a", []byte("two"), state.NewImage(0o600))
		if err != nil {
			t.Fatal(err)
		}
		if found, err := d.Look("a"); err != nil || string(found.Content) != "one" {
			t.Errorf("while staged: %q, %v", found.Content, err)
		}
		end := discard
		if c.commit {
			end = commit
		}
		if err := end(); err != nil {
			t.Error(err)
		}
		if found, err := d.Look("a"); err != nil || string(found.Content) != c.want {
			t.Errorf("commit %t: %q, %v", c.commit, found.Content, err)
		}
		if diff := cmp.Diff([]string{"a"}, names(t, root)); diff != "" {
			t.Errorf("commit %t (-want +got):\n%s", c.commit, diff)
		}
	}
}

func TestNothingIsWrittenThroughALinkThatLeavesTheRoot(t *testing.T) {
	d, root := open(t)
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(root, "etc")); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"write": d.Write("etc/a", nil, state.NewImage(0o600)), "link": d.Symlink("etc/a", "b"), "directory": d.MakeDir("etc/a", 0o755), "up": d.Write("../a", nil, state.NewImage(0o600)),
	} {
		if err == nil || what != "up" && !strings.Contains(err.Error(), "a link that is absolute") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := names(t, outside); len(got) > 0 {
		t.Errorf("outside there is %v", got)
	}
}

func TestSweepTakesTemporaryFilesOfThatNameAlone(t *testing.T) {
	d, root := open(t)
	keep := []string{".a", ".a1b", ".ab1", "a", "a1"}
	for _, name := range append([]string{".a1", ".a4711"}, keep...) {
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(d.Sweep("a"), d.Sweep("none/a")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(keep, names(t, root)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestDiskKeepsFileInPlaceOfDirectory(t *testing.T) {
	d, root := open(t)
	if err := errors.Join(os.Mkdir(filepath.Join(root, "full"), 0o755), os.WriteFile(filepath.Join(root, "full/a"), nil, 0o600),
		os.Symlink("full", filepath.Join(root, "link")), os.WriteFile(filepath.Join(root, "file"), nil, 0o600), os.Mkdir(filepath.Join(root, "empty"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.RemoveDir("full"), d.RemoveDir("link"), d.RemoveDir("file"), d.RemoveDir("empty"), d.RemoveDir("none/x")); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"file", "full", "link"}, names(t, root)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestMissingDirectoriesAreNamedOutermostFirst(t *testing.T) {
	d, root := open(t)
	if err := os.MkdirAll(filepath.Join(root, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	missing, err := d.Missing("a/b/c/d/file")
	if diff := cmp.Diff([]string{"a/b/c", "a/b/c/d"}, missing); diff != "" || err != nil {
		t.Errorf("missing (-want +got):\n%s, %v", diff, err)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	d, root := open(t)
	if err := os.WriteFile(filepath.Join(root, "big"), make([]byte, state.MaxImage+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Look("big"); err == nil || !strings.Contains(err.Error(), "read /big: it is larger than") {
		t.Errorf("error %v", err)
	}
	if err := d.Write("none/a", nil, state.NewImage(0o600)); !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "write /none/a: ") {
		t.Errorf("error %v", err)
	}
}

func TestOneHasTheLock(t *testing.T) {
	d, root := open(t)
	release, err := d.Lock(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	other, err := writer.OpenDisk(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := other.Lock(ctx, "."); !errors.Is(err, writer.ErrBusy) {
		t.Errorf("error %v", err)
	}
	release()
	release, err = other.Lock(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	release()
}

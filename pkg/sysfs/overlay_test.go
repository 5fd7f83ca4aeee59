package sysfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

func TestOverlayReplacesFilesAndNothingElse(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{"etc/a": "old", "etc/b": "gone", "etc/c": "kept"} {
		if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	node, err := sysfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	o := sysfs.NewOverlay()
	o.Put("etc/a", []byte("new"), 0o640, 0, 7)
	o.Put("etc/x/y/z", []byte("made"), 0o644, 0, 0)
	o.Link("etc/l", "x/y/z")
	o.Remove("etc/b")
	over := node.WithOverlay(o)
	for name, want := range map[string]string{"etc/a": "new", "etc/c": "kept", "etc/x/y/z": "made"} {
		if got, err := over.ReadString(name); err != nil || got != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	if got, err := over.ReadTail("etc/a", 2); err != nil || string(got) != "ew" {
		t.Errorf("the end is %q, %v", got, err)
	}
	if got, err := over.ReadAtMost("etc/a", 2); err != nil || string(got) != "ne" {
		t.Errorf("the beginning is %q, %v", got, err)
	}
	if got, err := over.ReadLink("etc/l"); err != nil || got != "x/y/z" {
		t.Errorf("the link says %q, %v", got, err)
	}
	if _, err := over.ReadFile("etc/b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed file: %v", err)
	}
	for dir, want := range map[string][]string{"etc": {"a", "c", "l", "x"}, "etc/x": {"y"}, ".": {"etc"}} {
		if got, err := over.ReadDir(dir); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s lists %q, %v", dir, got, err)
		}
	}
	if info, err := over.Stat("etc/x/y"); err != nil || !info.IsDir() {
		t.Errorf("a made directory: %v, %v", info, err)
	}
	if info, err := over.Stat("etc/a"); err != nil || info.Mode() != 0o640 {
		t.Errorf("a changed file: %v, %v", info, err)
	}
	if got, err := node.ReadString("etc/a"); err != nil || got != "old" {
		t.Errorf("the node itself has %q, %v", got, err)
	}
	if _, err := over.ReadDir("usr"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

package archive

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// recorded is a node with the files, whose reads are kept.
func recorded(t *testing.T, files map[string]string) (*sysfs.FS, *Recorder) {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		at := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	node, err := sysfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	return Record(node)
}

// copied returns the copy that a recorder writes.
func copied(t *testing.T, r *Recorder) *Tree {
	t.Helper()
	var out bytes.Buffer
	if err := r.Write(&out, Manifest{Time: "2026-11-22T10:00:00Z"}); err != nil {
		t.Fatal(err)
	}
	tree, err := Read(&out, "x.tgz")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	return tree
}

// A file whose content was not read is there in the copy, and reads as not collected: it is not empty.
func TestFileThatWasOnlySeenIsNotEmpty(t *testing.T) {
	fsys, r := recorded(t, map[string]string{"etc/seen": "content"})
	if _, err := fsys.Stat("etc/seen"); err != nil {
		t.Fatal(err)
	}
	tree := copied(t, r)
	if _, err := tree.FS.Stat("etc/seen"); err != nil {
		t.Errorf("in the copy it is not there: %v", err)
	}
	if data, err := tree.FS.ReadFile("etc/seen"); !errors.Is(err, ErrNotCollected) {
		t.Errorf("in the copy it reads %q, %v, want %v", data, err, ErrNotCollected)
	}
}

// A function whose unbind hangs is one in the copy too.
func TestLockStaysALock(t *testing.T) {
	f := failure("sys/x", sysfs.OpRead, fmt.Errorf("unbind 0000:3b:00.0: %w", sysfs.ErrLocked))
	if err := f.err(); !errors.Is(err, sysfs.ErrLocked) {
		t.Errorf("the failure is %v, want %v", err, sysfs.ErrLocked)
	}
	other := failure("sys/x", sysfs.OpRead, errors.New("broken"))
	if err := other.err(); errors.Is(err, sysfs.ErrLocked) || err.Error() != "broken" {
		t.Errorf("another failure is %v", err)
	}
}

// What a program says does not replace what the node has, and a name that is masked is masked in errors too.
func TestPutAndRewrite(t *testing.T) {
	fsys, r := recorded(t, map[string]string{"kata-vfio/asked.json": "the node's"})
	if _, err := fsys.ReadString("kata-vfio/asked.json"); err != nil {
		t.Fatal(err)
	}
	r.Put("kata-vfio/asked.json", []byte("a program's"))
	r.Put("kata-vfio/other.json", []byte("tenant-a"))
	r.entry("sys/tenant-a").failed = map[sysfs.Op]error{sysfs.OpRead: errors.New("tenant-a is in the way")}
	r.Rewrite(func(_ string, data []byte) []byte { return bytes.ReplaceAll(data, []byte("tenant-a"), []byte("t1")) }, func(string) bool { return false })
	tree := copied(t, r)
	if text, err := tree.FS.ReadString("kata-vfio/asked.json"); err != nil || text != "the node's" {
		t.Errorf("the node's file reads %q, %v", text, err)
	}
	if text, err := tree.FS.ReadString("kata-vfio/other.json"); err != nil || text != "t1" {
		t.Errorf("the program's file reads %q, %v", text, err)
	}
	if len(tree.Manifest.Failures) != 1 || tree.Manifest.Failures[0].Path != "sys/t1" || tree.Manifest.Failures[0].Error != "t1 is in the way" {
		t.Errorf("the failures are %+v", tree.Manifest.Failures)
	}
}

// A ledger's history is not kept by reads: only a limited part goes into the copy.
func TestReadsOfTheLedgerAreNotKept(t *testing.T) {
	segment := filepath.Join(ledger.DefaultDir, ledger.SegmentName(0))
	fsys, r := recorded(t, map[string]string{segment: "history"})
	if _, err := fsys.ReadString(segment); err != nil {
		t.Fatal(err)
	}
	if kept := r.Contents(func(string) bool { return true }); len(kept) > 0 {
		t.Errorf("kept are %v", kept)
	}
}

// A process can open a file whose path is too long for readers, and whose name says that the process concerns devices.
func TestLongPathOfAProcessSpoilsNoArchive(t *testing.T) {
	_, r := recorded(t, nil)
	long := "/dev/shm/vfio" + strings.Repeat("/x", maxPath/2)
	for _, place := range []string{"proc/7/fd/3", "proc/7/cwd"} {
		*r.entry(place) = entry{link: true, target: long}
	}
	*r.entry("proc/7/fd/4") = entry{link: true, target: "/dev/vfio/15"}
	tree := copied(t, r)
	for place, want := range map[string]string{"proc/7/fd/3": "(not collected)", "proc/7/cwd": "(not collected)", "proc/7/fd/4": "/dev/vfio/15"} {
		if target, err := tree.FS.ReadLink(place); err != nil || target != want {
			t.Errorf("%s leads to %.64q, %v; want %q", place, target, err, want)
		}
	}
}

// Of a process with devices the copy has neither its environment nor its other files.
func TestProcessIsCensored(t *testing.T) {
	_, r := recorded(t, nil)
	for place, text := range map[string]string{"proc/7/comm": "worker", "proc/7/environ": "PASSWORD=hunter2", "proc/7/auxv": "hunter2"} {
		*r.entry(place) = entry{data: []byte(text), read: true}
	}
	*r.entry("proc/7/maps") = entry{read: true, data: []byte("7f00-7f01 rw-s 0 00:05 9 /dev/vfio/15\n7f02-7f03 r--p 0 08:01 7 /home/hunter2\n")}
	*r.entry("proc/7/fd/3") = entry{link: true, target: "/dev/vfio/15"}
	*r.entry("proc/7/fd/4") = entry{link: true, target: "/home/hunter2"}
	r.censor()
	for place, e := range r.entries {
		if strings.Contains(string(e.data)+e.target, "hunter2") {
			t.Errorf("%s has %q", place, string(e.data)+e.target)
		}
	}
	if fd, maps := r.entries["proc/7/fd/3"], r.entries["proc/7/maps"]; fd == nil || fd.target != "/dev/vfio/15" || maps == nil || !strings.Contains(string(maps.data), "/dev/vfio/15") {
		t.Error("what shows the device is gone")
	}
}

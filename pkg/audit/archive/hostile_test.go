package archive_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/archive"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// packed returns an archive with a manifest and some entries.
func packed(t testing.TB, manifest string, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	w := tar.NewWriter(compressed)
	body := func(h tar.Header, data []byte) {
		h.Size = int64(len(data))
		if h.Typeflag != tar.TypeReg && h.Typeflag != 0 {
			h.Size = 0
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write(data); err != nil {
				t.Fatal(err)
			}
		}
	}
	body(tar.Header{Name: archive.ManifestName, Mode: 0o600}, []byte(manifest))
	for _, h := range entries {
		body(h, bytes.Repeat([]byte("x"), int(h.Size)))
	}
	if err := errors.Join(w.Close(), compressed.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const plain = `{"format":1,"lists":{},"known":[],"failures":[]}`

// TestHostileArchives: what would reach out of its directory, or take more than a
// node has, is refused, and nothing of it stays.
func TestHostileArchives(t *testing.T) {
	for _, c := range []struct {
		name, manifest string
		entries        []tar.Header
		want           string
	}{
		{"a link to a path that is too long", plain, []tar.Header{{Name: "node/x", Typeflag: tar.TypeSymlink, Linkname: strings.Repeat("x", 1025)}}, "leads to a path that is too long"},
		{"a path that climbs", plain, []tar.Header{{Name: "node/../../etc/cron.d/x", Size: 1}}, "no name of a file of the node"},
		{"an absolute path", plain, []tar.Header{{Name: "/etc/cron.d/x", Size: 1}}, "no name of a file of the node"},
		{"a path beside the tree", plain, []tar.Header{{Name: "etc/x", Size: 1}}, "no name of a file of the node"},
		{"a path with a dot", plain, []tar.Header{{Name: "node/./x", Size: 1}}, "no name of a file of the node"},
		{"a file behind a link", plain, []tar.Header{
			{Name: "node/out", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, {Name: "node/out/passwd", Size: 1},
		}, "below the link"},
		{"a file in place of a link", plain, []tar.Header{
			{Name: "node/out", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, {Name: "node/out", Size: 1},
		}, "file exists"},
		{"a file twice", plain, []tar.Header{{Name: "node/x", Size: 1}, {Name: "node/x", Size: 1}}, "file exists"},
		{"a deep path", plain, []tar.Header{{Name: "node/" + strings.Repeat("a/", 70) + "x", Size: 1}}, "no name of a file of the node"},
		{"a large file", plain, []tar.Header{{Name: "node/x", Size: 65 << 20}}, "too large"},
		{"no manifest", "", nil, "read its manifest.json"},
		{"a manifest of tomorrow", `{"format":2}`, nil, "format 2"},
		{"a look nobody knows", `{"format":1,"failures":[{"path":"x","op":"sniff"}]}`, nil, `"sniff"`},
		{"lists out of order", `{"format":1,"lists":{"proc":["2","1"]}}`, nil, "out of order"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tmp := t.TempDir()
			t.Setenv("TMPDIR", tmp)
			tree, err := archive.Read(bytes.NewReader(packed(t, c.manifest, c.entries...)), "x.tgz")
			if err == nil {
				_ = tree.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("err = %v, want %q", err, c.want)
			}
			left, _ := os.ReadDir(tmp)
			if len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestCutArchive: an archive that ends too early is an error wherever it ends.
func TestCutArchive(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	whole := packed(t, plain, tar.Header{Name: "node/proc/cmdline", Size: 4})
	for n := range len(whole) {
		tree, err := archive.Read(bytes.NewReader(whole[:n]), "x.tgz")
		if err == nil {
			_ = tree.Close()
			t.Fatalf("%d of %d bytes are an archive", n, len(whole))
		}
	}
}

// TestBomb: a small file that unpacks to gigabytes ends at the limit.
func TestBomb(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var entries []tar.Header
	for i := range 40 {
		entries = append(entries, tar.Header{Name: "node/x" + strings.Repeat("y", i), Size: 16 << 20})
	}
	tree, err := archive.Read(bytes.NewReader(packed(t, plain, entries...)), "bomb.tgz")
	if err == nil {
		_ = tree.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("err = %v", err)
	}
}

// TestLinksAndDevicesOfArchives: a link that leaves is read as text and never
// followed; a device is an empty file.
func TestLinksAndDevicesOfArchives(t *testing.T) {
	tree, err := archive.Read(bytes.NewReader(packed(t, plain,
		tar.Header{Name: "node/proc/7/fd/17", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		tar.Header{Name: "node/out", Typeflag: tar.TypeSymlink, Linkname: "../../../../etc/passwd"},
		tar.Header{Name: "node/dev/mem", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 1, Mode: 0o4777},
	)), "x.tgz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tree.Close() }()
	if target, err := tree.FS.ReadLink("proc/7/fd/17"); err != nil || target != "/etc/passwd" {
		t.Errorf("link: %q, %v", target, err)
	}
	for _, name := range []string{"proc/7/fd/17", "out", "dev/mem"} {
		if data, err := tree.FS.ReadFile(name); err == nil {
			t.Errorf("%s reads %q", name, data)
		}
	}
	info, err := tree.FS.Stat("dev/mem")
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != 0o600 {
		t.Errorf("dev/mem is %v, %v", info, err)
	}
}

// TestAnswers: a copy answers as the node did, and says where it can't.
func TestAnswers(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{"proc/cmdline": "quiet\n", "sys/a/seen": "1\n", "sys/a/unseen": "2\n", "sys/b/x": "3\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../sys/a", filepath.Join(root, "proc/link")); err != nil {
		t.Fatal(err)
	}
	node, err := sysfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = node.Close() }()
	looks := []struct {
		name string
		look func(*sysfs.FS) error
		want error
	}{
		{"a file", func(f *sysfs.FS) error { _, err := f.ReadFile("proc/cmdline"); return err }, nil},
		{"a file behind a link", func(f *sysfs.FS) error { _, err := f.ReadFile("proc/link/seen"); return err }, nil},
		{"the same in its place", func(f *sysfs.FS) error { _, err := f.ReadFile("sys/a/seen"); return err }, nil},
		{"a list", func(f *sysfs.FS) error { _, err := f.ReadDir("sys/a"); return err }, nil},
		{"no such file", func(f *sysfs.FS) error { _, err := f.ReadFile("etc/none"); return err }, fs.ErrNotExist},
		{"no link", func(f *sysfs.FS) error { _, err := f.ReadLink("sys/a"); return err }, syscall.EINVAL},
		{"no directory", func(f *sysfs.FS) error { _, err := f.ReadFile("proc/cmdline/x"); return err }, syscall.ENOTDIR},
	}
	seen, recorder := archive.Record(node)
	for _, l := range looks {
		if err := l.look(seen); !errors.Is(err, l.want) {
			t.Fatalf("%s: %v, want %v", l.name, err, l.want)
		}
	}
	var out bytes.Buffer
	if err := recorder.Write(&out, archive.Manifest{}); err != nil {
		t.Fatal(err)
	}
	tree, err := archive.Read(&out, "x.tgz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tree.Close() }()
	for _, l := range append(looks, []struct {
		name string
		look func(*sysfs.FS) error
		want error
	}{
		{"listed and not read", func(f *sysfs.FS) error { _, err := f.ReadFile("sys/a/unseen"); return err }, archive.ErrNotCollected},
		{"not in the list", func(f *sysfs.FS) error { _, err := f.ReadFile("sys/a/other"); return err }, fs.ErrNotExist},
		{"never looked at", func(f *sysfs.FS) error { _, err := f.ReadFile("sys/b/x"); return err }, archive.ErrNotCollected},
		{"never listed", func(f *sysfs.FS) error { _, err := f.ReadDir("sys/b"); return err }, archive.ErrNotCollected},
		{"below what is not there", func(f *sysfs.FS) error { _, err := f.ReadFile("etc/none/x"); return err }, fs.ErrNotExist},
	}...) {
		if err := l.look(tree.FS); !errors.Is(err, l.want) {
			t.Errorf("the copy, %s: %v, want %v", l.name, err, l.want)
		}
	}
}

// TestSecretsStay: what a process has open beside devices, other processes, its
// environment and passwords of configurations are in no archive.
func TestSecretsStay(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"etc/containerd/config.toml": "[plugins.x.auth]\nusername = \"u\"\npassword = \"hunter2\"\n",
		"proc/7/environ":             "TOKEN=hunter2", "proc/7/cmdline": "qemu", "proc/7/maps": "1-2 r 0 0:1 5 /home/hunter2\n3-4 rw 0 0:1 6 /dev/vfio/15\n",
		"proc/8/cmdline": "hunter2",
		"proc/iomem":     "1000-1fff : Kernel code\nd000-dfff : 0000:01:00.0\n  d000-d7ff : BOOTFB\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"proc/7/fd/3": "/home/hunter2", "proc/7/fd/17": "/dev/vfio/15", "proc/8/fd/3": "/home/hunter2"} {
		_ = os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755)
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	node, err := sysfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = node.Close() }()
	seen, recorder := archive.Record(node)
	for _, name := range []string{"etc/containerd/config.toml", "proc/7/environ", "proc/7/cmdline", "proc/7/maps", "proc/8/cmdline", "proc/iomem"} {
		if _, err := seen.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"proc/7/fd/3", "proc/7/fd/17", "proc/8/fd/3"} {
		if _, err := seen.ReadLink(name); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := recorder.Write(&out, archive.Manifest{}); err != nil {
		t.Fatal(err)
	}
	packed := uncompressed(t, out.Bytes())
	for word, want := range map[string]bool{"hunter2": false, "/dev/vfio/15": true, "proc/8": false, "username": true, "qemu": true, "Kernel code": false, "BOOTFB": true} {
		if bytes.Contains(packed, []byte(word)) != want {
			t.Errorf("the archive has %q: %v, want %v", word, !want, want)
		}
	}
}

func uncompressed(t *testing.T, data []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := out.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// FuzzRead: whatever the file is, it is an archive or an error, and what was
// unpacked is removed.
func FuzzRead(f *testing.F) {
	f.Add(packed(f, plain, tar.Header{Name: "node/proc/cmdline", Size: 4}))
	f.Add(packed(f, plain, tar.Header{Name: "node/../x", Size: 4}))
	f.Add(packed(f, plain, tar.Header{Name: "node/a", Typeflag: tar.TypeSymlink, Linkname: "a"}))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, err := archive.Read(bytes.NewReader(data), "x.tgz")
		if err != nil {
			return
		}
		_, _ = tree.FS.ReadFile("a")
		_, _ = tree.FS.ReadDir("node")
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
	})
}

// FuzzManifest: whatever a manifest says, looks end with an answer.
func FuzzManifest(f *testing.F) {
	m, _ := json.Marshal(archive.Manifest{Format: 1, Lists: map[string][]string{"a": {"b"}}, Failures: []archive.Failure{{Path: "a/b", Op: "read", Errno: 13}}})
	f.Add(string(m), "a/b")
	f.Add(plain, "../x")
	f.Fuzz(func(t *testing.T, manifest, name string) {
		tree, err := archive.Read(bytes.NewReader(packed(t, manifest, tar.Header{Name: "node/a", Typeflag: tar.TypeSymlink, Linkname: "a/b"})), "x.tgz")
		if err != nil {
			return
		}
		_, _ = tree.FS.ReadFile(name)
		_, _ = tree.FS.ReadDir(name)
		_, _ = tree.FS.ReadLink(name)
		_, _ = tree.FS.Stat(name)
		_ = tree.Close()
	})
}

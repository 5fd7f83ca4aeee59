package archive_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/archive"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// TestWideCopiesFunctionsBehindLinks: attributes are read once each, at their place in /sys/devices. A reader can tell
// absent ones from those that were not collected.
func TestWideCopiesFunctionsBehindLinks(t *testing.T) {
	const function = "sys/devices/pci0000:3a/0000:3b:00.0"
	const alias = "sys/bus/pci/devices/0000:3b:00.0"
	root := t.TempDir()
	for name, content := range map[string]string{function + "/vendor": "0x10de\n", function + "/rom": "data", "sys/bus/pci/drivers/vfio-pci/bind": ""} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755), os.WriteFile(filepath.Join(root, name), []byte(content), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(
		os.MkdirAll(filepath.Join(root, filepath.Dir(alias)), 0o755),
		os.Symlink("../../../devices/pci0000:3a/0000:3b:00.0", filepath.Join(root, alias)),
		os.Symlink("../../../bus/pci/drivers/vfio-pci", filepath.Join(root, function, "driver")),
	); err != nil {
		t.Fatal(err)
	}
	node, err := sysfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = node.Close() }()
	seen, recorder := archive.Record(node)
	if _, err := seen.ReadString(alias + "/vendor"); err != nil {
		t.Fatal(err)
	}
	if _, err := seen.ReadDir(alias + "/driver"); err != nil {
		t.Fatal(err)
	}
	if err := recorder.Wide(context.Background()); err != nil {
		t.Fatal(err)
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
	for name, want := range map[string]error{"vendor": nil, "enable": fs.ErrNotExist, "p2pmem": fs.ErrNotExist, "rom": archive.ErrNotCollected} {
		for _, dir := range []string{alias, function} {
			if _, err := tree.FS.ReadFile(dir + "/" + name); !errors.Is(err, want) {
				t.Errorf("%s/%s: %v, want %v", dir, name, err, want)
			}
		}
	}
	if target, err := tree.FS.ReadLink(function + "/driver"); err != nil || target != "../../../bus/pci/drivers/vfio-pci" {
		t.Errorf("the driver's link: %q, %v", target, err)
	}
	for _, f := range tree.Manifest.Failures {
		if filepath.Dir(f.Path) == function {
			t.Errorf("%s %s failed: the directory's list says it", f.Op, f.Path)
		}
	}
}

// TestWideHasTheFilesOfALocalSite: udev and sysctl read /run and /usr/local/lib, too.
func TestWideHasTheFilesOfALocalSite(t *testing.T) {
	for _, name := range []string{
		"etc/udev/rules.d/9.rules", "run/udev/rules.d/9.rules", "usr/local/lib/udev/rules.d/9.rules", "usr/lib/udev/rules.d/9-vfio.rules",
		"etc/sysctl.d/9.conf", "run/sysctl.d/9.conf", "usr/local/lib/sysctl.d/9.conf", "usr/lib/sysctl.d/9.conf",
	} {
		if !slices.ContainsFunc(archive.Patterns(), func(pattern string) bool { ok, err := path.Match(pattern, name); return ok && err == nil }) {
			t.Errorf("no pattern matches %s, want one", name)
		}
	}
}

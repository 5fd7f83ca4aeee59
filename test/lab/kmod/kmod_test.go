package kmod_test

import (
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/test/lab/kmod"
)

const dep = `kernel/drivers/vfio/vfio.ko.xz: kernel/drivers/iommu/iommufd.ko.xz
kernel/drivers/iommu/iommufd.ko.xz:
kernel/drivers/vfio/pci/vfio-pci-core.ko.xz: kernel/drivers/vfio/vfio.ko.xz kernel/drivers/iommu/iommufd.ko.xz
kernel/drivers/vfio/pci/vfio-pci.ko.xz: kernel/drivers/vfio/pci/vfio-pci-core.ko.xz
kernel/broken.ko: kernel/absent.ko
`

func index(t *testing.T) *kmod.Index {
	t.Helper()
	idx, err := kmod.Read(fstest.MapFS{
		"modules.dep":     {Data: []byte(dep)},
		"modules.builtin": {Data: []byte("kernel/drivers/virtio/virtio_pci.ko\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return idx
}

func TestFiles(t *testing.T) {
	got, err := index(t).Files("vfio_pci", "virtio-pci", "vfio")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"kernel/drivers/iommu/iommufd.ko.xz", "kernel/drivers/vfio/vfio.ko.xz",
		"kernel/drivers/vfio/pci/vfio-pci-core.ko.xz", "kernel/drivers/vfio/pci/vfio-pci.ko.xz",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files in the order in which they load (-want +got):\n%s", diff)
	}
}

func TestFilesOfUnknownModules(t *testing.T) {
	for _, name := range []string{"no_such_module", "broken"} {
		if _, err := index(t).Files(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Files(%s): %v, want %v", name, err, fs.ErrNotExist)
		}
	}
}

func TestReadWithoutIndex(t *testing.T) {
	if _, err := kmod.Read(fstest.MapFS{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Read of an empty directory: %v, want %v", err, fs.ErrNotExist)
	}
}

package inventory_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// large is the number of functions of the large node: 512 PFs with 7 VFs each,
// every function in a group of its own. With -short it is a small one.
func large() int {
	if testing.Short() {
		return 64
	}
	return 4096
}

// BenchmarkLargeNode measures a scan, and a rescan of one function, against
// reading the attributes that a scan reads, one after the other with
// os.ReadFile, and making nothing of them.
func BenchmarkLargeNode(b *testing.B) {
	node := largeNode(b)
	snap, err := inventory.Scan(b.Context(), node)
	if err != nil {
		b.Fatal(err)
	}
	if len(snap.Functions) != large() || len(snap.Groups) != large() {
		b.Fatalf("%d functions in %d groups, want %d", len(snap.Functions), len(snap.Groups), large())
	}
	b.Run("scan", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := inventory.Scan(b.Context(), node); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("rescan one", func(b *testing.B) {
		one := []pci.Address{snap.Functions[large()/2].Address}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := inventory.Rescan(b.Context(), node, snap, one); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("bare read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			bareRead(b, filepath.Join(node.Path(), sysfs.Devices),
				"class device subsystem_vendor subsystem_device revision modalias driver_override sriov_totalvfs sriov_numvfs "+
					"numa_node resource current_link_speed max_link_speed current_link_width max_link_width reset_method config vendor")
			bareRead(b, filepath.Join(node.Path(), "sys/kernel/iommu_groups"), "type name reserved_regions")
		}
	})
}

func bareRead(b *testing.B, dir, attributes string) {
	b.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range entries {
		for a := range strings.FieldsSeq(attributes) {
			_, err := os.ReadFile(filepath.Join(dir, e.Name(), a))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				b.Fatal(err)
			}
		}
	}
}

func largeNode(b *testing.B) *sysfs.FS {
	b.Helper()
	t := newTree(b)
	config := string(make([]byte, 4096))
	resource := strings.Repeat("0x0000000000000000 0x0000000000000000 0x0000000000000000\n", 13)
	for i := range large() / 8 {
		bus := fmt.Sprintf("pci%04x:00/%04x:00:00.0/%04x:01", i, i, i)
		var pf string
		for fn := range 8 {
			attributes := map[string]string{
				"modalias": "pci:v00008086d000010CAsv00008086sd00000001bc02sc00i00\n", "config": config, "resource": resource,
				"current_link_speed": "16.0 GT/s PCIe\n", "max_link_speed": "16.0 GT/s PCIe\n",
				"current_link_width": "16\n", "max_link_width": "16\n", "reset_method": "flr bus\n",
			}
			if fn == 0 {
				attributes["sriov_totalvfs"], attributes["sriov_numvfs"], attributes["sriov_drivers_autoprobe"] = "7\n", "7\n", "1\n"
			}
			where := t.function(fmt.Sprintf("%s:00.%x", bus, fn), attributes)
			if fn == 0 {
				pf = where
			} else {
				t.link(where+"/physfn", pf)
				t.link(fmt.Sprintf("%s/virtfn%d", pf, fn-1), where)
			}
			t.driver(where, map[bool]string{true: "ice", false: "vfio-pci"}[fn == 0])
			group := fmt.Sprintf("sys/kernel/iommu_groups/%d", i*8+fn)
			t.put(group+"/type", "DMA\n")
			t.put(group+"/reserved_regions", "0x00000000fee00000 0x00000000feefffff msi\n")
			t.link(group+"/devices/"+filepath.Base(where), where)
			t.link(where+"/iommu_group", group)
		}
	}
	return t.open()
}

//go:build lab

package machine_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

func functions(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/sys/bus/pci/devices")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "0000:00:") { // the machine's own devices
			found = append(found, e.Name())
		}
	}
	return found
}

// Every part of the topology is where it should be, and nothing else is there.
func TestAddresses(t *testing.T) {
	var want []string
	for _, address := range topology.Standard().Addresses() {
		want = append(want, address)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, functions(t)); diff != "" {
		t.Errorf("PCI functions (-topology +kernel):\n%s", diff)
	}
}

func TestNUMANodes(t *testing.T) {
	nodes := topology.Standard().Nodes()
	for id, address := range topology.Standard().Addresses() {
		if got, want := node.Read(t, node.Path(address, "numa_node")), strconv.Itoa(nodes[id]); got != want {
			t.Errorf("%s (%s) is on NUMA node %s, want %s", id, address, got, want)
		}
	}
}

// ids of the named functions: vendor, device, class, driver.
func TestFunctions(t *testing.T) {
	for address, want := range map[string][4]string{
		topology.PF0:       {"0x8086", "0x10c9", "0x020000", "igb"},
		topology.GPU0:      {"0x1234", "0x1111", "0x038000", "bochs-drm"},
		topology.NVMe0:     {"0x1b36", "0x0010", "0x010802", "nvme"},
		topology.Switch0:   {"0x104c", "0x8232", "0x060400", "pcieport"},
		topology.GPU4:      {"0x1234", "0x1111", "0x038000", "bochs-drm"},
		topology.SwitchNIC: {"0x8086", "0x10d3", "0x020000", "e1000e"},
		topology.PF1:       {"0x8086", "0x10c9", "0x020000", "igb"},
		topology.GPU1:      {"0x1234", "0x1111", "0x038000", "bochs-drm"},
		topology.GPU1Audio: {"0x8086", "0x2668", "0x040300", "snd_hda_intel"},
		topology.Bridge0:   {"0x1b36", "0x000e", "0x060400", "shpchp"},
		topology.Edu0:      {"0x1234", "0x11e8", "0x00ff00", ""},
		topology.NIC1:      {"0x8086", "0x100e", "0x020000", "e1000"},
		topology.NIC0:      {"0x8086", "0x10d3", "0x020000", "e1000e"},
		topology.GPU2:      {"0x1002", "0x5046", "0x030000", ""},
		topology.GPU3:      {"0x1af4", "0x1050", "0x038000", "virtio-pci"},
		topology.BigBAR:    {"0x1b36", "0x0005", "0x00ff00", ""},
		topology.GPU5:      {"0x1234", "0x1111", "0x038000", "bochs-drm"},
	} {
		got := [4]string{
			node.Read(t, node.Path(address, "vendor")), node.Read(t, node.Path(address, "device")),
			node.Read(t, node.Path(address, "class")), node.Driver(t, address),
		}
		if got != want {
			t.Errorf("%s is %v, want %v", address, got, want)
		}
	}
}

// Groups: alone behind a port with ACS; with the port where it has none; with the other functions of a device; with
// all behind a PCI bridge and the bridge.
func TestGroups(t *testing.T) {
	for address, want := range map[string][]string{
		topology.PF0:       {topology.PF0},
		topology.GPU0:      {topology.GPU0},
		topology.NVMe0:     {topology.NVMe0},
		topology.GPU1:      {topology.GPU1, topology.GPU1Audio},
		topology.GPU4:      {topology.GPU4Port, topology.GPU4},
		topology.SwitchNIC: {topology.SwitchNICPort, topology.SwitchNIC},
		topology.GPU5:      {topology.GPU5Port, topology.GPU5},
		topology.Edu0:      {topology.Bridge0, topology.Edu0, topology.NIC1},
		topology.GPU2:      {topology.GPU2},
	} {
		entries, err := os.ReadDir(node.Path(address, "iommu_group/devices"))
		if err != nil {
			t.Error(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the group of %s (-want +got):\n%s", address, diff)
		}
		if kind := node.Read(t, node.Path(address, "iommu_group/type")); kind != "DMA" {
			t.Errorf("the group of %s has type %s, want DMA", address, kind)
		}
	}
}

// Interrupts are remapped: without that, a device could write any interrupt.
func TestInterruptRemapping(t *testing.T) {
	vectors, err := os.ReadDir(node.Path(topology.PF0, "msi_irqs"))
	if err != nil || len(vectors) == 0 {
		t.Fatalf("interrupts of %s: %v, %v", topology.PF0, vectors, err)
	}
	for _, v := range vectors {
		chip := node.Read(t, filepath.Join("/sys/kernel/irq", v.Name(), "chip_name"))
		if !strings.HasPrefix(chip, "IR-") {
			t.Errorf("interrupt %s of %s has the chip %q, want one that begins with IR-", v.Name(), topology.PF0, chip)
		}
	}
}

// A BAR larger than all 32-bit space has a place.
func TestBigBAR(t *testing.T) {
	const gib = 1 << 30
	var largest uint64
	for line := range strings.SplitSeq(node.Read(t, node.Path(topology.BigBAR, "resource")), "\n") {
		fields := strings.Fields(line)
		start, err1 := strconv.ParseUint(fields[0], 0, 64)
		end, err2 := strconv.ParseUint(fields[1], 0, 64)
		if err1 != nil || err2 != nil {
			t.Fatalf("parse %q: %v, %v", line, err1, err2)
		}
		largest = max(largest, end-start+1)
	}
	if largest != 4*gib {
		t.Errorf("the largest BAR has %d bytes, want %d", largest, uint64(4*gib))
	}
}

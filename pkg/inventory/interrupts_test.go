package inventory_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// TestScanKeepsWhatJudgesInterrupts: the names reach the judge of interrupt remapping through a scan.
func TestScanKeepsWhatJudgesInterrupts(t *testing.T) {
	gpu, behindVMD := pci.Address{Bus: 0x3b}, pci.Address{Domain: 0x10000, Bus: 1}
	for _, c := range []struct {
		about       string
		chips, want []string // want are the scanned names
		of          pci.Address
		safe, known bool
	}{
		{"VMD with addresses", []string{"IR-PCI-MSIX-0000:3b:00.0", "VMD-PCI-MSIX-10000:01:00.0"}, []string{"IR-PCI-MSIX", "VMD-PCI-MSIX"}, gpu, true, true},
		{"behind it", []string{"IR-PCI-MSIX-0000:3b:00.0", "VMD-PCI-MSIX-10000:01:00.0"}, []string{"IR-PCI-MSIX", "VMD-PCI-MSIX"}, behindVMD, false, true},
		{"VMD of older kernels", []string{"IR-PCI-MSI", "VMD-MSI"}, []string{"IR-PCI-MSI", "VMD-MSI"}, gpu, true, true},
		{"behind it", []string{"IR-PCI-MSI", "VMD-MSI"}, []string{"IR-PCI-MSI", "VMD-MSI"}, behindVMD, false, true},
		{"ITS of older kernels", []string{"GICv3", "ITS-MSI", "ITS-pMSI", "ITS-fMSI"}, []string{"ITS-MSI"}, gpu, true, true},
		{"ITS", []string{"GICv3", "ITS-PCI-MSIX-0000:3b:00.0"}, []string{"ITS-PCI-MSIX"}, gpu, true, true},
		{"guest of Hyper-V", []string{"IO-APIC", "Hyper-V PCIe MSI"}, []string{"Hyper-V PCIe MSI"}, gpu, false, true},
	} {
		k := sysfstest.New(t)
		k.SetIRQChips(c.chips...)
		tr := newTree(t)
		tr.put("proc/interrupts", " 24:  3  "+strings.Join(c.chips, "  0-edge  eth0\n 24:  3  ")+"  0-edge  eth0\n")
		for place, fsys := range map[string]*sysfs.FS{"sys": open(t, k), "proc": tr.open()} {
			snap := scan(t, fsys)
			if diff := cmp.Diff(c.want, snap.Host.IRQChips); diff != "" {
				t.Errorf("%s, in %s: chips (-want +got):\n%s", c.about, place, diff)
			}
			found := isolation.JudgeInterrupts(snap, &device.Function{Address: c.of})
			if safe, known := found.Remapped(); safe != c.safe || known != c.known {
				t.Errorf("%s, in %s: remapped = %t, known = %t, want %t, %t", c.about, place, safe, known, c.safe, c.known)
			}
		}
	}
}

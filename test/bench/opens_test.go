//go:build labhost

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/lab"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// openedVFs is the number of VFs of the lab's PF.
const openedVFs = 7

// bindVFs makes the PF's VFs and binds them to vfio-pci.
func bindVFs() string {
	return "pf=/sys/bus/pci/devices/" + topology.PF0 + "; echo 0 > $pf/sriov_drivers_autoprobe; " +
		fmt.Sprintf("[ $(cat $pf/sriov_numvfs) = %d ] || echo %[1]d > $pf/sriov_numvfs; sleep 1; ", openedVFs) +
		"for vf in " + strings.Join(vfs(), " ") + "; do echo vfio-pci > /sys/bus/pci/devices/$vf/driver_override; echo $vf > /sys/bus/pci/drivers_probe; done; "
}

func vfs() []string {
	var all []string
	for i := range openedVFs {
		all = append(all, topology.VF(topology.PF0, i))
	}
	return all
}

// BenchmarkVFOpens times opens of all VFs of a PF, and starts of VMs with them, at once against one. With KATA_VFIO_PCI_CORE, the path of another
// vfio-pci-core.ko for the lab's kernel, it does the same with that: one without e908f58b6beb opens one after the other.
func BenchmarkVFOpens(b *testing.B) {
	m := startLab(b)
	other := os.Getenv("KATA_VFIO_PCI_CORE")
	if other != "" {
		data, err := os.ReadFile(other)
		if err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(m.Share(), "vfio-pci-core.ko"), data, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		openAndStart(b, m, "")
		if other != "" {
			runInLab(b, m, "rmmod vfio-pci vfio-pci-core; insmod /host/vfio-pci-core.ko; modprobe vfio-pci")
			openAndStart(b, m, "-other")
			runInLab(b, m, "rmmod vfio-pci vfio-pci-core; modprobe vfio-pci")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// openAndStart opens the VFs, and starts VMs with them.
func openAndStart(b *testing.B, m *lab.Machine, kernel string) {
	b.Helper()
	runInLab(b, m, bindVFs()+"export KERNEL="+kernel+"; for what in opens guests; do /host/bench $what "+strings.Join(vfs(), " ")+"; done")
}

// BenchmarkIOMMUFDObjects times mapping of a guest's memory for all VFs of a PF by one iommufd object against an object
// for each, as Kata makes them.
func BenchmarkIOMMUFDObjects(b *testing.B) {
	m := startLab(b)
	for b.Loop() {
		pins(b, m)
	}
	b.ReportMetric(0, "ns/op")
}

func pins(b *testing.B, m *lab.Machine) {
	b.Helper()
	runInLab(b, m, bindVFs()+"exec /host/bench pins "+strings.Join(vfs(), " "))
}

// BenchmarkBARMapping times maps of a BAR of 4 GiB to VFIO's type 1 IOMMU, aligned as by QEMU from 9.2 on, and not.
func BenchmarkBARMapping(b *testing.B) {
	m := startLab(b)
	for b.Loop() {
		runInLab(b, m, "modprobe vfio_iommu_type1; echo vfio-pci > /sys/bus/pci/devices/"+topology.BigBAR+"/driver_override; echo "+topology.BigBAR+
			" > /sys/bus/pci/drivers_probe; exec /host/bench bar "+topology.BigBAR)
	}
	b.ReportMetric(0, "ns/op")
}

package sysfstest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

func wantFile(t *testing.T, k *sysfstest.Kernel, name, want string) {
	t.Helper()
	if diff := cmp.Diff(want, read(t, k, name)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// proc/net says what a kernel would say of the addresses, and forgets those
// whose netdev has gone.
func TestNetwork(t *testing.T) {
	k := sysfstest.New(t)
	pf, _ := k.AddNIC(0x45, 0)
	k.AddNIC(0x51, 0)
	k.AddDefaultRoute("eth0", "10.1.2.3/20", "10.1.0.1")
	k.AddDefaultRoute("eth1", "fd00:7::5/64", "fd00:7::1")

	const head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT"
	wantFile(t, k, "proc/net/route", head+"\n"+
		"eth0\t00000000\t0100010A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"+
		"eth0\t0000010A\t00000000\t0001\t0\t0\t0\t00F0FFFF\t0\t0\t0")
	wantFile(t, k, "proc/1/net/fib_trie", "Main:\n     |-- 10.1.2.3\n        /32 host LOCAL")
	wantFile(t, k, "proc/self/net/if_inet6", "fd000007000000000000000000000005 02 40 00 80     eth1")
	const none, rest = "00000000000000000000000000000000", " 00000400 00000001 00000000 "
	wantFile(t, k, "proc/net/ipv6_route", ""+
		none+" 00 "+none+" 00 fd000007000000000000000000000001"+rest+"00000003     eth1\n"+
		"fd000007000000000000000000000000 40 "+none+" 00 "+none+rest+"00000001     eth1")

	take(t, k, step{"sys/bus/pci/drivers/igb/unbind", pf.String(), nil})
	wantFile(t, k, "proc/net/route", head)
}

func TestMaster(t *testing.T) {
	k := sysfstest.New(t)
	k.AddNIC(0x45, 1)
	k.SetMaster("eth0", "bond0")
	k.SetMaster("eth1", "bond0")
	for _, link := range []string{"eth0/master", "eth1/upper_bond0"} {
		target, err := filepath.EvalSymlinks(k.Path("sys/class/net/" + link))
		if err != nil || filepath.Base(target) != "bond0" {
			t.Errorf("%s leads to %s, %v; want bond0", link, target, err)
		}
	}
	wantFiles(t, k, true, "sys/class/net/bond0/lower_eth0/address", "sys/class/net/bond0/lower_eth1/address")
	k.AddAddress("bond0", "10.0.0.5/8")
	wantFile(t, k, "proc/1/net/fib_trie", "Main:\n     |-- 10.0.0.5\n        /32 host LOCAL")
}

func TestStorage(t *testing.T) {
	k := sysfstest.New(t)
	gpu, mate := k.AddWithBusyMate(0x3b, 15)
	k.AddSwap("nvme0n1")
	k.AddStack("nvme0n1p1", "dm-0")
	wantFile(t, k, "proc/1/mountinfo", "20 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw\n"+
		"30 1 259:1 / /var/lib/data rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw")
	wantFile(t, k, "proc/mounts", "/dev/root / ext4 rw,relatime 0 0\n/dev/nvme0n1p1 /var/lib/data ext4 rw,relatime 0 0")
	wantFile(t, k, "proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"+
		"/dev/nvme0n1                            partition\t1048572\t\t0\t\t-2")
	wantFiles(t, k, true, "sys/class/block/nvme0n1p1/holders/dm-0/slaves/nvme0n1p1/partition")
	one, _ := k.Group(gpu)
	two, _ := k.Group(mate)
	if one != 15 || two != 15 {
		t.Errorf("GPU and its mate are in groups %d and %d, want 15", one, two)
	}
}

func TestGroupAttributes(t *testing.T) {
	k := sysfstest.New(t)
	gpu, companions := k.AddGPUWithCompanions(0x3b)
	n, _ := k.Group(gpu)
	for _, c := range companions {
		if m, ok := k.Group(c); !ok || m == n {
			t.Errorf("companion %s is in group %d, %t; the GPU is in %d", c, m, ok, n)
		}
	}
	dir := devices + gpu.String() + "/iommu_group"
	wantFile(t, k, dir+"/type", "DMA")
	wantFile(t, k, dir+"/reserved_regions", "0x00000000fee00000 0x00000000feefffff msi")
	k.SetGroupType(n, "identity")
	k.SetReserved(n, "0x0000000000000000 0x0000000000ffffff direct", "0x00000000fee00000 0x00000000feefffff msi")
	wantFile(t, k, dir+"/type", "identity")
	wantFile(t, k, dir+"/reserved_regions",
		"0x0000000000000000 0x0000000000ffffff direct\n0x00000000fee00000 0x00000000feefffff msi")
	target, err := os.Readlink(k.Path(dir))
	if err != nil || target != "../../../../kernel/iommu_groups/101" {
		t.Errorf("iommu_group is %s, %v", target, err)
	}
}

func TestHostFacts(t *testing.T) {
	k := sysfstest.New(t)
	wantFile(t, k, "sys/kernel/irq/2/chip_name", "IR-PCI-MSI")
	wantFiles(t, k, true, "sys/class/iommu/dmar0/intel-iommu/ecap")
	wantFile(t, k, "sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "N")
	wantFile(t, k, "proc/sys/kernel/osrelease", sysfstest.Release)
	wantFile(t, k, "sys/class/misc/vfio/dev", "10:196")

	k.SetIRQChips("PCI-MSIX-0000:3b:00.0")
	k.SetParameter("vfio_iommu_type1", "allow_unsafe_interrupts", "Y")
	k.SetAliases("alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci\n")
	k.AddConsole()
	wantFile(t, k, "sys/kernel/irq/1/chip_name", "PCI-MSIX-0000:3b:00.0")
	wantFiles(t, k, false, "sys/kernel/irq/2")
	wantFile(t, k, "sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "Y")
	wantFile(t, k, "lib/modules/"+sysfstest.Release+"/modules.alias", "alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci")
	wantFile(t, k, "sys/class/vtconsole/vtcon0/bind", "1")
}

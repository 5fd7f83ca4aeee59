package check_test

import (
	"github.com/kata-vfio/kata-vfio/pkg/audit/check/board"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

func moduleFaults() []fault {
	return []fault{
		{rule: "VFIO-001", about: "off", board: board.Server, plant: func(t *board.Tree) {
			t.SetParameter("vfio_pci", "disable_denylist", "Y")
		}},
		{rule: "VFIO-001", about: "off after the next boot", board: board.Server, plant: func(t *board.Tree) {
			t.Put("etc/modprobe.d/x.conf", "options vfio-pci disable_denylist=1\n")
		}},
		{rule: "VFIO-002", about: "on", board: board.Server, plant: func(t *board.Tree) {
			t.SetParameter("vfio_pci", "enable_sriov", "Y")
		}},
		{rule: "VFIO-015", about: "masked at the controller", board: board.Server, plant: func(t *board.Tree) {
			t.SetParameter("vfio_pci", "nointxmask", "Y")
		}},
		{rule: "VFIO-015", about: "legacy VGA for a VGA card", board: board.Server, plant: func(t *board.Tree) {
			t.SetParameter("vfio_pci", "disable_vga", "N")
			t.AddRootPort(0x81)
			card := sysfstest.GPU(pci.Address{Bus: 0x81})
			card.Class = pci.ClassVGA << 8
			t.Add(card)
			t.Give("t3", "draw", card.Address)
		}},
	}
}

// bindFree has vfio-pci take a VF that nobody has.
func bindFree(t *board.Tree) string {
	a := t.Devices["nic0/vf3"]
	for _, w := range [][2]string{
		{sysfs.FunctionPath(a) + "/driver_override", "vfio-pci"},
		{"sys/bus/pci/drivers/igbvf/unbind", a.String()},
		{"sys/bus/pci/drivers_probe", a.String()},
	} {
		if err := t.Write(w[0], []byte(w[1])); err != nil {
			t.TB.Fatal(err)
		}
	}
	return sysfs.FunctionPath(a)
}

func bindingFaults() []fault {
	return []fault{
		{rule: "VFIO-003", about: "on the command line", board: board.Server, plant: func(t *board.Tree) {
			t.Put("proc/cmdline", "root=/dev/sda1 vfio_pci.ids=10de:2330,10de:22ba\n")
		}},
		{rule: "VFIO-003", about: "in modprobe.d", board: board.Server, plant: func(t *board.Tree) {
			t.Put("etc/modprobe.d/x.conf", "options vfio-pci ids=10de:2330\n")
		}},
		{rule: "VFIO-004", about: "an id was injected", board: board.Server, device: "nic0/vf3", plant: func(t *board.Tree) {
			t.Put(bindFree(t)+"/driver_override", "(null)\n")
		}},
		{rule: "VFIO-005", about: "another driver than the override's", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			t.Put(sysfs.FunctionPath(t.Devices["gpu0"])+"/driver_override", "nvidia\n")
		}},
		{rule: "VFIO-005", about: "driverctl", board: board.Server, device: "nic0", plant: func(t *board.Tree) {
			t.Put("etc/driverctl.d/pci-"+t.Devices["nic0"].String(), "vfio-pci\n")
		}},
		{rule: "VFIO-006", about: "bound by hand", board: board.Server, device: "nic0/vf3", plant: func(t *board.Tree) { bindFree(t) }},
		{rule: "VFIO-014", about: "on uio_pci_generic", board: board.Server, plant: func(t *board.Tree) {
			t.AddDriver("uio_pci_generic", sysfstest.Driver{})
			t.AddRootPort(0x81)
			f := sysfstest.NIC(pci.Address{Bus: 0x81})
			f.Driver = "uio_pci_generic"
			t.Add(f)
		}},
	}
}

func udevFaults() []fault {
	planted := func(about, rule string) fault {
		return fault{rule: "VFIO-017", about: about, board: board.Server, plant: func(t *board.Tree) {
			t.Put("etc/udev/rules.d/10-vfio.rules", rule+"\n")
		}}
	}
	return []fault{
		planted("everybody", `SUBSYSTEM=="vfio", MODE="0666"`),
		planted("iommufd, over two lines", "KERNEL==\"iommu\", \\\n  MODE:=\"0666\""),
		planted("a broad group", `SUBSYSTEM=="vfio|vfio-dev", GROUP="users", MODE="0660"`),
		planted("who sits at the console", `KERNEL=="vfio[0-9]*", TAG+="uaccess"`),
	}
}

package check_test

import "github.com/kata-vfio/kata-vfio/pkg/check/board"

func iommuFaults() []fault {
	return []fault{
		{rule: "IOM-001", about: "no IOMMU", board: board.Server, plant: func(t *board.Tree) {
			t.Delete("sys/class/iommu")
		}},
		{rule: "IOM-002", about: "a group made up by VFIO", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			group, _ := t.GroupOf(t.Devices["gpu0"])
			t.Put(groupFile(group, "name"), "vfio-noiommu\n")
		}},
		{rule: "IOM-003", about: "on", board: board.Server, plant: func(t *board.Tree) {
			t.SetParameter("vfio", "enable_unsafe_noiommu_mode", "Y")
		}},
		{rule: "IOM-003", about: "on after the next boot", board: board.Server, plant: func(t *board.Tree) {
			t.Put("etc/modprobe.d/vfio.conf", "options vfio enable_unsafe_noiommu_mode=1\n")
		}},
	}
}

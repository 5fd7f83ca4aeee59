package check_test

import "github.com/kata-vfio/kata-vfio/pkg/audit/check/board"

func confidentialFaults() []fault {
	return []fault{
		{rule: "CC-001", about: "off in the firmware", board: board.Server, plant: func(t *board.Tree) {
			t.Put("sys/module/kvm_intel/parameters/tdx", "N\n")
		}},
		{rule: "CC-001", about: "unknown to the kernel", board: board.Server, plant: func(t *board.Tree) {
			t.Delete("sys/module/kvm_intel/parameters/tdx")
		}},
	}
}

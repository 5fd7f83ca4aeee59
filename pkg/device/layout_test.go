package device_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// TestPoolsByName: the name of a pool tells its node, and its PF where it has one.
func TestPoolsByName(t *testing.T) {
	pf := pci.Address{Bus: 0x21}
	for pool, want := range map[string]struct {
		ours bool
		pf   *pci.Address
	}{
		"worker-1":                      {ours: true},
		"worker-1/pf-0000-21-00-0":      {ours: true, pf: &pf},
		"worker-10":                     {},
		"worker-10/pf-0000-21-00-0":     {pf: &pf},
		"worker":                        {},
		"worker-1/":                     {},
		"worker-1/pf-":                  {},
		"worker-1/pf-0000-21-00":        {},
		"worker-1/gpu":                  {},
		"worker-1/shared":               {ours: true},
		"worker-10/shared":              {},
		"worker-1/shared/pf-":           {},
		"":                              {},
		"/pf-0000-21-00-0":              {pf: &pf},
		"worker-1/worker-1/pf-0-21-0-0": {},
	} {
		if got := device.IsPoolOf("worker-1", pool); got != want.ours {
			t.Errorf("IsPoolOf(worker-1, %q) = %t", pool, got)
		}
		got, ok := device.PFOfPool(pool)
		if ok != (want.pf != nil) || ok && got != *want.pf {
			t.Errorf("PFOfPool(%q) = %v, %t; want %v", pool, got, ok, want.pf)
		}
	}
	if device.IsPoolOf("", "") || device.IsPoolOf("", "/pf-0000-21-00-0") || device.IsPoolOf("", "/shared") {
		t.Error("a node without a name has a pool")
	}
	for pool, want := range map[string]string{device.SharedPool("worker-1"): "worker-1", "worker-1": "", "/shared": "", "a/b/shared": ""} {
		if node, ok := device.NodeOfSharedPool(pool); ok != (want != "") || ok && node != want {
			t.Errorf("NodeOfSharedPool(%q) = %q, %t; want %q", pool, node, ok, want)
		}
	}
}

// TestPoolOfEachFunction: GPUs and their companions are in the node's pool, a PF and
// its VFs in the PF's.
func TestPoolOfEachFunction(t *testing.T) {
	gpu, nic, vf := pci.Address{Bus: 0x3b}, pci.Address{Bus: 0x21}, pci.Address{Bus: 0x21, Device: 2}
	l := device.NewLayout(&device.Snapshot{Functions: []device.Function{
		{Address: nic, Type: device.PFType, PF: &device.PF{TotalVFs: 8}},
		{Address: vf, Type: device.VFType, VF: &device.VF{PF: nic}},
		{Address: gpu, Type: device.GPU},
	}})
	for a, want := range map[pci.Address]string{gpu: "worker-1", nic: "worker-1/pf-0000-21-00-0", vf: "worker-1/pf-0000-21-00-0"} {
		if got := l.Pool("worker-1", a); got != want {
			t.Errorf("Pool(%s) = %q, want %q", a, got, want)
		}
	}
}

package device_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// TestPoolsByName: the name of a pool tells its node, and its PF where it has one. Names that earlier versions gave tell the same.
func TestPoolsByName(t *testing.T) {
	pf := pci.Address{Bus: 0x21}
	for pool, want := range map[string]struct {
		ours, shared bool
		pf           *pci.Address
		current      string // empty if the name is current, or none of a node's
	}{
		"worker-1/kata-vfio.dev":                     {ours: true},
		"worker-1/kata-vfio.dev/pf-0000-21-00-0":     {ours: true, pf: &pf},
		"worker-1/kata-vfio.dev/shared":              {ours: true, shared: true},
		"worker-1":                                   {ours: true, current: "worker-1/kata-vfio.dev"},
		"worker-1/pf-0000-21-00-0":                   {ours: true, pf: &pf, current: "worker-1/kata-vfio.dev/pf-0000-21-00-0"},
		"worker-1/shared":                            {ours: true, shared: true, current: "worker-1/kata-vfio.dev/shared"},
		"worker-10":                                  {current: "worker-10/kata-vfio.dev"},
		"worker-10/kata-vfio.dev":                    {},
		"worker-10/pf-0000-21-00-0":                  {pf: &pf, current: "worker-10/kata-vfio.dev/pf-0000-21-00-0"},
		"worker-10/kata-vfio.dev/shared":             {shared: true},
		"worker":                                     {current: "worker/kata-vfio.dev"},
		"worker-1/":                                  {},
		"worker-1/pf-":                               {},
		"worker-1/pf-0000-21-00":                     {},
		"worker-1/gpu":                               {},
		"worker-1/shared/pf-":                        {},
		"worker-1/kata-vfio.dev/":                    {},
		"worker-1/kata-vfio.devs":                    {},
		"worker-1/kata-vfio.dev/kata-vfio.dev":       {},
		"worker-1/kata-vfio.dev/pf-0000-21-00":       {},
		"worker-1/kata-vfio.dev/gpu":                 {},
		"worker-1/other.example.com/pf-0000-21-00-0": {},
		"":                                   {},
		"/kata-vfio.dev":                     {},
		"/pf-0000-21-00-0":                   {},
		"/shared":                            {},
		"a/b/shared":                         {},
		"worker-1/worker-1/pf-0-21-0-0":      {},
		"kata-vfio.dev/kata-vfio.dev/shared": {shared: true}, // of a node with the driver's name
		"kata-vfio.dev":                      {current: "kata-vfio.dev/kata-vfio.dev"},
		"worker-1/kata-vfio.dev/pf-0000-21-00-0/shared": {},
		"worker-1/kata-vfio.dev/shared/pf-0000-21-00-0": {},
		"worker-1/shared/kata-vfio.dev":                 {},
		"worker-1/pf-0000-21-00-0/kata-vfio.dev":        {},
	} {
		if got := device.IsNodesPool("worker-1", pool); got != want.ours {
			t.Errorf("IsPoolOf(worker-1, %q) = %t", pool, got)
		}
		got, ok := device.PFOfPool(pool)
		if ok != (want.pf != nil) || ok && got != *want.pf {
			t.Errorf("PFOfPool(%q) = %v, %t; want %v", pool, got, ok, want.pf)
		}
		if node, ok := device.NodeOfSharedPool(pool); ok != want.shared || ok && !strings.HasPrefix(pool, node+"/") {
			t.Errorf("NodeOfSharedPool(%q) = %q, %t", pool, node, ok)
		}
		if got := device.CurrentPool(pool); want.current != "" && got != want.current || want.current == "" && got != pool || device.IsFormerPool(pool) != (want.current != "") {
			t.Errorf("CurrentPool(%q) = %q, and it is a former name: %t", pool, got, device.IsFormerPool(pool))
		}
		if want.current != "" && device.FormerPool(want.current) != pool {
			t.Errorf("FormerPool(%q) = %q, want %q", want.current, device.FormerPool(want.current), pool)
		}
	}
	if device.IsNodesPool("", "") || device.IsNodesPool("", "/kata-vfio.dev") || device.NodePool("") != "" {
		t.Error("a node without a name has a pool")
	}
}

// TestPoolsHaveTheDriversName, by which the scheduler tells their counters from those of another driver's pool of the node's name.
func TestPoolsHaveTheDriversName(t *testing.T) {
	const node = "worker-1"
	for _, pool := range []string{device.NodePool(node), device.SharedPool(node)} {
		if !strings.HasPrefix(pool, node+"/"+v1alpha1.DriverName) || device.IsFormerPool(pool) || !device.IsNodesPool(node, pool) {
			t.Errorf("pool %s", pool)
		}
	}
	for pool, want := range map[string]bool{device.NodePool(node): true, device.SharedPool(node): true, node: true, device.NodePool(node) + "/pf-0000-21-00-0": false} {
		if got, ok := device.NodeOfGPUPool(pool); ok != want || ok && got != node {
			t.Errorf("NodeOfGPUPool(%q) = %q, %t", pool, got, ok)
		}
	}
}

// TestLongNodeNames: the name of each pool of a node fits the API's 253 characters, or the node's name is refused.
func TestLongNodeNames(t *testing.T) {
	widest := pci.Address{Domain: 0xffffffff, Bus: 0xff, Device: 0x1f, Function: 7}
	for length, fits := range map[int]bool{8: true, 63: true, 219: true, 220: false, 253: false} {
		node := strings.Repeat("n", length)
		err := device.CheckNodeName(node)
		if (err == nil) != fits {
			t.Errorf("%d characters: %v", length, err)
		}
		l := device.NewLayout(&device.Snapshot{Functions: []device.Function{{Address: widest, Type: device.PFType, PF: &device.PF{TotalVFs: 8}}}})
		if pool := l.Pool(node, widest); fits && len(pool) > 253 {
			t.Errorf("%d characters: the pool's name has %d", length, len(pool))
		}
	}
}

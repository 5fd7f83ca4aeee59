package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// TestMakeComparesThePool: a device is the one that was allocated if its pool is the one in
// which this node publishes it, and no other node's at the same address.
func TestMakeComparesThePool(t *testing.T) {
	const gone = 0xee
	for name, tt := range map[string]struct {
		device pci.Address
		pool   string
		node   string
		code   plan.Code // empty for none
		words  []string
	}{
		"a GPU of the node's pool":    {device: gpuAddr, pool: "node-1", node: "node-1"},
		"a VF of its PF's pool":       {device: nicVF, pool: "node-1/pf-0000-21-00-0", node: "node-1"},
		"a GPU of another node":       {device: gpuAddr, pool: "node-2", node: "node-1", code: plan.AllocatedElsewhere, words: []string{"pool node-2,", "this node are node-1", "spec.nodeName"}},
		"a VF of another node":        {device: nicVF, pool: "node-2/pf-0000-21-00-0", node: "node-1", code: plan.AllocatedElsewhere, words: []string{"node-2/pf-0000-21-00-0", "node-1"}},
		"of a node with a like name":  {device: gpuAddr, pool: "node-10", node: "node-1", code: plan.AllocatedElsewhere},
		"of no pool of any node":      {device: gpuAddr, pool: "node-1/gpus", node: "node-1", code: plan.AllocatedElsewhere},
		"a GPU of a PF's pool":        {device: gpuAddr, pool: "node-1/pf-0000-21-00-0", node: "node-1", code: plan.OtherPool, words: []string{"pool node-1/pf-0000-21-00-0,", "in pool node-1"}},
		"a VF of the node's pool":     {device: nicVF, pool: "node-1", node: "node-1", code: plan.OtherPool, words: []string{"pool node-1,", "in pool node-1/pf-0000-21-00-0"}},
		"a VF of another PF's pool":   {device: nicVF, pool: "node-1/pf-0000-22-00-0", node: "node-1", code: plan.OtherPool},
		"another node's and not here": {device: pci.Address{Bus: gone}, pool: "node-2", node: "node-1", code: plan.AllocatedElsewhere},
		"this node's and not here":    {device: pci.Address{Bus: gone}, pool: "node-1", node: "node-1", code: plan.Absent},
		"by hand, on a node unnamed":  {device: gpuAddr, pool: "node-2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture()
			req, n := asking(s, tt.device), node(s)
			req.Devices[0].Pool, n.Name = tt.pool, tt.node
			_, err := plan.Make(req, n)
			refused, ok := errors.AsType[*plan.RefusedError](err)
			if ok != (tt.code != "") || ok && !refused.Has(tt.code) {
				t.Fatalf("Make = %v, want code %q", err, tt.code)
			}
			for _, word := range tt.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
		})
	}
}

// TestPairIsAllocatedBesideItsGPU: the VF of a pair has the pool of the GPU, and not its own.
func TestPairIsAllocatedBesideItsGPU(t *testing.T) {
	s := fixture()
	for pool, accepted := range map[string]bool{"node-1": true, "node-1/pf-0000-21-00-0": false, "node-2": false} {
		req, n := asking(s, gpuAddr, nicVF), node(s)
		n.Name = "node-1"
		name := req.Devices[0].Name + "-" + req.Devices[1].Name
		for i := range req.Devices {
			req.Devices[i].Pair, req.Devices[i].Pool = name, pool
		}
		if _, err := plan.Make(req, n); (err == nil) != accepted {
			t.Errorf("from pool %s: Make = %v, want it accepted: %t", pool, err, accepted)
		}
	}
}

// TestSharedDeviceIsOfTheSharedPool: a claim that was allocated before the GPU was shared did not wait for the other driver.
func TestSharedDeviceIsOfTheSharedPool(t *testing.T) {
	s := fixture()
	for pool, accepted := range map[string]bool{"node-1/shared": true, "node-1": false, "node-2/shared": false} {
		req, n := asking(s, gpuAddr), node(s)
		n.Name, req.Devices[0].Pool = "node-1", pool
		n.Selection = nodeconfig.Select(&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{
			{Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}, SharedWith: "gpu.example.com"},
		}}, s)
		p, err := plan.Make(req, n)
		if (err == nil) != accepted {
			t.Errorf("from pool %s: Make = %v, want it accepted: %t", pool, err, accepted)
		}
		if err == nil && (len(p.ResetsBefore) == 0 || len(p.ResetsBefore) != len(p.Resets())) {
			t.Errorf("resets %v before its tenant, want %v: a container may have had it", p.ResetsBefore, p.Resets())
		}
	}
}

// TestBoundDeviceHasNoPool: nobody allocated what is bound from start-up on.
func TestBoundDeviceHasNoPool(t *testing.T) {
	s := fixture()
	req, n := asking(s, gpuAddr), node(s)
	n.Name, req.Devices[0].Pool = "node-1", ""
	if _, err := plan.Make(req, n); err != nil {
		t.Error(err)
	}
}

// TestAllocationAcceptsEachFunctionInItsPool: plan and publish use the same pool names.
func TestAllocationAcceptsEachFunctionInItsPool(t *testing.T) {
	s := fixture()
	layout := device.NewLayout(s)
	for i := range s.Functions {
		f := &s.Functions[i]
		req, n := asking(s, f.Address), node(s)
		n.Name, req.Devices[0].Pool = "node-1", layout.Pool("node-1", f.Address)
		_, err := plan.Make(req, n)
		if refused, ok := errors.AsType[*plan.RefusedError](err); ok && (refused.Has(plan.OtherPool) || refused.Has(plan.AllocatedElsewhere)) {
			t.Errorf("%s: %v", f.Address, err)
		}
	}
}

package plan_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/rule/ruletest"
)

// TestMakeComparesThePool: a device is the one that was allocated if its pool is the one in
// which this node publishes it, and no other node's at the same address.
func TestMakeComparesThePool(t *testing.T) {
	const gone = 0xee
	for name, tt := range map[string]struct {
		device pci.Address
		pool   string
		node   string
		code   rule.Code // empty if there is none
		words  []string
	}{
		"a GPU of the node's pool":    {device: gpuAddr, pool: "node-1/kata-vfio.dev", node: "node-1"},
		"a VF of its PF's pool":       {device: nicVF, pool: "node-1/kata-vfio.dev/pf-0000-21-00-0", node: "node-1"},
		"a GPU of another node":       {device: gpuAddr, pool: "node-2/kata-vfio.dev", node: "node-1", code: rule.AllocatedElsewhere, words: []string{"pool node-2/kata-vfio.dev,", "begin with node-1/kata-vfio.dev;", "spec.nodeName"}},
		"a VF of another node":        {device: nicVF, pool: "node-2/kata-vfio.dev/pf-0000-21-00-0", node: "node-1", code: rule.AllocatedElsewhere, words: []string{"node-2/kata-vfio.dev/pf-0000-21-00-0", "node-1"}},
		"of a node with a like name":  {device: gpuAddr, pool: "node-10/kata-vfio.dev", node: "node-1", code: rule.AllocatedElsewhere},
		"of no pool of any node":      {device: gpuAddr, pool: "node-1/gpus", node: "node-1", code: rule.AllocatedElsewhere},
		"a GPU of a PF's pool":        {device: gpuAddr, pool: "node-1/kata-vfio.dev/pf-0000-21-00-0", node: "node-1", code: rule.OtherPool, words: []string{"pool node-1/kata-vfio.dev/pf-0000-21-00-0,", "in pool node-1/kata-vfio.dev;"}},
		"a VF of the node's pool":     {device: nicVF, pool: "node-1/kata-vfio.dev", node: "node-1", code: rule.OtherPool, words: []string{"pool node-1/kata-vfio.dev,", "in pool node-1/kata-vfio.dev/pf-0000-21-00-0"}},
		"a VF of another PF's pool":   {device: nicVF, pool: "node-1/kata-vfio.dev/pf-0000-22-00-0", node: "node-1", code: rule.OtherPool},
		"another node's and not here": {device: pci.Address{Bus: gone}, pool: "node-2/kata-vfio.dev", node: "node-1", code: rule.AllocatedElsewhere},
		"this node's and not here":    {device: pci.Address{Bus: gone}, pool: "node-1/kata-vfio.dev", node: "node-1", code: rule.Absent},
		"by hand, on a node unnamed":  {device: gpuAddr, pool: "node-2/kata-vfio.dev"},
		// Names that earlier versions gave.
		"a GPU of the former pool":             {device: gpuAddr, pool: "node-1", node: "node-1"},
		"a VF of its PF's former pool":         {device: nicVF, pool: "node-1/pf-0000-21-00-0", node: "node-1"},
		"a GPU of another node's former pool":  {device: gpuAddr, pool: "node-2", node: "node-1", code: rule.AllocatedElsewhere},
		"a VF of another node's former pool":   {device: nicVF, pool: "node-2/pf-0000-21-00-0", node: "node-1", code: rule.AllocatedElsewhere},
		"a VF of the former pool of GPUs":      {device: nicVF, pool: "node-1", node: "node-1", code: rule.OtherPool},
		"a GPU of a PF's former pool":          {device: gpuAddr, pool: "node-1/pf-0000-21-00-0", node: "node-1", code: rule.OtherPool},
		"a GPU of the former pool of shared":   {device: gpuAddr, pool: "node-1/shared", node: "node-1", code: rule.OtherPool},
		"of a pool of both names, but swapped": {device: nicVF, pool: "node-1/pf-0000-21-00-0/kata-vfio.dev", node: "node-1", code: rule.AllocatedElsewhere},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture()
			req, n := asking(s, tt.device), node(s)
			req.Devices[0].Pool, n.Name = tt.pool, tt.node
			_, err := plan.Make(req, n)
			refused, ok := errors.AsType[*rule.RefusedError](err)
			ruletest.RefusedAt(t, rule.AtPrepare, tt.code)
			if ok != (tt.code != "") || ok && !refused.Has(tt.code) {
				t.Fatalf("Make = %v, want code %q", err, tt.code)
			}
			for _, word := range tt.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("Make = %q, want it to say %q", err, word)
				}
			}
		})
	}
}

// TestPairIsAllocatedBesideItsGPU: the VF of a pair has the pool of the GPU, and not its own.
func TestPairIsAllocatedBesideItsGPU(t *testing.T) {
	s := fixture()
	for pool, accepted := range map[string]bool{
		"node-1/kata-vfio.dev": true, "node-1/kata-vfio.dev/pf-0000-21-00-0": false, "node-2/kata-vfio.dev": false,
		"node-1": true, "node-1/pf-0000-21-00-0": false, "node-2": false,
	} {
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
	for pool, accepted := range map[string]bool{
		"node-1/kata-vfio.dev/shared": true, "node-1/kata-vfio.dev": false, "node-2/kata-vfio.dev/shared": false,
		"node-1/shared": true, "node-1": false, "node-2/shared": false,
	} {
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
		if refused, ok := errors.AsType[*rule.RefusedError](err); ok && (refused.Has(rule.OtherPool) || refused.Has(rule.AllocatedElsewhere)) {
			t.Errorf("Make of %s = %v, want no refusal because of its pool", f.Address, err)
		}
	}
}

// TestOneFunctionUnderTwoNamesOfItsPool: claims are prepared and released in any order, and each names the pool as this version or an
// earlier one does. No function is ever two claims', and a free one is given under either name.
func TestOneFunctionUnderTwoNamesOfItsPool(t *testing.T) {
	s := fixture()
	layout, r := device.NewLayout(s), rand.New(rand.NewPCG(34, 11))
	owners, given, refused := map[pci.Address]string{}, map[string]int{}, 0
	for step := range 3000 {
		a := []pci.Address{gpuAddr, nicVF}[r.IntN(2)]
		if owner := owners[a]; owner != "" && r.IntN(3) == 0 {
			maps.DeleteFunc(owners, func(_ pci.Address, uid string) bool { return uid == owner })
			continue
		}
		req, n := asking(s, a), node(s)
		req.UID, n.Name = fmt.Sprintf("uid-%d", step), "node-1"
		pool := layout.Pool("node-1", a)
		if r.IntN(2) == 0 {
			pool = device.FormerPool(pool)
		}
		req.Devices[0].Pool = pool
		for addr, uid := range owners {
			n.Owners[addr] = plan.Owner{Claim: plan.Ref{UID: uid}}
		}
		p, err := plan.Make(req, n)
		if free := owners[a] == ""; (err == nil) != free {
			t.Fatalf("step %d: Make of %s of pool %s = %v, want success: %t", step, a, pool, err, free)
		}
		if err != nil {
			refused++
			if e, ok := errors.AsType[*rule.RefusedError](err); !ok || !e.Has(rule.Held) {
				t.Fatalf("step %d: %v, want it refused as held", step, err)
			}
			continue
		}
		given[pool]++
		for i := range p.Functions {
			if f := p.Functions[i].Address; owners[f] != "" {
				t.Fatalf("step %d: the plan of %s takes %s, which %s has; want a function without an owner", step, req.UID, f, owners[f])
			}
			owners[p.Functions[i].Address] = req.UID
		}
	}
	if len(given) < 4 || refused < 100 {
		t.Errorf("given from pools %v, %d refused; want at least 4 pools and 100 refusals", given, refused)
	}
}

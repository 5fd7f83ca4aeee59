//go:build lab

package claims_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/test/lab/nested"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// tenantVM is a VM with a VF, by a claim of its own.
type tenantVM struct {
	uid, mac, address string
	*nested.VM
}

// startTenant prepares a claim for a VF in a VLAN and starts a VM with it.
func startTenant(t *testing.T, n *node.Node, index, vlan int) *tenantVM {
	t.Helper()
	v := &tenantVM{uid: fmt.Sprintf("tenant-%d", index), address: fmt.Sprintf("10.9.8.%d", index+1)}
	req := stage.Request(t, v.uid, topology.VF(topology.PF0, index))
	req.Devices[0].VF = &v1alpha1.VFConfig{VLAN: &vlan}
	req.Devices[0].VF.Default()
	v.mac = mustPrepare(t, n, req).Plan.Functions[0].VF.Want.MAC
	var err error
	if v.VM, err = nested.Start(t.Context(), nested.Config{Nodes: stage.Nodes(t, v.uid)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(v.Log())
		}
		if err := v.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if err := v.Configure(t.Context(), v.mac, v.address+"/24"); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestVLANsKeepTenantsApart: two VMs in one VLAN reach each other, and one in another VLAN of the same PF reaches neither,
// whatever frames they send.
func TestVLANsKeepTenantsApart(t *testing.T) {
	pf := kernel.Interface(t, topology.PF0)
	ip(t, "link", "set", pf, "up")
	kernel.VFs(t, topology.PF0, "3")
	kernel.LinkUp(t, topology.PF0)
	n := open(t, nil)
	before := stage.VFs(t, n)
	t.Run("VMs", func(t *testing.T) {
		first, other, same := startTenant(t, n, 0, 100), startTenant(t, n, 1, 200), startTenant(t, n, 2, 100)
		for _, to := range []*tenantVM{same, first} {
			from := map[*tenantVM]*tenantVM{same: first, first: same}[to]
			if got, err := from.Ping(t.Context(), to.address, 5); err != nil || got.Received == 0 {
				t.Errorf("%s pings %s in its VLAN: %+v, %v", from.uid, to.uid, got, err)
			}
		}
		for from, to := range map[*tenantVM]*tenantVM{first: other, other: same} {
			if got, err := from.Ping(t.Context(), to.address, 3); err != nil || got.Received > 0 {
				t.Errorf("%s pings %s in another VLAN: %+v, %v", from.uid, to.uid, got, err)
			}
		}
		checkForgedFrames(t, n, first, same, other)
		ip(t, "link", "set", pf, "down")
		kernel.LinkUp(t, topology.PF0)
		if got, err := same.Ping(t.Context(), first.address, 30); err != nil || got.Received == 0 {
			t.Errorf("%s pings %s after the PF was down: %+v, %v", same.uid, first.uid, got, err)
		}
		checkForgedFrames(t, n, first, same, other)
	})
	for index := range 3 {
		mustUnprepare(t, n, fmt.Sprintf("tenant-%d", index))
	}
	if diff := cmp.Diff(before, stage.VFs(t, n)); diff != "" {
		t.Errorf("what the PF imposes (-before +after):\n%s", diff)
	}
}

// TestVFsAreProvisioned: none is there, then as many as the node's config says, for nobody else; and their number stays
// while one is a claim's.
func TestVFsAreProvisioned(t *testing.T) {
	t.Cleanup(func() {
		kernel.Write(t, kernel.Path(topology.PF0, "sriov_numvfs"), "0")
		kernel.Write(t, kernel.Path(topology.PF0, "sriov_drivers_autoprobe"), "1")
	})
	provision := func(count int) plan.Provision {
		t.Helper()
		cfg := &v1alpha1.NodeConfig{VirtualFunctions: []v1alpha1.VFRule{{PF: kernel.Interface(t, topology.PF0), Count: &count}}}
		cfg.Default()
		all, err := open(t, cfg).Maintainer.Provision(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("Provision = %+v, %v", all, err)
		}
		return all[0]
	}
	if got := provision(8); !strings.Contains(got.Refused, "supports 7") {
		t.Errorf("8 VFs: %+v", got)
	}
	if got := provision(3); got.Refused != "" {
		t.Fatalf("3 VFs: %+v", got)
	}
	for index := range 3 {
		f, ok := stage.Scan(t).Function(stage.Address(t, topology.VF(topology.PF0, index)))
		if !ok || f.Driver != "" {
			t.Errorf("VF %d is there: %t, with driver %q; want none", index, ok, f.Driver)
		}
	}
	n := open(t, nil)
	mustPrepare(t, n, stage.Request(t, "tenant", topology.VF(topology.PF0, 1)))
	if got := provision(2); !strings.Contains(got.Refused, "held by claim") {
		t.Errorf("2 VFs while one is a claim's: %+v", got)
	}
	mustUnprepare(t, n, "tenant")
	if got := provision(2); got.Refused != "" || kernel.Read(t, kernel.Path(topology.PF0, "sriov_numvfs")) != "2" {
		t.Errorf("2 VFs at last: %+v", got)
	}
}

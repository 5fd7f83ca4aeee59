package audit_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const blue = "0123456789abcdef"

// exclusive is the sample node with a rule that makes domains around its GPUs and VFs exclusive.
func exclusive(t *testing.T, kinds string) plan.Node {
	t.Helper()
	cfg, err := v1alpha1.DecodeNodeConfig([]byte("apiVersion: resource.kata-vfio.dev/v1alpha1\nkind: NodeConfig\ndevices:\n- {name: all, match: {types: [gpu, vf]}, exclusive: [" + kinds + "]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := node()
	return plan.Node{Snapshot: s, Selection: nodeconfig.Select(cfg, s)}
}

// give has a tenant's claim hold a function.
func give(n *plan.Node, a pci.Address, tenant string) {
	if n.Owners == nil {
		n.Owners = map[pci.Address]plan.Owner{}
	}
	n.Owners[a] = plan.Owner{Claim: plan.Ref{UID: "u" + a.String(), Namespace: "t1", Name: "c", Tenant: tenant}}
}

// TestDeviceIsKeptForATenant shows a free device of a domain that a tenant has, in all views: it is a fault only if something else
// is wrong, too.
func TestDeviceIsKeptForATenant(t *testing.T) {
	vf, gpu, shared := at(0x21, 0x10, 0), at(0x22, 0, 0), at(0x24, 1, 0)
	for name, tt := range map[string]struct {
		kinds  string
		device pci.Address
		change func(*plan.Node)
		want   string
	}{
		"kept":                        {"Node", gpu, func(n *plan.Node) { give(n, vf, blue) }, "kept for tenant " + blue},
		"of an unknown tenant":        {"Node", gpu, func(n *plan.Node) { give(n, vf, "") }, "kept: its domain has an unknown tenant"},
		"the domain is free":          {"Node", gpu, func(*plan.Node) {}, ""},
		"the tenant is in another":    {"RootPort", gpu, func(n *plan.Node) { give(n, vf, blue) }, ""},
		"the tenant has it":           {"Node", vf, func(n *plan.Node) { give(n, vf, blue) }, ""},
		"kept, and is not isolated":   {"Node", shared, func(n *plan.Node) { give(n, vf, blue) }, ""},
		"kept, and reported an error": {"Node", gpu, func(n *plan.Node) { give(n, vf, blue); n.FatalErrors = map[pci.Address]bool{gpu: true} }, ""},
		"kept, and waits for a stage": {"Node", gpu, func(n *plan.Node) { give(n, vf, blue); sanitize(n, gpu, rule.NotSanitized) }, "sanitizing"},
	} {
		t.Run(name, func(t *testing.T) {
			n := exclusive(t, tt.kinds)
			tt.change(&n)
			inv := audit.NewInventory(n, nil)
			d := find(t, inv, tt.device)
			if got := d.Waits(); got != tt.want {
				t.Errorf("it is %q, want %q: %+v", got, tt.want, d.Refusals)
			}
			if tt.want != "" && d.Grade() != audit.None {
				t.Errorf("grade %d, want %d", d.Grade(), audit.None)
			}
			for view, text := range views(t, inv) {
				for line := range strings.SplitSeq(text, "\n") {
					if tt.want != "" && strings.Contains(line, tt.want) {
						text = ""
					}
				}
				if tt.want != "" && text != "" {
					t.Errorf("%s does not say %q:\n%s", view, tt.want, text)
				}
			}
		})
	}
}

// TestKeptDeviceIsNoReasonToFail: the devices that are kept for a tenant need nobody.
func TestKeptDeviceIsNoReasonToFail(t *testing.T) {
	n := exclusive(t, "Node")
	before := len(audit.NewInventory(n, nil).Unclaimable(rule.High))
	give(&n, at(0x21, 0x10, 0), blue)
	held := 1 // no other claim gets it
	if got := len(audit.NewInventory(n, nil).Unclaimable(rule.High)) - before; got > held {
		t.Errorf("%d more functions can't be claimed, want %d at most", got, held)
	}
}

// TestTopologyShowsExclusiveDomains names each kind at its place in the tree.
func TestTopologyShowsExclusiveDomains(t *testing.T) {
	for name, tt := range map[string]struct {
		kinds, tenant string
		want          []string
	}{
		"card":          {"Card", blue, []string{"0000:21:00.0  pf", "exclusive card: tenant " + blue, "exclusive card: no tenant"}},
		"PF":            {"PF", blue, []string{"exclusive physical function: tenant " + blue}},
		"switch":        {"Switch", blue, []string{"20:02.0  switch, up", "exclusive switch: no tenant"}},
		"root port":     {"RootPort", blue, []string{"exclusive root port: tenant " + blue, "exclusive root port: no tenant"}},
		"NUMA node":     {"NUMA", blue, []string{"pci0000:20, NUMA 0  exclusive NUMA node: tenant " + blue}},
		"unstated NUMA": {"NUMA", blue, []string{"exclusive NUMA node: no tenant"}},
		"node":          {"Node", "", []string{"exclusive node: an unknown tenant"}},
		"fabric":        {"Fabric", blue, []string{"exclusive fabric of vendor 10de: no tenant"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := exclusive(t, tt.kinds)
			if tt.kinds == "Switch" { // the bridge of the old card is the switch above it
				n.Snapshot.Functions[2].Capabilities.Express = &pci.Express{Type: pci.UpstreamPort}
			}
			give(&n, at(0x21, 0x10, 0), tt.tenant)
			inv := audit.NewInventory(n, nil)
			shown := views(t, inv)
			for _, want := range tt.want {
				if !strings.Contains(shown["tree"], want) {
					t.Errorf("the tree lacks %q:\n%s", want, shown["tree"])
				}
			}
			words := tt.want[len(tt.want)-1]
			_, words, _ = strings.Cut(words, "exclusive")
			words = "exclusive" + words
			for _, view := range []string{"graph", "drawing"} {
				if !strings.Contains(shown[view], words) {
					t.Errorf("the %s lacks %q", view, words)
				}
			}
		})
	}
}

// TestExclusiveDomainsForMachines: the inventory has who holds what in each domain, and what is free there.
func TestExclusiveDomainsForMachines(t *testing.T) {
	n := exclusive(t, "RootPort, Node")
	give(&n, at(0x21, 0x10, 0), blue)
	var b strings.Builder
	if err := audit.NewInventory(n, nil).WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		ExclusiveDomains []plan.DomainState
		Devices          []struct{ Address, KeptFor string }
	}
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	want := []plan.DomainState{
		{Domain: isolation.ExclusiveDomain{Kind: "RootPort", Name: "0000:20:00.0"}, Rules: []string{"rule 1 (all)"}, Tenant: blue, Tenancies: []plan.Tenancy{{Function: at(0x21, 0x10, 0), Tenant: blue}}, Free: []pci.Address{}},
		{Domain: isolation.ExclusiveDomain{Kind: "RootPort", Name: "0000:20:01.0"}, Rules: []string{"rule 1 (all)"}, Tenancies: []plan.Tenancy{}, Free: []pci.Address{at(0x22, 0, 0)}},
		{Domain: isolation.ExclusiveDomain{Kind: "RootPort", Name: "0000:20:02.0"}, Rules: []string{"rule 1 (all)"}, Tenancies: []plan.Tenancy{}, Free: []pci.Address{at(0x24, 1, 0)}},
		{Domain: isolation.ExclusiveDomain{Kind: "RootPort", Name: "0000:20:03.0"}, Rules: []string{"rule 1 (all)"}, Tenancies: []plan.Tenancy{}, Free: []pci.Address{at(0x25, 0, 0)}},
		{Domain: isolation.ExclusiveDomain{Kind: "Node"}, Rules: []string{"rule 1 (all)"}, Tenant: blue, Tenancies: []plan.Tenancy{{Function: at(0x21, 0x10, 0), Tenant: blue}}, Free: []pci.Address{at(0x22, 0, 0), at(0x24, 1, 0), at(0x25, 0, 0)}},
	}
	if diff := cmp.Diff(want, got.ExclusiveDomains); diff != "" {
		t.Errorf("domains (-want +got):\n%s", diff)
	}
	var kept []string
	for _, d := range got.Devices {
		if d.KeptFor != "" {
			kept = append(kept, d.Address+" "+d.KeptFor)
		}
	}
	if diff := cmp.Diff([]string{at(0x22, 0, 0).String() + " " + blue, at(0x25, 0, 0).String() + " " + blue}, kept); diff != "" {
		t.Errorf("kept devices (-want +got):\n%s", diff)
	}
}

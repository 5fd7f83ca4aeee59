package plan_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TestDomains lists exclusive domains with the rules that make them so, who has them, and what is free.
func TestDomains(t *testing.T) {
	const blue, red = "0123456789abcdef", "fedcba9876543210"
	s := fixture()
	for i := range s.Functions { // two NUMA nodes, whose numbers sort otherwise as texts
		s.Functions[i].NUMANode = new(10)
		if s.Functions[i].Address == gpuAddr {
			s.Functions[i].NUMANode = new(2)
		}
	}
	node2, node10 := isolation.ExclusiveDomain{Kind: isolation.NUMADomain, Name: "2"}, isolation.ExclusiveDomain{Kind: isolation.NUMADomain, Name: "10"}
	whole := isolation.ExclusiveDomain{Kind: isolation.NodeDomain}
	gpus := v1alpha1.DeviceRule{Name: "gpus", Match: v1alpha1.DeviceMatch{Addresses: []pci.Address{gpuAddr, emptyGPU}}, Exclusive: []v1alpha1.ExclusiveDomain{v1alpha1.ExclusiveNUMA}}
	vfs := v1alpha1.DeviceRule{Name: "vfs", Match: v1alpha1.DeviceMatch{Types: []string{"vf"}}, Exclusive: []v1alpha1.ExclusiveDomain{v1alpha1.ExclusiveNUMA, v1alpha1.ExclusiveNode}}
	const first, second = "rule 1 (gpus)", "rule 2 (vfs)"
	claimOf := func(id string) plan.Owner {
		return plan.Owner{Claim: plan.Ref{UID: "u" + id, Namespace: "t", Tenant: id}}
	}
	for name, tt := range map[string]struct {
		rules  []v1alpha1.DeviceRule
		change func(*plan.Node)
		want   []plan.DomainState
		// tenants are those of the domains.
		tenants []string
	}{
		"no rule is exclusive": {nil, func(*plan.Node) {}, []plan.DomainState{}, nil},
		"all is free": {[]v1alpha1.DeviceRule{gpus}, func(*plan.Node) {}, []plan.DomainState{
			{Domain: node2, Rules: []string{first}, Free: []pci.Address{gpuAddr}},
			{Domain: node10, Rules: []string{first}, Free: []pci.Address{emptyGPU}},
		}, []string{"", ""}},
		"a tenant has one": {[]v1alpha1.DeviceRule{gpus, vfs}, func(n *plan.Node) { n.Owners = map[pci.Address]plan.Owner{nicVF: claimOf(blue)} }, []plan.DomainState{
			{Domain: node2, Rules: []string{first}, Free: []pci.Address{gpuAddr}},
			{Domain: node10, Rules: []string{second, first}, Tenancies: []plan.Tenancy{{Function: nicVF, Tenant: blue}}, Free: []pci.Address{emptyGPU}},
			{Domain: whole, Rules: []string{second}, Tenancies: []plan.Tenancy{{Function: nicVF, Tenant: blue}}, Free: []pci.Address{gpuAddr, emptyGPU}},
		}, []string{"", blue, blue}},
		"two have it": {[]v1alpha1.DeviceRule{gpus, vfs}, func(n *plan.Node) {
			n.Owners = map[pci.Address]plan.Owner{nicVF: claimOf(blue), gpuAddr: claimOf(red)}
		}, []plan.DomainState{
			{Domain: node2, Rules: []string{first}, Tenancies: []plan.Tenancy{{Function: gpuAddr, Tenant: red}}},
			{Domain: node10, Rules: []string{second, first}, Tenancies: []plan.Tenancy{{Function: nicVF, Tenant: blue}}, Free: []pci.Address{emptyGPU}},
			{Domain: whole, Rules: []string{second}, Tenancies: []plan.Tenancy{{Function: nicVF, Tenant: blue}, {Function: gpuAddr, Tenant: red}}, Free: []pci.Address{emptyGPU}},
		}, []string{red, blue, plan.SeveralTenants}},
		"a claim without an ID has it, and a device is bound": {[]v1alpha1.DeviceRule{gpus}, func(n *plan.Node) {
			n.Owners = map[pci.Address]plan.Owner{gpuAddr: claimOf(""), emptyGPU: {Bound: true}}
		}, []plan.DomainState{
			{Domain: node2, Rules: []string{first}, Tenancies: []plan.Tenancy{{Function: gpuAddr, Tenant: plan.UnknownTenant}}},
			{Domain: node10, Rules: []string{first}, Free: []pci.Address{emptyGPU}},
		}, []string{plan.UnknownTenant, ""}},
		"a device waits for its stage after a tenant, and another before its first one": {[]v1alpha1.DeviceRule{gpus}, func(n *plan.Node) {
			n.Sanitizing = map[pci.Address]plan.Sanitizing{gpuAddr: {Code: rule.NotSanitized, HadTenant: true, Tenant: blue}, emptyGPU: {Code: rule.NotSanitized}}
		}, []plan.DomainState{
			{Domain: node2, Rules: []string{first}, Tenancies: []plan.Tenancy{{Function: gpuAddr, Tenant: blue}}},
			{Domain: node10, Rules: []string{first}, Free: []pci.Address{emptyGPU}},
		}, []string{blue, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			n := plan.Node{Snapshot: s, Selection: nodeconfig.Select(&v1alpha1.NodeConfig{Devices: tt.rules}, s)}
			tt.change(&n)
			got := n.Domains()
			for i := range tt.want {
				tt.want[i].Tenant = tt.tenants[i]
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("domains (-want +got):\n%s", diff)
			}
			for i := range got {
				if got[i].Rules == nil || got[i].Tenancies == nil || got[i].Free == nil {
					t.Errorf("got a list of %s that is null in JSON, want empty lists", got[i].Domain)
				}
			}
		})
	}
}

// TestDomainOfASwitchHasTheSwitchesBelow: a device below another switch of an exclusive switch is refused to other tenants, too.
func TestDomainOfASwitchHasTheSwitchesBelow(t *testing.T) {
	for name, tt := range map[string]struct {
		ways    []pci.Address
		refused bool
	}{
		"below the exclusive one": {[]pci.Address{firstPort, secondPort}, true},
		"beside it":               {[]pci.Address{secondPort}, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := switched(v1alpha1.ExclusiveSwitch)
			for i := range n.Snapshot.Functions {
				if f := &n.Snapshot.Functions[i]; f.Address == onSecond {
					f.Upstream = tt.ways
				}
			}
			n.Owners[onFirst] = ofTenant("other", tenantA)
			req := asking(n.Snapshot, onSecond)
			req.Namespace, req.Tenant = "of-b", tenantB
			_, err := plan.Make(req, n)
			refused, ok := errors.AsType[*rule.RefusedError](err)
			if got := ok && refused.Has(rule.DomainOfOtherTenant); got != tt.refused {
				t.Errorf("refused because of the domain: %t, want %t: %v", got, tt.refused, err)
			}
		})
	}
}

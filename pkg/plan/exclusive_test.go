package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/rule/ruletest"
)

// Two switches with two GPUs each, and tenants.
var (
	firstPort, secondPort = pci.Address{Bus: 0x20}, pci.Address{Bus: 0x50}
	onFirst, besideFirst  = pci.Address{Bus: 0x22}, pci.Address{Bus: 0x23}
	onSecond              = pci.Address{Bus: 0x52}
)

const tenantA, tenantB = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"

// switched returns a node with two switches. The rule of the GPU onFirst makes domains exclusive; that of the others does not.
func switched(domains ...v1alpha1.ExclusiveDomain) plan.Node {
	upstream := func(a pci.Address) device.Function {
		return device.Function{
			Address: a, Class: 0x060400, Type: device.Bridge, Driver: "pcieport", Group: new(int(a.Bus)),
			Capabilities: pci.Capabilities{Header: pci.HeaderBridge, Express: &pci.Express{Type: pci.UpstreamPort}},
		}
	}
	below := func(a, port pci.Address, numa, group int) device.Function {
		f := on(a, 0x030200, "nvidia", group)
		f.Upstream, f.NUMANode = []pci.Address{port}, new(numa)
		return f
	}
	s := assemble([]device.Function{
		upstream(firstPort), upstream(secondPort),
		below(onFirst, firstPort, 0, 81), below(besideFirst, firstPort, 0, 82), below(onSecond, secondPort, 1, 83),
	})
	n := node(s)
	n.Selection = nodeconfig.Select(&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{
		{Match: v1alpha1.DeviceMatch{Addresses: []pci.Address{onFirst}}, Exclusive: domains},
		{Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}},
	}}, s)
	n.Owners = map[pci.Address]plan.Owner{}
	return n
}

// ofTenant is a claim of a tenant that has a function.
func ofTenant(uid, tenant string) plan.Owner {
	return plan.Owner{Claim: plan.Ref{UID: uid, Namespace: "of-" + tenant, Name: "train", Tenant: tenant}}
}

// TestExclusiveDomainHasOneTenant: a claim gets no device in an exclusive domain of another tenant, whichever of the two devices has the
// rule, and gets one in its own tenant's.
func TestExclusiveDomainHasOneTenant(t *testing.T) {
	const byPort = v1alpha1.ExclusiveSwitch
	stages := plan.Stages{Namespace: "stages", DeviceClass: "sanitizing"}
	for name, tt := range map[string]struct {
		domains []v1alpha1.ExclusiveDomain
		ask     pci.Address
		tenant  string
		change  func(*plan.Node, *claim.Request)
		refused bool
	}{
		"a free domain":                   {domains: []v1alpha1.ExclusiveDomain{byPort}, ask: onFirst, tenant: tenantA},
		"another tenant's switch":         {[]v1alpha1.ExclusiveDomain{byPort}, onFirst, tenantB, has(besideFirst, tenantA), true},
		"another's, by the other's rule":  {[]v1alpha1.ExclusiveDomain{byPort}, besideFirst, tenantB, has(onFirst, tenantA), true},
		"one's own switch":                {[]v1alpha1.ExclusiveDomain{byPort}, onFirst, tenantA, has(besideFirst, tenantA), false},
		"another switch":                  {[]v1alpha1.ExclusiveDomain{byPort}, onSecond, tenantB, has(onFirst, tenantA), false},
		"no rule":                         {nil, onFirst, tenantB, has(besideFirst, tenantA), false},
		"the card only":                   {[]v1alpha1.ExclusiveDomain{v1alpha1.ExclusiveCard}, onFirst, tenantB, has(besideFirst, tenantA), false},
		"another tenant's NUMA node":      {[]v1alpha1.ExclusiveDomain{v1alpha1.ExclusiveNUMA}, onFirst, tenantB, has(besideFirst, tenantA), true},
		"the other NUMA node":             {[]v1alpha1.ExclusiveDomain{v1alpha1.ExclusiveNUMA}, onSecond, tenantB, has(onFirst, tenantA), false},
		"another tenant's node":           {[]v1alpha1.ExclusiveDomain{v1alpha1.ExclusiveNode}, onSecond, tenantB, has(onFirst, tenantA), true},
		"another tenant's fabric":         {[]v1alpha1.ExclusiveDomain{v1alpha1.ExclusiveFabric}, onSecond, tenantB, has(onFirst, tenantA), true},
		"one of two domains":              {[]v1alpha1.ExclusiveDomain{v1alpha1.ExclusiveCard, byPort}, onFirst, tenantB, has(besideFirst, tenantA), true},
		"a claim without a known tenant":  {[]v1alpha1.ExclusiveDomain{byPort}, onFirst, "", has(besideFirst, tenantA), true},
		"two claims without known tenant": {[]v1alpha1.ExclusiveDomain{byPort}, onFirst, "", has(besideFirst, ""), true},
		"a holder from before the rule":   {[]v1alpha1.ExclusiveDomain{byPort}, onFirst, tenantA, has(besideFirst, ""), true},
		"a device in quarantine": {[]v1alpha1.ExclusiveDomain{byPort}, onFirst, tenantB, func(n *plan.Node, _ *claim.Request) {
			o := ofTenant("uid-2", tenantA)
			o.Quarantined = "reset timed out"
			n.Owners[besideFirst] = o
		}, true},
		"a device that the snapshot lacks": {[]v1alpha1.ExclusiveDomain{byPort}, onFirst, tenantB, has(pci.Address{Bus: 0xee}, tenantA), true},
		"one of one's own that it lacks":   {[]v1alpha1.ExclusiveDomain{byPort}, onFirst, tenantA, has(pci.Address{Bus: 0xee}, tenantA), false},
		"one in quarantine that is gone": {[]v1alpha1.ExclusiveDomain{byPort}, onFirst, tenantB, func(n *plan.Node, _ *claim.Request) {
			o := ofTenant("uid-2", tenantA)
			o.Quarantined = "reset timed out"
			n.Owners[pci.Address{Bus: 0xee}] = o
		}, false},
		"a device that waits for its stage": {[]v1alpha1.ExclusiveDomain{byPort}, onFirst, tenantB, waits(true, tenantA), true},
		"one of one's own that waits":       {[]v1alpha1.ExclusiveDomain{byPort}, onFirst, tenantA, waits(true, tenantA), false},
		"one that waits, of nobody known":   {[]v1alpha1.ExclusiveDomain{byPort}, onFirst, tenantA, waits(true, ""), true},
		"one that waits before all tenants": {[]v1alpha1.ExclusiveDomain{byPort}, onFirst, tenantA, waits(false, ""), false},
		"a device that is kept warm": {[]v1alpha1.ExclusiveDomain{byPort}, onFirst, tenantB, func(n *plan.Node, _ *claim.Request) {
			n.Owners[besideFirst] = plan.Owner{Claim: plan.Ref{UID: "warm"}, Bound: true}
		}, false},
		"a sanitizing stage beside a tenant": {[]v1alpha1.ExclusiveDomain{byPort}, onFirst, "", func(n *plan.Node, r *claim.Request) {
			n.Stages = stages
			n.Owners[besideFirst] = ofTenant("uid-2", tenantA)
			n.Sanitizing = map[pci.Address]plan.Sanitizing{onFirst: {Code: rule.NotSanitized, Profile: "memory", HadTenant: true, Tenant: tenantA}}
			r.Namespace, r.Devices[0].Class = stages.Namespace, stages.DeviceClass
		}, false},
		"a tenant beside a stage": {[]v1alpha1.ExclusiveDomain{byPort}, onFirst, tenantA, func(n *plan.Node, _ *claim.Request) {
			n.Stages = stages
			n.Owners[besideFirst] = plan.Owner{Claim: plan.Ref{UID: "stage", Namespace: stages.Namespace}}
			waits(true, tenantA)(n, nil)
		}, false},
		"another tenant beside a stage": {[]v1alpha1.ExclusiveDomain{byPort}, onFirst, tenantB, func(n *plan.Node, _ *claim.Request) {
			n.Stages = stages
			n.Owners[besideFirst] = plan.Owner{Claim: plan.Ref{UID: "stage", Namespace: stages.Namespace}}
			waits(true, tenantA)(n, nil)
		}, true},
		"the claim's own record": {[]v1alpha1.ExclusiveDomain{byPort}, onFirst, tenantA, func(n *plan.Node, r *claim.Request) {
			n.Owners[onFirst] = plan.Owner{Claim: plan.Ref{UID: r.UID, Namespace: r.Namespace}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := switched(tt.domains...)
			req := asking(n.Snapshot, tt.ask)
			req.Tenant = tt.tenant
			if tt.change != nil {
				tt.change(&n, req)
			}
			pl, err := plan.Make(req, n)
			refused, ok := errors.AsType[*rule.RefusedError](err)
			if ok != tt.refused || err != nil && !ok {
				t.Fatalf("Make = %v, want a refusal: %t", err, tt.refused)
			}
			if !ok {
				if pl.Claim.Tenant != tt.tenant {
					t.Errorf("the plan's tenant is %q, want %q", pl.Claim.Tenant, tt.tenant)
				}
				return
			}
			ruletest.VerdictsAt(t, rule.AtPrepare, refused.Verdicts)
			if !refused.Has(rule.DomainOfOtherTenant) || len(refused.Verdicts) != 1 {
				t.Errorf("refused with %v, want %s only", err, rule.DomainOfOtherTenant)
			}
			for _, name := range []string{"train", "of-" + tenantA, tenantA} {
				if strings.Contains(err.Error(), name) {
					t.Errorf("Make = %q, want nothing of another tenant in it, such as %q", err, name)
				}
			}
		})
	}
}

func has(a pci.Address, tenant string) func(*plan.Node, *claim.Request) {
	return func(n *plan.Node, _ *claim.Request) { n.Owners[a] = ofTenant("uid-2", tenant) }
}

// waits lets the GPU besideFirst wait for its sanitizing stage.
func waits(hadTenant bool, tenant string) func(*plan.Node, *claim.Request) {
	return func(n *plan.Node, _ *claim.Request) {
		n.Sanitizing = map[pci.Address]plan.Sanitizing{besideFirst: {Code: rule.NotSanitized, Profile: "memory", HadTenant: hadTenant, Tenant: tenant}}
	}
}

// TestExclusiveDomainsAreAssessed: the free devices of a tenant's domain name the tenant, for their taint; one that a claim has does not.
func TestExclusiveDomainsAreAssessed(t *testing.T) {
	for name, tt := range map[string]struct {
		owners map[pci.Address]string
		want   map[pci.Address]string
	}{
		"free":               {nil, map[pci.Address]string{}},
		"one device is held": {map[pci.Address]string{onFirst: tenantA}, map[pci.Address]string{besideFirst: tenantA, onSecond: tenantA}},
		"unknown tenant":     {map[pci.Address]string{onFirst: ""}, map[pci.Address]string{besideFirst: plan.UnknownTenant, onSecond: plan.UnknownTenant}},
		"two tenants": {
			map[pci.Address]string{onFirst: tenantA, onSecond: tenantB}, map[pci.Address]string{besideFirst: plan.SeveralTenants},
		},
	} {
		n := switched(v1alpha1.ExclusiveNode)
		n.Owners[besideFirst] = plan.Owner{Claim: plan.Ref{UID: "warm"}, Bound: true} // free, and kept warm
		for a, tenant := range tt.owners {
			n.Owners[a] = ofTenant("uid-of-"+a.String(), tenant)
		}
		assessor, got := plan.NewAssessor(n), map[pci.Address]string{}
		for i := range n.Snapshot.Functions {
			f := &n.Snapshot.Functions[i]
			as := assessor.Assess(f)
			for _, r := range as.Faults() {
				if r.Code == rule.DomainOfOtherTenant && !f.IsBridge() {
					got[f.Address] = r.Object
				}
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: tenants of free devices (-want +got):\n%s", name, diff)
		}
	}
}

// TestExclusiveCardHasOneTenantsSlices: the VFs of a GPU are on its card, and those of another GPU are not.
func TestExclusiveCardHasOneTenantsSlices(t *testing.T) {
	slice := func(pf pci.Address, index, group int) device.Function {
		f := vfOf(amd, 0x74b5, 0x120000, "")
		f.Address = pci.Address{Bus: pf.Bus, Device: 2, Function: uint8(index)}
		f.Group, f.VF = new(group), &device.VF{PF: pf, Index: index}
		return f
	}
	gpu := func(a pci.Address, group int, vfs ...pci.Address) device.Function {
		f := on(a, 0x120000, "gim", group)
		f.Vendor, f.Device, f.PF = amd, 0x74a1, &device.PF{TotalVFs: 8, NumVFs: len(vfs), VFs: vfs}
		return f
	}
	card, otherCard := pci.Address{Bus: 0xb0}, pci.Address{Bus: 0xc0}
	first, second, elsewhere := slice(card, 0, 71), slice(card, 1, 72), slice(otherCard, 0, 73)
	s := assemble([]device.Function{
		gpu(card, 69, first.Address, second.Address), first, second, gpu(otherCard, 70, elsewhere.Address), elsewhere,
	})
	for name, tt := range map[string]struct {
		domains []v1alpha1.ExclusiveDomain
		ask     pci.Address
		tenant  string
		refused bool
	}{
		"another tenant, the same card":  {[]v1alpha1.ExclusiveDomain{v1alpha1.ExclusiveCard}, second.Address, tenantB, true},
		"the same tenant":                {[]v1alpha1.ExclusiveDomain{v1alpha1.ExclusiveCard}, second.Address, tenantA, false},
		"another tenant, another card":   {[]v1alpha1.ExclusiveDomain{v1alpha1.ExclusiveCard}, elsewhere.Address, tenantB, false},
		"another tenant, without a rule": {nil, second.Address, tenantB, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := node(s)
			n.Selection = nodeconfig.Select(&v1alpha1.NodeConfig{
				Devices:   []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: []string{"gpuvf"}}, Exclusive: tt.domains}},
				GPUSlices: []v1alpha1.GPUSliceRule{{Match: v1alpha1.GPUMatch{Vendors: []pci.ID{amd}}}},
			}, s)
			n.Owners = map[pci.Address]plan.Owner{first.Address: ofTenant("uid-2", tenantA)}
			req := asking(s, tt.ask)
			req.Tenant = tt.tenant
			_, err := plan.Make(req, n)
			refused, ok := errors.AsType[*rule.RefusedError](err)
			if ok != tt.refused || ok && !refused.Has(rule.DomainOfOtherTenant) || err != nil && !ok {
				t.Errorf("Make = %v; want a refusal with %s: %t", err, rule.DomainOfOtherTenant, tt.refused)
			}
		})
	}
}

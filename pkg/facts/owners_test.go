package facts

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

func TestOwnersAreTenants(t *testing.T) {
	const blue, red = "0123456789abcdef", "fedcba9876543210"
	type of struct{ namespace, id string }
	for name, tt := range map[string]struct {
		all  []of
		want []string
	}{
		"without IDs, each namespace":                {[]of{{"b", ""}, {"a", ""}, {"a", ""}}, []string{"a", "b"}},
		"namespaces of two tenants":                  {[]of{{"a", blue}, {"b", red}}, []string{"a", "b"}},
		"namespaces of one tenant":                   {[]of{{"b", blue}, {"a", blue}}, []string{"a and b (one tenant)"}},
		"one of them, of a claim without an ID, too": {[]of{{"a", ""}, {"a", blue}, {"b", blue}}, []string{"a and b (one tenant)"}},
		"a namespace of an unknown tenant":           {[]of{{"a", blue}, {"b", blue}, {"c", ""}}, []string{"a and b (one tenant)", "c"}},
		"a namespace that was created again":         {[]of{{"a", blue}, {"a", red}}, []string{"a (tenant " + blue + ")", "a (tenant " + red + ")"}},
		"nobody":                                     {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := &Node{}
			var functions []pci.Address
			for i, o := range tt.all {
				a := pci.Address{Bus: uint8(i)}
				functions = append(functions, a)
				n.Tenancies = append(n.Tenancies, Tenancy{Address: a, Record: &journal.Record{Plan: plan.Plan{Claim: plan.Ref{Namespace: o.namespace, Tenant: o.id}}}})
			}
			if diff := cmp.Diff(tt.want, n.Owners(functions...)); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
		})
	}
}

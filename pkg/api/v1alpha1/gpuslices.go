package v1alpha1

import "github.com/kata-vfio/kata-vfio/pkg/pci"

// GPUSliceRule permits slices of the GPUs that it matches. Tenants with slices of one GPU share what the attribute boundary of
// the slices says.
type GPUSliceRule struct {
	// Name appears in messages about the rule. Optional. Names must be unique.
	Name  string   `json:"name,omitempty"`
	Match GPUMatch `json:"match"`
}

// GPUMatch is a condition for GPUs, by their physical functions. Every set field must match, and at least one must be set. A list
// matches if one of its entries does.
type GPUMatch struct {
	// Vendors and Devices are ids of four hexadecimal digits. Devices needs Vendors.
	Vendors []pci.ID `json:"vendors,omitempty"`
	Devices []pci.ID `json:"devices,omitempty"`
	// Addresses are those of the physical functions.
	Addresses []pci.Address `json:"addresses,omitempty"`
}

// checkSlices adds the problems of the rules for slices.
func (c *NodeConfig) checkSlices(p *problems) {
	seen := map[string]int{}
	for i := range c.GPUSlices {
		r, at := &c.GPUSlices[i], index("gpuSlices", i)
		if first, ok := seen[r.Name]; ok && r.Name != "" {
			p.add(at+".name", "%s is the name of %s too; no two rules may have one name", show(r.Name), index("gpuSlices", first))
		} else {
			seen[r.Name] = i
		}
		r.Match.check(p, at+".match")
	}
}

func (m *GPUMatch) check(p *problems, path string) {
	if m.Vendors == nil && m.Devices == nil && m.Addresses == nil {
		p.add(path, "empty; set at least one of vendors, devices, addresses (addresses: [\"0000:3b:00.0\"] for one GPU)")
	}
	for _, list := range []struct {
		name  string
		empty bool
	}{
		{"vendors", m.Vendors != nil && len(m.Vendors) == 0},
		{"devices", m.Devices != nil && len(m.Devices) == 0},
		{"addresses", m.Addresses != nil && len(m.Addresses) == 0},
	} {
		if list.empty {
			p.add(path+"."+list.name, "the list is empty, so that the rule matches nothing; remove it or fill it")
		}
	}
	if len(m.Devices) > 0 && len(m.Vendors) == 0 {
		p.add(path+".devices", "needs vendors: a device id means something only to its vendor")
	}
}

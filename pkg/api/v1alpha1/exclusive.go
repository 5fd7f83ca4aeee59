package v1alpha1

import "slices"

// ExclusiveDomain is a part of the hardware that [DeviceRule.Exclusive] gives to one tenant at a time.
type ExclusiveDomain string

// Exclusive domains. Package isolation says which functions each of them has.
const (
	// ExclusiveCard is a physical device with all its functions, and the VFs of them.
	ExclusiveCard ExclusiveDomain = "Card"
	// ExclusivePF is a physical function with its VFs.
	ExclusivePF ExclusiveDomain = "PF"
	// ExclusiveSwitch is the PCIe switch that is nearest to the function, with everything below it.
	ExclusiveSwitch ExclusiveDomain = "Switch"
	// ExclusiveRootPort is a root port with everything below it.
	ExclusiveRootPort ExclusiveDomain = "RootPort"
	// ExclusiveNUMA is a NUMA node.
	ExclusiveNUMA ExclusiveDomain = "NUMA"
	// ExclusiveNode is the whole node.
	ExclusiveNode ExclusiveDomain = "Node"
	// ExclusiveFabric is all GPUs of one vendor on the node, which NVLink or xGMI may connect.
	ExclusiveFabric ExclusiveDomain = "Fabric"
)

// ExclusiveDomains returns all exclusive domains, the smallest first.
func ExclusiveDomains() []ExclusiveDomain {
	return []ExclusiveDomain{ExclusiveCard, ExclusivePF, ExclusiveSwitch, ExclusiveRootPort, ExclusiveNUMA, ExclusiveNode, ExclusiveFabric}
}

// TaintTenant is on the free devices of an exclusive domain while a tenant has devices there. The value is the tenant's ID.
// Claims of the tenant tolerate it: the chart's admission policy adds the toleration when a claim is created.
const TaintTenant = DriverName + "/tenant"

// TenantsConfigMap is the ConfigMap in the chart's namespace with the IDs of tenants, by [TenantKey]. kata-vfio-controller writes it. The
// claims of a namespace without an entry get no device of an exclusive domain.
const TenantsConfigMap = "kata-vfio-tenants"

// TenantKey returns the key of a namespace in [TenantsConfigMap]. The value is the ID of the namespace's tenant: 16 hexadecimal digits,
// chosen at random when the tenant is first seen, so that taints in ResourceSlices don't reveal names. Namespaces with the same ID are one
// tenant.
func TenantKey(namespace string) string { return "namespace." + namespace }

// IsTenantID reports whether a text is the ID of a tenant.
func IsTenantID(text string) bool { return len(text) == 16 && consists(text, "0123456789abcdef") }

// Conditions that a scheduler waits for after it has allocated a device of a domain with [DeviceRule.ReserveDomains], and before it binds
// the pod (bindingConditions and bindingFailureConditions of the device).
const (
	// ConditionDomainReserved is true once the device's domains are reserved for the claim's tenant.
	ConditionDomainReserved = DriverName + "/DomainReserved"
	// ConditionDomainTaken is true if another tenant has one of them. The scheduler then allocates another device.
	ConditionDomainTaken = DriverName + "/DomainTaken"
)

// HasExclusive reports whether a rule has exclusive domains. A nil config has none.
func (c *NodeConfig) HasExclusive() bool {
	return c != nil && slices.ContainsFunc(c.Devices, func(r DeviceRule) bool { return len(r.Exclusive) > 0 })
}

// checkExclusive adds the problems of the rule's exclusive domains.
func (r *DeviceRule) checkExclusive(p *problems, path string) {
	if len(r.Exclusive) == 0 {
		if r.ReserveDomains {
			p.add(path+".reserveDomains", "there are no domains to reserve: add exclusive, such as [%s], or remove reserveDomains", ExclusiveCard)
		}
		return
	}
	path += ".exclusive"
	switch {
	case r.Exclude:
		p.add(path, "says nothing where exclude is true; remove one of the two")
	case r.SharedWith != "":
		p.add(path, "can't hold where sharedWith is set: containers of any tenant get such GPUs by the other driver; remove one of the two")
	}
	for i, d := range r.Exclusive {
		among(p, index(path, i), d, ExclusiveDomains()...)
		// among takes "" for an unset field with a default. A list entry has none.
		if d == "" {
			p.add(index(path, i), "empty; name a domain such as %s", ExclusiveCard)
		}
		if slices.Contains(r.Exclusive[:i], d) {
			p.add(index(path, i), "%s is in the list twice", show(string(d)))
		}
	}
}

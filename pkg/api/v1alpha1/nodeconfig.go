package v1alpha1

import (
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// BindPolicy is the time at which a function is bound to its VFIO driver.
type BindPolicy string

// Bind policies. Bound functions are on the VFIO driver from the plugin's start on, which makes prepare fast. OnDemand
// functions are bound by prepare, and return to their driver after the claim.
const (
	PolicyBound    BindPolicy = "bound"
	PolicyOnDemand BindPolicy = "onDemand"
)

// Pairing is the required distance of a NIC from a GPU. If the NIC is near enough, one of its VFs is reserved for the GPU,
// and both are published as one device, the pair.
type Pairing string

// Pairings. Devices at one switch are also under one root.
const (
	PairingNone   Pairing = "None"
	PairingSwitch Pairing = "Switch"
	PairingRoot   Pairing = "Root"
)

// VFAttributes is the amount of attributes that is published of each VF.
type VFAttributes string

// Amounts of attributes. The API server and each scheduler keep all published attributes in memory.
const (
	// VFAttributesAll publishes all known attributes.
	VFAttributesAll VFAttributes = "All"
	// VFAttributesSelection publishes the attributes that requests usually select by: their place, their card and port, and
	// whether they are isolated.
	VFAttributesSelection VFAttributes = "Selection"
	// VFAttributesMinimal publishes their place, the rule and the interface that identify their card, and whether they are
	// isolated.
	VFAttributesMinimal VFAttributes = "Minimal"
)

// NodeConfig selects the functions of a node that kata-vfio may take. Without one, it may take every display, 3D and
// processing accelerator function and every VF, on demand.
type NodeConfig struct {
	TypeMeta `json:",inline"`
	// Devices are tried in order; the first match decides. kata-vfio does not take a function that no rule matches. Nil
	// (not set) selects the default rules; an empty list selects no function.
	Devices []DeviceRule `json:"devices,omitzero"`
	// GPUSlices permit slices of GPUs, which are their VFs: a rule of Devices takes a VF of a GPU only if a rule here matches
	// the GPU. Without one, no GPU is sliced.
	GPUSlices []GPUSliceRule `json:"gpuSlices,omitempty"`
	// AllowedHandlers are the RuntimeClass handlers whose pods may have our
	// devices. Default: ["kata-gpu"].
	AllowedHandlers []string `json:"allowedHandlers,omitempty"`
	// VirtualFunctions are the numbers of VFs of PFs. Other PFs are unchanged.
	VirtualFunctions []VFRule `json:"virtualFunctions,omitempty"`
	// AddressPools are the pools for [GuestNetwork.AddressPool].
	AddressPools []AddressPool `json:"addressPools,omitempty"`
	// CNIBinDirs are the node's directories with the binaries of CNI plugins,
	// tried in order. Default: ["/opt/cni/bin"].
	CNIBinDirs []string `json:"cniBinDirs,omitempty"`
	// Pairing reserves a VF for each GPU. The default is None.
	Pairing Pairing `json:"pairing,omitempty"`
	// VFAttributes is the amount of published attributes of each VF. The default is All.
	VFAttributes VFAttributes `json:"vfAttributes,omitempty"`
	// QuotaCounters publishes counters of each GPU and pair, even if a GPU shares nothing, for queues that count quotas by these counters.
	QuotaCounters bool `json:"quotaCounters,omitempty"`
	// Fabric gives VMs partitions of GPUs that are joined by NVLink switches. The default is none.
	Fabric *Fabric `json:"fabric,omitempty"`
}

// VFRule is the required number of VFs of a PF, and the way in which they are connected.
type VFRule struct {
	// PF is the PF's address or the name of its interface.
	PF string `json:"pf"`
	// Count is the number of VFs. It is required; 0 disables VFs.
	Count *int `json:"count"`
	// EswitchMode is the mode of the PF's eswitch. If empty, the mode is unchanged.
	EswitchMode EswitchMode `json:"eswitchMode,omitempty"`
	// Optional says that a node without the PF is not an error, so that one rule serves different boards.
	Optional bool `json:"optional,omitempty"`
}

// EswitchMode is the mode of the NIC's switch (eswitch), which connects a PF's VFs with each other and with the wire.
type EswitchMode string

// Eswitch modes, as in "devlink dev eswitch set DEV mode MODE". In legacy mode the NIC forwards by address and the PF
// imposes VLANs and more. In switchdev mode each VF has a representor on the node, whose settings decide.
const (
	EswitchLegacy    EswitchMode = "Legacy"
	EswitchSwitchdev EswitchMode = "Switchdev"
)

// DeviceRule takes or leaves the functions that it matches.
type DeviceRule struct {
	// Name appears in messages about the rule, and is the attribute "rule" of its devices. Optional. Names must be unique.
	Name  string      `json:"name,omitempty"`
	Match DeviceMatch `json:"match"`
	// Policy is onDemand if empty.
	Policy BindPolicy `json:"policy,omitempty"`
	// Warm is the number of free devices of the rule that are kept ready for claims: on their VFIO drivers, and proven clean. Only
	// for onDemand.
	Warm Share `json:"warm,omitzero"`
	// SharedWith is the DRA driver that publishes the same GPUs for containers, such as gpu.nvidia.com. They are in a pool of
	// their own, and go to a VM or to a container as claims ask. Only for GPUs, and onDemand; pairing leaves them out. It needs
	// kata-vfio-controller.
	SharedWith string `json:"sharedWith,omitempty"`
	// Sanitize is the stage that each device of the rule passes between two tenants; nil means none. It needs
	// kata-vfio-controller and a document of [Sanitizers].
	Sanitize *SanitizeRule `json:"sanitize,omitempty"`
	// Exclusive are the domains around each device of the rule that belong to one tenant at a time: while a tenant has a device there,
	// no other tenant gets one. It counts for all devices of a domain, whatever their rules say. It needs kata-vfio-controller.
	Exclusive []ExclusiveDomain `json:"exclusive,omitempty"`
	// ReserveDomains makes the scheduler bind a pod only after kata-vfio-controller has reserved the domains around its devices for the
	// pod's tenant. So no pod waits on a node whose domain another tenant got first. Each such pod waits about 5 s longer. It is valid only
	// with Exclusive, and counts for all devices of those domains.
	ReserveDomains bool `json:"reserveDomains,omitempty"`
	// Exclude leaves the matched functions alone. Later rules do not apply to them.
	Exclude bool `json:"exclude,omitempty"`
}

// DeviceMatch is a condition for functions. Every set field must match, and at least one must be set. A list matches if
// one of its entries does.
type DeviceMatch struct {
	// Types are device types: gpu, pf, vf (of a NIC), gpuvf, nvme, accelerator, other.
	Types []string `json:"types,omitempty"`
	// Vendors and Devices are ids of four hexadecimal digits. Devices needs
	// Vendors, since a device id means something only to its vendor.
	Vendors []pci.ID `json:"vendors,omitempty"`
	Devices []pci.ID `json:"devices,omitempty"`
	// Classes are the first two, four or six digits of the class code: "03",
	// "0302", "120000".
	Classes   []string      `json:"classes,omitempty"`
	Addresses []pci.Address `json:"addresses,omitempty"`
	// PFNames are netdev names of PFs ("ens1f0np0"). They match the PFs' VFs, never a PF: its netdev, and with it the match,
	// would disappear with the first claim that takes it. Name a PF by its address.
	PFNames []string `json:"pfNames,omitempty"`
}

// DefaultHandler is the RuntimeClass handler of pods with devices if the node's config names none.
const DefaultHandler = "kata-gpu"

// DecodeNodeConfig reads a node's config from YAML or JSON: strictly, with
// defaults filled in. Its error is an [InvalidError] with every problem and its line.
func DecodeNodeConfig(text []byte) (*NodeConfig, error) {
	raw, err := YAMLToJSON(text)
	if err != nil {
		return nil, &InvalidError{Kind: KindNodeConfig, Problems: []Problem{{Text: err.Error()}}}
	}
	c := &NodeConfig{}
	if err := decode(raw, KindNodeConfig, c).err(KindNodeConfig); err != nil {
		return nil, withLines(err, text)
	}
	c.Default()
	if err := c.Validate(); err != nil {
		return nil, withLines(err, text)
	}
	return c, nil
}

// Default sets the default of every unset field. The rules for nil Devices are not set here; package nodeconfig has them.
func (c *NodeConfig) Default() {
	c.TypeMeta = TypeMeta{APIVersion: APIVersion, Kind: KindNodeConfig}
	if c.AllowedHandlers == nil {
		c.AllowedHandlers = []string{DefaultHandler}
	}
	for i := range c.Devices {
		r := &c.Devices[i]
		// check refuses a rule that excludes and has a policy.
		if r.Policy == "" && !r.Exclude {
			r.Policy = PolicyOnDemand
		}
		if r.Sanitize != nil && r.Sanitize.When == "" {
			r.Sanitize.When = SanitizeRelease
		}
	}
	for i := range c.AddressPools {
		if pool := &c.AddressPools[i]; pool.CNIVersion == "" {
			pool.CNIVersion = defaultCNIVersion
		}
	}
	c.Fabric.setDefaults()
	if c.CNIBinDirs == nil {
		c.CNIBinDirs = []string{DefaultCNIBinDir}
	}
}

// Validate reports all problems of c as an [InvalidError].
func (c *NodeConfig) Validate() error {
	var p problems
	seen := map[string]int{}
	for i := range c.Devices {
		rule := &c.Devices[i]
		at := index("devices", i)
		rule.check(&p, at)
		if first, ok := seen[rule.Name]; ok && rule.Name != "" {
			p.add(at+".name", "%s is the name of %s too; no two rules may have one name", show(rule.Name), index("devices", first))
			continue
		}
		seen[rule.Name] = i
	}
	c.checkSlices(&p)
	c.checkHandlers(&p)
	c.checkVFs(&p)
	c.checkPools(&p)
	c.Fabric.check(&p, "fabric")
	among(&p, "pairing", c.Pairing, PairingNone, PairingSwitch, PairingRoot)
	among(&p, "vfAttributes", c.VFAttributes, VFAttributesAll, VFAttributesSelection, VFAttributesMinimal)
	return p.err(KindNodeConfig)
}

// mostVFs is the maximum of SR-IOV's 16-bit counts.
const mostVFs = 65535

func (c *NodeConfig) checkVFs(p *problems) {
	for i, r := range c.VirtualFunctions {
		at := index("virtualFunctions", i)
		if _, err := pci.ParseAddress(r.PF); err != nil && !isNetdev(r.PF) {
			p.add(at+".pf", "%s is neither an address such as 0000:3b:00.0 nor the name of an interface", show(r.PF))
		}
		if r.Count == nil {
			p.add(at+".count", "missing; say how many VFs the PF is to have, 0 for none")
		}
		p.within(at+".count", r.Count, mostVFs)
		among(p, at+".eswitchMode", r.EswitchMode, EswitchLegacy, EswitchSwitchdev)
		// By the text alone: only the node knows whether an address and an interface are one PF.
		same := func(o VFRule) bool { return o.PF == r.PF }
		if first := slices.IndexFunc(c.VirtualFunctions, same); first < i {
			p.add(at+".pf", "%s is named by %s too; one rule says how many VFs it has", show(r.PF), index("virtualFunctions", first))
		}
	}
}

func (c *NodeConfig) checkHandlers(p *problems) {
	if c.AllowedHandlers != nil && len(c.AllowedHandlers) == 0 {
		p.add("allowedHandlers", "the list is empty, so that no pod could have a device; name a RuntimeClass handler such as %s", DefaultHandler)
	}
	for i, h := range c.AllowedHandlers {
		if !isLabel(h) {
			p.add(index("allowedHandlers", i), "%s is not a RuntimeClass handler; want lower-case letters, digits and \"-\"", show(h))
		}
	}
}

// check adds the problems of the rule at path.
func (r *DeviceRule) check(p *problems, path string) {
	among(p, path+".policy", r.Policy, PolicyBound, PolicyOnDemand)
	if r.Exclude && r.Policy != "" {
		p.add(path+".policy", "%s says nothing where exclude is true; remove one of the two", show(string(r.Policy)))
	}
	switch {
	case r.Warm == Share{}:
	case r.Exclude:
		p.add(path+".warm", "%s says nothing where exclude is true; remove one of the two", r.Warm)
	case r.Policy == PolicyBound:
		p.add(path+".warm", "%s says nothing where policy is bound, which keeps all devices on VFIO; remove one of the two", r.Warm)
	}
	r.checkShared(p, path)
	r.checkExclusive(p, path)
	if r.Sanitize != nil {
		r.Sanitize.check(p, path+".sanitize", r)
	}
	r.Match.check(p, path+".match")
}

// check adds the problems of the match at path.
func (m *DeviceMatch) check(p *problems, path string) {
	if len(said(m)) == 0 {
		p.add(path, "empty; set at least one of types, vendors, classes, addresses, pfNames (types: [gpu] for all GPUs)")
	}
	for _, name := range emptyLists(m) {
		p.add(path+"."+name, "the list is empty, so that the rule matches nothing; remove it or fill it")
	}
	for i, t := range m.Types {
		if !slices.Contains(matchTypes(), t) {
			p.add(index(path+".types", i), "%s is not one of %s", show(t), strings.Join(matchTypes(), ", "))
		}
	}
	for i, class := range m.Classes {
		if !isClassPrefix(class) {
			p.add(index(path+".classes", i), "%s is not a class; want the first two, four or six hexadecimal digits of the class code such as \"0302\"", show(class))
		}
	}
	if len(m.Devices) > 0 && len(m.Vendors) == 0 {
		p.add(path+".devices", "needs vendors: a device id means something only to its vendor")
	}
	m.checkPFNames(p, path)
}

func (m *DeviceMatch) checkPFNames(p *problems, path string) {
	for i, name := range m.PFNames {
		if !isNetdev(name) {
			p.add(index(path+".pfNames", i), "%s is not a network interface name; want the PF's, such as ens1f0np0", show(name))
		}
	}
	for i, t := range m.Types {
		if len(m.PFNames) > 0 && t != typeVF {
			p.add(index(path+".types", i), "%s never matches beside pfNames, which match the VFs of a PF; name a PF by its address", show(t))
		}
	}
}

// Device types of package device, which is above this one.
const (
	typeGPU = "gpu"
	typeVF  = "vf"
)

// matchTypes returns the device types that a rule may name: all except bridges, which are never assigned.
func matchTypes() []string {
	return []string{typeGPU, "pf", typeVF, "gpuvf", "nvme", "accelerator", "other"}
}

// isClassPrefix reports whether text is the first two, four or six digits of
// a class code.
func isClassPrefix(text string) bool {
	return len(text) > 0 && len(text) <= 6 && len(text)%2 == 0 && consists(text, "0123456789abcdefABCDEF")
}

// isNetdev reports whether the kernel accepts text as an interface name (dev_valid_name in net/core/dev.c; IFNAMSIZ is 16
// with the closing zero).
func isNetdev(text string) bool {
	return text != "" && len(text) <= 15 && text != "." && text != ".." && !strings.ContainsAny(text, "/: \t\n\v\f\r")
}

// isLabel reports whether text is an RFC 1123 DNS label, as a RuntimeClass
// handler must be.
func isLabel(text string) bool {
	return len(text) > 0 && len(text) <= 63 && consists(text, "abcdefghijklmnopqrstuvwxyz0123456789-") &&
		text[0] != '-' && text[len(text)-1] != '-'
}

// isDriverName reports whether text is the name of a DRA driver: a DNS subdomain of at most 63 characters
// (ResourceSlice spec.driver).
func isDriverName(text string) bool {
	return len(text) <= 63 && !slices.ContainsFunc(strings.Split(text, "."), func(part string) bool { return !isLabel(part) })
}

func consists(text, of string) bool { return strings.Trim(text, of) == "" }

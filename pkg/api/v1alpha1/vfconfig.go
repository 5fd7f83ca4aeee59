package v1alpha1

import (
	"slices"
	"strings"
)

// LinkState is the administrative link state of a VF.
type LinkState string

// Link states, as in "ip link set PF vf N state".
const (
	LinkAuto    LinkState = "Auto"
	LinkEnable  LinkState = "Enable"
	LinkDisable LinkState = "Disable"
)

// VLANProtocol is the tag's protocol, as in "ip link set PF vf N vlan V proto P".
type VLANProtocol string

// VLAN protocols.
const (
	VLAN8021Q  VLANProtocol = "802.1Q"
	VLAN8021ad VLANProtocol = "802.1ad"
)

// Attachment is the way in which a VM gets a VF.
type Attachment string

// Attachments. VFIO gives the VM the function, whose interface the guest configures. PhysicalEndpoint leaves the VF on
// its kernel driver and moves its interface with its addresses into the pod's network namespace. Kata takes the interface
// and its configuration from there (Kata's PhysicalEndpoint).
const (
	AttachVFIO             Attachment = "VFIO"
	AttachPhysicalEndpoint Attachment = "PhysicalEndpoint"
)

// maxRate bounds a rate in Mbit/s, so that it fits the kernel's 32 bits
// (struct ifla_vf_rate in include/uapi/linux/if_link.h) on any platform.
const maxRate = 1<<31 - 1

// VFConfig has the settings that a PF imposes on a virtual function. A nil or empty field is unset.
type VFConfig struct {
	TypeMeta `json:",inline"`
	// MAC is the VF's administrative MAC address, such as "02:00:5e:10:00:01": unicast and not zero. A claim can't
	// replace the one of its DeviceClass.
	MAC string `json:"mac,omitempty"`
	// VLAN is the VLAN id, 0 (none) to 4094. From a DeviceClass only.
	VLAN *int `json:"vlan,omitempty"`
	// AllowUntagged true allows a VF without a VLAN, which shares a network segment with the PF and all other devices
	// there. From a DeviceClass only.
	AllowUntagged *bool `json:"allowUntagged,omitempty"`
	// VLANQoS is the 802.1p priority, 0 to 7. Needs VLAN. From a DeviceClass only.
	VLANQoS *int `json:"vlanQoS,omitempty"`
	// VLANProtocol is "802.1Q" (default) or "802.1ad". Needs VLAN. From a
	// DeviceClass only.
	VLANProtocol VLANProtocol `json:"vlanProtocol,omitempty"`
	// SpoofCheck false weakens isolation: from a DeviceClass only.
	SpoofCheck *bool `json:"spoofCheck,omitempty"`
	// Trust true weakens isolation: from a DeviceClass only.
	Trust *bool `json:"trust,omitempty"`
	// RSSQuery true lets the VF read the hash key that it shares with its PF and
	// the PF's other VFs: from a DeviceClass only.
	RSSQuery *bool `json:"rssQuery,omitempty"`
	// NodeGUID and PortGUID are those of an InfiniBand VF, "02:00:5e:10:00:00:00:01": neither zero nor all ones. The
	// fabric's partitions, which separate tenants as VLANs do, contain port GUIDs: from a DeviceClass only.
	NodeGUID string `json:"nodeGUID,omitempty"`
	PortGUID string `json:"portGUID,omitempty"`
	// MinTxRate is in Mbit/s, 0 for none. It is at the cost of the PF's other VFs:
	// from a DeviceClass only.
	MinTxRate *int `json:"minTxRate,omitempty"`
	// MaxTxRate is in Mbit/s, 0 for no limit. A claim may only lower the value of its DeviceClass. If the DeviceClass has
	// none, the claim may only lower the PF's present value.
	MaxTxRate *int `json:"maxTxRate,omitempty"`
	// LinkState is imposed by the PF. A claim may only lower its DeviceClass's value, from Enable to Auto to Disable.
	LinkState LinkState `json:"linkState,omitempty"`
	// Attachment is VFIO if empty. PhysicalEndpoint needs addresses, or a pool of them. A claim can't replace the value
	// of its DeviceClass.
	Attachment Attachment `json:"attachment,omitempty"`
	// Network configures the interface inside the guest. If nil, the guest's image configures it.
	Network *GuestNetwork `json:"network,omitempty"`
}

// DecodeVF reads a VFConfig from a DeviceClass or a claim: strictly, without defaults. Its error is an
// [InvalidError].
func DecodeVF(raw []byte) (*VFConfig, error) {
	c := &VFConfig{}
	p := decode(raw, KindVFConfig, c)
	if len(p) == 0 {
		c.check(&p)
	}
	if err := p.err(KindVFConfig); err != nil {
		return nil, err
	}
	return c, nil
}

// Fields returns the JSON names of the parameters that c sets.
func (c *VFConfig) Fields() []string { return said(c) }

// Overlay replaces c's parameters with every one that over sets, as a later config of the same device does. A
// network replaces the former one as a whole, except for the pool: a network without a pool keeps the former.
func (c *VFConfig) Overlay(over *VFConfig) {
	former := c.Network
	lay(c, over)
	if former == nil || former.AddressPool == "" || c.Network.AddressPool != "" {
		return
	}
	// A copy: after lay, c shares the network with over, which is also laid over the claim's other devices.
	merged := *c.Network
	merged.AddressPool = former.AddressPool
	c.Network = &merged
}

// Default sets parameters that follow from the set ones. The others stay unset: the VF keeps the values that its PF has.
func (c *VFConfig) Default() {
	c.TypeMeta = TypeMeta{APIVersion: APIVersion, Kind: KindVFConfig}
	if c.VLAN != nil && c.VLANProtocol == "" {
		c.VLANProtocol = VLAN8021Q
	}
}

// Validate reports all problems of c as an [InvalidError], including parameters that contradict each other. Decoding
// does not check these, because a class's and a claim's parameters are each only a part.
func (c *VFConfig) Validate() error {
	var p problems
	c.check(&p)
	if c.VLAN == nil && c.VLANQoS != nil {
		p.add("vlanQoS", "needs vlan, which is not set")
	}
	if c.VLAN == nil && c.VLANProtocol != "" {
		p.add("vlanProtocol", "needs vlan, which is not set")
	}
	if c.MinTxRate != nil && c.MaxTxRate != nil && *c.MaxTxRate != 0 && *c.MinTxRate > *c.MaxTxRate {
		p.add("minTxRate", "%d is more than maxTxRate, %d", *c.MinTxRate, *c.MaxTxRate)
	}
	if c.Attachment == AttachPhysicalEndpoint {
		c.checkEndpoint(&p)
	}
	return p.err(KindVFConfig)
}

// checkEndpoint adds a problem for each setting that Kata would not apply: it ignores an interface without an address,
// and does not copy routing rules.
func (c *VFConfig) checkEndpoint(p *problems) {
	if c.Network == nil || len(c.Network.Addresses) == 0 && c.Network.AddressPool == "" {
		p.add("attachment", "%s needs network.addresses, or network.addressPool: Kata passes over an interface without an address", c.Attachment)
		return
	}
	if c.Network.Table != nil {
		p.add("network.table", "a physical endpoint's routes are in the main table; leave the table out, or use attachment: %s", AttachVFIO)
	}
}

// check adds the problems of single parameters.
func (c *VFConfig) check(p *problems) {
	if c.MAC != "" && !unicastMAC(c.MAC) {
		p.add("mac", "%s is not a unicast MAC address; want six pairs of hexadecimal digits such as 02:00:5e:10:00:01", show(c.MAC))
	}
	checkGUID(p, "nodeGUID", c.NodeGUID)
	checkGUID(p, "portGUID", c.PortGUID)
	p.within("vlan", c.VLAN, 4094)
	p.within("vlanQoS", c.VLANQoS, 7)
	among(p, "vlanProtocol", c.VLANProtocol, VLAN8021Q, VLAN8021ad)
	p.within("minTxRate", c.MinTxRate, maxRate)
	p.within("maxTxRate", c.MaxTxRate, maxRate)
	among(p, "linkState", c.LinkState, LinkAuto, LinkEnable, LinkDisable)
	among(p, "attachment", c.Attachment, AttachVFIO, AttachPhysicalEndpoint)
	if c.Network != nil {
		c.Network.check(p, "network")
	}
}

// Weakens returns a [WeakensIsolationError] that names the parameters that a claim must not set, or nil if there are
// none.
func (c *VFConfig) Weakens() error {
	w := weakening{kind: KindVFConfig}
	if c.VLAN != nil {
		w.add(true, "vlan", *c.VLAN)
	}
	w.add(isTrue(c.AllowUntagged), "allowUntagged", true)
	if c.VLANQoS != nil {
		w.add(true, "vlanQoS", *c.VLANQoS)
	}
	w.add(c.VLANProtocol != "", "vlanProtocol", c.VLANProtocol)
	w.add(c.SpoofCheck != nil && !*c.SpoofCheck, "spoofCheck", false)
	w.add(isTrue(c.Trust), "trust", true)
	w.add(isTrue(c.RSSQuery), "rssQuery", true)
	w.add(c.NodeGUID != "", "nodeGUID", c.NodeGUID)
	w.add(c.PortGUID != "", "portGUID", c.PortGUID)
	if c.MinTxRate != nil {
		w.add(true, "minTxRate", *c.MinTxRate)
	}
	if c.Network != nil {
		w.add(c.Network.AddressPool != "", "network.addressPool", c.Network.AddressPool)
	}
	return w.err()
}

// SaysSegment reports whether c chooses the VF's network segment: a VLAN, or explicitly none. Only a DeviceClass can.
func (c *VFConfig) SaysSegment() bool {
	return c != nil && (c.VLAN != nil || isTrue(c.AllowUntagged))
}

// Loosens returns a [WeakensIsolationError] if c, of a claim, undoes a setting of the claim's DeviceClass: raises a
// limit, or replaces the address. A claim may lower a limit, and may configure the network, which concerns only the
// guest, except for the pool.
func (c *VFConfig) Loosens(class *VFConfig) error {
	return loosens(KindVFConfig, class, c, map[string]bool{
		"mac":           strings.EqualFold(c.MAC, class.MAC),
		"allowUntagged": !isTrue(c.AllowUntagged),
		"spoofCheck":    isTrue(c.SpoofCheck),
		"trust":         !isTrue(c.Trust),
		"rssQuery":      !isTrue(c.RSSQuery),
		"maxTxRate":     isLower(c.MaxTxRate, class.MaxTxRate),
		"linkState":     slices.Index(linkStates(), c.LinkState) <= slices.Index(linkStates(), class.LinkState),
		"network":       true,
	})
}

// linkStates returns the link states, the most restrictive first.
func linkStates() []LinkState { return []LinkState{LinkDisable, LinkAuto, LinkEnable} }

// isLower reports whether a rate is within a limit; 0 is none.
func isLower(rate, limit *int) bool {
	return rate != nil && limit != nil && (*limit == 0 || *rate != 0 && *rate <= *limit)
}

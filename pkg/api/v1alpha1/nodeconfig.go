package v1alpha1

import "github.com/kata-vfio/kata-vfio/pkg/pci"

// BindPolicy says when a function is bound to its VFIO driver.
type BindPolicy string

// Bind policies. Bound functions sit on the VFIO driver from the plugin's
// start on, which makes prepare fast; OnDemand functions are bound on prepare
// and go back to their driver after.
const (
	PolicyBound    BindPolicy = "bound"
	PolicyOnDemand BindPolicy = "onDemand"
)

// Pairing says how near a NIC must be to a GPU for one of its VFs to be kept for
// that GPU and published with it as one device, the pair.
type Pairing string

// Pairings. What is at one switch is under one root, too.
const (
	PairingNone   Pairing = "None"
	PairingSwitch Pairing = "Switch"
	PairingRoot   Pairing = "Root"
)

// NodeConfig says which functions of a node kata-vfio may take. Without one,
// every display, 3D and processing accelerator function and every VF is ours,
// on demand.
type NodeConfig struct {
	TypeMeta `json:",inline"`
	// Devices are tried in order; the first match decides. A function that no
	// rule matches is not ours. Nil (not said) means the default rules, an
	// empty list means that nothing is ours.
	Devices []DeviceRule `json:"devices,omitzero"`
	// AllowedHandlers are the RuntimeClass handlers whose pods may have our
	// devices. Default: ["kata-gpu"].
	AllowedHandlers []string `json:"allowedHandlers,omitempty"`
	// VirtualFunctions are the VFs that PFs are to have. PFs that are not named
	// keep what they have.
	VirtualFunctions []VFRule `json:"virtualFunctions,omitempty"`
	// AddressPools are what [GuestNetwork.AddressPool] may name.
	AddressPools []AddressPool `json:"addressPools,omitempty"`
	// CNIBinDirs are the node's directories with the binaries of CNI plugins,
	// tried in order. Default: ["/opt/cni/bin"].
	CNIBinDirs []string `json:"cniBinDirs,omitempty"`
	// Pairing keeps a VF for each GPU. It is None when empty.
	Pairing Pairing `json:"pairing,omitempty"`
}

// VFRule says how many VFs a PF is to have, and how they are connected.
type VFRule struct {
	// PF is the PF's address or the name of its interface.
	PF string `json:"pf"`
	// Count is the number of VFs; 0 disables them. It must be said.
	Count *int `json:"count"`
	// EswitchMode is the mode of the PF's eswitch; empty leaves it as it is.
	EswitchMode EswitchMode `json:"eswitchMode,omitempty"`
}

// EswitchMode says what connects a PF's VFs with each other and with the wire.
type EswitchMode string

// Eswitch modes, as in "devlink dev eswitch set DEV mode MODE". In legacy mode the
// NIC forwards by address and the PF imposes VLANs and more; in switchdev mode
// each VF has a representor on the node, and what is set there decides.
const (
	EswitchLegacy    EswitchMode = "Legacy"
	EswitchSwitchdev EswitchMode = "Switchdev"
)

// DeviceRule takes or leaves the functions that it matches.
type DeviceRule struct {
	// Name appears in messages about the rule. Optional, and no two alike.
	Name  string      `json:"name,omitempty"`
	Match DeviceMatch `json:"match"`
	// Policy is onDemand when empty.
	Policy BindPolicy `json:"policy,omitempty"`
	// Exclude leaves the matched functions alone, whatever a later rule says.
	Exclude bool `json:"exclude,omitempty"`
}

// DeviceMatch holds what a function must be; every field that is set must
// hold, and at least one must be set. Within a list, one entry must.
type DeviceMatch struct {
	// Types are device types: gpu, pf, vf, nvme, other.
	Types []string `json:"types,omitempty"`
	// Vendors and Devices are ids of four hexadecimal digits. Devices needs
	// Vendors, since a device id means something only to its vendor.
	Vendors []pci.ID `json:"vendors,omitempty"`
	Devices []pci.ID `json:"devices,omitempty"`
	// Classes are the first two, four or six digits of the class code: "03",
	// "0302", "120000".
	Classes   []string      `json:"classes,omitempty"`
	Addresses []pci.Address `json:"addresses,omitempty"`
	// PFNames are netdev names of PFs ("ens1f0np0") and match their VFs, never
	// the PF: its netdev, and with it the match, would go away with the first
	// claim that takes it. Name a PF by its address.
	PFNames []string `json:"pfNames,omitempty"`
}

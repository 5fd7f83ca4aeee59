package pci

// Capabilities are the facts of a function's configuration space that decide
// how it can be isolated and reset. A nil pointer means that the capability
// is absent; see Truncated for what could not be looked at.
type Capabilities struct {
	// Truncated is true when only part of the space was readable (64 bytes
	// without CAP_SYS_ADMIN, 256 for conventional PCI): absent extended
	// capabilities then prove nothing.
	Truncated bool     `json:"truncated,omitempty"`
	Express   *Express `json:"express,omitempty"`
	// AFFLR is set when the conventional Advanced Features capability offers FLR.
	AFFLR bool   `json:"afFLR,omitempty"`
	Power *Power `json:"power,omitempty"`
	MSI   bool   `json:"msi,omitempty"`
	MSIX  bool   `json:"msix,omitempty"`
	AER   bool   `json:"aer,omitempty"`
	// DPC is Downstream Port Containment: a port's that cuts off what is below it
	// on an uncorrectable error.
	DPC   *Switchable `json:"dpc,omitempty"`
	ACS   *ACS        `json:"acs,omitempty"`
	ATS   *Switchable `json:"ats,omitempty"`
	PASID *Switchable `json:"pasid,omitempty"`
	PRI   *Switchable `json:"pri,omitempty"`
	SRIOV *SRIOV      `json:"sriov,omitempty"`
}

// PortType is the device/port type of the PCI Express capability (bits 7:4
// of the PCI Express Capabilities register).
type PortType uint8

// Device and port types (PCI Express Base 7.5.3.2, PCI_EXP_TYPE_*).
const (
	Endpoint         PortType = 0x0
	LegacyEndpoint   PortType = 0x1
	RootPort         PortType = 0x4
	UpstreamPort     PortType = 0x5
	DownstreamPort   PortType = 0x6
	PCIeToPCI        PortType = 0x7
	PCIToPCIe        PortType = 0x8
	RCEndpoint       PortType = 0x9
	RCEventCollector PortType = 0xa
)

// Express is the PCI Express capability.
type Express struct {
	Type PortType `json:"type"`
	// FLR is set when the function can be reset by a Function Level Reset.
	FLR bool `json:"flr,omitempty"`
	// HotPlug is set for a port with a slot that takes devices while it runs.
	HotPlug bool `json:"hotPlug,omitempty"`
}

// Power is the power management capability.
type Power struct {
	// NoSoftReset is set when a move from D3hot to D0 does not reset the
	// function, so that the kernel's "pm" reset is not offered.
	NoSoftReset bool `json:"noSoftReset,omitempty"`
	// State is the current power state, 0 (D0) to 3 (D3hot).
	State uint8 `json:"state"`
}

// ACS bits of the capability and control registers (PCI_ACS_*).
const (
	ACSSourceValidation    = 0x01
	ACSTranslationBlocking = 0x02
	ACSRequestRedirect     = 0x04
	ACSCompletionRedirect  = 0x08
	ACSUpstreamForwarding  = 0x10
	ACSEgressControl       = 0x20
	ACSDirectTranslated    = 0x40
)

// ACS is the Access Control Services capability: what the port can do and
// what is switched on.
type ACS struct {
	Capability uint16 `json:"capability"`
	Control    uint16 `json:"control"`
}

// Switchable is a capability that software enables (ATS, PASID, PRI, DPC).
type Switchable struct {
	Enabled bool `json:"enabled"`
	// Control is the whole control register.
	Control uint16 `json:"control"`
}

// SRIOV is the single root I/O virtualization capability of a PF.
type SRIOV struct {
	TotalVFs uint16 `json:"totalVFs"`
	NumVFs   uint16 `json:"numVFs"`
	// VFDevice is the device id that the PF's VFs carry.
	VFDevice ID `json:"vfDevice"`
}

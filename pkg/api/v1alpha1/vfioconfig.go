package v1alpha1

// Backend is the kernel interface by which the VMM gets the device.
type Backend string

// Backends. Auto uses iommufd's device node if the kernel has one, otherwise the group's node.
const (
	BackendAuto    Backend = "Auto"
	BackendGroup   Backend = "Group"
	BackendIOMMUFD Backend = "IOMMUFD"
)

// ResetPolicy decides whether a device must be reset between tenants.
type ResetPolicy string

// Reset policies. Skip weakens isolation and is accepted from a DeviceClass only.
const (
	ResetRequired ResetPolicy = "Required"
	ResetSkip     ResetPolicy = "Skip"
)

// CompanionPolicy decides about the other functions of a device's group and slot (a GPU's audio or USB function). They are
// bound to vfio-pci with both policies.
type CompanionPolicy string

// Companion policies. Give needs the IOMMUFD backend, because Kata decides which functions of a group's node it plugs.
// It also needs a separate IOMMU group for each function: Kata 4.1.0 makes one iommufd context for each, and the kernel
// allows a group in one context only. Prepare refuses functions that share a group.
const (
	CompanionsWithhold CompanionPolicy = "Withhold"
	CompanionsGive     CompanionPolicy = "Give"
)

// SanitizedPolicy says whether a device must have passed a sanitizing stage before the claim.
type SanitizedPolicy string

// Sanitized policies. With Any the node config decides. Required refuses a device that no stage has sanitized since the node
// started and since its last tenant.
const (
	SanitizedAny      SanitizedPolicy = "Any"
	SanitizedRequired SanitizedPolicy = "Required"
)

// VFIOConfig has the settings for the binding of functions and their way into the VM. The zero value of each field means
// unset, so that a claim's config can be merged into its class's.
type VFIOConfig struct {
	TypeMeta `json:",inline"`
	Backend  Backend `json:"backend,omitempty"`
	// ControlNode adds /dev/vfio/vfio or /dev/iommu to the CDI device. Some VMMs need it, and Kata's Rust runtime
	// refuses it. A container that has it can open its own IOMMU contexts, so only a DeviceClass may set it. Default
	// false.
	ControlNode *bool           `json:"controlNode,omitempty"`
	Reset       ResetPolicy     `json:"reset,omitempty"`
	Companions  CompanionPolicy `json:"companions,omitempty"`
	// Sanitized is Any when empty.
	Sanitized SanitizedPolicy `json:"sanitized,omitempty"`
	// AllowUnisolated accepts a device whose isolation verdict is negative.
	// It weakens isolation and is accepted from a DeviceClass only.
	AllowUnisolated *bool `json:"allowUnisolated,omitempty"`
}

// DecodeVFIO reads a VFIOConfig from a DeviceClass or a claim: strictly, without defaults. Its error is an
// [InvalidError].
func DecodeVFIO(raw []byte) (*VFIOConfig, error) {
	c := &VFIOConfig{}
	p := decode(raw, KindVFIOConfig, c)
	if len(p) == 0 {
		c.check(&p)
	}
	if err := p.err(KindVFIOConfig); err != nil {
		return nil, err
	}
	return c, nil
}

// Fields returns the JSON names of the parameters that c sets.
func (c *VFIOConfig) Fields() []string { return said(c) }

// Overlay replaces c's parameters with those that over sets, as a later config of the same device does.
func (c *VFIOConfig) Overlay(over *VFIOConfig) { lay(c, over) }

// Default fills in every parameter that is not set.
func (c *VFIOConfig) Default() {
	no := false
	defaults := VFIOConfig{
		TypeMeta: TypeMeta{APIVersion: APIVersion, Kind: KindVFIOConfig},
		Backend:  BackendAuto, ControlNode: &no, Reset: ResetRequired,
		Companions: CompanionsWithhold, Sanitized: SanitizedAny, AllowUnisolated: &no,
	}
	defaults.Overlay(c)
	*c = defaults
}

// Validate reports all problems of c as an [InvalidError], including parameters that contradict each other. Decoding
// does not check these, because a class's and a claim's parameters are each only a part.
func (c *VFIOConfig) Validate() error {
	var p problems
	c.check(&p)
	if c.Companions == CompanionsGive && c.Backend == BackendGroup {
		p.add("companions", "Give needs the IOMMUFD backend, and backend is Group: "+
			"with a group node Kata decides what it plugs of the group; say companions: Withhold, or backend: IOMMUFD")
	}
	return p.err(KindVFIOConfig)
}

// check adds the problems of single parameters.
func (c *VFIOConfig) check(p *problems) {
	among(p, "backend", c.Backend, BackendAuto, BackendGroup, BackendIOMMUFD)
	among(p, "reset", c.Reset, ResetRequired, ResetSkip)
	among(p, "companions", c.Companions, CompanionsWithhold, CompanionsGive)
	among(p, "sanitized", c.Sanitized, SanitizedAny, SanitizedRequired)
}

// Weakens returns a [WeakensIsolationError] that names the parameters that a claim must not set, or nil if there are none.
func (c *VFIOConfig) Weakens() error {
	w := weakening{kind: KindVFIOConfig}
	w.add(c.Reset == ResetSkip, "reset", c.Reset)
	w.add(isTrue(c.AllowUnisolated), "allowUnisolated", true)
	w.add(isTrue(c.ControlNode), "controlNode", true)
	return w.err()
}

// Loosens returns a [WeakensIsolationError] if c, of a claim, undoes a setting of the claim's DeviceClass. A claim may be
// stricter: withhold companions, require a reset or a sanitized device, or choose one backend if the class leaves the choice.
func (c *VFIOConfig) Loosens(class *VFIOConfig) error {
	return loosens(KindVFIOConfig, class, c, map[string]bool{
		"backend":         class.Backend == BackendAuto,
		"reset":           c.Reset == ResetRequired,
		"companions":      c.Companions == CompanionsWithhold,
		"sanitized":       c.Sanitized == SanitizedRequired,
		"controlNode":     !isTrue(c.ControlNode),
		"allowUnisolated": !isTrue(c.AllowUnisolated),
	})
}

package device

import (
	"sort"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Group is an IOMMU group: the smallest set of functions that the IOMMU can
// keep apart from the rest.
type Group struct {
	Number int `json:"number"`
	// Type is the default domain's type: "DMA", "DMA-FQ", "identity", ...;
	// empty if the kernel does not say.
	Type    string        `json:"type,omitempty"`
	Members []pci.Address `json:"members"`
	// Others are the members that are not PCI functions, by the kernel's name: platform devices behind the same
	// IOMMU stream.
	Others []string `json:"others,omitempty"`
	// Reserved are the reserved IOVA regions.
	Reserved []Region `json:"reserved,omitempty"`
	// NoIOMMU is set for a group that VFIO made up without an IOMMU
	// (enable_unsafe_noiommu_mode): it isolates nothing.
	NoIOMMU bool `json:"noIOMMU,omitempty"`
}

// Region is a reserved IOVA range of a group, both ends included.
type Region struct {
	Start uint64 `json:"start"`
	End   uint64 `json:"end"`
	// Type is the kernel's word: "direct", "direct-relaxable", "reserved", "msi".
	Type string `json:"type"`
}

// Host holds the facts of the node as a whole.
type Host struct {
	// BootID is /proc/sys/kernel/random/boot_id.
	BootID string `json:"bootID"`
	// Kernel is the kernel release, as uname -r prints it.
	Kernel string `json:"kernel"`
	// Machine is the machine of the kernel.
	Machine Machine `json:"machine,omitzero"`
	// IOMMUs are the names under /sys/class/iommu: "dmar0", "ivhd0", "smmu3...".
	IOMMUs []string `json:"iommus"`
	// IRQChips are the distinct interrupt chip names of MSI interrupts, without addresses; those
	// of a remapped interrupt begin with "IR-", or with "ITS-" on Arm.
	IRQChips []string `json:"irqChips,omitempty"`
	// UnsafeInterrupts are the parameters of vfio_iommu_type1 and iommufd named allow_unsafe_interrupts that are on, as
	// paths below /sys.
	UnsafeInterrupts []string `json:"unsafeInterrupts,omitempty"`
	// NoIOMMUMode is set when vfio's enable_unsafe_noiommu_mode is on.
	NoIOMMUMode bool `json:"noIOMMUMode,omitempty"`
	// VFIODenylistOff is set when vfio_pci is loaded with disable_denylist.
	VFIODenylistOff bool `json:"vfioDenylistOff,omitempty"`
	// IOMMUFD is set when /dev/iommu exists.
	IOMMUFD bool `json:"iommufd"`
	// Drivers are the PCI drivers that are registered now.
	Drivers []string `json:"drivers,omitempty"`
	// NVIDIAModeset is set when nvidia_drm drives displays (its parameter modeset).
	NVIDIAModeset bool `json:"nvidiaModeset,omitempty"`
	// Fabric is what the node says of NVLink switches between its GPUs.
	Fabric FabricFacts `json:"-"`
	// VFIOAliases are the "vfio_pci:" lines of the running kernel's
	// modules.alias, in the file's order.
	VFIOAliases []Alias `json:"-"`
}

// Alias is one line of modules.alias: a pattern over modaliases and the
// module that serves it.
type Alias struct {
	Pattern string
	Module  string
}

// Snapshot is the node at one moment. It is immutable, so you may keep it and share it.
type Snapshot struct {
	// Functions are all functions of the node, by address.
	Functions []Function
	// Groups are the IOMMU groups, by number.
	Groups []Group
	Host   Host
	// Stale is set if a later scan failed and this is the last good snapshot. It is the error of that scan.
	Stale string
}

// Function returns the function at addr. The pointer is into the snapshot:
// read, don't write.
func (s *Snapshot) Function(addr pci.Address) (*Function, bool) {
	i := s.from(addr)
	if i == len(s.Functions) || s.Functions[i].Address != addr {
		return nil, false
	}
	return &s.Functions[i], true
}

// from returns the index of the first function at addr or above.
func (s *Snapshot) from(addr pci.Address) int {
	i, _ := Index(s.Functions, addr)
	return i
}

// Index returns the index of the function at an address among functions in order of address, or where it would be. Unlike
// slices.BinarySearchFunc it copies no functions, which are large.
func Index(functions []Function, addr pci.Address) (i int, found bool) {
	i = sort.Search(len(functions), func(i int) bool { return functions[i].Address.Compare(addr) >= 0 })
	return i, i < len(functions) && functions[i].Address == addr
}

// Group returns the IOMMU group with the number.
func (s *Snapshot) Group(number int) (*Group, bool) {
	i := sort.Search(len(s.Groups), func(i int) bool { return s.Groups[i].Number >= number })
	if i == len(s.Groups) || s.Groups[i].Number != number {
		return nil, false
	}
	return &s.Groups[i], true
}

// GroupWith returns the group of f, and false if f has none.
func (s *Snapshot) GroupWith(f *Function) (*Group, bool) {
	if f.Group == nil {
		return nil, false
	}
	return s.Group(*f.Group)
}

// Slot returns the functions that share f's physical device, f included, by address (see [Function.Card]). It leaves
// out VFs. If f is a VF, it returns all functions with f's device number.
func (s *Snapshot) Slot(f *Function) []*Function {
	card := f.Card()
	var slot []*Function
	for i := s.from(card); i < len(s.Functions); i++ {
		other := &s.Functions[i]
		at := other.Address
		if f.onLink() {
			at.Device = card.Device
		}
		if !at.SameSlot(card) {
			break
		}
		if other.VF == nil || f.VF != nil {
			slot = append(slot, other)
		}
	}
	return slot
}

// Members returns the functions of the group that the snapshot knows, by
// address.
func (s *Snapshot) Members(g *Group) []*Function {
	members := make([]*Function, 0, len(g.Members))
	for _, addr := range g.Members {
		if f, ok := s.Function(addr); ok {
			members = append(members, f)
		}
	}
	return members
}

// Companions returns the functions that only serve a GPU: audio, USB and UCSI functions on its physical device and of
// its vendor. f itself is not included. Companions are assigned with the GPU even if ACS puts them into groups of their
// own, because they share the GPU's reset and power. The USB and audio functions of an APU have the processor's vendor
// ID and stay with the host. Functions of other types have no companions: the functions of a NIC are separate ports,
// and VFs that share a slot number are unrelated.
func (s *Snapshot) Companions(f *Function) []*Function {
	if f.Type != GPU {
		return nil
	}
	var companions []*Function
	for _, c := range s.Slot(f) {
		if serves(c, f) {
			companions = append(companions, c)
		}
	}
	return companions
}

// Served returns the GPUs that f is a companion of.
func (s *Snapshot) Served(f *Function) []*Function {
	if !isServing(f.Class) {
		return nil
	}
	var gpus []*Function
	for _, gpu := range s.Slot(f) {
		if gpu.Type == GPU && serves(f, gpu) {
			gpus = append(gpus, gpu)
		}
	}
	return gpus
}

// ServedBehindSwitch returns the GPUs of f's IOMMU group that f probably serves from another device of their card: the
// card has a switch, and f is of the GPUs' vendor. Intel's Arc cards have their audio there. This does not prove it, because
// several cards may be behind one switch.
func (s *Snapshot) ServedBehindSwitch(f *Function) []*Function {
	group, ok := s.GroupWith(f)
	if !ok || f.Switch == nil || !isServing(f.Class) {
		return nil
	}
	var gpus []*Function
	for _, gpu := range s.Members(group) {
		if gpu.Type == GPU && serves(f, gpu) && Near(f, gpu) == SameSwitch {
			gpus = append(gpus, gpu)
		}
	}
	return gpus
}

// SoundBeside returns the GPUs of f's IOMMU group that f serves as audio function: their PCI device consists only of
// them and of f. The audio function may be of another vendor, as in emulated cards. The device of a processor's GPU has
// more functions, and its audio is the platform's.
func (s *Snapshot) SoundBeside(f *Function) []*Function {
	group, ok := s.GroupWith(f)
	if !ok || f.Class.Sub() != pci.ClassAudio {
		return nil
	}
	var gpus []*Function
	for _, other := range s.Members(group) {
		switch {
		case other == f || !sameDevice(f.Address, other.Address):
		case other.Type != GPU:
			return nil
		default:
			gpus = append(gpus, other)
		}
	}
	return gpus
}

func sameDevice(a, b pci.Address) bool {
	a.Function, b.Function = 0, 0
	return a == b
}

// serves reports whether a function of a GPU's device only serves it.
func serves(c, gpu *Function) bool {
	return isServing(c.Class) && c.Vendor == gpu.Vendor && c.VF == nil
}

// isServing reports whether a class is one of those that GPUs carry beside their display function: audio, USB, and the
// serial controller of USB Type-C.
func isServing(class pci.Class) bool {
	switch class.Sub() {
	case pci.ClassAudio, pci.ClassUSB, pci.ClassSerialOther:
		return true
	}
	return false
}

package isolation

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Reset methods. All but HotReset are the kernel's own words in sysfs'
// reset_method (Documentation/ABI/testing/sysfs-bus-pci).
const (
	DeviceSpecific = "device_specific"
	ACPI           = "acpi"
	FLR            = "flr"
	AFFLR          = "af_flr"
	Bus            = "bus"
	CXLBus         = "cxl_bus"
	PM             = "pm"
	// HotReset is a secondary bus reset of all functions below one bridge, through VFIO_DEVICE_PCI_HOT_RESET with proof
	// of ownership. The kernel offers "bus" in sysfs only for a function that is alone on its bus.
	HotReset = "vfio_hot_reset"
)

// Reset is a way to reset a function and what it includes.
type Reset struct {
	Method string `json:"method"`
	// Set has all functions that the reset touches, including the function itself, by address.
	Set []pci.Address `json:"set"`
}

// Weak is the word that users read in place of the method of a reset, if no vendor says that the reset clears the function's memory.
const Weak = "weak"

// IsWeak reports whether no vendor says that a reset by the method clears the memory of a function of the vendor; vf says that the function
// is a VF. A power cycle need not clear the memory. NVIDIA publishes nothing about the FLR of the VFs of its GPUs, nor about the end of a
// vGPU.
func IsWeak(vendor pci.ID, vf bool, method string) bool {
	return method == PM || vf && vendor == pci.VendorNVIDIA
}

// Word returns the word for the reset of f that users read: the kernel's method, or [Weak] for a VF if its vendor does not say that the
// method clears memory.
func (r *Reset) Word(f *device.Function) string {
	if r.Method != PM && IsWeak(f.Vendor, f.VF != nil, r.Method) {
		return Weak
	}
	return r.Method
}

// Resets returns the methods that reset f and no function outside its [AssignmentSet], best first: device-specific and
// firmware resets, function level resets, bus resets, and last the power cycle "pm", which need not clear device memory
// (the kernel tries pm before bus: pci_reset_fn_methods in drivers/pci/pci.c). It omits methods that the operator
// removed from reset_method. Nil means none.
//
// VFs of f do not count: taking a PF removes them.
func Resets(s *device.Snapshot, f *device.Function) []Reset { return NewJudger(s).Resets(f) }

// Resets returns the resets of f, a function of the judger's snapshot: see the function [Resets].
func (k *Judger) Resets(f *device.Function) []Reset {
	var resets []Reset
	for _, method := range []string{DeviceSpecific, ACPI, FLR, AFFLR, Bus, CXLBus, HotReset, PM} {
		if set, ok := k.resetSet(f, method); ok {
			resets = append(resets, Reset{Method: method, Set: set})
		}
	}
	return resets
}

// resetSet returns the functions that a reset of f by the method touches, and false if the method is unavailable.
func (k *Judger) resetSet(f *device.Function, method string) ([]pci.Address, bool) {
	switch method {
	case HotReset:
		return k.hotResetSet(f)
	// The kernel fills reset_method when it adds the function (pci_init_reset_methods), before later functions of the
	// same bus exist. So "bus" can be listed for function 0 of a device with more functions, and such a reset fails
	// with ENOTTY.
	case Bus, CXLBus:
		return []pci.Address{f.Address}, f.CanReset(method) && len(sharers(k.s, f)) <= 1
	}
	return []pci.Address{f.Address}, f.CanReset(method)
}

// hotResetSet returns the functions that share f's bus, if VFIO can reset them together. All of them must be bound to VFIO, so all must be
// in f's [AssignmentSet], and no bridge may be among them (vfio_pci_dev_set_resettable in drivers/vfio/pci/vfio_pci_core.c). It returns
// false for a function that is alone on its bus: such a function has "bus" in reset_method if its bridge can reset it at all.
func (k *Judger) hotResetSet(f *device.Function) ([]pci.Address, bool) {
	set := listAddresses(sharers(k.s, f))
	if len(set) < 2 {
		return nil, false
	}
	taken, _ := k.AssignmentSet(f)
	if slices.ContainsFunc(set, func(a pci.Address) bool { return !includes(taken, a) }) {
		return nil, false
	}
	return set, true
}

// includes reports whether an assignment set, which is in order of address, has an address. It uses a binary search, because a set may have
// hundreds of members, and each may ask.
func includes(set []*device.Function, addr pci.Address) bool {
	_, ok := slices.BinarySearchFunc(set, addr, func(f *device.Function, a pci.Address) int { return f.Address.Compare(a) })
	return ok
}

// sharers returns the functions below the bridge right above f, by address, with f and without f's own VFs. It returns
// nil for a function on a root bus.
//
// A bridge forwards one range of bus numbers (secondary to subordinate), so the functions below it are consecutive in the
// order of addresses.
func sharers(s *device.Snapshot, f *device.Function) []*device.Function {
	if len(f.Upstream) == 0 {
		return nil
	}
	bridge := f.Upstream[len(f.Upstream)-1]
	self, _ := device.Index(s.Functions, f.Address)
	// The run is found by stepping outward from f, because a scan of all functions for each of hundreds of VFs is
	// quadratic.
	first, end := self, self
	for first > 0 && slices.Contains(s.Functions[first-1].Upstream, bridge) {
		first--
	}
	for end < len(s.Functions) && slices.Contains(s.Functions[end].Upstream, bridge) {
		end++
	}
	var below []*device.Function
	for i := first; i < end; i++ {
		if g := &s.Functions[i]; g.VF == nil || g.VF.PF != f.Address {
			below = append(below, g)
		}
	}
	return below
}

// resettable checks that the function can be cleaned between tenants.
func (j *judging) resettable() {
	offered := strings.Join(j.f.ResetMethods, " ")
	seen := j.saw(attribute(j.f.Address, "reset_method"), offered)
	resets := j.known.Resets(j.f)
	if len(resets) == 0 {
		j.reason(j.noReset(seen))
		return
	}
	j.v.Reset = &resets[0]
	// PM is last in the order of Resets, so it is first only if there is no other method.
	if resets[0].Method == PM {
		j.note(rule.Verdict{
			Code: rule.WeakReset, Evidence: seen,
			Text: fmt.Sprintf("%s can only be reset by power management (D3hot to D0), which need not clear its memory", j.f.Address),
			Fix:  rule.WeakReset.Fix(),
		})
	}
}

// showsNoResetMethods reports whether a kernel, by its release, is older than the attribute reset_method (Linux 5.15,
// drivers/pci/pci.c, reset_method_show).
func showsNoResetMethods(release string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major < 5 || major == 5 && minor < 15
}

// noReset returns the reason why f can't be reset, and names the functions that prevent a reset of the bus.
func (j *judging) noReset(seen []rule.Evidence) rule.Verdict {
	r := rule.Verdict{
		Code: rule.NoReset, Evidence: seen,
		Text: fmt.Sprintf("%s has no reset method: the kernel has none for it, or reset_method disables all of them", j.f.Address),
		Fix:  fixAt(rule.NoReset, "echo default > reset_method", "echo default > "+attribute(j.f.Address, "reset_method")),
	}
	if showsNoResetMethods(j.s.Host.Kernel) {
		r.Text = fmt.Sprintf("no reset method of %s is known: Linux %s does not show them", j.f.Address, j.s.Host.Kernel)
		r.Fix = "use Linux 5.15 or newer"
		return r
	}
	taken, _ := j.known.AssignmentSet(j.f)
	for _, other := range sharers(j.s, j.f) {
		if !includes(taken, other.Address) {
			r.Culprit = new(other.Address)
			r.Text = fmt.Sprintf("%s has no reset method for itself, and a reset of its bus would also reset %s, which is not assigned with it", j.f.Address, describe(other))
			r.Fix = "use a device with FLR, or move one of the two to another slot"
			return r
		}
	}
	return r
}

// Fingerprint sums up a function's configuration space. It has the parts that stay equal for the same function in the
// same binding, independent of its users in between.
type Fingerprint struct {
	Address pci.Address `json:"address"`
	// Digest is the SHA-256 of the stable registers: the header without command, status and BIST, and the layout of the
	// capabilities after it.
	Digest string `json:"digest"`
	// Bytes is the size of the part that was read: [FingerprintBytes], or 64 without the privilege for more.
	Bytes int `json:"bytes"`
	// BusMaster, MSI and MSIX are the switches that let a function reach memory and raise interrupts. They are off
	// while the function is unused.
	BusMaster bool `json:"busMaster,omitempty"`
	MSI       bool `json:"msi,omitempty"`
	MSIX      bool `json:"msix,omitempty"`
}

// FingerprintBytes is the part of the configuration space that a fingerprint covers: the conventional space, with the
// header and the message interrupts. The kernel and the VMM write to the extended space, and reading it takes sixteen
// times as long.
const FingerprintBytes = 256

// Registers of the type 0 header and offsets within MSI and MSI-X
// capabilities (Linux: include/uapi/linux/pci_regs.h).
const (
	regCommand    = 0x04
	regRevision   = 0x08
	regCacheLine  = 0x0c
	regHeaderType = 0x0e
	regBAR0       = 0x10
	regCapPointer = 0x34
	regInterrupt  = 0x3d // 0x3c, the interrupt line, is scratch space
	headerEnd     = 0x40

	commandMaster = 0x4
	capMSI        = 0x05
	capMSIX       = 0x11
	msiEnable     = 0x0001
	msixEnable    = 0x8000
)

// DeadError is the error for a function that does not answer: its configuration space reads all ones.
type DeadError struct{ Address pci.Address }

func (e *DeadError) Error() string {
	return fmt.Sprintf("configuration space of %s reads all ones: it does not answer", e.Address)
}

// NewFingerprint returns the fingerprint of a function's configuration space. It returns a [DeadError] if the space reads
// all ones, and an error if it is shorter than the header.
func NewFingerprint(addr pci.Address, config []byte) (Fingerprint, error) {
	if len(config) < headerEnd {
		return Fingerprint{}, fmt.Errorf("configuration space of %s has %d bytes, want at least %d", addr, len(config), headerEnd)
	}
	if pci.Dead(config, true) { // a VF's ids always read ffff, so the whole header counts
		return Fingerprint{}, &DeadError{Address: addr}
	}
	config = config[:min(len(config), FingerprintBytes)]
	chain, err := pci.Chain(config)
	if err != nil {
		return Fingerprint{}, fmt.Errorf("fingerprint of %s: %w", addr, err)
	}
	fp := Fingerprint{Address: addr, Bytes: len(config), Digest: digest(config, chain)}
	fp.BusMaster = config[regCommand]&commandMaster != 0
	for _, c := range chain {
		if c.Offset+4 > len(config) {
			continue
		}
		// Message Control is at offset 2 in both capabilities (PCI_MSI_FLAGS and PCI_MSIX_FLAGS in pci_regs.h).
		control := binary.LittleEndian.Uint16(config[c.Offset+2:])
		fp.MSI = fp.MSI || c.ID == capMSI && control&msiEnable != 0
		fp.MSIX = fp.MSIX || c.ID == capMSIX && control&msixEnable != 0
	}
	return fp, nil
}

// digest hashes the registers that neither use nor reset may change.
func digest(config []byte, chain []pci.Capability) string {
	h := sha256.New()
	// Command and status change with every use. The cache line size and the latency timer, which follow the class code,
	// belong to the host. BIST is the byte after the header type.
	h.Write(config[:regCommand])
	h.Write(config[regRevision:regCacheLine])
	h.Write(config[regHeaderType : regHeaderType+1])
	// The kernel saves the BARs before a reset and restores them after it (pci_dev_save_and_disable, pci_dev_restore),
	// so they must be equal.
	h.Write(config[regBAR0 : regCapPointer+1])
	h.Write(config[regInterrupt:headerEnd])
	// Only the layout counts. The registers in a capability hold the state of power management, of the link and of MSI,
	// which changes.
	for _, c := range chain {
		h.Write(fmt.Appendf(nil, "%x %x\n", c.ID, c.Offset))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Compare returns the reason why the function is not proven to be as before: the stable registers differ, or a switch
// that a reset clears is still on. An empty text is the proof.
func Compare(before, after Fingerprint) string {
	switch {
	case before.Bytes != after.Bytes:
		return fmt.Sprintf("%d bytes of configuration space of %s are readable, %d were before the tenant", after.Bytes, after.Address, before.Bytes)
	case before.Digest != after.Digest:
		return fmt.Sprintf("configuration space of %s differs from before the tenant (%.12s, was %.12s)", after.Address, after.Digest, before.Digest)
	case after.BusMaster && !before.BusMaster:
		return fmt.Sprintf("%s still has bus mastering on", after.Address)
	case after.MSI && !before.MSI, after.MSIX && !before.MSIX:
		return fmt.Sprintf("%s still has message interrupts on", after.Address)
	}
	return ""
}

// Difference is one difference of two fingerprints of a function.
type Difference struct {
	// What names it; Before and After are its values.
	What   string `json:"what"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Differences returns all differences of two fingerprints, including those that a reset may cause. It can't say which
// stable registers differ: fingerprints have only their digest.
func Differences(before, after Fingerprint) []Difference {
	var all []Difference
	differ := func(what string, a, b any) {
		if a != b {
			all = append(all, Difference{what, fmt.Sprint(a), fmt.Sprint(b)})
		}
	}
	differ("readable bytes of configuration space", before.Bytes, after.Bytes)
	differ("stable registers (SHA-256 of header and capabilities)", before.Digest, after.Digest)
	differ("bus mastering", before.BusMaster, after.BusMaster)
	differ("MSI", before.MSI, after.MSI)
	differ("MSI-X", before.MSIX, after.MSIX)
	return all
}

// Proven tells users the extent of the proof of a reset: the fingerprint covers only configuration space.
const Proven = "registers as before; memory not checked"

// Proof is the record of one reset between two tenants. See [Proven].
type Proof struct {
	Reset
	// Before and After are the fingerprints of the reset set around the reset.
	Before []Fingerprint `json:"before"`
	After  []Fingerprint `json:"after"`
	// Milliseconds is the duration in the kernel.
	Milliseconds int64 `json:"milliseconds"`
}

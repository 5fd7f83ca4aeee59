package isolation

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// grouped checks that the function is in a real IOMMU group.
func (j *judging) grouped() {
	switch {
	case j.f.Group == nil:
		j.groupless()
		return
	case j.group == nil:
		j.reason(rule.Verdict{
			Code:     rule.NoIOMMUGroup,
			Text:     fmt.Sprintf("the kernel shows no members for IOMMU group %d of %s", *j.f.Group, j.f.Address),
			Fix:      "try again: the group was probably removed while the node was read",
			Evidence: j.saw(attribute(j.f.Address, "iommu_group"), strconv.Itoa(*j.f.Group)),
		})
		return
	}
	seen := j.saw(attribute(j.f.Address, "iommu_group"), fmt.Sprintf("../../kernel/iommu_groups/%d", j.group.Number))
	// VFIO makes such a group for a function without an IOMMU, and names it "vfio-noiommu" (vfio_noiommu_group_alloc in
	// drivers/vfio/group.c). The link iommu_group alone does not show the difference.
	if j.group.NoIOMMU {
		j.reason(rule.Verdict{
			Code:     rule.NoIOMMUMode,
			Text:     fmt.Sprintf("group %d of %s is one of VFIO's no-IOMMU groups: nothing confines its DMA", j.group.Number, j.f.Address),
			Fix:      FixOn(j.s, rule.NoIOMMUMode),
			Evidence: append(seen, j.saw(groupFile(j.group.Number, "name"), "vfio-noiommu")...),
		})
		return
	}
	if j.s.Host.NoIOMMUMode {
		j.note(rule.Verdict{
			Code:     rule.NoIOMMUMode,
			Text:     "unsafe no-IOMMU mode is on: an assigned function without an IOMMU group can reach all memory, including that of this function's VM",
			Fix:      rule.NoIOMMUMode.Fix(),
			Evidence: j.saw(noIOMMUParameter, "Y"),
		})
	}
}

const noIOMMUParameter = "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode"

// groupless records the reason why a function without a group can't be assigned.
func (j *judging) groupless() {
	r := rule.Verdict{
		Code:     rule.NoIOMMUGroup,
		Text:     fmt.Sprintf("%s is in no IOMMU group: this node has no working IOMMU, so nothing confines its DMA", j.f.Address),
		Fix:      FixOn(j.s, rule.NoIOMMUGroup),
		Evidence: j.saw(attribute(j.f.Address, "iommu_group"), "absent"),
	}
	units := strings.Join(j.s.Host.IOMMUs, " ")
	// Another IOMMU works, so the kernel has not switched them off: the firmware's table leaves this function out.
	if units != "" {
		r.Text = fmt.Sprintf("%s is in no IOMMU group: no IOMMU of this node (%s) covers it, so nothing confines its DMA", j.f.Address, units)
		r.Fix = "move the device to a slot below an IOMMU, or update the firmware, whose DMAR, IVRS or IORT table omits it"
	}
	r.Evidence = append(r.Evidence, j.saw("/sys/class/iommu", units)...)
	j.reason(r)
}

// viable checks that VFIO will accept the group after its endpoints are taken (vfio_group_fops_open,
// iommu_group_claim_dma_owner). Each bridge must be without driver, or on one that leaves DMA to the group's owner, and
// each endpoint must be one that can be taken. An NVSwitch can be taken with a GPU only once it is on VFIO: its host
// driver serves the GPUs of all tenants.
func (j *judging) viable() {
	if j.group == nil {
		return
	}
	g := j.known.facts(j.group)
	self, listed := g.at[j.f.Address]
	if !listed {
		self = len(g.members)
	}
	j.v.Evidence.share(g.evidence, self)
	for _, i := range g.look(j.f) {
		switch {
		case i == self:
		case g.members[i] == nil:
			j.missingMate(j.group.Members[i], g.evidence[i])
		default:
			j.mate(g.members[i], g.evidence[i])
		}
	}
	for _, name := range j.group.Others {
		j.otherMate(name)
	}
	j.sharesGroup(g, self)
}

// maxMates is how many of its group mates the note on a function names.
const maxMates = 8

// sharesGroup adds a note about the mates of f. self is f's index among the members.
func (j *judging) sharesGroup(g *groupFacts, self int) {
	mates := len(g.known)
	if self < len(g.members) {
		mates--
	}
	if mates == 0 {
		return
	}
	var names []string
	for _, i := range g.known {
		if i == self {
			continue
		}
		if len(names) == maxMates {
			names = append(names, fmt.Sprintf("%d more", mates-maxMates))
			break
		}
		names = append(names, describe(g.members[i]))
	}
	j.note(rule.Verdict{
		Code:     rule.GroupMates,
		Text:     fmt.Sprintf("%s shares IOMMU group %d with %s", j.f.Address, j.group.Number, strings.Join(names, ", ")),
		Fix:      "nothing to do: all endpoints of the group go to the same VM or stay unused",
		Evidence: j.saw(groupFile(j.group.Number, "devices"), g.listed),
	})
}

// missingMate refuses a group with a member that the scan did not see.
func (j *judging) missingMate(addr pci.Address, seen rule.Evidence) {
	j.reason(rule.Verdict{
		Code: rule.GroupNotViable, Culprit: new(addr),
		Text:     fmt.Sprintf("%s is a member of IOMMU group %d but is not among this node's functions, so it can't be assigned with the group", addr, j.group.Number),
		Fix:      "try again; if the problem remains, the function is only partly removed: `echo 1 > /sys/bus/pci/rescan`, or reboot",
		Evidence: []rule.Evidence{seen},
	})
}

// otherMate refuses a group with a member that is not a PCI function: this program can't unbind it or find its users,
// and VFIO refuses the group while a member keeps DMA for the host.
func (j *judging) otherMate(name string) {
	j.reason(rule.Verdict{
		Code:     rule.GroupNotViable,
		Text:     fmt.Sprintf("%s, which is not a PCI function, is a member of IOMMU group %d with %s, so the group can't be assigned as a whole", name, j.group.Number, j.f.Address),
		Fix:      "move the device to a slot with an IOMMU group of its own, or update the firmware, whose tables give both one stream ID",
		Evidence: j.saw(groupFile(j.group.Number, "devices/"+name), "no PCI function"),
	})
}

// mate checks one other member of the group. A member that it may refuse must be among the suspects: see [groupFacts].
func (j *judging) mate(m *device.Function, driver rule.Evidence) {
	r := rule.Verdict{Code: rule.GroupNotViable, Culprit: new(m.Address), Evidence: []rule.Evidence{driver}}
	switch {
	// A driver without driver_managed_dma takes the group's default domain when it binds (pci_dma_configure in
	// drivers/pci/pci-driver.c). VFIO can't become the owner of the group while it is bound.
	case m.IsBridge() && !LeavesDMA(m.Driver):
		r.Text = fmt.Sprintf("bridge %s in IOMMU group %d is bound to %s, which keeps the group's DMA for the host", m.Address, j.group.Number, m.Driver)
		r.Fix = unbindFix(m)
	case m.IsBridge():
		return
	case m.IsNVSwitch() && !j.f.IsNVSwitch() && !LeavesDMA(m.Driver):
		r.Text = fmt.Sprintf("NVSwitch %s in IOMMU group %d is bound to %s, which keeps the group's DMA for the host and serves all GPUs of the board", m.Address, j.group.Number, m.Driver)
		r.Fix = Separate(j.s, j.f)
	case len(m.Uses) > 0:
		r.Text = fmt.Sprintf("%s (%s) in IOMMU group %d is used by the node itself: %s", m.Address, orNone(m.Driver), j.group.Number, uses(m))
		r.Fix = cmp.Or(m.UseFix(), "stop that use") + ", or " + Separate(j.s, j.f)
	case j.f.VF != nil && j.f.VF.PF == m.Address:
		r.Text = fmt.Sprintf("%s shares IOMMU group %d with its own PF %s, and binding the PF to VFIO would remove the VF", j.f.Address, j.group.Number, m.Address)
		r.Fix = Separate(j.s, j.f)
	default:
		return
	}
	j.reason(r)
}

// LeavesDMA reports whether a driver, or no driver (""), leaves DMA to the owner of the IOMMU group. Drivers that do set
// driver_managed_dma (drivers/pci/pcie/portdrv.c, drivers/pci/pci-stub.c, drivers/vfio/pci).
func LeavesDMA(driver string) bool {
	return driver == "" || driver == "pcieport" || driver == "pci-stub" || device.IsVFIO(driver)
}

// reserved checks that the firmware releases the device's memory. The kernel refuses VFIO a group with a "direct"
// region. It removes a "direct-relaxable" region (drivers/iommu/iommu.c, require_direct).
func (j *judging) reserved() {
	if j.group == nil {
		return
	}
	for _, region := range j.group.Reserved {
		// The kernel sets require_direct for this type only. Intel's driver reports the regions of graphics and USB
		// functions as "direct-relaxable" (device_rmrr_is_relaxable in drivers/iommu/intel/iommu.c).
		if region.Type != "direct" {
			continue
		}
		j.reason(rule.Verdict{
			Code: rule.DirectMappedRegion,
			Text: fmt.Sprintf("the firmware requires that IOMMU group %d of %s reach host memory 0x%x-0x%x directly, and the kernel refuses such a group to a VM",
				j.group.Number, j.f.Address, region.Start, region.End),
			Fix:      directRegionFix(j.s),
			Evidence: j.saw(groupFile(j.group.Number, "reserved_regions"), fmt.Sprintf("0x%016x 0x%016x %s", region.Start, region.End, region.Type)),
		})
	}
}

// domain notes a group that the host itself does not confine.
func (j *judging) domain() {
	if j.group == nil || j.group.Type == "" {
		return
	}
	seen := j.saw(groupFile(j.group.Number, "type"), j.group.Type)
	if j.group.Type != "identity" {
		return
	}
	j.note(rule.Verdict{
		Code:     rule.IdentityDefaultDomain,
		Text:     fmt.Sprintf("the default domain of IOMMU group %d is identity: before VFIO takes the group and after it releases it, DMA of %s is not translated", j.group.Number, j.f.Address),
		Fix:      identityFixOn(j.s, groupFile(j.group.Number, "type")),
		Evidence: seen,
	})
}

// describe names a function with its driver: "0000:3b:00.1 (snd_hda_intel)".
func describe(f *device.Function) string {
	return f.Address.String() + " (" + orNone(f.Driver) + ")"
}

func orNone(driver string) string {
	if driver == "" {
		return "no driver"
	}
	return driver
}

func uses(f *device.Function) string {
	phrases := make([]string, len(f.Uses))
	for i, u := range f.Uses {
		phrases[i] = u.String()
	}
	return strings.Join(phrases, ", ")
}

func joinAddresses(addrs []pci.Address) string {
	texts := make([]string, len(addrs))
	for i, a := range addrs {
		texts[i] = a.String()
	}
	return strings.Join(texts, " ")
}

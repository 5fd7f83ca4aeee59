package audit

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// scenario is a node as it may be after the changes.
type scenario struct {
	snapshot *device.Snapshot
	files    *sysfs.Overlay
}

// scenarios returns the possible states of the node after the changes, usually one. If the next boot switches the IOMMU on, it is
// certain that
//
//   - the kernel drives a unit, and puts each function into a group;
//   - groups have translated domains, or identity domains with kernel.iommu: Passthrough;
//
// but not which functions share a group, whether domains are strict, which regions of memory the firmware reserves for devices, and
// whether interrupts are remapped. In this case there are two scenarios: in one, all these facts are as good as possible, and in
// the other as bad as possible. An answer that is the same in both is certain.
func scenarios(o *bootstrap.Outlook, s *device.Snapshot, without []string) []scenario {
	if !o.IOMMU || slices.Contains(without, host.KernelPart) {
		return []scenario{{s, overlay(o, without)}}
	}
	all := []scenario{{apart(s, o), overlay(o, without)}, {together(s, o), overlay(o, without)}}
	for _, one := range all {
		show(one.files, one.snapshot)
	}
	return all
}

// overlay returns the files that the changes write, except those of the parts in without.
func overlay(o *bootstrap.Outlook, without []string) *sysfs.Overlay {
	files := sysfs.NewOverlay()
	for i := range o.Files {
		f := &o.Files[i]
		if slices.ContainsFunc(f.Parts, func(part string) bool { return slices.Contains(without, part) }) {
			continue
		}
		switch f.Kind {
		case state.Link:
			files.Link(f.Path, f.Target)
		case state.Absent:
			files.Remove(f.Path)
		case state.RegularFile, state.Other:
			files.Put(f.Path, f.Content, f.Mode, uint32(max(f.UID, 0)), uint32(max(f.GID, 0)))
		}
	}
	return files
}

// apart returns the snapshot with each function in a group of its own, and with remapped interrupts.
func apart(s *device.Snapshot, o *bootstrap.Outlook) *device.Snapshot {
	after := withUnit(s)
	for i := range after.Functions {
		f := &after.Functions[i]
		f.Group = new(i)
		after.Groups = append(after.Groups, device.Group{Number: i, Type: domain(o, "DMA"), Members: []pci.Address{f.Address}})
	}
	for i, chip := range after.Host.IRQChips {
		// The kernel's names of remapping chips begin with IR (drivers/iommu/intel/irq_remapping.c). The chips of others, such as Intel's
		// VMD, do not remap.
		if strings.HasPrefix(chip, "PCI-MSI") {
			after.Host.IRQChips[i] = "IR-" + chip
		}
	}
	slices.Sort(after.Host.IRQChips)
	after.Host.IRQChips = slices.Compact(after.Host.IRQChips)
	return after
}

// together returns the snapshot with all functions below a root bus in one group, for which the firmware reserves a region. The
// kernel never puts functions of different root buses into one group.
func together(s *device.Snapshot, o *bootstrap.Outlook) *device.Snapshot {
	after := withUnit(s)
	of := map[string]int{}
	for i := range after.Functions {
		f := &after.Functions[i]
		number, known := of[f.Root]
		if !known {
			number = len(of)
			of[f.Root] = number
			// Any region will do: the rules only ask whether there is one.
			region := device.Region{Start: 0x1000, End: 0x1fff, Type: "direct"}
			after.Groups = append(after.Groups, device.Group{Number: number, Type: domain(o, "DMA-FQ"), Reserved: []device.Region{region}})
		}
		f.Group = new(number)
		after.Groups[number].Members = append(after.Groups[number].Members, f.Address)
	}
	return after
}

func withUnit(s *device.Snapshot) *device.Snapshot {
	after := *s
	after.Functions, after.Host.IRQChips = slices.Clone(s.Functions), slices.Clone(s.Host.IRQChips)
	after.Groups, after.Host.IOMMUs = nil, []string{"dmar0"}
	return &after
}

// domain is the type of a group's default domain, which is translated unless the blueprint says otherwise.
func domain(o *bootstrap.Outlook, translated string) string {
	if o.Passthrough {
		return "identity"
	}
	return translated
}

// show adds the files in which the kernel shows the groups. Files about the IOMMU's hardware are unknown before the boot.
func show(files *sysfs.Overlay, s *device.Snapshot) {
	const mode = 0o444
	// dmar0 is the name of a VT-d unit. Other IOMMUs are on without a kernel argument, so this scenario does not arise for them.
	files.Put("sys/class/iommu/dmar0/uevent", nil, mode, 0, 0)
	for _, g := range s.Groups {
		dir := fmt.Sprintf("sys/kernel/iommu_groups/%d", g.Number)
		files.Put(path.Join(dir, "type"), []byte(g.Type+"\n"), mode, 0, 0)
		var regions strings.Builder
		for _, r := range g.Reserved {
			fmt.Fprintf(&regions, "0x%016x 0x%016x %s\n", r.Start, r.End, r.Type)
		}
		files.Put(path.Join(dir, "reserved_regions"), []byte(regions.String()), mode, 0, 0)
		for _, a := range g.Members {
			files.Link(path.Join(dir, "devices", a.String()), "../../../../bus/pci/devices/"+a.String())
			files.Link(path.Join("sys/bus/pci/devices", a.String(), "iommu_group"), "../../../../kernel/iommu_groups/"+fmt.Sprint(g.Number))
		}
	}
}

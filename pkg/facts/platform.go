package facts

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// DMAR returns the flags of the firmware's DMAR table, and the fact of the read, whose value has the flags, never the table.
func (n *Node) DMAR() (DMAR, Fact) {
	text, file := n.acpiTable("DMAR")
	if !file.OK() {
		return DMAR{}, file
	}
	table, err := ParseDMAR(text)
	if err != nil {
		file.Status, file.Err = Broken, err.Error()
		return table, file
	}
	file.Value = fmt.Sprintf("flags 0x%02x", table.Flags)
	return table, file
}

// IVRSRemaps reports whether the firmware's IVRS table says that AMD's IOMMU confined DMA before the boot, and the fact of the read.
func (n *Node) IVRSRemaps() (bool, Fact) {
	text, file := n.acpiTable("IVRS")
	if !file.OK() {
		return false, file
	}
	table, err := ParseIVRS(text)
	if err != nil {
		file.Status, file.Err = Broken, err.Error()
		return false, file
	}
	file.Value = fmt.Sprintf("IVinfo 0x%08x", table.Info)
	return table.Remapped, file
}

// acpiTable returns the content of an ACPI table, and the fact of the read without that content.
func (n *Node) acpiTable(name string) (string, Fact) {
	file := n.Read(path.Join("sys/firmware/acpi/tables", name))
	table := file.Value
	file.Value = ""
	return table, file
}

// VTdUnit is one IOMMU of Intel's.
type VTdUnit struct {
	// Name is the kernel's: "dmar0".
	Name string
	// Extended is its extended capability register.
	Extended Fact
	// RemapsInterrupts is bit 3 of Extended, and DeviceTLB is bit 2 (ecap_ir_support and ecap_dev_iotlb_support in
	// drivers/iommu/intel/iommu.h).
	RemapsInterrupts, DeviceTLB bool
	// Functions are the functions behind it.
	Functions []pci.Address
}

// VTdUnits returns Intel's IOMMUs by name. There are none on machines of other vendors.
func (n *Node) VTdUnits() []VTdUnit {
	const class = "sys/class/iommu"
	var units []VTdUnit
	for _, name := range n.Snapshot.Host.IOMMUs {
		if !strings.HasPrefix(name, "dmar") {
			continue
		}
		u := VTdUnit{Name: name, Extended: n.Read(path.Join(class, name, "intel-iommu/ecap"))}
		// The kernel prints the register in hexadecimal without 0x (ecap_show in drivers/iommu/intel/iommu.c).
		bits, err := strconv.ParseUint(u.Extended.Value, 16, 64)
		if u.Extended.OK() && err != nil {
			u.Extended.Status, u.Extended.Err = Broken, "it is not a hexadecimal number"
		}
		// ecap_ir_support and ecap_dev_iotlb_support (drivers/iommu/intel/iommu.h).
		u.RemapsInterrupts, u.DeviceTLB = bits&8 != 0, bits&4 != 0
		devices, _ := n.List(path.Join(class, name, "devices"))
		for _, d := range devices {
			if a, err := pci.ParseAddress(d); err == nil {
				u.Functions = append(u.Functions, a)
			}
		}
		slices.SortFunc(u.Functions, pci.Address.Compare)
		units = append(units, u)
	}
	return units
}

// Processor is a kind of CPU of the node, as microcode distinguishes them.
type Processor struct {
	// Name is "family/model/stepping", as /proc/cpuinfo numbers them.
	Name string
	// Microcode are the revisions that CPUs of the kind run, each once, sorted.
	Microcode []string
}

// Processors returns the kinds of CPUs of the node, by name, and the fact of the read. There are none on architectures without
// microcode revisions.
func (n *Node) Processors() ([]Processor, Fact) {
	f := n.Read("proc/cpuinfo")
	kinds := parseProcessors(f.Value)
	f.Value = ""
	return kinds, f
}

func parseProcessors(cpuinfo string) []Processor {
	var kinds []Processor
	for block := range strings.SplitSeq(cpuinfo, "\n\n") {
		fields := map[string]string{}
		for line := range strings.Lines(block) {
			key, value, _ := strings.Cut(line, ":")
			fields[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
		// Only x86 has the field.
		if fields["microcode"] == "" {
			continue
		}
		name := fields["cpu family"] + "/" + fields["model"] + "/" + fields["stepping"]
		i := slices.IndexFunc(kinds, func(p Processor) bool { return p.Name == name })
		if i < 0 {
			kinds, i = append(kinds, Processor{Name: name}), len(kinds)
		}
		if p := &kinds[i]; !slices.Contains(p.Microcode, fields["microcode"]) {
			p.Microcode = append(p.Microcode, fields["microcode"])
			slices.Sort(p.Microcode)
		}
	}
	slices.SortFunc(kinds, func(a, b Processor) int { return strings.Compare(a.Name, b.Name) })
	return kinds
}

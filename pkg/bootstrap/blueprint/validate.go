package blueprint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// at records a problem of the field at path, with its line.
func (d *decoder) at(path, format string, args ...any) {
	d.add(d.lines.At(path), path, format, args...)
}

// validate reports values that have the right type, but are invalid.
func (d *decoder) validate(b *Blueprint) {
	if b.APIVersion != APIVersion {
		d.at("apiVersion", "want %s", APIVersion)
	}
	if b.Kind != Kind {
		d.at("kind", "want %s", Kind)
	}
	d.checkKernel(&b.Kernel, b.VFIO.KeepsOff())
	d.checkKeepOff(b.VFIO.KeepOff, b.VirtualFunctions)
	d.checkKeepOffMatching(b.VFIO.KeepOffMatching)
	d.checkResetMethods(b.VFIO.ResetMethods)
	if b.VFIO.AllowBootConsole && !b.VFIO.KeepsOff() {
		d.at("vfio.allowBootConsole", "has no effect without functions in vfio.keepOff or vfio.keepOffMatching")
	}
	d.checkVFs(b.VirtualFunctions)
	d.checkFabric(&b.Fabric)
	d.checkContainers(&b.Containers)
	d.checkVersions(&b.Versions)
	for key := range b.Labels {
		// Bootstrap prints labels in a command for the operator's shell. The API server checks their form.
		if key == "" || strings.ContainsAny(key, " =\"'$`\\") || strings.ContainsAny(b.Labels[key], " \"'$`\\") {
			d.at("labels", "%q=%q is not a valid label", key, b.Labels[key])
		}
	}
}

func (d *decoder) checkKernel(k *Kernel, keepsOff bool) {
	if k.IOMMU != "" && k.IOMMU != IOMMUOn && k.IOMMU != IOMMUPassthrough {
		d.at("kernel.iommu", "%q is not one of %s, %s", k.IOMMU, IOMMUOn, IOMMUPassthrough)
	}
	for i, word := range k.Arguments {
		d.checkArgument(fmt.Sprintf("kernel.arguments[%d]", i), word)
	}
	for i, pages := range k.HugePages {
		d.checkHugePages(k.HugePages, i, pages)
	}
	if k.EarlyBinding && !keepsOff {
		d.at("kernel.earlyBinding", "has no effect without functions in vfio.keepOff or vfio.keepOffMatching")
	}
}

// argument matches a kernel argument that shells, boot loaders and the kernel all read as one word.
var argument = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.,:/=@%+-]*$`)

// ours returns the kernel arguments that other fields of the blueprint set, each with its field.
func ours() map[string]string {
	return map[string]string{
		"intel_iommu": "kernel.iommu", "amd_iommu": "kernel.iommu", "iommu": "kernel.iommu", "iommu.passthrough": "kernel.iommu",
		"hugepages": "kernel.hugePages", "hugepagesz": "kernel.hugePages", "vfio-pci.ids": "vfio.keepOff", "vfio-pci.disable_denylist": "vfio.disableDenylist",
	}
}

// refused returns the kernel arguments that no blueprint may have, because they weaken the isolation of VMs.
func refused() []string {
	return []string{"intremap", "pcie_acs_override", "vfio_iommu_type1.allow_unsafe_interrupts", "iommufd.allow_unsafe_interrupts", "vfio.enable_unsafe_noiommu_mode"}
}

func (d *decoder) checkArgument(path, word string) {
	if !argument.MatchString(word) {
		d.at(path, "%q is not a kernel argument; use one word of letters, digits and _ . , : / = @ %% + -", word)
		return
	}
	name, value, _ := strings.Cut(word, "=")
	if why := isolation.WeakensACS(value); kernelargs.Same(name, "pci") && why != "" {
		d.at(path, "%q %s; remove it", word, why)
	}
	// In names of parameters, "-" and "_" are the same to the kernel (parameq in kernel/params.c).
	for key, field := range ours() {
		if kernelargs.Same(name, key) {
			d.at(path, "%q is set by %s; use that field", word, field)
		}
	}
	for _, key := range refused() {
		if kernelargs.Same(name, key) {
			d.at(path, "%q weakens the isolation of VMs; remove it", word)
		}
	}
}

func (d *decoder) checkHugePages(all []HugePages, i int, h HugePages) {
	path := fmt.Sprintf("kernel.hugePages[%d]", i)
	if h.Size != HugePage2Mi && h.Size != HugePage1Gi {
		d.at(path+".size", "%q is not one of %s, %s", h.Size, HugePage2Mi, HugePage1Gi)
	}
	if h.Count < 0 || h.Count > 1<<24 {
		d.at(path+".count", "%d is not a number from 0 to %d", h.Count, 1<<24)
	}
	// CONFIG_NODES_SHIFT is at most 10 (arch/x86/Kconfig, arch/arm64/Kconfig).
	if h.Node != nil && (*h.Node < 0 || *h.Node > 1023) {
		d.at(path+".node", "%d is not a NUMA node", *h.Node)
	}
	if h.Node != nil && h.Device != nil {
		d.at(path+".node", "the NUMA node is that of device %s; remove one of the two", h.Device)
	}
	for _, other := range all[:i] {
		if other.Size == h.Size && samePlace(&other, &h) {
			d.at(path, "duplicate size; give one count for the whole node, or one for each NUMA node or device")
		}
	}
}

// samePlace reports whether two entries count pages of the same place, where only one of them can be right. An entry for the
// whole node overlaps all other entries.
func samePlace(a, b *HugePages) bool {
	everywhere := func(h *HugePages) bool { return h.Node == nil && h.Device == nil }
	switch {
	case everywhere(a), everywhere(b):
		return true
	case a.Device != nil && b.Device != nil:
		return *a.Device == *b.Device
	}
	return a.Node != nil && b.Node != nil && *a.Node == *b.Node
}

func (d *decoder) checkKeepOff(all []pci.Address, rules []v1alpha1.VFRule) {
	for i, a := range all {
		if slices.ContainsFunc(rules, func(r v1alpha1.VFRule) bool { return r.PF == a.String() }) {
			d.at(fmt.Sprintf("vfio.keepOff[%d]", i), "%s is a PF of virtualFunctions, which needs its driver; remove it from one of them", a)
		}
		if slices.Contains(all[:i], a) {
			d.at(fmt.Sprintf("vfio.keepOff[%d]", i), "duplicate address %s", a)
		}
	}
}

// checkKeepOffMatching validates the matches as in a node config. It refuses matches for VFs, because VFs appear after boot.
func (d *decoder) checkKeepOffMatching(all []v1alpha1.DeviceMatch) {
	for i := range all {
		path := fmt.Sprintf("vfio.keepOffMatching[%d]", i)
		d.checkMatch(path, all[i])
		const ofVFs = "VFs appear after boot, and virtualFunctions keeps host drivers off them; remove it"
		if len(all[i].PFNames) > 0 {
			d.at(path+".pfNames", ofVFs)
		}
		for j, kind := range all[i].Types {
			if kind == "vf" || kind == "gpuvf" {
				d.at(fmt.Sprintf("%s.types[%d]", path, j), ofVFs)
			}
		}
	}
}

// checkMatch validates a match as in a node config.
func (d *decoder) checkMatch(path string, m v1alpha1.DeviceMatch) {
	err := (&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{Match: m}}}).Validate()
	if invalid, ok := asInvalid(err); ok {
		for _, p := range invalid.Problems {
			d.at(path+strings.TrimPrefix(p.Path, "devices[0].match"), "%s", p.Text)
		}
	}
}

// checkResetMethods refuses matches that a udev rule can't express. It also refuses a match that has neither
// addresses nor vendors with devices or classes, because it would include the node's own functions.
func (d *decoder) checkResetMethods(all []ResetMethods) {
	for i := range all {
		r, path := &all[i], fmt.Sprintf("vfio.resetMethods[%d]", i)
		d.checkMatch(path+".match", r.Match)
		if len(r.Match.Types)+len(r.Match.PFNames) > 0 {
			d.at(path+".match", "has types or pfNames, which udev does not know; use vendors, devices, classes or addresses")
		}
		if len(r.Match.Addresses) == 0 && (len(r.Match.Vendors) == 0 || len(r.Match.Devices)+len(r.Match.Classes) == 0) {
			d.at(path+".match", "matches functions of all kinds; use addresses, or vendors with devices or classes")
		}
		if len(r.Methods) == 0 {
			d.at(path+".methods", "empty, so that no tenant could get the functions; want some of %s", strings.Join(resetMethods(), ", "))
		}
		for j, method := range r.Methods {
			at := fmt.Sprintf("%s.methods[%d]", path, j)
			if !slices.Contains(resetMethods(), method) {
				d.at(at, "%q is not one of %s", method, strings.Join(resetMethods(), ", "))
			}
			if slices.Contains(r.Methods[:j], method) {
				d.at(at, "duplicate method %s", method)
			}
		}
	}
}

// checkVFs validates the rules as in a node config.
func (d *decoder) checkVFs(rules []v1alpha1.VFRule) {
	err := (&v1alpha1.NodeConfig{VirtualFunctions: rules}).Validate()
	if invalid, ok := asInvalid(err); ok {
		for _, p := range invalid.Problems {
			d.at(p.Path, "%s", p.Text)
		}
	}
}

func (d *decoder) checkFabric(f *Fabric) {
	if len(f.Activate) > 0 && !f.Partitions {
		d.at("fabric.activate", "has no effect without fabric.partitions")
	}
	for i, number := range f.Activate {
		at := fmt.Sprintf("fabric.activate[%d]", i)
		if number < 0 || number > 63 {
			d.at(at, "%d is not the number of a partition, which are from 0 to 63", number)
		}
		if slices.Contains(f.Activate[:i], number) {
			d.at(at, "duplicate partition %d", number)
		}
	}
}

func (d *decoder) checkContainers(o *Containers) {
	for field, text := range o.problems() {
		d.at("containers."+field, "%s", text)
	}
}

func (d *decoder) checkVersions(v *Versions) {
	for _, pin := range []struct {
		name    string
		version Version
	}{{"kernel", v.Kernel}, {"containerd", v.Containerd}, {"crio", v.CRIO}, {"kata", v.Kata}, {"chart", v.Chart}} {
		if pin.version.Exact != "" && pin.version.Minimum != "" {
			d.at("versions."+pin.name, "use either exact or minimum")
		}
		if pin.version.Minimum != "" && len(numbers(pin.version.Minimum)) == 0 {
			d.at("versions."+pin.name+".minimum", "%q is not a version", pin.version.Minimum)
		}
	}
}

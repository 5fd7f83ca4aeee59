package host

import (
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// TestLastValueCountsWhereTheKernelSaysSo: what the running kernel was told first does no harm then. Flags stay.
func TestLastValueCountsWhereTheKernelSaysSo(t *testing.T) {
	tree, err := sysfs.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tree.Close() }()
	for cmdline, problems := range map[string]int{
		"intel_iommu=off":                       1,
		"intel_iommu=off intel_iommu=on":        0,
		"intel_iommu=on intel_iommu=off":        1,
		"intel_iommu=igfx_off intel_iommu=on":   1,
		"iommu=pt iommu=nopt":                   0,
		"iommu=off iommu=nopt":                  1,
		"intel_iommu=off intel_iommu=strict":    1,
		"intel_iommu=off intel_iommu=strict,on": 0,
		"intel_iommu=on,tboot_noforce":          1,
		"iommu=noforce":                         0, // the kernel's default
		"pcie_acs_override=downstream":          1,
		"pci=noats,disable_acs_redir=1:2":       1,
		"pci=config_acs=0000000@1:2":            1,
		"pci=config_acs=xxxxx1x@1:2":            0,
		// As the kernel reads booleans: by the first letter, a bare one being true.
		"vfio_iommu_type1.allow_unsafe_interrupts=yes": 1,
		"vfio_iommu_type1.allow_unsafe_interrupts=No":  0,
		"vfio.enable_unsafe_noiommu_mode":              1,
		"iommu.passthrough=true":                       1,
	} {
		p := &Platform{Live: true, Arch: "amd64", Cmdline: cmdline}
		if found := conflicts(tree, blueprint.Default(), p); len(found) != problems {
			t.Errorf("%s: %v, want %d problems", cmdline, found, problems)
		}
	}
}

// TestConflictNamesItsChecks: the text of the code has the audit's rule of each argument that bootstrap refuses.
func TestConflictNamesItsChecks(t *testing.T) {
	texts, err := rule.Texts()
	if err != nil {
		t.Fatal(err)
	}
	text, _ := rule.Find(texts, string(rule.KernelArgumentConflict))
	for _, w := range slices.Concat(kernelargs.Weakenings(), kernelargs.WeakeningParameters()) {
		if !slices.Contains(text.Checks, w.Rule) {
			t.Errorf("%s has the checks %v, want %s of %s among them", text.Code, text.Checks, w.Rule, w.Name)
		}
	}
}

package boot

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/platform"
)

// Arguments returns the words that the kernel's command line must have.
func Arguments(b *blueprint.Blueprint, p *platform.Platform) []string {
	words := append(iommuArguments(b.Kernel.IOMMU, p), hugePageArguments(b.Kernel.HugePages)...)
	return append(words, b.Kernel.Arguments...)
}

// iommuArguments asks for the IOMMU. Intel's driver is off without a word on kernels
// that were built so, AMD's is on. "iommu=nopt" is said even where it is the default:
// kernels may be built otherwise, and Kata's runtime in Rust takes a PF's interface only
// on nodes whose command line has "iommu=". Documentation/admin-guide/kernel-parameters.txt.
func iommuArguments(mode blueprint.IOMMUMode, p *platform.Platform) []string {
	pass := mode == blueprint.IOMMUPassthrough
	if p.Arch == "arm64" {
		return []string{"iommu.passthrough=" + map[bool]string{true: "1", false: "0"}[pass]}
	}
	var words []string
	if p.Firmware.DMAR != nil || !p.CPU.AMD { // the table says whose IOMMU it is, where it can be read
		words = append(words, "intel_iommu=on")
	}
	return append(words, "iommu="+map[bool]string{true: "pt", false: "nopt"}[pass])
}

// hugePageArguments reserves pages of 1 GiB: later than at boot there is hardly
// memory in one piece. Smaller ones are the business of package host.
func hugePageArguments(all []blueprint.HugePages) []string {
	var counts []string
	for _, h := range all {
		switch {
		case h.Size != blueprint.HugePage1Gi:
		case h.Node != nil:
			counts = append(counts, fmt.Sprintf("%d:%d", *h.Node, h.Count))
		default:
			counts = append(counts, fmt.Sprint(h.Count))
		}
	}
	if len(counts) == 0 {
		return nil
	}
	return []string{"hugepagesz=1G", "hugepages=" + strings.Join(counts, ",")}
}

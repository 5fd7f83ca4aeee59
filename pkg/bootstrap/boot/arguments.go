package boot

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/platform"
)

// Arguments returns what the kernel's command line must have: words, and groups of words that belong together.
func Arguments(b *blueprint.Blueprint, p *platform.Platform) []string {
	words := append(iommuArguments(b.Kernel.IOMMU, p), hugePageArguments(b.Kernel.HugePages)...)
	return append(words, b.Kernel.Arguments...)
}

// iommuArguments asks for the IOMMU. Intel's driver is off without a word on kernels
// that were built so, AMD's is on. The word is said on both, where AMD's does nothing with it: an image knows
// nothing of the processor that it will be booted on. "iommu=nopt" is said even where it is the default:
// kernels may be built otherwise, and Kata's runtime in Rust takes a PF's interface only
// on nodes whose command line has "iommu=". Documentation/admin-guide/kernel-parameters.txt.
func iommuArguments(mode blueprint.IOMMUMode, p *platform.Platform) []string {
	pass := mode == blueprint.IOMMUPassthrough
	if p.Arch == "arm64" {
		return []string{"iommu.passthrough=" + map[bool]string{true: "1", false: "0"}[pass]}
	}
	return []string{"intel_iommu=on", "iommu=" + map[bool]string{true: "pt", false: "nopt"}[pass]}
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
	return []string{"hugepagesz=1G hugepages=" + strings.Join(counts, ",")} // a number is of the size before it
}

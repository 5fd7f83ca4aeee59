package facts

import (
	"fmt"
	"slices"
	"strings"
)

// ChangeState says whether a version of a program contains a change.
type ChangeState int

// States. A distribution can add a change to a version that lacks it upstream, so the state is unknown for many kernels.
const (
	ChangeUnknown ChangeState = iota
	ChangeIn
	ChangeMissing
)

// KernelChange is a change of Linux by which VMs with devices start, start faster, or can do more. Some kernels have it.
type KernelChange struct {
	// Commit and Title are those of the mainline commit.
	Commit, Title string
	// releases are the first releases of kernel.org with the change: mainline first, then the stable branches.
	releases []string
	// unclear are stable branches that may have the change.
	unclear []string
}

// ParallelOpens is the change by which VFIO opens and resets the VFs of a PF in parallel. Before, one lock covered all VFs of a PF.
// The stable releases are from their change logs and from the review mails of 2025-08-12.
func ParallelOpens() KernelChange {
	return KernelChange{
		Commit: "e908f58b6beb", Title: "vfio/pci: Separate SR-IOV VF dev_set",
		releases: []string{"6.17", "6.16.1", "6.15.10", "6.12.42", "6.6.102", "6.1.148"}, unclear: []string{"5.15"},
	}
}

// LargeBAR is the size from which mapping by pages of 4 KiB takes a quarter of a second or more.
const LargeBAR = 8 << 30

// LargeMappings is the change by which VFIO's type 1 IOMMU maps a BAR by huge pages. Before, it looked up each page of 4 KiB. No
// stable branch has the change.
func LargeMappings() KernelChange {
	return KernelChange{Commit: "0fd06844de5d", Title: "vfio/type1: Use mapping page mask for pfnmaps", releases: []string{"6.15"}}
}

// FileMappings is the change by which iommufd maps memory by its file (IOMMU_IOAS_MAP_FILE). Without it, a QEMU that [MapsFiles] starts no
// VM with a device by iommufd if the VM's memory is a file: `vfio_container_dma_map(...) = -25 (Inappropriate ioctl for device)`.
func FileMappings() KernelChange {
	return KernelChange{Commit: "f4986a72d6e4", Title: "iommufd: Add IOMMU_IOAS_MAP_FILE", releases: []string{"6.13"}}
}

// MapsPeers is the change by which iommufd maps a BAR of one function for DMA of another: VFIO exports the BAR as a dma-buf, and
// IOMMU_IOAS_MAP_FILE accepts it. In older kernels, functions that a VM has by iommufd can't do peer-to-peer. It is a series of
// changes; Title is that of the last.
func MapsPeers() KernelChange {
	return KernelChange{Title: "iommufd: Accept a DMABUF through IOMMU_IOAS_MAP_FILE", releases: []string{"6.19"}}
}

// String names the change: `e908f58b6beb ("vfio/pci: Separate SR-IOV VF dev_set")`.
func (c KernelChange) String() string { return fmt.Sprintf("%s (%q)", c.Commit, c.Title) }

// Fix says which kernels have the change.
func (c KernelChange) Fix() string {
	text := "update the kernel to " + c.releases[0] + " or later"
	if len(c.releases) > 1 {
		text += ", or, in a stable branch, to " + strings.Join(c.releases[1:], ", ") + " or later"
	}
	return text + "; distributions may add " + c.Commit + " to an older kernel"
}

// In reports whether a kernel has the change.
func (c KernelChange) In(k Kernel) ChangeState {
	runs, follows := k.number()
	if runs == nil {
		return ChangeUnknown
	}
	for i, release := range c.releases {
		first := KernelNumber(release)
		// The first release is mainline's, and all later branches have the change. Each other release is of a stable branch, and says
		// nothing about other branches.
		sameBranch := slices.Equal(runs[:2], first[:2])
		switch {
		case i == 0 && slices.Compare(runs, first) >= 0, sameBranch && runs[2] >= first[2]:
			return ChangeIn
		// The branch got the change in a later release than the one that this kernel is built from.
		case sameBranch && follows:
			return ChangeMissing
		}
	}
	branch := fmt.Sprintf("%d.%d", runs[0], runs[1])
	if !follows || slices.Contains(c.unclear, branch) {
		return ChangeUnknown
	}
	return ChangeMissing
}

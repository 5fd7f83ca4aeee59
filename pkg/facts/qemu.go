package facts

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// AlignsMappings reports whether a version of QEMU maps BARs at addresses that the kernel can back by huge pages:
// 00b519c0bca0 ("vfio/helpers: Align mmaps") in QEMU 9.2.
func AlignsMappings(version string) ChangeState {
	return qemuSince(version, 9, 2)
}

// MapsFiles reports whether a version of QEMU gives iommufd the file of a VM's memory instead of its address: dma_map_file of
// hw/vfio/iommufd.c, in QEMU 10.1. Such a QEMU ends if the kernel can't map the file ([FileMappings]). It also ends on each kernel if
// the guest's image is an NVDIMM, because memfd_pin_folios takes files of shmem and hugetlbfs only.
func MapsFiles(version string) ChangeState { return qemuSince(version, 10, 1) }

func qemuSince(version string, major, minor int) ChangeState {
	number := KernelNumber(strings.TrimPrefix(version, "v"))
	switch {
	case number == nil:
		return ChangeUnknown
	case slices.Compare(number, []int{major, minor, 0}) >= 0:
		return ChangeIn
	}
	return ChangeMissing
}

// QEMUFix says which versions of QEMU align mappings.
const QEMUFix = "install a Kata release with QEMU 9.2 or later"

// KataQEMU returns the version of QEMU in a Kata release, by the versions.yaml of its archive: "v11.0.1".
func KataQEMU(versions []byte) (string, error) {
	var file struct {
		Assets struct {
			Hypervisor struct {
				QEMU struct {
					Version string `json:"version"`
				} `json:"qemu"`
			} `json:"hypervisor"`
		} `json:"assets"`
	}
	if err := yaml.Unmarshal(versions, &file); err != nil {
		return "", fmt.Errorf("parse Kata's versions.yaml: %w", err)
	}
	return file.Assets.Hypervisor.QEMU.Version, nil
}

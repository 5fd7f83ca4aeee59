package check

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
)

// guestMemoryCheck returns the check of whether VMs with devices start at all on a node with iommufd. It is not about isolation.
func guestMemoryCheck() Check {
	return Check{ID: "RT-040", Judge: mapsGuestMemory}
}

// mapsGuestMemory is about nodes with iommufd. VFIO's type 1 IOMMU maps all memory by address.
func mapsGuestMemory(n *facts.Node) Answer {
	if !n.Snapshot.Host.IOMMUFD {
		return notApplicable("the node has no iommufd")
	}
	return eachConfigured(n, runtimes.TakesDevices, func(h *runtimes.Handler, k *runtimes.Kata) Answer {
		if k.VMM() != "qemu" {
			return pass("", k.Hypervisor("path").Fact())
		}
		return mapsMemory(n, h, k)
	})
}

func mapsMemory(n *facts.Node, h *runtimes.Handler, k *runtimes.Kata) Answer {
	shared, huge := k.Hypervisor("shared_fs"), k.Hypervisor("enable_hugepages")
	image, imageFacts := imageIsMemory(h, k)
	// Kata's daemons share the memory with the VM: it is a file in /dev/shm, or of huge pages. Other memory has no file.
	file := strings.HasPrefix(shared.Text(), "virtio-fs") || huge.On()
	program := k.Hypervisor("path")
	version := qemuVersion(n, program)
	seen := append(says(shared, huge), imageFacts...)
	seen = append(seen, program.Fact())
	kernel := hasChange(n, facts.FileMappings(), "can't map the memory of VMs for QEMU "+version.Value)
	switch state := facts.MapsFiles(version.Value); {
	case !file && !image:
		return pass("", seen...)
	case !image && kernel[0].State == finding.Pass: // whatever QEMU asks for
		return kernel.seen(seen...)
	case state == facts.ChangeUnknown:
		return say(finding.Manual, fmt.Sprintf("can't tell whether %s is QEMU 10.1 or later: no file shows its version; run it with --version", program.Text()), seen)
	case state == facts.ChangeMissing:
		return pass("", append(seen, version)...)
	case image:
		return fail(fmt.Sprintf("the guest's image is an NVDIMM, which QEMU %s can't give to iommufd", version.Value), append(seen, version)...)
	}
	return kernel.seen(append(seen, version)...)
}

// imageIsMemory reports whether a guest's image is an NVDIMM, a part of the VM's memory.
func imageIsMemory(h *runtimes.Handler, k *runtimes.Kata) (is bool, seen []facts.Fact) {
	image, initrd := k.Hypervisor("image"), k.Hypervisor("initrd")
	if image.Text() == "" || initrd.Text() != "" {
		return false, says(image)
	}
	if h.IsRust() {
		driver := k.Hypervisor("vm_rootfs_driver")
		return driver.Text() == "virtio-pmem" || driver.Text() == "nvdimm", says(image, driver)
	}
	// Kata has no NVDIMM for confidential guests, whatever the setting is.
	disabled, confidential := k.Hypervisor("disable_image_nvdimm"), k.Hypervisor("confidential_guest")
	return !disabled.On() && !confidential.On(), says(image, disabled, confidential)
}

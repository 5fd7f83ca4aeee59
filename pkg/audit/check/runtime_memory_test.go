package check_test

import (
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// guestMemoryFaults are nodes on which VMs with devices don't start. In the base, the VM's memory is a file, because it has virtio-fs.
func guestMemoryFaults() []fault {
	on := func(about, release, qemu, settings string, state finding.State) fault {
		return fault{rule: "RT-040", about: about, board: board.Server, state: state, plant: func(t *board.Tree) {
			t.WithIOMMUFD()
			runs(release, "")(t)
			if qemu != "" {
				ships(qemu)(t)
			}
			t.AddToKata("[hypervisor.qemu]\n" + settings)
		}}
	}
	const old, recent = "6.12.117+deb13-amd64", "6.13.0"
	return []fault{
		on("Kata's QEMU on Debian's kernel", old, "v11.0.1", "", ""),
		on("Kata's QEMU on a newer kernel", recent, "v11.0.1", "", finding.Pass),
		on("Kata's QEMU on Ubuntu's kernel", "6.8.0-64-generic", "v11.0.1", "", finding.Manual),
		on("an older QEMU", old, "v10.0.13", "", finding.Pass),
		on("a QEMU without a version", old, "", "", finding.Manual),
		on("a QEMU without a version on a newer kernel", recent, "", "", finding.Pass),
		on("an image as NVDIMM for a QEMU without a version", recent, "", "disable_image_nvdimm = false\n", finding.Manual),
		on("memory without a file", old, "v11.0.1", "shared_fs = 'none'\n", finding.Pass),
		on("huge pages", old, "v11.0.1", "shared_fs = 'none'\nenable_hugepages = true\n", ""),
		on("an image as NVDIMM", recent, "v11.0.1", "disable_image_nvdimm = false\n", ""),
		on("an NVDIMM and an older QEMU", recent, "v10.0.13", "disable_image_nvdimm = false\n", finding.Pass),
		on("an initial RAM disk", recent, "v11.0.1", "disable_image_nvdimm = false\nimage = ''\ninitrd = '/opt/kata/share/kata-containers/initrd.img'\n", finding.Pass),
		on("a confidential guest", recent, "v11.0.1", "disable_image_nvdimm = false\nconfidential_guest = true\n", finding.Pass),
		{rule: "RT-040", about: "groups only", board: board.Server, state: finding.NotApplicable, plant: ships("v11.0.1")},
		{rule: "RT-040", about: "the Rust runtime's NVDIMM", board: board.Server, plant: func(t *board.Tree) {
			t.WithIOMMUFD()
			runs(recent, "")(t)
			ships("v11.0.1")(t)
			rustRuntime(t)
			t.AddToKata("[hypervisor.qemu]\nimage = '/opt/kata/share/kata-containers/kata-containers.img'\nvm_rootfs_driver = 'virtio-pmem'\n")
		}},
	}
}

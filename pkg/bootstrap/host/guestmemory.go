package host

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const memoryPart = "guest memory"

// guestMemory reports a kernel whose iommufd can't map the memory of VMs for the QEMU of the installed Kata: no VM with a device starts
// there. It prevents nothing, because the Go runtime can use groups.
func (n *node) guestMemory() {
	if n.platform.Kernel == "" || !n.platform.Modules["iommufd"].There() {
		return
	}
	text, ok := n.text(memoryPart, kataVersions)
	if !ok {
		return
	}
	version, err := facts.KataQEMU([]byte(text))
	if err == nil && facts.MapsFiles(version) == facts.ChangeIn {
		n.advise(memoryPart, rule.FileMappingMissing, facts.FileMappings(),
			fmt.Sprintf("iommufd can't map the memory of VMs for Kata's QEMU %s, and VMs with devices do not start; with the Go runtime, `backend: Group` avoids it", version))
	}
}

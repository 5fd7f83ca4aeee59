package host

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/containers"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// lockedMemory lifts the limit of locked memory for the VMMs that the runtime starts:
// VFIO pins all of a guest's memory.
func (n *node) lockedMemory() {
	wanted := n.blueprint.Containers.Runtime
	auto := wanted == "" || wanted == containers.RuntimeAuto
	for _, service := range []struct {
		unit string
		on   bool
		then state.FollowUp
	}{
		{"containerd", wanted == containers.RuntimeContainerd || auto && n.platform.Containerd, state.ContainerdRestart},
		{"crio", wanted == containers.RuntimeCRIO || auto && n.platform.CRIO, state.CRIORestart},
	} {
		if service.on {
			n.file(state.File{
				Part: "memlock", Path: fmt.Sprintf("etc/systemd/system/%s.service.d/50-kata-vfio.conf", service.unit),
				Content: []byte(header + "[Service]\nLimitMEMLOCK=infinity\n"),
				Why:     "lets VMMs pin their guests' memory", Then: []state.FollowUp{state.UnitsReload, service.then},
			})
		}
	}
}

// network has systemd-networkd leave VFs alone, by the mark that our udev rule makes.
// NetworkManager goes by another mark of the same rule.
func (n *node) network() {
	if !*n.blueprint.Network.LeaveVFsAlone || !n.platform.Networkd {
		return
	}
	n.file(state.File{
		Part: "network", Path: "etc/systemd/network/05-kata-vfio-vf.network",
		Content: []byte(header + "[Match]\nProperty=" + vfProperty + "=1\n\n[Link]\nUnmanaged=yes\n"),
		Why:     "keeps systemd-networkd off VFs", Then: []state.FollowUp{state.NetworkReload},
	})
}

package host

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/containers"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// lockedMemory lifts the limit of locked memory for the VMMs that the runtime starts:
// VFIO pins all of a guest's memory. They have it from the service that starts the
// runtime; of one that is still to come the usual one.
func (n *node) lockedMemory() {
	runtime := containers.RuntimeOf(n.tree, n.blueprint.Containers.Runtime)
	units := containers.Units(n.tree, runtime)
	if len(units) == 0 {
		units = containers.UsualUnits(n.tree, runtime)
	}
	then := []state.FollowUp{state.UnitsReload, state.ContainerdRestart}
	if runtime == containers.RuntimeCRIO {
		then[1] = state.CRIORestart
	}
	for _, unit := range units {
		n.file(state.File{
			Part: "memlock", Path: fmt.Sprintf("etc/systemd/system/%s.d/50-kata-vfio.conf", unit),
			Content: []byte(header + "[Service]\nLimitMEMLOCK=infinity\n"),
			Why:     "lets VMMs pin their guests' memory", Then: then,
		})
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

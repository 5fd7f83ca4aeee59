package containers

import (
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// RuntimeOf returns the node's container runtime: the one that is asked for, or for
// Auto the one that the kubelet uses; None where there is none.
func RuntimeOf(tree state.Tree, asked Runtime) Runtime { return node{tree: tree}.runtime(asked) }

// Units returns the systemd services of the node that start a runtime: of containerd
// that of the distribution of Kubernetes that has one of its own (K3s, RKE2, k0s,
// MicroK8s), whose restart is the runtime's. None where the node has no such service.
func Units(tree state.Tree, r Runtime) []string { return node{tree: tree}.units(r) }

// UsualUnits returns the services that start a runtime of the node's, there or not.
func UsualUnits(tree state.Tree, r Runtime) []string { return node{tree: tree}.usualUnits(r) }

func (n node) units(r Runtime) []string {
	return slices.DeleteFunc(n.usualUnits(r), func(name string) bool {
		_, there := n.unit(name)
		return !there
	})
}

func (n node) usualUnits(r Runtime) []string {
	switch m := n.maker(); {
	case r == RuntimeCRIO:
		return []string{"crio.service"}
	case r != RuntimeContainerd:
		return nil
	case m != nil:
		return m.units
	}
	return []string{containerdService}
}

// restarted says which services restart a runtime for a file, or that none does.
func (w *wants) restarted(n node, r Runtime, file string) {
	units := n.units(r)
	if len(units) == 0 {
		w.warn(file, "No service of systemd's is known that starts this node's "+string(r)+": nothing restarts it for what is written here.",
			"Restart "+string(r)+" by hand, or what starts it, whenever its files have changed.")
		return
	}
	w.fact("restarted by", strings.Join(units, " "), file)
}

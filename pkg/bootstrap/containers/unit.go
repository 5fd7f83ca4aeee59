package containers

import (
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/runtimeclass"
)

// FindRuntime returns the node's container runtime: the named one or, for [blueprint.RuntimeAuto], the one that the kubelet
// uses. It returns [blueprint.RuntimeNone] if the node has no container runtime.
func FindRuntime(tree state.Tree, asked blueprint.Runtime) blueprint.Runtime {
	return node{tree: tree}.runtime(asked)
}

// Units returns the systemd services of the node that start a runtime, or none if the node has no such service. Distributions
// of Kubernetes with their own containerd (K3s, RKE2, k0s, MicroK8s) have one service for both, and restarting it restarts the
// runtime.
func Units(tree state.Tree, r blueprint.Runtime) []string { return node{tree: tree}.units(r) }

// UsualUnits returns the services that usually start a runtime, whether or not they exist.
func UsualUnits(tree state.Tree, r blueprint.Runtime) []string { return node{tree: tree}.usualUnits(r) }

func (n node) units(r blueprint.Runtime) []string {
	return slices.DeleteFunc(n.usualUnits(r), func(name string) bool {
		_, there := facts.LoadUnit(n, name)
		return !there
	})
}

func (n node) usualUnits(r blueprint.Runtime) []string {
	switch d := facts.FindDistribution(n); {
	case r == blueprint.RuntimeCRIO:
		return []string{"crio.service"}
	case r != blueprint.RuntimeContainerd:
		return nil
	case d != nil:
		return d.Units
	}
	return []string{facts.ContainerdService}
}

// restarted says which services restart a runtime for a file, or that none does.
func (w *wants) restarted(n node, r blueprint.Runtime, file string) {
	units := n.units(r)
	if len(units) == 0 {
		w.warn(rule.ServiceUnknown, file, "No known systemd service starts this node's "+string(r)+", so bootstrap can't restart it after changes.",
			"Restart "+string(r)+" yourself whenever its files change.")
		return
	}
	w.fact("restarted by", strings.Join(units, " "), file)
}

// socketAsked is the service that [facts.PodResourcesSocket] names.
const socketAsked = "kata-vfio-pod-resources.service"

// socketWants returns the unit that creates the socket's file before the first pod: two files, unless a package has
// them, and the link that enables it.
func socketWants(n node) (*wants, error) {
	w := &wants{part: "socket"}
	if !n.exists("/usr/lib/systemd") && !n.exists("/lib/systemd") {
		w.warn(rule.NoSystemd, "", "The node has no systemd, so nothing creates /run/kata-vfio/pod-resources.sock before the first pod.",
			"Configure the node's init to create a socket file there at each boot, before the kubelet starts.")
		return w, nil
	}
	dir := "/etc/systemd/system"
	if packaged, ok := n.packagedUnit(); ok {
		dir = packaged
	} else if err := w.units(dir); err != nil {
		return nil, err
	}
	w.wanted.Files = append(w.wanted.Files, state.File{
		Part: w.part, Path: "etc/systemd/system/sockets.target.wants/" + facts.PodResourcesSocket, Target: path.Join(dir, facts.PodResourcesSocket),
		Why:  "systemd creates the socket's file at each boot: without it, Kata's Go runtime trusts a pod's annotations",
		Then: []state.FollowUp{state.UnitsReload, state.SocketStart},
	})
	return w, nil
}

// packagedUnit returns the directory where a package installed both files.
func (n node) packagedUnit() (string, bool) {
	// Without a merged /usr, the two are separate directories, and systemd reads both.
	for _, dir := range []string{"/usr/lib/systemd/system", "/lib/systemd/system"} {
		if n.exists(path.Join(dir, facts.PodResourcesSocket)) && n.exists(path.Join(dir, socketAsked)) {
			return dir, true
		}
	}
	return "", false
}

// units requires the two files.
func (w *wants) units(dir string) error {
	for _, name := range []string{facts.PodResourcesSocket, socketAsked} {
		text, err := runtimeclass.Files.ReadFile(path.Join("systemd", name))
		if err != nil {
			return err
		}
		w.file(path.Join(dir, name), text, "creates the pod-resources socket's file at boot", state.UnitsReload, state.SocketStart)
	}
	return nil
}

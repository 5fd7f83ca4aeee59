package containers

import (
	"path"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/runtimeclass"
)

const (
	socketUnit  = "kata-vfio-pod-resources.socket"
	socketAsked = "kata-vfio-pod-resources.service"
)

// socketWants is the unit that makes the socket's file before the first pod: its two
// files, unless a package brought them, and the link that has systemd start it.
func socketWants(n node) (*wants, error) {
	w := &wants{part: "socket"}
	if !n.exists("/usr/lib/systemd") && !n.exists("/lib/systemd") {
		w.warn("", "The node has no systemd: nothing makes /run/kata-vfio/pod-resources.sock before the first pod.",
			"Have what starts services make a socket file there at each boot, before the kubelet.")
		return w, nil
	}
	dir := "/etc/systemd/system"
	if packaged, ok := n.packagedUnit(); ok {
		dir = packaged
	} else if err := w.units(dir); err != nil {
		return nil, err
	}
	w.Files = append(w.Files, state.File{
		Part: w.part, Path: "etc/systemd/system/sockets.target.wants/" + socketUnit, Target: path.Join(dir, socketUnit),
		Why:  "systemd makes the socket's file at each boot: with it missing Kata's Go runtime believes a pod's annotations",
		Then: []state.FollowUp{state.UnitsReload, state.SocketStart},
	})
	return w, nil
}

// packagedUnit returns the directory where a package has put both files.
func (n node) packagedUnit() (string, bool) {
	for _, dir := range []string{"/usr/lib/systemd/system", "/lib/systemd/system"} {
		if n.exists(path.Join(dir, socketUnit)) && n.exists(path.Join(dir, socketAsked)) {
			return dir, true
		}
	}
	return "", false
}

// units wants the two files.
func (w *wants) units(dir string) error {
	for _, name := range []string{socketUnit, socketAsked} {
		text, err := runtimeclass.Files.ReadFile(path.Join("systemd", name))
		if err != nil {
			return err
		}
		w.file(path.Join(dir, name), text, "the pod-resources socket's file exists from boot on", state.UnitsReload, state.SocketStart)
	}
	return nil
}

package check

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
)

// sockets returns the sockets that no tenant's container may have, neither directly nor by a mount of a directory above.
func sockets(n *facts.Node) []string {
	all := append(runtimes.Sockets(n), "/run/docker.sock", ourSocket, strings.TrimPrefix(v1alpha1.DefaultFabricAddress, "unix:"))
	if nri := runtimes.Of(n).NRI; nri != nil {
		all = append(all, nri.SocketPath())
	}
	if socket, _ := fabricSetting(n.FabricConfig(), "FM_CMD_UNIX_SOCKET_PATH"); socket != "" {
		all = append(all, socket)
	}
	return all
}

// socketDirs returns the directories whose sockets no tenant's container may have: those of the kubelet and its plugins, which choose
// the names of their sockets.
func socketDirs(n *facts.Node) []string {
	dirs := runtimes.SocketDirs(facts.KubeletDir)
	if k, ok := runtimes.FindKubelet(n); ok && k.Root != "" && k.Root != facts.KubeletDir {
		dirs = append(dirs, runtimes.SocketDirs(k.Root)...)
	}
	return dirs
}

// tenantMounts checks the containers in namespaces that have devices.
func tenantMounts(n *facts.Node) Answer {
	if len(n.Tenancies) == 0 {
		return notApplicable("no tenant has a device")
	}
	containers, listed := tenantContainers(n)
	sockets, dirs := sockets(n), socketDirs(n)
	found := over(containers, func(c runtimes.Container) Answer {
		return over(c.Info.Mounts, func(source string) Answer {
			how := givesSocket(n, source, sockets, dirs)
			if how == "" {
				return nil
			}
			return inContainer(n, &c, source, fmt.Sprintf("a container of pod %s/%s has the host's %q, which %s", c.Info.Namespace, c.Info.Pod, source, how))
		})
	})
	passed := pass(count(len(containers), "container") + " of tenants")
	return showing(found.or(hiddenBundles(listed, "which host paths tenants' containers have")).or(passed), containers, func(c runtimes.Container) []facts.Fact {
		return []facts.Fact{{Path: c.Bundle, Value: strings.Join(c.Info.Mounts, " "), How: "read"}}
	})
}

// givesSocket says how a mount of the node gives a container one of the sockets, or anything of the directories; empty if it does not.
func givesSocket(n *facts.Node, source string, sockets, dirs []string) string {
	// Both sides are resolved: /var/run is usually a link to /run, and a mount of either shows the socket.
	source = n.Real(source)
	for _, name := range slices.Concat(sockets, dirs) {
		// The real path of the root is empty. The root contains every socket.
		if strings.HasPrefix(n.Real(name)+"/", source+"/") || source == "" {
			return "contains " + name
		}
	}
	for _, dir := range dirs {
		if below, ok := strings.CutPrefix(source, n.Real(dir)+"/"); ok && !isMetadata(below) {
			return "is in " + dir
		}
	}
	return ""
}

// isMetadata reports whether a path in the plugin's directory is the metadata of one claim's request, which the kubelet gives to the
// claim's containers (kubeletplugin, metadata.go).
func isMetadata(below string) bool {
	match, _ := path.Match("dra-device-metadata/*/*/metadata.json", below) // the pattern is valid
	return match
}

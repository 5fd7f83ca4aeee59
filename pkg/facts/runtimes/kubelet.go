package runtimes

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// podResources is where the kubelet has its pod-resources socket, below its directory.
const podResources = "pod-resources"

// SocketDirs returns the directories below a kubelet's directory in which it, its plugins and kata-vfio have sockets: for
// pod-resources, the registration of DRA drivers, device plugins, and the calls of kata-vfio's own driver.
func SocketDirs(root string) []string {
	return []string{
		path.Join(root, podResources), path.Join(root, "plugins_registry"), path.Join(root, "device-plugins"), path.Join(root, "plugins", v1alpha1.DriverName),
	}
}

// Kubelet says who can use the kubelet's API.
type Kubelet struct {
	// Runs is set if the kubelet's process was found. Otherwise, its flags are unknown, and files at the usual paths count.
	Runs bool
	// Root is the kubelet's directory; empty if it is unknown.
	Root string
	// ReadOnlyPort is the port that needs no authentication; 0 for none.
	ReadOnlyPort int
	// Anonymous is set if requests without credentials are not refused at once.
	Anonymous bool
	// AlwaysAllow is set if every authenticated user may do everything.
	AlwaysAllow bool
	// Seen are the files and the command line with these settings. Damaged are the files or processes that make the settings uncertain.
	Seen    []facts.Fact
	Damaged []facts.Fact
}

// FindKubelet returns the node's kubelet; false if none is visible. Its command line overrides its file. The defaults of flags and
// of files differ: a kubelet with a file has the defaults of files (kubelet.config.k8s.io/v1beta1: no read-only port, no anonymous
// requests, authorization by Webhook). For a kubelet that runs without a file, files at the usual paths are ignored.
func FindKubelet(n *facts.Node) (Kubelet, bool) {
	running, doubtful := daemons(n, "kubelet")
	var k Kubelet
	switch {
	case len(running) > 0:
		k.readRunning(n, running[0])
		for _, p := range running[1:] {
			if !slices.Equal(p.args, running[0].args) {
				f := p.cmdline
				f.Status, f.Err = facts.Broken, fmt.Sprintf("another kubelet runs with other flags, as process %d: it is unknown which one is the node's", running[0].pid)
				k.Damaged = append(k.Damaged, f)
			}
		}
	case len(doubtful) > 0:
		k.Damaged = doubts(doubtful)
	default:
		loaded := facts.LoadKubelet(onNode{n}, nil, facts.KubeletConfig, noFile)
		if loaded.Files[0].Status == facts.Absent {
			return k, false
		}
		k.take(loaded, false)
	}
	return k, true
}

// PodResourcesDir returns the directory of the kubelet's pod-resources socket.
func (k *Kubelet) PodResourcesDir() string {
	return path.Join(cmp.Or(k.Root, facts.KubeletDir), podResources)
}

// readRunning reads the files and flags of a kubelet that runs.
func (k *Kubelet) readRunning(n *facts.Node, p process) {
	loaded := facts.LoadKubelet(onNode{n}, p.args, "", noFile)
	k.Runs = true
	named, _ := p.option("--config")
	// If the file exists now, it is assumed that it existed when the kubelet started. Its content at that time is unknown.
	hasFile := named != "" && loaded.Files[0].Status != facts.Absent
	k.take(loaded, !hasFile)
	k.Seen = append(k.Seen, p.cmdline)
}

// noFile says that a process' flags are in no file.
func noFile(string) string { return "" }

// take adds the settings of the configuration. open is set for a kubelet without a file, whose defaults leave access open.
func (k *Kubelet) take(loaded *facts.Kubelet, open bool) {
	k.Root = loaded.Root
	k.Seen = append(k.Seen, loaded.Files...)
	k.Damaged = append(k.Damaged, loaded.Damaged...)
	set := &loaded.Settings
	if open {
		k.ReadOnlyPort, k.Anonymous, k.AlwaysAllow = facts.ReadOnlyPort, true, set.Authorization.Mode == ""
	}
	if set.ReadOnlyPort != nil {
		k.ReadOnlyPort = *set.ReadOnlyPort
	}
	if on := set.Authentication.Anonymous.Enabled; on != nil {
		k.Anonymous = *on
	}
	k.AlwaysAllow = k.AlwaysAllow || set.Authorization.Mode == "AlwaysAllow"
}

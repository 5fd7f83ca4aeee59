package runtimes

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// PodResourcesDir is the directory of the kubelet's pod-resources socket. KubeletPlugins is the directory in which the kubelet
// looks for plugins.
const (
	PodResourcesDir = facts.KubeletDir + "/pod-resources"
	KubeletPlugins  = facts.KubeletDir + "/plugins_registry"
)

// Kubelet says who can use the kubelet's API.
type Kubelet struct {
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

// readRunning reads the files and flags of a kubelet that runs.
func (k *Kubelet) readRunning(n *facts.Node, p process) {
	loaded := facts.LoadKubelet(onNode{n}, p.args, "", noFile)
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

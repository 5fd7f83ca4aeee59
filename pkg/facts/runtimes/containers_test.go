package runtimes_test

import (
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
)

// TestContainersOfEachDistributionAreSeen takes the directories of state with which the distributions start containerd.
func TestContainersOfEachDistributionAreSeen(t *testing.T) {
	const bundle = "/io.containerd.runtime.v2.task/k8s.io/c1/config.json"
	for about, c := range map[string]struct {
		state string
		files files
	}{
		"containerd":            {state: "run/containerd"},
		"K3s":                   {state: "run/k3s/containerd"},
		"k0s":                   {state: "run/k0s/containerd"},
		"k0s with --run-dir":    {state: "srv/run/containerd", files: files{"etc/systemd/system/k0sworker.service": "[Service]\nExecStart=/usr/local/bin/k0s worker --run-dir=/srv/run\n"}},
		"MicroK8s":              {state: "var/snap/microk8s/common/run/containerd"},
		"another one's is none": {state: "run/docker/containerd"},
	} {
		of := files{c.state + bundle: `{"annotations": {"io.kubernetes.cri.sandbox-namespace": "team-a"}}`}.and(c.files)
		found, _ := runtimes.Containers(node(t, of))
		seen := slices.ContainsFunc(found, func(c runtimes.Container) bool { return c.Namespace == "team-a" })
		if want := c.state != "run/docker/containerd"; seen != want {
			t.Errorf("%s: the container in %s is seen: got %t, want %t", about, c.state, seen, want)
		}
	}
}

// TestSocketsOfEachRuntimeAreKnown keeps them from tenants, whichever of the runtimes the node has.
func TestSocketsOfEachRuntimeAreKnown(t *testing.T) {
	got := runtimes.Sockets(node(t, nil))
	for _, want := range []string{
		"/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock", "/run/k0s/containerd.sock",
		"/var/snap/microk8s/common/run/containerd.sock", "/run/crio/crio.sock",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing from %v", want, got)
		}
	}
}

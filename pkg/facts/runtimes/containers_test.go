package runtimes_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/archive"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/test/tree"
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
		"k0s":                   {state: "run/k0s/containerd", files: files{"etc/k0s/containerd.toml": "# k0s_managed=true\n"}},
		"k0s with --run-dir":    {state: "srv/run/containerd", files: files{"etc/k0s/containerd.toml": "", "etc/systemd/system/k0sworker.service": "[Service]\nExecStart=/usr/local/bin/k0s worker --run-dir=/srv/run\n"}},
		"MicroK8s":              {state: "var/snap/microk8s/common/run/containerd", files: files{"var/snap/microk8s/current/args/containerd.toml": "version = 3\n"}},
		"another one's is none": {state: "run/docker/containerd"},
	} {
		of := files{c.state + bundle: `{"annotations": {"io.kubernetes.cri.sandbox-namespace": "team-a"}}`}.and(c.files)
		found, _ := runtimes.Containers(node(t, of))
		seen := slices.ContainsFunc(found, func(c runtimes.Container) bool { return c.Info.Namespace == "team-a" })
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

// earlier is a copy that was made before bundles of k0s and MicroK8s were read: of their directories it does not say
// whether the node has them.
type earlier struct{ node *sysfs.FS }

func (earlier) lacks(name string) bool {
	return strings.HasPrefix(name, "run/k0s") || strings.HasPrefix(name, "var/snap")
}

func (e earlier) Answer(_ sysfs.Op, name string) error {
	if e.lacks(name) {
		return archive.ErrNotCollected
	}
	return nil
}

func (e earlier) Names(name string) ([]string, error) {
	if e.lacks(name) {
		return nil, archive.ErrNotCollected
	}
	return e.node.ReadDir(name)
}

// TestContainersOfEarlierCopiesAreKnown: what an archive of an earlier release said of containers it says still.
func TestContainersOfEarlierCopiesAreKnown(t *testing.T) {
	fsys := tree.Open(t, files{"run/containerd/io.containerd.runtime.v2.task/k8s.io/c1/config.json": `{"annotations": {"io.kubernetes.cri.sandbox-namespace": "team-a"}}`})
	found, listed := runtimes.Containers(facts.New(fsys.WithCopy(earlier{fsys}), &device.Snapshot{}))
	if len(found) != 1 {
		t.Errorf("got %+v, want the container", found)
	}
	for _, f := range listed {
		if !f.Known() {
			t.Errorf("%s is unknown: %s", f.Path, f.Err)
		}
	}
}

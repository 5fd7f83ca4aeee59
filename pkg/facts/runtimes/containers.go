package runtimes

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// Container is a container of the node, by its bundle or by the answer of a running containerd.
type Container struct {
	Info facts.Container
	// Bundle is the path of the bundle's config.json. If only containerd knows the container, it is "containerd: NAMESPACE/ID".
	Bundle string
}

// bundleDirs returns the directories of bundles of containerd, and of the containerds in Kubernetes distributions.
func bundleDirs(n *facts.Node) []string {
	var dirs []string
	for _, state := range facts.ContainerdStates(onNode{n}) {
		dirs = append(dirs, path.Join(strings.TrimPrefix(state, "/"), "io.containerd.runtime.v2.task/k8s.io"))
	}
	return dirs
}

// maxBundles limits how many bundles are read in a directory. The kubelet's own limit is some hundred pods.
const maxBundles = 4096

// Containers returns the containers of the node's pods, and facts about the sources: the directories, each bundle that could not be
// read, and the running containerd. Bundles contain the environment of containers, which can have secrets. So only the fields of
// [facts.Container] are read, and the text is not kept.
func Containers(n *facts.Node) ([]Container, []facts.Fact) {
	containers, listed := bundles(n)
	running, asked := Running(n)
	if running == nil {
		return containers, listed
	}
	for i := range running.Containers {
		c := &running.Containers[i]
		at := slices.IndexFunc(containers, func(b Container) bool { return b.Info.ID == c.ID })
		switch {
		case at >= 0:
			initData := containers[at].Info.InitData // a copy of the node has no init data
			containers[at].Info = *c
			containers[at].Info.InitData = initData
		case c.Namespace != "":
			containers = append(containers, Container{Info: *c, Bundle: fmt.Sprintf("containerd: %s/%s", c.Space, c.ID)})
		}
	}
	return containers, append(listed, asked)
}

// bundles returns the containers of pods that have a bundle.
func bundles(n *facts.Node) ([]Container, []facts.Fact) {
	var containers []Container
	var listed []facts.Fact
	for _, dir := range bundleDirs(n) {
		ids, list := n.List(dir)
		listed = append(listed, list)
		for _, id := range ids[:min(len(ids), maxBundles)] {
			file := path.Join(dir, id, "config.json")
			c, err := container(n, file)
			switch {
			case errors.Is(err, fs.ErrNotExist): // the container ended after it was listed
			case err != nil:
				listed = append(listed, facts.Fact{Path: "/" + file, How: "read", Status: facts.Broken, Err: err.Error()})
			case c.Info.Namespace != "":
				c.Info.ID = id
				containers = append(containers, c)
			}
		}
	}
	return containers, listed
}

// container reads one bundle. A container that does not belong to a pod has no namespace.
func container(n *facts.Node, file string) (Container, error) {
	text, err := n.FS().ReadAtMost(file, facts.MaxTableSize)
	if err != nil {
		return Container{}, err
	}
	c, err := facts.DescribeContainer(text)
	if err != nil {
		return Container{}, fmt.Errorf("read %s: %w", file, err)
	}
	return Container{Info: c, Bundle: "/" + file}, nil
}

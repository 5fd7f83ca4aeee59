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

// Container is a container of the node, by its bundle or by what a running containerd says.
type Container struct {
	Info facts.Container
	// Bundle is the path of the file that says so; where only containerd says so, what it was asked.
	Bundle string
}

// bundleDirs are where containerd and its copies in distributions keep bundles.
func bundleDirs(n *facts.Node) []string {
	var dirs []string
	for _, state := range facts.ContainerdStates(onNode{n}) {
		dirs = append(dirs, path.Join(strings.TrimPrefix(state, "/"), "io.containerd.runtime.v2.task/k8s.io"))
	}
	return dirs
}

// maxBundles bounds how many bundles are read; the kubelet's own limit is some
// hundred pods.
const maxBundles = 4096

// Containers returns the containers of the node's pods, and what was asked for them: the directories, each bundle that could
// not be read, and a running containerd. Bundles hold the environment of containers, secrets included: they are read for
// what is here alone, and kept nowhere.
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
			initData := containers[at].Info.InitData // a copy of the node holds none
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
			case errors.Is(err, fs.ErrNotExist): // it ended since it was listed
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

// container reads one bundle. One that is not a pod's has no namespace.
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

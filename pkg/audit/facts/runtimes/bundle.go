package runtimes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes/config"
)

// Container is one that containerd runs, by its bundle.
type Container struct {
	ID        string
	Namespace string
	Pod       string
	// Mounts are the files and directories of the node that it has.
	Mounts []string
	// Devices are the device nodes that it has, by their paths in it, which are those on
	// the node unless somebody chose others.
	Devices []string
	// Bundle is the path of the file that says so.
	Bundle string

	initData string
}

// bundleDirs are where containerd and its copies in distributions keep bundles.
func bundleDirs() []string {
	const tasks = "io.containerd.runtime.v2.task/k8s.io"
	return []string{path.Join("run/containerd", tasks), path.Join("run/k3s/containerd", tasks)}
}

// maxBundles bounds how many bundles are read; the kubelet's own limit is some
// hundred pods.
const maxBundles = 4096

// Containers returns the containers of the node, and what was asked for them: the
// directories, and each bundle that was not to be had. Bundles hold the environment of containers, secrets included:
// they are read for what is here alone, and kept nowhere.
func Containers(n *facts.Node) ([]Container, []facts.Fact) {
	var containers []Container
	var listed []facts.Fact
	for _, dir := range bundleDirs() {
		ids, list := n.List(dir)
		listed = append(listed, list)
		for _, id := range ids[:min(len(ids), maxBundles)] {
			file := path.Join(dir, id, "config.json")
			c, err := container(n, file)
			switch {
			case errors.Is(err, fs.ErrNotExist): // it ended since it was listed
			case err != nil:
				listed = append(listed, facts.Fact{Path: "/" + file, How: "read", Status: facts.Broken, Err: err.Error()})
			case c.Namespace != "":
				c.ID = id
				containers = append(containers, c)
			}
		}
	}
	return containers, listed
}

// container reads one bundle. One that is no pod's has no namespace.
func container(n *facts.Node, file string) (Container, error) {
	text, err := n.FS().ReadAtMost(file, config.MaxSize)
	if err != nil {
		return Container{}, err
	}
	var spec struct {
		Annotations map[string]string `json:"annotations"`
		Mounts      []struct {
			Source string `json:"source"`
		} `json:"mounts"`
		Linux struct {
			Devices []struct {
				Path string `json:"path"`
			} `json:"devices"`
		} `json:"linux"`
	}
	if err := json.Unmarshal(text, &spec); err != nil {
		return Container{}, fmt.Errorf("parse %s: %w", file, err)
	}
	c := Container{
		Bundle:    "/" + file,
		Namespace: spec.Annotations["io.kubernetes.cri.sandbox-namespace"],
		Pod:       spec.Annotations["io.kubernetes.cri.sandbox-name"],
		initData:  spec.Annotations[initDataAnnotation],
	}
	for _, d := range spec.Linux.Devices {
		c.Devices = append(c.Devices, path.Clean(d.Path))
	}
	for _, m := range spec.Mounts {
		if path.IsAbs(m.Source) {
			c.Mounts = append(c.Mounts, path.Clean(m.Source))
		}
	}
	return c, nil
}

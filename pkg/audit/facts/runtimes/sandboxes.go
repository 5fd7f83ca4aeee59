package runtimes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/katastate"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes/config"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Sandbox is one of Kata's sandboxes: by its state, its VMM and its bundle.
type Sandbox struct {
	// Sandbox has the VMM's PID and the guest paths of devices also where the VMM's
	// command line alone tells them.
	katastate.Sandbox
	// Namespace and Pod are those of its bundle; empty where there is none.
	Namespace, Pod string
	// VMM is its process; nil where none is seen.
	VMM *VMM
}

// Sandboxes returns Kata's sandboxes of the node, by id, and what was asked for
// their states ([katastate.Read]). One whose VMM runs without a state is among them. It
// is worked out once.
func Sandboxes(n *facts.Node) ([]Sandbox, []facts.Fact) {
	type key struct{}
	type answer struct {
		found []Sandbox
		asked []facts.Fact
	}
	a := facts.Memo(n, key{}, func() answer {
		found, asked := readSandboxes(n)
		return answer{found, asked}
	})
	return a.found, a.asked
}

func readSandboxes(n *facts.Node) ([]Sandbox, []facts.Fact) {
	states, asked := katastate.Read(n)
	var found []Sandbox
	for _, s := range states {
		found = append(found, Sandbox{Sandbox: s})
	}
	vmms := VMMs(n)
	for i := range vmms {
		if v := &vmms[i]; v.Sandbox != "" {
			found = withVMM(found, v)
		}
	}
	containers, _ := Containers(n)
	for _, c := range containers {
		if i := slices.IndexFunc(found, func(s Sandbox) bool { return s.ID == c.ID }); i >= 0 {
			found[i].Namespace, found[i].Pod = c.Namespace, c.Pod
		}
	}
	slices.SortStableFunc(found, func(a, b Sandbox) int { return strings.Compare(a.ID, b.ID) })
	return found, asked
}

// withVMM adds a VMM to the sandbox that its name says.
func withVMM(found []Sandbox, v *VMM) []Sandbox {
	i := slices.IndexFunc(found, func(s Sandbox) bool { return s.ID == v.Sandbox })
	if i < 0 {
		i, found = len(found), append(found, Sandbox{Sandbox: katastate.Sandbox{ID: v.Sandbox}})
	}
	found[i].take(v)
	return found
}

// take adds the content of the VMM's command line. The state's PID is kept, so that the two can be compared.
func (s *Sandbox) take(v *VMM) {
	s.VMM = v
	if s.PID == 0 {
		s.PID = v.PID
	}
	for _, p := range v.Passed() {
		a, err := pci.ParseAddress(p.Address)
		if err != nil {
			continue
		}
		i := slices.IndexFunc(s.Devices, func(d katastate.Device) bool { return d.Address == a })
		if i < 0 {
			i, s.Devices = len(s.Devices), append(s.Devices, katastate.Device{Address: a})
		}
		s.Devices[i].ColdPlugged = true
		if s.Devices[i].Bus == "" {
			s.Devices[i].Bus = p.Bus
		}
	}
	for i := range s.Devices {
		if s.Devices[i].GuestPath == "" {
			s.Devices[i].GuestPath = v.GuestPath(s.Devices[i].Bus)
		}
	}
}

// Container is one that containerd runs, by its bundle.
type Container struct {
	ID        string
	Namespace string
	Pod       string
	// Mounts are the files and directories of the node that it has.
	Mounts []string
	// Devices are the device nodes of the container, by their paths in it, which usually are those on the node.
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

// container reads one bundle. A bundle outside of a pod has no namespace.
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

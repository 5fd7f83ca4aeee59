package facts

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kata-vfio/kata-vfio/pkg/cdi"
)

// Spec is one CDI spec: a file that says what the CDI devices of a vendor add to containers.
type Spec struct {
	// File is the file. It is Broken if it is not a CDI spec.
	File Fact
	// Content is empty if File is not OK.
	Content cdispecs.Spec
	// Claim is the UID of the claim whose spec the plugin would write to a file of
	// this name; empty for a file of another name.
	Claim string
}

// Given is a VFIO node that a spec gives to a container, as a device or by a mount.
type Given struct {
	// Device is the unqualified name of the CDI device. It is empty for edits that apply to all devices of the spec.
	Device string
	// Path is the VFIO node, by the node's own name for it: "/dev/vfio/15",
	// "/dev/iommu".
	Path string
	// Mount is set if a mount gives the node, and not a device with its number.
	Mount bool
}

// IsControl reports whether the node gives no access to a function by itself.
func (g *Given) IsControl() bool { return g.Path == "/dev/vfio/vfio" || g.Path == "/dev/iommu" }

// SpecsIn returns the CDI specs in CDI's default directories and in the given directories, which the runtimes' files configure, and
// a fact for each directory. Callers use Specs of package runtimes, which knows the configured directories.
func (n *Node) SpecsIn(configured []string) (specs []Spec, dirs []Fact) {
	for _, dir := range n.specDirs(configured) {
		names, list := n.List(dir)
		dirs = append(dirs, list)
		for _, name := range names {
			ext := path.Ext(name)
			if strings.HasPrefix(name, ".") || ext != ".json" && ext != ".yaml" {
				continue // runtimes ignore such files too (CDI's pkg/cdi/spec-dirs.go)
			}
			if file := n.Read(path.Join(dir, name)); file.Status != Absent {
				specs = append(specs, parseSpec(file))
			}
		}
	}
	return specs, dirs
}

// specDirs returns CDI's default directories and the configured ones, without duplicates. /var/run usually is a link to
// /run.
func (n *Node) specDirs(configured []string) []string {
	dirs := []string{strings.TrimPrefix(cdi.StaticDir, "/"), cdi.DefaultDir}
	for _, dir := range append([]string{cdi.DynamicDir}, configured...) {
		// A relative directory is below the runtime's working directory, which no file of the node shows.
		if !path.IsAbs(dir) {
			continue
		}
		dir = strings.TrimPrefix(path.Clean(dir), "/")
		if _, err := n.fs.ReadLink("var/run"); err == nil {
			if rest, ok := strings.CutPrefix(dir, "var/run/"); ok {
				dir = "run/" + rest
			}
		}
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// parseSpec reads a spec, in YAML or in JSON, which is YAML too.
func parseSpec(file Fact) Spec {
	s := Spec{File: file}
	s.Claim, _ = cdi.ParseFileName(path.Base(file.Path))
	if !file.OK() {
		return s
	}
	data := []byte(file.Value)
	if json.Unmarshal(data, &s.Content) == nil {
		return s // the plugin writes JSON, and this decoder is much faster
	}
	// The failed attempt may have left fields of a YAML file that begins like JSON.
	s.Content = cdispecs.Spec{}
	if err := yaml.Unmarshal(data, &s.Content); err != nil {
		s.File.Status, s.File.Err = Broken, err.Error()
		s.Content = cdispecs.Spec{}
	}
	return s
}

// Edits returns the spec's changes of containers, by the name of the device that causes them. The name "" stands for all devices.
func (s *Spec) Edits() map[string]*cdispecs.ContainerEdits {
	edits := map[string]*cdispecs.ContainerEdits{"": &s.Content.ContainerEdits}
	for i := range s.Content.Devices {
		d := &s.Content.Devices[i]
		edits[d.Name] = &d.ContainerEdits
	}
	return edits
}

// Gives returns the VFIO nodes that the spec gives, by device and path.
func (n *Node) Gives(s *Spec) []Given {
	var given []Given
	for device, edits := range s.Edits() {
		for _, d := range edits.DeviceNodes {
			if d == nil {
				continue
			}
			if p := n.vfioPath(d); p != "" {
				given = append(given, Given{Device: device, Path: p})
			}
		}
		for _, m := range edits.Mounts {
			if m != nil && bringsVFIO(m.HostPath) {
				given = append(given, Given{Device: device, Path: path.Clean(m.HostPath), Mount: true})
			}
		}
	}
	slices.SortFunc(given, func(a, b Given) int {
		return strings.Compare(a.Device+"\x00"+a.Path, b.Device+"\x00"+b.Path)
	})
	return given
}

// vfioPath returns the VFIO node that a device node of a spec stands for, or "". The device number decides, then the path on the
// host. Kata reads the path in the container, and resolves it by the device number too.
func (n *Node) vfioPath(d *cdispecs.DeviceNode) string {
	// A spec may leave out type and number. The runtime then takes type and number of the file at the host's path (fillInfo in CDI's
	// pkg/cdi/container-edits_unix.go). The loop below handles this case.
	if d.Type != "b" && d.Major != 0 {
		if node, ok := n.nodeNumbers()[fmt.Sprintf("%d:%d", d.Major, d.Minor)]; ok {
			return node
		}
	}
	for _, p := range []string{d.HostPath, d.Path} {
		if p = path.Clean(p); strings.HasPrefix(p, "/dev/vfio/") || p == "/dev/iommu" {
			return p
		}
	}
	return ""
}

// bringsVFIO reports whether a mount of the path has VFIO's nodes in it.
func bringsVFIO(p string) bool {
	p = path.Clean(p)
	return p == "/dev" || p == "/dev/iommu" || p == "/dev/vfio" || strings.HasPrefix(p, "/dev/vfio/")
}

// readNumbers returns VFIO's nodes by their numbers, as the kernel states them.
func (n *Node) readNumbers() map[string]string {
	numbers := map[string]string{}
	add := func(attribute, node string) {
		if f := n.Read(attribute); f.OK() {
			numbers[f.Value] = node
		}
	}
	for _, class := range [][2]string{{"sys/class/vfio", "/dev/vfio/"}, {"sys/class/vfio-dev", "/dev/vfio/devices/"}} {
		names, _ := n.List(class[0])
		for _, name := range names {
			add(path.Join(class[0], name, "dev"), class[1]+name)
		}
	}
	add("sys/class/misc/vfio/dev", "/dev/vfio/vfio")
	add("sys/class/misc/iommu/dev", "/dev/iommu")
	return numbers
}

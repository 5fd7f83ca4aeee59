package runtimes

import (
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// Kata is Kata's configuration for one handler: a base file, overridden by drop-ins.
type Kata struct {
	// File is the base. If it could not be read or parsed, Damaged says so, and no setting is known.
	File    string
	Damaged []facts.Fact
	// Files are the base and the drop-ins that were read.
	Files []facts.Fact

	all        facts.Table
	hypervisor facts.Table
	vmm        string
}

// LoadKata returns the configuration that the handler's shim loads. It loads each configuration once.
func LoadKata(n *facts.Node, h *Handler) *Kata {
	type key struct{ file string }
	file := configFile(n, h)
	return facts.Memo(n, key{file}, func() *Kata { return loadKata(n, file) })
}

// configFile returns the base file: the one that the handler names, or the shim's default.
func configFile(n *facts.Node, h *Handler) string {
	if file := h.Config.Text(); file != "" {
		return path.Clean("/" + file)
	}
	return facts.DefaultKata(onNode{n}, h.IsRust())
}

func loadKata(n *facts.Node, file string) *Kata {
	loaded := facts.LoadKata(onNode{n}, file)
	k := &Kata{File: file, Files: loaded.Files, Damaged: loaded.Damaged, all: loaded.All}
	k.choose()
	return k
}

// choose finds the hypervisor's section: the one that the Rust runtime's
// hypervisor_name names, or the only one.
func (k *Kata) choose() {
	sections := k.all.Sub("hypervisor")
	names := sections.Names()
	name := k.Runtime("hypervisor_name").Text()
	switch {
	case slices.Contains(names, name):
	case len(names) == 1:
		name = names[0]
	case len(k.Damaged) == 0:
		k.Damaged = append(k.Damaged, facts.Fact{
			Path: k.File, How: "config", Status: facts.Broken, Err: "it does not have one section [hypervisor.NAME]",
		})
	}
	k.hypervisor, k.vmm = sections.Sub(name), name
}

// OK reports whether all files were parsed. Otherwise, the real value of a setting may differ from what the methods below return.
func (k *Kata) OK() bool { return len(k.Damaged) == 0 }

// Hypervisor returns a setting of the hypervisor's section.
func (k *Kata) Hypervisor(name string) Setting { return k.hypervisor.Setting(k.File, name) }

// Runtime returns a setting of the section [runtime].
func (k *Kata) Runtime(name string) Setting { return k.all.Sub("runtime").Setting(k.File, name) }

// Factory returns a setting of VM templates and caches. The Go runtime has a section [factory], and the Rust runtime has it within
// the hypervisor's section.
func (k *Kata) Factory(name string) Setting {
	if s := k.all.Sub("factory").Setting(k.File, name); s.IsSet() {
		return s
	}
	return k.hypervisor.Sub("factory").Setting(k.File, name)
}

// Agent returns a setting of the agent's section. Usually there is one section. With several, it returns the setting of the first
// section that sets it to true.
func (k *Kata) Agent(name string) Setting {
	agents := k.all.Sub("agent")
	found := Setting{Name: name, File: k.File}
	for _, agent := range agents.Names() {
		s := agents.Sub(agent).Setting(k.File, name)
		if s.On() || !found.IsSet() {
			found = s
		}
		if s.On() {
			break
		}
	}
	return found
}

// NoPort is the value of cold_plug_vfio or hot_plug_vfio that disables the plugging. It is the default of both.
const NoPort = "no-port"

// Allowed returns the names of the handlers whose pods get devices from the plugin: those in the node's file of the plugin's
// configuration, or the default handler if there is no valid file.
func Allowed(n *facts.Node) []string {
	if file := read(n, "/"+facts.NodeConfigFile); file.OK() {
		if c, err := v1alpha1.DecodeNodeConfig([]byte(file.Value)); err == nil {
			c.Default()
			return c.AllowedHandlers
		}
	}
	return []string{v1alpha1.DefaultHandler}
}

// TakesDevices reports whether VMs of the handler can get functions: the plugin allows the handler, or the handler's configuration
// of Kata enables cold-plugging or hot-plugging.
func TakesDevices(n *facts.Node, h *Handler, k *Kata) bool {
	return slices.Contains(Allowed(n), h.Name) || k.ColdPlugs() || k.HotPlugs()
}

// ColdPlugs reports whether Kata can give devices to a VM at its boot.
func (k *Kata) ColdPlugs() bool { return plugs(k.Hypervisor("cold_plug_vfio")) }

// HotPlugs reports whether Kata can give devices to a running VM.
func (k *Kata) HotPlugs() bool { return plugs(k.Hypervisor("hot_plug_vfio")) }

func plugs(s Setting) bool { return s.Text() != "" && s.Text() != NoPort }

// VMM returns the hypervisor's name: "qemu".
func (k *Kata) VMM() string { return k.vmm }

// maxInitData limits the size of unpacked init data, which contain only policies and configuration.
const maxInitData = 4 << 20

// AgentPolicy reports whether a sandbox was started with init data that contain a policy for the guest's agent. The fact names the
// sandbox's bundle. It is not OK if the bundle is unavailable.
func AgentPolicy(n *facts.Node, sandbox string) (has bool, seen facts.Fact) {
	dirs := bundleDirs(n)
	for _, dir := range dirs {
		file := path.Join(dir, sandbox, "config.json")
		if !n.Exists(file).OK() {
			continue
		}
		seen = facts.Fact{Path: "/" + file, How: "read"}
		c, err := container(n, file)
		if err == nil && c.Info.InitData == "" {
			seen.Value = "no init data"
			return false, seen
		}
		if err == nil {
			has, err = holdsPolicy(c.Info.InitData)
		}
		if err != nil {
			seen.Status, seen.Err = facts.Broken, err.Error()
			return false, seen
		}
		seen.Value = "init data without policy.rego"
		if has {
			seen.Value = "init data with policy.rego"
		}
		return has, seen
	}
	return false, facts.Fact{Path: "/" + path.Join(dirs[0], sandbox), How: "read", Status: facts.Absent}
}

// holdsPolicy unpacks init data and reports whether they contain a policy.
func holdsPolicy(data string) (bool, error) {
	zipped, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(data)))
	if err != nil {
		return false, fmt.Errorf("unpack init data: %w", err)
	}
	// A tenant wrote it: a few bytes of gzip can unpack to gigabytes.
	text, err := io.ReadAll(io.LimitReader(zipped, maxInitData+1))
	switch {
	case err != nil:
		return false, fmt.Errorf("unpack init data: %w", err)
	case len(text) > maxInitData:
		return false, errors.New("unpack init data: they are too long")
	}
	// The agent looks for the policy by this key (POLICY_KEY in Kata's src/agent/src/initdata.rs).
	return strings.Contains(string(text), "policy.rego"), nil
}

package facts

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// The configuration, its usual directory of drop-ins and the service of a containerd that no Kubernetes distribution
// starts.
const (
	ContainerdConfig  = "/etc/containerd/config.toml"
	ContainerdDropIns = "/etc/containerd/conf.d"
	ContainerdService = "containerd.service"
)

// The directory of containerd's state and the socket that it serves, by default (containerd defaults
// DefaultStateDir and DefaultAddress).
const (
	containerdState  = "/run/containerd"
	containerdSocket = containerdState + "/containerd.sock"
	// rancherState is the directory of containerd's state in K3s and RKE2.
	rancherState = "/run/k3s/containerd"
)

// Tree reads files and directories. Paths are as on the node.
type Tree interface {
	FileReader
	dirReader
}

// ContainerdPlace is the place of the configuration of a node's containerd.
type ContainerdPlace struct {
	// Main is the file that containerd is started with. It need not exist.
	Main string
	// Program is the containerd that is started; empty if no file names it.
	Program string
	// Distribution starts containerd, or is nil.
	Distribution *Distribution
	// Unit is containerd's service, or nil if the node has none or a distribution starts containerd.
	Unit *Unit
}

// FindContainerd returns the place of the containerd that serves the kubelet after the next start: that of the node's Kubernetes
// distribution, of containerd's service, or containerd's default. Other files, such as those of a Docker package beside a
// distribution, don't count. FindContainerd ignores the service's drop-ins that without lists.
func FindContainerd(node Tree, without ...string) ContainerdPlace {
	if d := FindDistribution(node); d != nil {
		return ContainerdPlace{Main: d.Config, Program: d.Program, Distribution: d}
	}
	at := ContainerdPlace{Main: ContainerdConfig}
	u, ok := LoadUnit(node, ContainerdService, without...)
	if !ok {
		return at
	}
	at.Unit = u
	args := u.Args()
	if i := slices.IndexFunc(args, func(arg string) bool { return path.IsAbs(arg) && path.Base(arg) == "containerd" }); i >= 0 {
		at.Program = args[i] // not always the first word: the service may start containerd by env
	}
	if name, ok := Option(args, "--config", "-c"); ok && path.IsAbs(name) {
		at.Main = path.Clean(name)
	}
	return at
}

// Distribution is a Kubernetes distribution that starts containerd with a configuration of its own.
type Distribution struct {
	Name string
	// Config is the configuration file of its containerd, and Program is the path of that containerd.
	Config, Program string
	// State is the directory of its containerd's state, and Socket is the socket on which it serves.
	State, Socket string
	// Units are its services that may start containerd.
	Units []string
	// Alone is set if the service runs only containerd. A restart of any other distribution's service restarts the kubelet, too.
	Alone bool
	// DropIns is the directory that Config imports in releases from Since on. Merges is set if the distribution itself merges the
	// drop-ins into other files that Config imports, so that Config does not name the directory.
	DropIns, Since string
	Merges         bool
	// Templates are the files from which it writes Config at each start: it uses the first that exists, or else its built-in template.
	Templates []string
	// marker is the first line of a Config that the distribution writes at each start; empty if it always writes Config.
	marker string
	// merged is the file into which it merges the drop-ins.
	merged string
}

// Names of distributions.
const (
	nameK3s      = "K3s"
	nameRKE2     = "RKE2"
	nameK0s      = "k0s"
	nameMicroK8s = "MicroK8s"
)

// Default directories of k0s, which flags of its service can change, and the directories of MicroK8s' snap.
const (
	k0sDataDir     = "/var/lib/k0s"
	k0sRunDir      = "/run/k0s"
	microK8sSnap   = "/snap/microk8s/current"
	microK8sData   = "/var/snap/microk8s/current"
	microK8sCommon = "/var/snap/microk8s/common"
	microK8sArgs   = microK8sData + "/args/"
)

// Distributions returns the known distributions with the directories that their configuration on the node sets, in the
// order in which a node is searched for them. Sources: k3s pkg/agent/templates and docs.k3s.io/advanced, RKE2's
// documentation "Advanced", k0s pkg/component/worker/containerd, docs/runtime.md and docs/directories.md, MicroK8s'
// documentation "Configuring services". State and Socket are arguments of containerd: k3s pkg/agent/config, k0s
// pkg/component/worker/containerd, MicroK8s' default-args/containerd.
func Distributions(node Tree) []Distribution {
	return []Distribution{
		rancher(node, nameK3s, "data/current/bin/containerd", "k3s.service", "k3s-agent.service"),
		rancher(node, nameRKE2, "bin/containerd", "rke2-server.service", "rke2-agent.service"),
		k0s(node),
		microK8s(),
	}
}

// rancher returns K3s or RKE2. program is the place of containerd below the directory of data.
func rancher(node Tree, name, program string, units ...string) Distribution {
	d := Distribution{Name: name, Units: units, Since: "1.36", State: rancherState, Socket: rancherState + "/containerd.sock"}
	dir := d.Rancher(node).Dir("data-dir", path.Join("/var/lib/rancher", strings.ToLower(name)))
	at := path.Join(dir, "agent/etc/containerd")
	d.Config, d.Program, d.DropIns = at+"/config.toml", path.Join(dir, program), at+"/config-v3.toml.d"
	d.Templates = []string{at + "/config-v3.toml.tmpl", at + "/config.toml.tmpl"}
	return d
}

func k0s(node Tree) Distribution {
	d := Distribution{
		Name: nameK0s, Config: "/etc/k0s/containerd.toml", Units: []string{"k0scontroller.service", "k0sworker.service"},
		DropIns: "/etc/k0s/containerd.d", Since: "1.27.1", Merges: true, marker: "# k0s_managed=true",
	}
	args, _ := d.ServiceArgs(node)
	d.Program = path.Join(k0sDir(args, "--data-dir", k0sDataDir), "bin/containerd")
	run := k0sDir(args, "--run-dir", k0sRunDir)
	d.merged, d.State, d.Socket = path.Join(run, "containerd-cri.toml"), path.Join(run, "containerd"), path.Join(run, "containerd.sock")
	return d
}

// k0sDir returns the directory that a flag of k0s sets, or the standard one.
func k0sDir(args []string, flag, standard string) string {
	if value, ok := Option(args, flag); ok && path.IsAbs(value) {
		return value
	}
	return standard
}

func microK8s() Distribution {
	return Distribution{
		Name: nameMicroK8s, Config: microK8sArgs + "containerd.toml", Program: microK8sSnap + "/bin/containerd", Units: []string{"snap.microk8s.daemon-containerd.service"}, Alone: true,
		State:     microK8sCommon + "/run/containerd",
		Socket:    microK8sCommon + "/run/containerd.sock",
		Templates: []string{microK8sArgs + "containerd-template.toml"},
	}
}

// ContainerdStates returns where containerd keeps its state on the node: by default, in K3s and RKE2, and in the distributions
// whose configuration is on the node. Other directories are not searched: copies of nodes from earlier versions don't say whether
// these exist, so all containers would count as unknown.
func ContainerdStates(node Tree) []string {
	all := []string{containerdState, rancherState}
	for _, d := range Distributions(node) {
		configured := node.Read(d.Config).Status
		if (configured == Present || configured == Denied) && !slices.Contains(all, d.State) {
			all = append(all, d.State)
		}
	}
	return all
}

// ContainerdSockets returns the default sockets of all containerds that a node may have, each once. A configuration may name other sockets.
func ContainerdSockets(node Tree) []string {
	all := []string{containerdSocket}
	for _, d := range Distributions(node) {
		if !slices.Contains(all, d.Socket) {
			all = append(all, d.Socket)
		}
	}
	return all
}

// ServiceArgs returns the command line of the distribution's service, and the service's files.
func (d *Distribution) ServiceArgs(node Tree) (args, files []string) {
	u := d.service(node)
	return u.Args(), u.Files
}

// service returns the first of the distribution's services that the node has, or an empty one.
func (d *Distribution) service(node Tree) *Unit {
	for _, name := range d.Units {
		if u, ok := LoadUnit(node, name); ok {
			return u
		}
	}
	return &Unit{}
}

// FindDistribution returns the distribution that starts the node's containerd, or nil. It finds a distribution by its configuration
// or, if the distribution was installed and has not started yet, by its service.
func FindDistribution(node Tree) *Distribution {
	all := Distributions(node)
	i := slices.IndexFunc(all, func(d Distribution) bool { return node.Read(d.Config).Status != Absent })
	if i < 0 {
		i = slices.IndexFunc(all, func(d Distribution) bool {
			return d.DropIns != "" && slices.ContainsFunc(d.Units, func(unit string) bool { _, ok := LoadUnit(node, unit); return ok })
		})
	}
	if i < 0 {
		return nil
	}
	return &all[i]
}

// Writes reports whether the distribution writes its configuration at each start, so that an edit is lost.
func (d *Distribution) Writes(files FileReader) bool {
	file := files.Read(d.Config)
	first, _, _ := strings.Cut(file.Value, "\n")
	return d.marker == "" || file.Status == Absent || first == d.marker
}

// Template returns the template that the distribution writes its configuration from, with its content. It returns false if the
// distribution uses its built-in template.
func (d *Distribution) Template(files FileReader) (Fact, bool) {
	for _, name := range d.Templates {
		if file := files.Read(name); file.Status != Absent {
			return file, true
		}
	}
	return Fact{}, false
}

// Patterns of lines in a template: the inclusion of the distribution's built-in template, a list of imports, and a version.
var (
	baseTemplate   = regexp.MustCompile(`\{\{-?\s*template\s+"base"\s`)
	importsSetting = regexp.MustCompile(`(?m)^\s*imports\s*=`)
	versionSetting = regexp.MustCompile(`(?m)^\s*version\s*=\s*(\d+)`)
)

// StatedVersion returns the version that a configuration of containerd or a template of one states, or "". It does not
// parse the text: a template is not TOML.
func StatedVersion(text string) string {
	if found := versionSetting.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return ""
}

// HasBase reports whether a template includes the distribution's built-in template.
func HasBase(template Fact) bool { return baseTemplate.MatchString(template.Value) }

// ImportsTwice reports whether a template has the key imports and includes the distribution's built-in template, which also has
// this key in releases from [Distribution.Since] on (k3s#13680). containerd does not start with two such keys.
func ImportsTwice(template Fact) bool {
	return HasBase(template) && importsSetting.MatchString(template.Value)
}

// Restart returns the command that restarts the distribution's containerd, with the services of both kinds of node.
func (d *Distribution) Restart() string {
	return "systemctl restart " + strings.ReplaceAll(strings.Join(d.Units, ", or "), ".service", "")
}

// Repair says what to correct if a file of containerd's configuration is damaged. It is empty for files that the
// distribution does not write.
func (d *Distribution) Repair(files FileReader, name string) string {
	template, has := d.Template(files)
	switch {
	case name == d.merged && name != "", name == d.Config && d.Merges && d.Writes(files):
		return fmt.Sprintf("%s writes this file at each start. Correct the files in %s, then run %s.", d.Name, d.DropIns, d.Restart())
	case name != d.Config || !d.Writes(files):
		return ""
	case has && ImportsTwice(template):
		return fmt.Sprintf("%s writes this file at each start from %s. Remove the line imports from that template: this release has it in its own template, and imports %s/*.toml. Then run %s.",
			d.Name, template.Path, d.DropIns, d.Restart())
	case has:
		return fmt.Sprintf("%s writes this file at each start from %s. Correct that template, then run %s.", d.Name, template.Path, d.Restart())
	}
	return fmt.Sprintf("%s writes this file at each start. Run %s.", d.Name, d.Restart())
}

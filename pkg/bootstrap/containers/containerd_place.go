package containers

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes/config"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// The default files of containerd, and the name of the drop-in.
const (
	containerdConfig  = "/etc/containerd/config.toml"
	containerdDropIns = "/etc/containerd/conf.d"
	dropInName        = "kata-gpu.toml"
	containerdService = "containerd.service"
	// serviceDropIn makes systemd start containerd with a configuration below /etc.
	serviceDropIn = "/etc/systemd/system/containerd.service.d/50-kata-vfio-config.conf"
)

// maker is a Kubernetes distribution that rewrites containerd's configuration at each start, so that an edit would be
// lost.
type maker struct {
	name   string
	config string
	// units are its services that may start containerd.
	units []string
	// program is its containerd.
	program string
	// alone: the service runs only containerd. Other services also restart the kubelet.
	alone bool
	// fix says how to add an import to the generated file.
	fix string
}

func makers() []maker {
	rancher := func(name, dir, program string, units ...string) maker {
		program = path.Join(dir, program)
		dir += "/agent/etc/containerd"
		return maker{name: name, config: dir + "/config.toml", program: program, units: units, fix: fmt.Sprintf("Put these two lines into %s/config-v3.toml.tmpl (config.toml.tmpl for containerd 1.7), "+
			"or add the first one to an existing template, restart %s, then run bootstrap again:\n"+
			"imports = [\"%s/*.toml\"]\n{{ template \"base\" . }}", dir, strings.ReplaceAll(strings.Join(units, " or "), ".service", ""), containerdDropIns)}
	}
	const snap = "/var/snap/microk8s/current/args/"
	return []maker{
		rancher("K3s", "/var/lib/rancher/k3s", "data/current/bin/containerd", "k3s.service", "k3s-agent.service"),
		rancher("RKE2", "/var/lib/rancher/rke2", "bin/containerd", "rke2-server.service", "rke2-agent.service"),
		{
			name: "k0s", config: "/etc/k0s/containerd.toml", program: "/var/lib/k0s/bin/containerd", units: []string{"k0scontroller.service", "k0sworker.service"},
			fix: "Configure k0s to import " + containerdDropIns + "/*.toml, as its documentation says, then run bootstrap again.",
		},
		{
			name: "MicroK8s", config: snap + "containerd.toml", program: "/snap/microk8s/current/bin/containerd", units: []string{"snap.microk8s.daemon-containerd.service"}, alone: true,
			fix: "Add imports = [\"" + containerdDropIns + "/*.toml\"] to the top of " + snap +
				"containerd-template.toml, restart MicroK8s, then run bootstrap again.",
		},
	}
}

// why describes the drop-in, and what the restart affects.
func (m *maker) why(k *kata) string {
	why := k.called() + ", CDI and NRI"
	if m == nil || m.alone {
		return why
	}
	return why + "; " + m.name + " starts containerd, so " + m.name + " restarts with its kubelet (on a server also its API server); pods keep running"
}

// containerdFiles are the files of containerd's configuration.
type containerdFiles struct {
	// main is the file that containerd is started with, or will be; dropIn is bootstrap's.
	main, dropIn string
	// vendor is the file below /usr that containerd is started with now, which main will import.
	vendor string
	// maker is the distribution that writes main, or nil.
	maker *maker
	// program is the containerd that is started; empty if it is unknown.
	program string
	// service is the content of a drop-in for containerd's service, or empty if none is needed.
	service string
}

// hasContainerd reports whether the node has containerd.
func (n node) hasContainerd() bool {
	if _, ok := n.unit(containerdService); ok {
		return true
	}
	return n.maker() != nil || n.exists(containerdConfig) || slices.ContainsFunc(containerdBinaries(), n.exists)
}

func containerdBinaries() []string {
	return []string{"/usr/bin/containerd", "/usr/local/bin/containerd", "/usr/sbin/containerd", "/opt/bin/containerd"}
}

func (n node) maker() *maker {
	for _, m := range makers() {
		if n.exists(m.config) {
			return &m
		}
	}
	return nil
}

// containerdFiles determines the files of containerd's configuration.
func (n node) containerdFiles() containerdFiles {
	at := containerdFiles{
		main: containerdConfig, dropIn: path.Join(containerdDropIns, dropInName), maker: n.maker(),
	}
	if at.maker != nil {
		at.main, at.program = at.maker.config, at.maker.program
		return at
	}
	u, ok := n.unit(containerdService, serviceDropIn)
	if !ok {
		return at
	}
	args := u.args()
	for _, arg := range args { // env may start it
		if path.IsAbs(arg) && path.Base(arg) == "containerd" {
			at.program = arg
			break
		}
	}
	name, ok := config.Option(args, "--config", "-c")
	if !ok || !path.IsAbs(name) {
		return at
	}
	if strings.HasPrefix(name, "/usr/") {
		at.vendor = name
		at.service = fmt.Sprintf("# %s belongs to the distribution; this file imports it.\n[Service]\nExecStart=\nExecStart=%s\n",
			name, u.startWith(containerdConfig, "--config", "-c"))
		return at
	}
	at.main = name
	return at
}

// startsWith requires that containerd starts with a configuration below /etc instead of /usr.
func (w *wants) startsWith(at containerdFiles) {
	if at.service != "" {
		w.file(serviceDropIn, []byte(at.service), "containerd reads "+at.main+", which imports "+at.vendor,
			state.UnitsReload, state.ContainerdRestart)
	}
}

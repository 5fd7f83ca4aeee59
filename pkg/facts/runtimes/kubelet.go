package runtimes

import (
	"fmt"
	"path"
	"slices"
	"strconv"

	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/config"
)

// kubeletConfig is where kubeadm and most others put the kubelet's file.
const kubeletConfig = "/var/lib/kubelet/config.yaml"

// openPort is the port that needs no authentication, unless it is switched off.
const openPort = 10255

// Kubelet is whom the kubelet answers.
type Kubelet struct {
	// ReadOnlyPort is the port that needs no authentication; 0 for none.
	ReadOnlyPort int
	// Anonymous says that requests without credentials are not refused outright.
	Anonymous bool
	// AlwaysAllow says that whoever is known may do everything.
	AlwaysAllow bool
	// Seen are the file and the command line that say so. Damaged is a file that
	// was not to be understood.
	Seen    []facts.Fact
	Damaged []facts.Fact
}

// kubeletFile is what counts of a KubeletConfiguration.
type kubeletFile struct {
	ReadOnlyPort   int `json:"readOnlyPort"`
	Authentication struct {
		Anonymous struct {
			Enabled bool `json:"enabled"`
		} `json:"anonymous"`
	} `json:"authentication"`
	Authorization struct {
		Mode string `json:"mode"`
	} `json:"authorization"`
}

// KubeletOf returns the node's kubelet; false if none is visible. Its command line overrides its file. The
// defaults of both differ, and a kubelet with a file has those of files (kubelet.config.k8s.io/v1beta1: no port,
// no anonymous requests, Webhook). For a kubelet that runs without a file, files in the usual places don't count.
func KubeletOf(n *facts.Node) (Kubelet, bool) {
	running, doubtful := daemons(n, "kubelet")
	var k Kubelet
	switch {
	case len(running) > 0:
		k.readRunning(n, running[0])
		for _, p := range running[1:] {
			if !slices.Equal(p.args, running[0].args) {
				f := p.cmdline
				f.Status, f.Err = facts.Broken, fmt.Sprintf("another kubelet runs with other flags, as process %d: it is unknown which one is the node's", running[0].pid)
				k.Damaged = append(k.Damaged, f)
			}
		}
	case len(doubtful) > 0:
		k.Damaged = doubts(doubtful)
	default:
		file := read(n, kubeletConfig)
		if file.Status == facts.Absent {
			return k, false
		}
		k.readFiles(kubeletFile{}, []facts.Fact{file})
	}
	return k, true
}

// readRunning reads the files and flags of a kubelet that runs.
func (k *Kubelet) readRunning(n *facts.Node, p process) {
	var files []facts.Fact
	defaults := flagDefaults()
	if name, ok := p.option("--config"); ok && name != "" {
		file := read(n, name)
		files = append(files, file)
		if file.Status != facts.Absent { // it existed when the kubelet started, and its content then is unknown
			defaults = kubeletFile{}
		}
	}
	k.readFiles(defaults, append(files, dropIns(n, p)...))
	k.Seen = append(k.Seen, p.cmdline)
	k.readFlags(&p)
}

// flagDefaults is a kubelet without any file: open.
func flagDefaults() kubeletFile {
	open := kubeletFile{ReadOnlyPort: openPort}
	open.Authentication.Anonymous.Enabled, open.Authorization.Mode = true, "AlwaysAllow"
	return open
}

// dropIns returns the files of --config-dir: those that end in .conf, by path, each
// over those before it.
func dropIns(n *facts.Node, p process) []facts.Fact {
	dir, ok := p.option("--config-dir")
	if !ok || dir == "" {
		return nil
	}
	var files []facts.Fact
	names := config.Walk(onNode{n}, dir)
	for _, name := range names[:min(len(names), config.MaxFiles)] {
		if path.Ext(name) == ".conf" {
			files = append(files, read(n, name))
		}
	}
	return files
}

// readFiles puts files over each other: what none says stays as it is at first.
func (k *Kubelet) readFiles(all kubeletFile, files []facts.Fact) {
	for _, file := range files {
		k.Seen = append(k.Seen, file)
		if !file.Known() {
			k.Damaged = append(k.Damaged, file)
		}
		if !file.OK() {
			continue
		}
		err := fmt.Errorf("%s: it is longer than %d bytes", file.Path, config.MaxSize)
		if len(file.Value) < config.MaxSize {
			err = yaml.Unmarshal([]byte(file.Value), &all)
		}
		if err != nil {
			file.Status, file.Err = facts.Broken, err.Error()
			k.Damaged = append(k.Damaged, file)
		}
	}
	k.ReadOnlyPort, k.Anonymous = all.ReadOnlyPort, all.Authentication.Anonymous.Enabled
	k.AlwaysAllow = all.Authorization.Mode == "AlwaysAllow"
}

func (k *Kubelet) readFlags(p *process) {
	if v, ok := p.option("--read-only-port"); ok {
		port, err := strconv.ParseInt(v, 0, 32)
		if err != nil {
			port = openPort // it would not start with that
		}
		k.ReadOnlyPort = int(port)
	}
	if on, ok := config.Switch(p.args, "--anonymous-auth", true); ok {
		k.Anonymous = on
	}
	if v, ok := p.option("--authorization-mode"); ok {
		k.AlwaysAllow = v == "AlwaysAllow"
	}
}

package runtimes

import (
	"fmt"
	"path"
	"strconv"

	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes/config"
)

// kubeletConfig is where kubeadm and most others put the kubelet's file.
const kubeletConfig = "/var/lib/kubelet/config.yaml"

// Kubelet is what the kubelet answers whom.
type Kubelet struct {
	// ReadOnlyPort is the port that answers everybody; 0 for none.
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

// KubeletOf returns the node's kubelet; false where there is none to be seen. Its
// command line counts more than its file. The defaults of both differ, and a kubelet
// with a file has those of files (kubelet.config.k8s.io/v1beta1: no port, no
// anonymous requests, Webhook).
func KubeletOf(n *facts.Node) (Kubelet, bool) {
	running := processes(n, "kubelet")
	name, k := kubeletConfig, Kubelet{}
	for _, p := range running {
		if given, ok := p.option("--config"); ok {
			name = given
		}
	}
	file := read(n, name)
	if file.Status == facts.Absent && len(running) == 0 {
		return k, false
	}
	k.readFiles(append([]facts.Fact{file}, dropIns(n, running)...))
	if file.Status == facts.Absent {
		k.Anonymous, k.AlwaysAllow, k.ReadOnlyPort = true, true, 10255 // defaults of the flags
	}
	for _, p := range running {
		k.Seen = append(k.Seen, p.cmdline)
		k.readFlags(&p)
	}
	return k, true
}

// dropIns returns the files of --config-dir: those that end in .conf, by path, each
// over those before it.
func dropIns(n *facts.Node, running []process) []facts.Fact {
	var files []facts.Fact
	for _, p := range running {
		dir, ok := p.option("--config-dir")
		if !ok {
			continue
		}
		names, _ := walk(n, dir, 0)
		for _, name := range names[:min(len(names), config.MaxFiles)] {
			if path.Ext(name) == ".conf" {
				files = append(files, read(n, name))
			}
		}
	}
	return files
}

// readFiles puts files over each other: what one does not say stays.
func (k *Kubelet) readFiles(files []facts.Fact) {
	var all kubeletFile
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
		k.ReadOnlyPort, _ = strconv.Atoi(v)
	}
	if v, ok := p.option("--anonymous-auth"); ok {
		k.Anonymous = v == "true"
	}
	if v, ok := p.option("--authorization-mode"); ok {
		k.AlwaysAllow = v == "AlwaysAllow"
	}
}

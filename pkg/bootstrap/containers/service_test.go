package containers_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/containers"
	"github.com/kata-vfio/kata-vfio/test/tree"
)

// A distribution's own service starts containerd, and its restart is told.
func TestTheServiceThatStartsTheRuntimeIsFound(t *testing.T) {
	const systemd, imports = "etc/systemd/system/", "version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n"
	for about, c := range map[string]struct {
		of      files
		runtime containers.Runtime
		want    []string
		why     string
	}{
		"containerd":            {files{}, containers.RuntimeContainerd, []string{"containerd.service"}, ""},
		"none known":            {files{"usr/lib/systemd/system/containerd.service": ""}, containers.RuntimeContainerd, nil, ""},
		"a K3s server":          {files{"var/lib/rancher/k3s/agent/etc/containerd/config.toml": imports, systemd + "k3s.service": "[Service]\n"}, containers.RuntimeContainerd, []string{"k3s.service"}, "K3s restarts, and its kubelet"},
		"a K3s agent, linked":   {files{"var/lib/rancher": "-> /data", "data/k3s/agent/etc/containerd/config.toml": imports, systemd + "k3s-agent.service": "[Service]\n"}, containers.RuntimeContainerd, []string{"k3s-agent.service"}, "K3s restarts"},
		"one that is masked":    {files{"etc/systemd/system/containerd.service": "-> /dev/null"}, containers.RuntimeContainerd, nil, ""},
		"RKE2":                  {files{"var/lib/rancher/rke2/agent/etc/containerd/config.toml": imports, "usr/local/lib/systemd/system/rke2-agent.service": "[Service]\n"}, containers.RuntimeContainerd, []string{"rke2-agent.service"}, "RKE2 restarts"},
		"k0s":                   {files{"etc/k0s/containerd.toml": imports, systemd + "k0sworker.service": "[Service]\n"}, containers.RuntimeContainerd, []string{"k0sworker.service"}, "k0s restarts"},
		"MicroK8s":              {files{"var/snap/microk8s/current/args/containerd.toml": imports, systemd + "snap.microk8s.daemon-containerd.service": "[Service]\n"}, containers.RuntimeContainerd, []string{"snap.microk8s.daemon-containerd.service"}, ""},
		"K3s without a service": {files{"var/lib/rancher/k3s/agent/etc/containerd/config.toml": imports}, containers.RuntimeContainerd, nil, ""},
		"CRI-O":                 {files{"etc/crio/crio.conf": "[crio]\n", "var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: unix:///var/run/crio/crio.sock\n", "usr/lib/systemd/system/crio.service": "[Service]\n"}, containers.RuntimeCRIO, []string{"crio.service"}, ""},
	} {
		of := kata().and(c.of)
		fsys := tree.Open(t, of)
		if got := containers.RuntimeOf(fsys, containers.RuntimeAuto); got != c.runtime {
			t.Errorf("%s: the runtime is %s", about, got)
		}
		if diff := cmp.Diff(c.want, containers.Units(fsys, c.runtime)); diff != "" && len(c.want) > 0 {
			t.Errorf("%s: services (-want +got):\n%s", about, diff)
		}
		w := wanted(t, fsys, containers.Options{})
		why, told := "", false
		for _, f := range w.Files {
			if strings.HasSuffix(f.Path, "kata-gpu.toml") && f.Part == "containerd" {
				why = f.Why
			}
		}
		for _, p := range w.Problems {
			told = told || strings.Contains(p.Text, "No service of systemd's")
		}
		if !strings.Contains(why, c.why) || strings.Contains(why, "restarts") != (c.why != "") && len(c.want) > 0 || told != (len(c.want) == 0) || len(fatal(w)) > 0 {
			t.Errorf("%s: why %q, told %t; %+v", about, why, told, w.Problems)
		}
	}
}

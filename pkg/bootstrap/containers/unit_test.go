package containers_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/containers"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/test/tree"
)

// A distribution's own service starts containerd, and its restart is told.
func TestServiceThatStartsTheRuntimeIsFound(t *testing.T) {
	const systemd, imports = "etc/systemd/system/", "version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n"
	for about, c := range map[string]struct {
		of      files
		runtime blueprint.Runtime
		want    []string
		why     string
	}{
		"containerd":            {files{}, blueprint.RuntimeContainerd, []string{"containerd.service"}, ""},
		"none known":            {files{"usr/lib/systemd/system/containerd.service": ""}, blueprint.RuntimeContainerd, nil, ""},
		"a K3s server":          {files{"var/lib/rancher/k3s/agent/etc/containerd/config.toml": imports, systemd + "k3s.service": "[Service]\n"}, blueprint.RuntimeContainerd, []string{"k3s.service"}, "K3s restarts with its kubelet"},
		"a K3s agent, linked":   {files{"var/lib/rancher": "-> /data", "data/k3s/agent/etc/containerd/config.toml": imports, systemd + "k3s-agent.service": "[Service]\n"}, blueprint.RuntimeContainerd, []string{"k3s-agent.service"}, "K3s restarts"},
		"one that is masked":    {files{"etc/systemd/system/containerd.service": "-> /dev/null"}, blueprint.RuntimeContainerd, nil, ""},
		"RKE2":                  {files{"var/lib/rancher/rke2/agent/etc/containerd/config.toml": imports, "usr/local/lib/systemd/system/rke2-agent.service": "[Service]\n"}, blueprint.RuntimeContainerd, []string{"rke2-agent.service"}, "RKE2 restarts"},
		"k0s":                   {files{"etc/k0s/containerd.toml": imports, systemd + "k0sworker.service": "[Service]\n"}, blueprint.RuntimeContainerd, []string{"k0sworker.service"}, "k0s restarts"},
		"MicroK8s":              {files{"var/snap/microk8s/current/args/containerd.toml": imports, systemd + "snap.microk8s.daemon-containerd.service": "[Service]\n"}, blueprint.RuntimeContainerd, []string{"snap.microk8s.daemon-containerd.service"}, ""},
		"K3s without a service": {files{"var/lib/rancher/k3s/agent/etc/containerd/config.toml": imports}, blueprint.RuntimeContainerd, nil, ""},
		"CRI-O":                 {files{"etc/crio/crio.conf": "[crio]\n", "var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: unix:///var/run/crio/crio.sock\n", "usr/lib/systemd/system/crio.service": "[Service]\n"}, blueprint.RuntimeCRIO, []string{"crio.service"}, ""},
	} {
		of := kata().and(c.of)
		fsys := tree.Open(t, of)
		if got := containers.FindRuntime(fsys, blueprint.RuntimeAuto); got != c.runtime {
			t.Errorf("%s: the runtime is %s", about, got)
		}
		if diff := cmp.Diff(c.want, containers.Units(fsys, c.runtime)); diff != "" && len(c.want) > 0 {
			t.Errorf("%s: services (-want +got):\n%s", about, diff)
		}
		w := wanted(t, fsys, blueprint.Containers{})
		why, told := "", false
		for _, f := range w.Files {
			if strings.HasSuffix(f.Path, "kata-gpu.toml") && f.Part == "containerd" {
				why = f.Why
			}
		}
		for _, p := range w.Problems {
			told = told || strings.Contains(p.Text, "No known systemd service")
		}
		if !strings.Contains(why, c.why) || strings.Contains(why, "restarts") != (c.why != "") && len(c.want) > 0 || told != (len(c.want) == 0) || len(fatal(w)) > 0 {
			t.Errorf("%s: why %q, told %t; %+v", about, why, told, w.Problems)
		}
	}
}

func TestSocketsFileIsMadeAtEachBoot(t *testing.T) {
	const (
		name = "kata-vfio-pod-resources"
		etc  = "etc/systemd/system/"
		usr  = "usr/lib/systemd/system/"
	)
	o := blueprint.Containers{Runtime: blueprint.RuntimeNone, PodResourcesSocket: new(true)}
	for why, c := range map[string]struct {
		files
		want   []string
		target string
	}{
		"by files of our own": {
			files{usr + "sockets.target": "[Unit]\n"},
			[]string{etc + name + ".service", etc + name + ".socket", etc + "sockets.target.wants/" + name + ".socket"},
			"/" + etc + name + ".socket",
		},
		"by a package's": {
			files{usr + name + ".socket": "x", usr + name + ".service": "x"},
			[]string{etc + "sockets.target.wants/" + name + ".socket"},
			"/" + usr + name + ".socket",
		},
	} {
		fsys, w := open(t, c.files, o)
		if diff := cmp.Diff(c.want, changes(t, fsys, w)); diff != "" {
			t.Errorf("%s: the files differ (-want +got):\n%s", why, diff)
		}
		link := w.Files[len(w.Files)-1]
		if link.Target != c.target || !cmp.Equal(link.Then, []state.FollowUp{state.UnitsReload, state.SocketStart}) {
			t.Errorf("%s: the link is %+v", why, link)
		}
		apply(t, fsys, w)
		if left := changes(t, fsys, wanted(t, fsys, o)); len(left) > 0 {
			t.Errorf("%s: it wants %v again", why, left)
		}
	}
	_, w := open(t, nil, o)
	if len(w.Files) > 0 || len(w.Problems) != 1 || w.Problems[0].Fatal {
		t.Errorf("without systemd it wants %v, with the problems %+v", paths(w), w.Problems)
	}
}

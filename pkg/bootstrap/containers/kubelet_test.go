package containers_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
)

// kubeadm is the kubelet as kubeadm's packages start it.
func kubeadm() files {
	return files{
		"usr/lib/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet\n",
		"usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": "[Service]\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml\"\n" +
			"EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\nEnvironmentFile=-/etc/default/kubelet\nExecStart=\n" +
			"ExecStart=/usr/bin/kubelet $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n",
		"var/lib/kubelet/kubeadm-flags.env":       `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/containerd/containerd.sock --node-ip=10.0.0.1"`,
		"etc/default/kubelet":                     "KUBELET_EXTRA_ARGS=--config-dir=/etc/kubernetes/kubelet.conf.d",
		"var/lib/kubelet/config.yaml":             "kind: KubeletConfiguration\ncgroupDriver: cgroupfs\nfeatureGates:\n  A: true\n",
		"etc/kubernetes/kubelet.conf.d/20.conf":   "cgroupDriver: systemd\nruntimeRequestTimeout: 15m\nfeatureGates: {B: false}\n",
		"etc/kubernetes/kubelet.conf.d/30.backup": "cgroupDriver: none\n",
		"var/lib/kubelet/plugins/x":               "",
		"var/lib/dpkg/status":                     "Package: kubelet\nStatus: install ok installed\nVersion: 1.37.1-1.1\n",
	}.and(files{"var/lib/kubelet/plugins/x": "y"})
}

func TestKubeletsFilesAreTold(t *testing.T) {
	_, w := open(t, kubeadm(), blueprint.Containers{Runtime: blueprint.RuntimeNone})
	got := map[string]string{}
	for _, f := range w.Facts {
		if f.Part == "kubelet" {
			got[f.Name] = f.Value
		}
	}
	want := map[string]string{
		"version": "1.37.1-1.1", "cgroup driver": "systemd", "runtime request timeout": "15m", "feature gates": "A=true,B=false",
		"container runtime endpoint": "unix:///run/containerd/containerd.sock",
		"directory plugins":          "there", "directory plugins_registry": "not there", "directory pod-resources": "not there",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the facts differ (-want +got):\n%s", diff)
	}
	if len(w.Problems) > 0 || len(w.Files) > 0 {
		t.Errorf("it wants %v, with the problems %+v", paths(w), w.Problems)
	}
}

func TestKubeletThatIsNotFitIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		files
		path, word string
		fatal      bool
	}{
		"too old":                      {files{"var/lib/dpkg/status": "Package: kubelet\nStatus: install ok installed\nVersion: 1.33.4-1.1\n"}, "var/lib/dpkg/status", "1.34", true},
		"no DRA":                       {files{"etc/kubernetes/kubelet.conf.d/40.conf": "featureGates: {DynamicResourceAllocation: false}\n"}, "etc/kubernetes/kubelet.conf.d/40.conf", "DynamicResourceAllocation", true},
		"no DRA, in a directory below": {files{"etc/kubernetes/kubelet.conf.d/40/x.conf": "featureGates: {DynamicResourceAllocation: false}\n"}, "etc/kubernetes/kubelet.conf.d/40/x.conf", "DynamicResourceAllocation", true},
		"by a flag":                    {files{"etc/default/kubelet": "KUBELET_EXTRA_ARGS=--feature-gates=KubeletPodResourcesGet=false"}, "etc/default/kubelet", "KubeletPodResourcesGet", true},
		"no YAML":                      {files{"var/lib/kubelet/config.yaml": "a: [\n"}, "var/lib/kubelet/config.yaml", "can't be parsed", false},
		"of no bytes":                  {files{"var/lib/kubelet/config.yaml": "cgroupDriver: [1]\n"}, "var/lib/kubelet/config.yaml", "can't be parsed", false},
	} {
		_, w := open(t, kubeadm().and(c.files), blueprint.Containers{Runtime: blueprint.RuntimeNone})
		if len(w.Problems) != 1 || w.Problems[0].Path != c.path || w.Problems[0].Fatal != c.fatal || !strings.Contains(w.Problems[0].Text+w.Problems[0].Fix, c.word) {
			t.Errorf("%s: the problems are %+v", name, w.Problems)
		}
	}
}

func TestGateIsOnInEachWayOfWritingIt(t *testing.T) {
	for value, on := range map[string]bool{"true": true, "True": true, "1": true, "t": true, "false": false, "0": false, "F": false, "maybe": false} {
		_, w := open(t, kubeadm().and(files{"etc/default/kubelet": "KUBELET_EXTRA_ARGS=\"--feature-gates=KubeletPodResourcesGet=" + value + "\""}), blueprint.Containers{Runtime: blueprint.RuntimeNone})
		if len(fatal(w)) == 0 != on {
			t.Errorf("%q: the problems are %+v", value, w.Problems)
		}
	}
}

func TestTwoCgroupDriversAreNamed(t *testing.T) {
	const runc = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\nSystemdCgroup = true\n"
	for text, warned := range map[string]bool{"version = 3\n": true, "version = 3\n" + runc: false} {
		_, w := open(t, kata().and(kubeadm()).and(files{main: text}), blueprint.Containers{})
		if len(w.Problems) > 0 != warned || warned && (w.Problems[0].Fatal || !strings.Contains(w.Problems[0].Text, "20.conf")) {
			t.Errorf("with %q the problems are %+v", text, w.Problems)
		}
	}
}

package bootstrap_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
)

// k3s is a node whose containerd K3s starts, beside one that Docker left.
func k3s() map[string]string {
	return debian("debian", "13", "", debianGrub, map[string]string{
		"var/lib/rancher/k3s/agent/etc/containerd/config.toml": "version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n",
		"usr/local/lib/systemd/system/k3s-agent.service":       "[Service]\nExecStart=/usr/local/bin/k3s agent\n",
	})
}

func TestTheServiceOfADistributionIsRestarted(t *testing.T) {
	n := newNode(t, k3s())
	n.apply(blueprint.Default())
	ran := strings.Join(n.tools.ran, "\n")
	if !strings.Contains(ran, "systemctl try-restart k3s-agent.service") || strings.Contains(ran, "containerd.service") {
		t.Errorf("ran:\n%s", ran)
	}
	if got := n.read("etc/systemd/system/k3s-agent.service.d/50-kata-vfio.conf"); !strings.Contains(got, "LimitMEMLOCK=infinity") {
		t.Errorf("the service's limit is %q", got)
	}
}

// CRI-O's node may have a containerd of Docker's, which is left alone.
func TestAContainerdThatIsNotTheNodesRuntimeIsLeftAlone(t *testing.T) {
	n := newNode(t, debian("debian", "13", "", debianGrub, map[string]string{
		"var/lib/kubelet/config.yaml":         "containerRuntimeEndpoint: unix:///var/run/crio/crio.sock\n",
		"etc/crio/crio.conf":                  "[crio]\n",
		"usr/lib/systemd/system/crio.service": "[Service]\nExecStart=/usr/bin/crio\n",
	}))
	n.apply(blueprint.Default())
	ran := strings.Join(n.tools.ran, "\n")
	if !strings.Contains(ran, "systemctl try-restart crio.service") || strings.Contains(ran, "containerd") {
		t.Errorf("ran:\n%s", ran)
	}
}

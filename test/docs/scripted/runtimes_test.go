package scripted_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/test/board"
	"github.com/kata-vfio/kata-vfio/test/docs"
)

const runtimesGuide = "deploy/guides/rke2-crio.md"

// rke2 is what its installation leaves on an agent's machine.
func rke2() map[string]string {
	return map[string]string{
		"var/lib/rancher/rke2/agent/etc/containerd/config.toml": "version = 3\nimports = [\"/var/lib/rancher/rke2/agent/etc/containerd/config-v3.toml.d/*.toml\"]\n",
		"usr/local/lib/systemd/system/rke2-agent.service":       "[Service]\n",
	}
}

// crio is what its package leaves on a machine whose kubelet uses it.
func crio() map[string]string {
	return map[string]string{
		"etc/crio/crio.conf": "[crio]\n", "usr/bin/crio": "ELF", "usr/lib/systemd/system/crio.service": "[Service]\n",
		"var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: unix:///var/run/crio/crio.sock\n",
	}
}

// TestRuntimesGuide follows the guide's section on a machine with the runtime in the place of containerd.
func TestRuntimesGuide(t *testing.T) {
	for heading, files := range map[string]map[string]string{"RKE2": rke2(), "CRI-O": crio()} {
		t.Run(heading, func(t *testing.T) {
			m := newMachine(t, board.IdleHGX(t, 0), kata())
			m.Delete("etc/containerd")
			m.Delete("usr/bin/containerd")
			m.Delete("usr/lib/systemd/system/containerd.service")
			m.putAll(files)
			m.Script("var/lib/rancher/rke2/bin/ctr", "echo ctr >> /tmp/others\n")
			m.Node.Put("etc/kata-vfio/blueprint.yaml", "apiVersion: bootstrap.kata-vfio.dev/v1alpha1\nkind: NodeBlueprint\n")
			for _, step := range docs.Steps(t, runtimesGuide, heading) {
				m.follow(step, fails(step)...)
			}
		})
	}
}

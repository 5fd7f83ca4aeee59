package scripted_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/board"
	"github.com/kata-vfio/kata-vfio/test/docs"
)

const desktopGuide = "deploy/guides/k3s-desktop.md"

// k3s is what its installation leaves on a machine.
func k3s() map[string]string {
	return map[string]string{
		"var/lib/rancher/k3s/agent/etc/containerd/config.toml": "version = 3\nimports = [\"/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/*.toml\"]\n",
		"usr/lib/systemd/system/k3s.service":                   "[Service]\n",
		"etc/rancher/k3s/k3s.yaml":                             "apiVersion: v1\nkind: Config\n",
	}
}

// TestDesktopGuide follows the guide from a bare machine to the audit of its tenant.
func TestDesktopGuide(t *testing.T) {
	m := newMachine(t, board.IdleDesktop(t), kata())
	m.Delete("etc/containerd")
	m.Delete("usr/bin/containerd")
	m.Delete("usr/lib/systemd/system/containerd.service")
	m.putAll(k3s())
	m.Node.Put("proc/sys/kernel/hostname", "desktop\n")
	for _, step := range docs.Steps(t, desktopGuide, "One desktop GPU with k3s") {
		if strings.Contains(step.Command, "kata-vfio-audit node") {
			m.prepare("default", "gpu0")
			m.settle()
		}
		m.follow(step, fails(step)...)
	}
}

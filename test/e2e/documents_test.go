//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/docs"
)

// TestDocumentsRender renders the chart with the values that the documents install it with.
func TestDocumentsRender(t *testing.T) {
	const path = "deploy/helm/kata-vfio"
	for document, want := range map[string][]string{
		"README.md":                    {"kind: DaemonSet", "name: kata-vfio-bootstrap"},
		"deploy/guides/hgx.md":         {"kind: DaemonSet", "vlan: 100"},
		"deploy/guides/k3s-desktop.md": {"kind: DaemonSet"},
		"deploy/guides/rke2-crio.md":   {"kind: DaemonSet"},
		"deploy/guides/mixed-fleet.md": {"name: kata-vfio-plugin-hgx", "name: kata-vfio-bootstrap-mi300", "name: kata-vfio-plugin-flex"},
	} {
		installed := false
		for _, command := range docs.Commands(t, "helm", document) {
			if !slices.Contains(command.Args, path) || command.Args[0] != "install" {
				continue // another chart, or no installation
			}
			installed = true
			args := append([]string{"template"}, command.Args[1:]...)
			for i, arg := range args {
				if strings.HasPrefix(arg, "deploy/") {
					args[i] = "../../" + arg
				}
			}
			text, err := helm(t, append(args, "--kube-version", kubernetesVersion())...)
			if err != nil {
				t.Errorf("%s: helm %s: %v", document, strings.Join(command.Args, " "), err)
			}
			for _, word := range want {
				if !strings.Contains(text, word) {
					t.Errorf("%s: helm %s does not render %q", document, strings.Join(command.Args, " "), word)
				}
			}
		}
		if !installed {
			t.Errorf("%s does not install %s", document, path)
		}
	}
}

package facts_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

func TestSocketOfContainerdIsThatOfItsFiles(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"version 3":            {"version = 3\n[grpc]\naddress = '/run/a.sock'\n", "/run/a.sock"},
		"version 4":            {"version = 4\n[plugins.'io.containerd.server.v1.grpc']\naddress = '/run//b.sock'\n", "/run/b.sock"},
		"none":                 {"version = 4\n", ""},
		"a relative path":      {"version = 3\n[grpc]\naddress = 'c.sock'\n", ""},
		"another plugin's one": {"version = 4\n[plugins.'io.containerd.server.v1.ttrpc']\naddress = '/run/d.sock'\n", ""},
	} {
		n := tree(t, map[string]string{"etc/containerd/config.toml": c.text})
		if got := facts.LoadContainerd(n, "/etc/containerd/config.toml").Socket(); got != c.want {
			t.Errorf("%s: got socket %q, want %q", name, got, c.want)
		}
	}
}

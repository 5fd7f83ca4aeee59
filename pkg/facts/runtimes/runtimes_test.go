package runtimes_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
)

// TestSpecsAreInTheConfiguredDirectories takes each engine's setting, as its own loader has it.
func TestSpecsAreInTheConfiguredDirectories(t *testing.T) {
	const containerd, crio = "etc/containerd/config.toml", "etc/crio/crio.conf.d/10.conf"
	const cri, crioRuntime = "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\n", "[crio.runtime]\n"
	always := []string{"/etc/cdi", "/run/cdi", "/var/run/cdi"}
	for name, tt := range map[string]struct {
		files files
		more  []string
	}{
		"none":                 {},
		"not set":              {files{containerd: cri}, nil},
		"empty":                {files{containerd: cri + "cdi_spec_dirs = []\n"}, nil},
		"containerd's":         {files{containerd: cri + "  cdi_spec_dirs = ['/a', \"/b/c\"]\n"}, []string{"/a", "/b/c"}},
		"on several lines":     {files{containerd: cri + "cdi_spec_dirs=[\n '/a',\n '/b',\n]\n"}, []string{"/a", "/b"}},
		"a comment":            {files{containerd: cri + "# cdi_spec_dirs = ['/a']\n"}, nil},
		"a relative directory": {files{containerd: cri + "cdi_spec_dirs = ['relative']\n"}, nil},
		"cut off":              {files{containerd: cri + "cdi_spec_dirs = ['/a'\n"}, nil},
		"CRI-O's":              {files{crio: crioRuntime + "cdi_spec_dirs = ['/var/run/other']\n"}, []string{"/var/run/other"}},
		"K3s'":                 {files{"var/lib/rancher/k3s/agent/etc/containerd/config.toml": cri + "cdi_spec_dirs = ['/a']\n"}, []string{"/a"}},
	} {
		_, dirs := runtimes.Specs(node(t, tt.files))
		var got []string
		for _, d := range dirs {
			got = append(got, d.Path)
		}
		if diff := cmp.Diff(slices.Concat(always, tt.more), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

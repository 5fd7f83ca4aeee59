package runtimes_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes"
)

func TestCRIODropInsReplaceWholeHandlers(t *testing.T) {
	r := runtimes.Of(node(t, files{
		"etc/crio/crio.conf": `
[crio.runtime]
default_runtime = "crun"
[crio.runtime.runtimes.crun]
runtime_path = "/usr/bin/crun"
[crio.runtime.runtimes.kata]
runtime_type = "vm"
runtime_path = "/usr/bin/other"
privileged_without_host_devices = true
[crio.nri]
enable_nri = false
`,
		"etc/crio/crio.conf.d/sub/10-kata": "[crio.runtime.runtimes.kata]\nruntime_path = '/opt/kata/bin/containerd-shim-kata-v2'\n",
		"etc/crio/crio.conf.d/99-named":    "[crio.runtime.runtimes.kata-gpu]\ninherit_default_runtime = true\n",
	}))
	byName := map[string]runtimes.Handler{}
	for _, h := range r.Handlers {
		byName[h.Name] = h
	}
	kata, named := byName["kata"], byName["kata-gpu"]
	if !kata.IsKata() || kata.PrivilegedWithoutHostDevices.IsSet() {
		t.Errorf("kata is %+v: the drop-in's is a handler of its own", kata)
	}
	if _, passes := kata.Passes("cdi.k8s.io/"); !passes {
		t.Error("CRI-O is said to keep annotations back")
	}
	if named.IsKata() || named.Path.Text() != "/usr/bin/crun" {
		t.Errorf("a handler that is the default's is %+v", named)
	}
	if r.NRI.Enabled {
		t.Error("NRI is said to be on")
	}
}

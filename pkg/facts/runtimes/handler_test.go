package runtimes_test

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// handler is a handler of containerd with settings.
func handler(tb testing.TB, settings string) runtimes.Handler {
	tb.Helper()
	text := "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.x]\n" + settings
	r := runtimes.Of(node(tb, files{"etc/containerd/config.toml": text}))
	if len(r.Handlers) != 1 {
		tb.Fatalf("no handler from %q: %+v", text, r.Damaged)
	}
	return r.Handlers[0]
}

func TestWhichHandlersAreKata(t *testing.T) {
	for settings, want := range map[string]bool{
		"runtime_type = 'io.containerd.kata.v2'":                                                                              true,
		"runtime_type = 'io.containerd.kata-gpu.v2'":                                                                          true,
		"runtime_type = 'io.containerd.runc.v2'":                                                                              false,
		"runtime_type = 'io.containerd.katana.v2'":                                                                            false,
		"runtime_type = 'io.containerd.runc.v2'\nruntime_path = '/opt/kata/bin/containerd-shim-kata-v2'":                      true,
		"runtime_type = 'io.containerd.kata-gpu.v2'\nruntime_path = '/usr/bin/containerd-shim-runc-v2'":                       false,
		"runtime_type = 'io.containerd.kata-gpu.v2'\nruntime_path = '/opt/kata/runtime-rs/bin/containerd-shim-kata-v2'":       true,
		"runtime_type = 'io.containerd.kata-gpu.v2'\nruntime_path = '/usr/local/bin/containerd-shim-kata-qemu-nvidia-gpu-v2'": true,
		"": false,
	} {
		if h := handler(t, settings); h.IsKata() != want {
			t.Errorf("%q: Kata's is %v", settings, !want)
		}
	}
}

func TestWhichPatternsReachCDIAnnotations(t *testing.T) {
	for pattern, want := range map[string]bool{
		"cdi.k8s.io/*": true, "cdi.k8s.io/gpu": true, "*/*": true, "*.k8s.io/*": true, "cdi.k8s.i?/x": true,
		"[c]di.k8s.io/*": true, `c\di.k8s.io/*`: true, "cdi*/*": true,
		"*": false, "cdi.k8s.io": false, "io.katacontainers.*": false, "": false, "[": false, `\`: false,
		"nvidia.com/*": false, "cdi.k8s.iox/*": false, "*.example.com/*": false,
	} {
		h := handler(t, fmt.Sprintf("pod_annotations = [%q]", pattern))
		if _, got := h.Passes("cdi.k8s.io/"); got != want {
			t.Errorf("%q reaches is %v", pattern, got)
		}
	}
}

// FuzzPasses holds the answer to the function by which containerd chooses.
func FuzzPasses(f *testing.F) {
	for _, seed := range []string{"*/*", "cdi.k8s.io/*", "[a-z]di.k8s.io/*", `\cdi.k8s.io/?`, "*"} {
		f.Add(seed, "gpu")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if strings.ContainsAny(pattern, "'\n\r\x00") || len(pattern) > 20 || strings.Contains(name, "/") {
			return
		}
		matches, err := path.Match(pattern, "cdi.k8s.io/"+name)
		if err != nil || !matches || strings.ToValidUTF8(pattern, "") != pattern {
			return
		}
		r := runtimes.Of(node(t, files{
			"etc/containerd/config.toml": "[plugins.cri.containerd.runtimes.x]\npod_annotations = ['" + pattern + "']\n",
		}))
		if len(r.Handlers) != 1 {
			return // TOML does not take all characters
		}
		if _, passes := r.Handlers[0].Passes("cdi.k8s.io/"); !passes {
			t.Errorf("%q matches cdi.k8s.io/%s, and is said not to", pattern, name)
		}
	})
}

func TestWhichFunctionsKataAsksTheGuestFor(t *testing.T) {
	goShim := handler(t, "runtime_type = 'io.containerd.kata-gpu.v2'\nruntime_path = '/opt/kata/bin/containerd-shim-kata-v2'")
	rustShim := handler(t, "runtime_type = 'io.containerd.kata-gpu.v2'\nruntime_path = '/opt/kata/runtime-rs/bin/containerd-shim-kata-v2'")
	for name, c := range map[string]struct {
		vendor     pci.ID
		class      pci.Class
		inGo, rust string
	}{
		"an NVIDIA 3D controller":    {0x10de, 0x030200, "nvidia.com/gpu", "nvidia.com/gpu"},
		"an NVIDIA VGA controller":   {0x10de, 0x030000, "nvidia.com/gpu", "nvidia.com/gpu"},
		"an NVSwitch":                {0x10de, 0x068000, "", ""},
		"an AMD VGA controller":      {0x1002, 0x030000, "", "amd.com/gpu"},
		"an AMD display controller":  {0x1002, 0x038000, "", ""},
		"an AMD accelerator":         {0x1002, 0x120000, "", ""},
		"an Intel VGA controller":    {0x8086, 0x030000, "", "intel.com/gpu"},
		"an Intel display":           {0x8086, 0x038000, "", ""},
		"an accelerator of another":  {0x1da3, 0x120000, "", ""},
		"a Mellanox NIC":             {0x15b3, 0x020000, "", "nvidia.com/nic"},
		"a Mellanox InfiniBand card": {0x15b3, 0x020700, "", "nvidia.com/nic"},
		"an Intel NIC":               {0x8086, 0x020000, "", ""},
	} {
		f := &device.Function{Vendor: c.vendor, Class: c.class}
		if inGo, rust := goShim.GuestKind(f), rustShim.GuestKind(f); inGo != c.inGo || rust != c.rust {
			t.Errorf("%s: the Go runtime asks for %q and the Rust runtime for %q; want %q and %q", name, inGo, rust, c.inGo, c.rust)
		}
	}
}

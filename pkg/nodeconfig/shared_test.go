package nodeconfig_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
)

// sharing is a config that shares the GPUs, and has the other types as they are.
func sharing(others ...string) *v1alpha1.NodeConfig {
	cfg := &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{
		{Name: "shared", Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}, SharedWith: "gpu.example.com"},
	}}
	if len(others) > 0 {
		cfg.Devices = append(cfg.Devices, v1alpha1.DeviceRule{Name: "others", Match: v1alpha1.DeviceMatch{Types: others}})
	}
	return cfg
}

// TestSharedGPUs: a GPU is shared if no other claim can have what is assigned with it.
func TestSharedGPUs(t *testing.T) {
	at := place{root: "pci0000:3a"}
	function := func(f device.Function) func(*built) {
		return func(b *built) { b.add("0000:3b:00.1", f, at) }
	}
	mate := func(f device.Function) func(*built) {
		return func(b *built) { function(f)(b); b.functions[1].Group = new(0) }
	}
	sound, disk, gpu := device.Function{Class: 0x040300}, device.Function{Class: 0x010802}, device.Function{Class: 0x030200}
	for name, test := range map[string]struct {
		beside func(*built)
		cfg    *v1alpha1.NodeConfig
		why    string // empty if the GPU is shared
	}{
		"alone":                               {func(*built) {}, sharing(), ""},
		"with its sound":                      {function(sound), sharing(), ""},
		"with its sound, published by itself": {function(sound), sharing("other"), "0000:3b:00.1 is assigned with it, and rule 2 (others) publishes that by itself"},
		"beside a disk":                       {function(disk), sharing("nvme"), ""},
		"in a group with a disk that is not ours": {mate(disk), sharing(), ""},
		"in a group with a disk of ours":          {mate(disk), sharing("nvme"), "0000:3b:00.1 is assigned with it"},
		"in a group with another GPU":             {mate(gpu), sharing(), "GPU 0000:3b:00.1 is in its IOMMU group"},
	} {
		t.Run(name, func(t *testing.T) {
			b := (&built{TB: t}).gpu("0000:3b:00.0", at)
			test.beside(b)
			s := b.snapshot()
			sel := nodeconfig.Select(test.cfg, s)
			choice := sel.Choice(addr(t, "0000:3b:00.0"))
			if shared := choice.Ours && choice.SharedWith == "gpu.example.com"; shared != (test.why == "") || !strings.Contains(choice.Why, test.why) {
				t.Errorf("%+v, want it refused for %q", choice, test.why)
			}
			told := false
			for _, p := range sel.Problems() {
				told = told || p.Object == "rule 1 (shared)" && strings.Contains(p.Text, test.why)
			}
			if told != (test.why != "") {
				t.Errorf("problems %v", sel.Problems())
			}
			want := "worker-1/kata-vfio.dev"
			if test.why == "" {
				want = "worker-1/kata-vfio.dev/shared"
			}
			if pool := sel.Pool(device.NewLayout(s), "worker-1", addr(t, "0000:3b:00.0")); pool != want {
				t.Errorf("pool %s, want %s", pool, want)
			}
		})
	}
}

// TestSharedGPUIsNotPaired: its VF is published by itself, and no problem is reported.
func TestSharedGPUIsNotPaired(t *testing.T) {
	at := place{root: "pci0000:3a", port: "0000:3a:00.0"}
	s := (&built{TB: t}).gpu("0000:3b:00.0", at).nic("0000:3d", 1, at).snapshot()
	cfg := sharing("vf")
	cfg.Pairing = v1alpha1.PairingSwitch
	sel := nodeconfig.Select(cfg, s)
	if len(sel.Pairs()) != 0 || len(sel.Problems()) != 0 {
		t.Errorf("pairs %v, problems %v", sel.Pairs(), sel.Problems())
	}
	if len(sel.Ours()) != 2 {
		t.Errorf("%d functions are ours, want GPU and VF", len(sel.Ours()))
	}
	cfg.Devices[0].SharedWith = ""
	if got := nodeconfig.Select(cfg, s).Pairs(); len(got) != 1 {
		t.Errorf("without sharing: %d pairs, want 1", len(got))
	}
}

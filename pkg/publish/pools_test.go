package publish_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

func poolNames(pools map[string]publish.Pool) map[string][]string {
	all := map[string][]string{}
	for name, p := range pools {
		all[name] = names(p)
	}
	return all
}

func TestPoolsByHardware(t *testing.T) {
	gpuPF := hopper(t, "0000:3b:00.0", 20)
	gpuPF.PF = &device.PF{TotalVFs: 16, NumVFs: 1}
	gpuVF := function(t, "0000:3b:00.4", gpu3D, 21)
	gpuVF.VF = &device.VF{PF: gpuPF.Address}
	diskPF := function(t, "0000:7e:00.0", nvme, 60)
	diskPF.PF = &device.PF{TotalVFs: 4}
	orphan := function(t, "0000:99:10.0", nic, 70)
	orphan.VF = &device.VF{PF: addr(t, "0000:99:00.0")}
	tests := map[string]struct {
		functions []device.Function
		want      map[string][]string
	}{
		"nothing": {nil, map[string][]string{"worker-1/kata-vfio.dev": nil}},
		"NIC without SR-IOV": {
			[]device.Function{function(t, "0000:5e:00.0", nic, 1)},
			map[string][]string{"worker-1/kata-vfio.dev": nil, "worker-1/kata-vfio.dev/pf-0000-5e-00-0": {"pf-0000-5e-00-0"}},
		},
		"PF without VFs and another with": {
			append(pfWith(t, "0000:5e:00.0", 7, 2, 10), pfWith(t, "0000:81:00.0", 7, 0, 30)...),
			map[string][]string{
				"worker-1/kata-vfio.dev": nil, "worker-1/kata-vfio.dev/pf-0000-5e-00-0": {"vf-0000-5e-10-0", "vf-0000-5e-10-1"},
				"worker-1/kata-vfio.dev/pf-0000-81-00-0": {"pf-0000-81-00-0"},
			},
		},
		"VFs of a GPU stand with it": {[]device.Function{gpuPF, gpuVF}, map[string][]string{"worker-1/kata-vfio.dev": {"gpuvf-0000-3b-00-4"}}},
		"disk with SR-IOV":           {[]device.Function{diskPF}, map[string][]string{"worker-1/kata-vfio.dev": nil, "worker-1/kata-vfio.dev/pf-0000-7e-00-0": {"nvme-0000-7e-00-0"}}},
		"VF of an unseen PF":         {[]device.Function{orphan}, map[string][]string{"worker-1/kata-vfio.dev": nil, "worker-1/kata-vfio.dev/pf-0000-99-00-0": {"vf-0000-99-10-0"}}},
		"ports in one group": {
			[]device.Function{function(t, "0000:5e:00.0", nic, 1), function(t, "0000:5e:00.1", nic, 1)},
			map[string][]string{"worker-1/kata-vfio.dev": nil, "worker-1/kata-vfio.dev/pf-0000-5e-00-0": {"pf-0000-5e-00-0", "pf-0000-5e-00-1"}},
		},
		"ports in groups of their own": {
			[]device.Function{function(t, "0000:5e:00.0", nic, 1), function(t, "0000:5e:00.1", nic, 2)},
			map[string][]string{
				"worker-1/kata-vfio.dev": nil, "worker-1/kata-vfio.dev/pf-0000-5e-00-0": {"pf-0000-5e-00-0"}, "worker-1/kata-vfio.dev/pf-0000-5e-00-1": {"pf-0000-5e-00-1"},
			},
		},
		"NIC in a GPU's group": {
			[]device.Function{hopper(t, "0000:3b:00.0", 1), function(t, "0000:3d:00.0", nic, 1), function(t, "0000:3a:00.0", bridge, 1)},
			map[string][]string{"worker-1/kata-vfio.dev": {"gpu-0000-3b-00-0", "pf-0000-3d-00-0"}},
		},
		"a bridge doesn't join what is below it": {
			[]device.Function{function(t, "0000:3a:00.0", bridge, 1), function(t, "0000:3d:00.0", nic, 1)},
			map[string][]string{"worker-1/kata-vfio.dev": nil, "worker-1/kata-vfio.dev/pf-0000-3d-00-0": {"pf-0000-3d-00-0"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, poolNames(publish.Pools(nodeOf(test.functions...)))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPoolsAreNotRearrangedByConfig(t *testing.T) {
	n := nodeOf(hopper(t, "0000:3b:00.0", 1), function(t, "0000:3d:00.0", nic, 1))
	choose(n, &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: []string{"pf"}}}}})
	want := map[string][]string{"worker-1/kata-vfio.dev": {"pf-0000-3d-00-0"}}
	if diff := cmp.Diff(want, poolNames(publish.Pools(n))); diff != "" {
		t.Errorf("a NIC moves when the GPU of its group is not ours (-want +got):\n%s", diff)
	}
}

// A constraint refuses a device that lacks its attribute, also one that is only an alternative.
func TestSwitchIsNeverAbsent(t *testing.T) {
	alone, below, atSwitch := hopper(t, "0000:3b:00.0", 1), hopper(t, "0000:3c:00.0", 2), hopper(t, "0000:3d:00.0", 3)
	alone.Switch, below.Switch = nil, nil
	below.Upstream = []pci.Address{addr(t, "0000:3a:01.0"), addr(t, "0000:3b:02.0")}
	atSwitch.Upstream = below.Upstream
	vf := function(t, "0000:5e:10.0", nic, 4)
	vf.VF = &device.VF{PF: addr(t, "0000:5e:00.0")}
	pools := publish.Pools(nodeOf(alone, below, atSwitch, vf))
	for name, want := range map[string]string{
		"gpu-0000-3b-00-0": "0000:3b:00.0", "gpu-0000-3c-00-0": "0000:3a:01.0", "gpu-0000-3d-00-0": "0000:39:00.0", "vf-0000-5e-10-0": "0000:5e:00.0",
	} {
		if got := deviceNamed(pools, name).Attributes[publish.AttrPCIeSwitch]; got.StringValue == nil || *got.StringValue != want {
			t.Errorf("%s: got %v, want %s", name, got.StringValue, want)
		}
	}
}

func TestOrderIsBestIsolatedFirst(t *testing.T) {
	var functions []device.Function
	for bus := range 6 {
		functions = append(functions, hopper(t, fmt.Sprintf("0000:0%d:00.0", bus), bus))
	}
	n := nodeOf(functions...)
	blemish(n, addr(t, "0000:00:00.0"), rule.NoIOMMUGroup, rule.Critical)
	blemish(n, addr(t, "0000:01:00.0"), rule.DirectMappedRegion, rule.Medium)
	blemish(n, addr(t, "0000:02:00.0"), rule.NoReset, rule.High)
	blemish(n, addr(t, "0000:04:00.0"), rule.NoReset, rule.Low)
	want := []string{
		"gpu-0000-03-00-0", "gpu-0000-05-00-0", "gpu-0000-04-00-0", "gpu-0000-01-00-0", "gpu-0000-02-00-0", "gpu-0000-00-00-0",
	}
	if diff := cmp.Diff(want, names(publish.Pools(n)["worker-1/kata-vfio.dev"])); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFormerTypeKeepsItsName: earlier versions had no accelerators, and one type for all VFs. A claim's device keeps the name that it was
// allocated by, and is not on offer under another one.
func TestFormerTypeKeepsItsName(t *testing.T) {
	for _, renamed := range []struct {
		former, current string
		class           pci.Class
	}{{"other", "accelerator", crypto}, {"vf", "accelerator", crypto}, {"vf", "gpuvf", gpu3D}, {"vf", "nvme", nvme}, {"vf", "other", 0x088000}} {
		t.Run(renamed.former+" to "+renamed.current, func(t *testing.T) {
			checkFormerType(t, renaming{current: renamed.current, former: renamed.former}, renamed.class)
		})
	}
}

func checkFormerType(t *testing.T, renamed renaming, class pci.Class) {
	t.Helper()
	pool := "worker-1/kata-vfio.dev/pf-0000-b1-00-0"
	if class == gpu3D {
		pool = "worker-1/kata-vfio.dev" // with its GPU
	}
	former := publish.Allocated{Pool: pool, Name: renamed.former + "-0000-b1-01-0"}
	current := publish.Allocated{Pool: pool, Name: renamed.current + "-0000-b1-01-0"}
	taints := []string{publish.TaintWithdrawn + "=Renamed"}
	for name, test := range map[string]struct {
		held, lingering []publish.Allocated
		want            map[string][]string // taints by device
	}{
		"fresh":             {nil, nil, map[string][]string{current.Name: nil}},
		"held before":       {[]publish.Allocated{former}, []publish.Allocated{former}, map[string][]string{former.Name: nil}},
		"perhaps a claim's": {nil, []publish.Allocated{former}, map[string][]string{former.Name: taints}},
		"held since":        {[]publish.Allocated{current}, []publish.Allocated{current}, map[string][]string{current.Name: nil}},
		"held both ways":    {[]publish.Allocated{former}, []publish.Allocated{former, current}, map[string][]string{former.Name: nil, current.Name: {publish.TaintWithdrawn + "=Moved"}}},
	} {
		pf, vf := function(t, "0000:b1:00.0", class, 1), function(t, "0000:b1:01.0", class, 2)
		pf.PF, vf.VF = &device.PF{TotalVFs: 16, NumVFs: 1}, &device.VF{PF: pf.Address}
		n := nodeOf(pf, vf)
		n.Allocated, n.Lingering = test.held, test.lingering
		got := map[string][]string{}
		for _, s := range publish.Pools(n)[pool].Slices {
			for _, d := range s.Devices {
				got[d.Name] = nil
				for _, taint := range d.Taints {
					got[d.Name] = append(got[d.Name], taint.Key+"="+taint.Value)
				}
				if kind := d.Attributes[publish.AttrType].StringValue; kind == nil || *kind != renamed.current {
					t.Errorf("%s: type of %s is %v, want %s", name, d.Name, kind, renamed.current)
				}
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAllocatedDevices(t *testing.T) {
	fresh := func() *publish.Node {
		return nodeOf(append(pfWith(t, "0000:5e:00.0", 7, 1, 10), hopper(t, "0000:3b:00.0", 1))...)
	}
	base := map[string][]string{"worker-1/kata-vfio.dev": {"gpu-0000-3b-00-0"}, "worker-1/kata-vfio.dev/pf-0000-5e-00-0": {"vf-0000-5e-10-0"}}
	tests := map[string]struct {
		held []publish.Allocated
		want map[string][]string
	}{
		"where it stands anyway": {[]publish.Allocated{{Pool: "worker-1/kata-vfio.dev", Name: "gpu-0000-3b-00-0"}}, base},
		"named twice": {
			[]publish.Allocated{{Pool: "worker-1/kata-vfio.dev", Name: "gpu-0000-3b-00-0"}, {Pool: "worker-1/kata-vfio.dev", Name: "gpu-0000-3b-00-0"}}, base,
		},
		"in another pool, it stays there": {
			[]publish.Allocated{{Pool: "worker-1/kata-vfio.dev", Name: "vf-0000-5e-10-0"}},
			map[string][]string{"worker-1/kata-vfio.dev": {"gpu-0000-3b-00-0", "vf-0000-5e-10-0"}},
		},
		"of another type by now": {
			[]publish.Allocated{{Pool: "worker-1/kata-vfio.dev", Name: "nvme-0000-3b-00-0"}},
			map[string][]string{"worker-1/kata-vfio.dev": {"nvme-0000-3b-00-0"}, "worker-1/kata-vfio.dev/pf-0000-5e-00-0": {"vf-0000-5e-10-0"}},
		},
		"gone with its pool": {
			[]publish.Allocated{{Pool: "worker-1/kata-vfio.dev/pf-0000-99-00-0", Name: "vf-0000-99-10-0"}},
			map[string][]string{
				"worker-1/kata-vfio.dev": {"gpu-0000-3b-00-0"}, "worker-1/kata-vfio.dev/pf-0000-5e-00-0": {"vf-0000-5e-10-0"}, "worker-1/kata-vfio.dev/pf-0000-99-00-0": {"vf-0000-99-10-0"},
			},
		},
		"another node's":        {[]publish.Allocated{{Pool: "worker-2", Name: "gpu-0000-3b-00-0"}}, base},
		"a node of like name":   {[]publish.Allocated{{Pool: "worker-10", Name: "gpu-0000-99-00-0"}}, base},
		"no name of our making": {[]publish.Allocated{{Pool: "worker-1/kata-vfio.dev", Name: "gpu0"}}, base},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := fresh()
			n.Allocated = test.held
			if diff := cmp.Diff(test.want, poolNames(publish.Pools(n))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func encode(t testing.TB, pools map[string]publish.Pool) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, p := range pools {
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	return all
}

func TestChangeStaysInItsPool(t *testing.T) {
	build := func() *publish.Node {
		functions := []device.Function{hopper(t, "0000:3b:00.0", 1), hopper(t, "0000:3c:00.0", 2)}
		functions = append(functions, pfWith(t, "0000:5e:00.0", 16, 16, 100)...)
		return nodeOf(append(functions, pfWith(t, "0000:81:00.0", 16, 16, 200)...)...)
	}
	vf := addr(t, "0000:5e:10.3")
	changes := map[string]func(n *publish.Node){
		"driver":  func(n *publish.Node) { f, _ := n.Snapshot.Function(vf); f.Driver = "vfio-pci" },
		"verdict": func(n *publish.Node) { blemish(n, vf, rule.GroupNotViable, rule.Critical) },
		"health":  func(n *publish.Node) { refuse(n, vf, rule.Quarantined) },
		"use": func(n *publish.Node) {
			f, _ := n.Snapshot.Function(vf)
			f.Uses = []device.Use{{Kind: device.UseMaster}}
			choose(n, everything())
		},
		"allocation": func(n *publish.Node) {
			n.Allocated = []publish.Allocated{{Pool: "worker-1/kata-vfio.dev/pf-0000-5e-00-0", Name: "vf-0000-5e-11-7"}, {Pool: "worker-1/kata-vfio.dev/pf-0000-5e-00-0", Name: "vf-0000-5e-15-0"}}
		},
		"removal": func(n *publish.Node) {
			n.Snapshot.Functions = slices.DeleteFunc(n.Snapshot.Functions, func(f device.Function) bool { return f.Address == vf })
			choose(n, everything())
		},
	}
	before := encode(t, publish.Pools(build()))
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			n := build()
			change(n)
			after := encode(t, publish.Pools(n))
			for pool := range before {
				if changed := before[pool] != after[pool]; changed != (pool == "worker-1/kata-vfio.dev/pf-0000-5e-00-0") {
					t.Errorf("pool %s changed: %t, want %t", pool, changed, !changed)
				}
			}
			if len(before) != len(after) {
				t.Errorf("%d pools, want %d as before", len(after), len(before))
			}
		})
	}
}

func TestPoolsAreDeterministic(t *testing.T) {
	want := encode(t, publish.Pools(mixed(t)))
	for range 20 {
		if diff := cmp.Diff(want, encode(t, publish.Pools(mixed(t)))); diff != "" {
			t.Fatalf("(-want as at first +got later):\n%s", diff)
		}
	}
}

// big has 4,096 functions: 64 PFs with 63 VFs each.
func big(t testing.TB) *publish.Node {
	var functions []device.Function
	for i := range 64 {
		functions = append(functions, pfWith(t, fmt.Sprintf("%04x:00:00.0", i), 63, 63, i*64)...)
	}
	return nodeOf(functions...)
}

func BenchmarkPools4096(b *testing.B) {
	n := big(b)
	b.ReportAllocs()
	for b.Loop() {
		publish.Pools(n)
	}
}

func BenchmarkPools4096GPUs(b *testing.B) {
	var functions []device.Function
	for i := range 4096 {
		f := hopper(b, "0000:00:00.0", i)
		f.Address = pci.Address{Domain: uint32(i)}
		functions = append(functions, f)
	}
	n := nodeOf(functions...)
	b.ReportAllocs()
	for b.Loop() {
		publish.Pools(n)
	}
}

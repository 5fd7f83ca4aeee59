package publish_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const (
	pairedGPU = "gpu-0000-3b-00-0"
	pairedVF  = "vf-0000-3d-10-1"
	pairName  = pairedGPU + "-" + pairedVF
	nicPool   = "worker-1/kata-vfio.dev/pf-0000-3d-00-0"
)

// paired is a node with a GPU and a NIC at one switch and a GPU at none. Of the NIC's two VFs the last is kept.
func paired(t testing.TB) *publish.Node {
	near := pfWith(t, "0000:3d:00.0", 7, 2, 10)
	for i := range near {
		near[i].Switch = new(addr(t, "0000:39:00.0"))
		if i > 0 {
			near[0].PF.VFs = append(near[0].PF.VFs, near[i].Address)
		}
	}
	other := hopper(t, "0000:4b:00.0", 2)
	other.Switch = nil
	n := nodeOf(append(near, hopper(t, "0000:3b:00.0", 1), other)...)
	pair(n, v1alpha1.PairingSwitch)
	return n
}

func pair(n *publish.Node, policy v1alpha1.Pairing) {
	cfg := everything()
	cfg.Pairing = policy
	choose(n, cfg)
}

func deviceNamed(pools map[string]publish.Pool, name string) *resourceapi.Device {
	for _, p := range pools {
		for _, s := range p.Slices {
			if i := slices.IndexFunc(s.Devices, func(d resourceapi.Device) bool { return d.Name == name }); i >= 0 {
				return &s.Devices[i]
			}
		}
	}
	return nil
}

func TestPairsInPools(t *testing.T) {
	kept := map[string][]string{"worker-1/kata-vfio.dev": {pairedGPU, pairName, "gpu-0000-4b-00-0"}, nicPool: {"vf-0000-3d-10-0"}}
	split := map[string][]string{"worker-1/kata-vfio.dev": {pairedGPU, "gpu-0000-4b-00-0"}, nicPool: {"vf-0000-3d-10-0", pairedVF}}
	tests := map[string]struct {
		change func(n *publish.Node)
		want   map[string][]string
	}{
		"beside the GPU, in place of the VF": {func(*publish.Node) {}, kept},
		"not asked for":                      {func(n *publish.Node) { pair(n, v1alpha1.PairingNone) }, split},
		"the pair is taken":                  {held("worker-1/kata-vfio.dev", pairName), kept},
		"the GPU is taken":                   {held("worker-1/kata-vfio.dev", pairedGPU), kept},
		"the VF was taken before it was kept": {
			held(nicPool, pairedVF), split,
		},
		"the GPU was taken from another pool": {
			held("worker-1/kata-vfio.dev/pf-0000-3a-00-0", pairedGPU),
			map[string][]string{"worker-1/kata-vfio.dev": {"gpu-0000-4b-00-0"}, "worker-1/kata-vfio.dev/pf-0000-3a-00-0": {pairedGPU}, nicPool: {"vf-0000-3d-10-0"}},
		},
		"the pair was taken before pairs were given up": {
			func(n *publish.Node) { pair(n, v1alpha1.PairingNone); held("worker-1/kata-vfio.dev", pairName)(n) },
			map[string][]string{"worker-1/kata-vfio.dev": {pairedGPU, pairName, "gpu-0000-4b-00-0"}, nicPool: {"vf-0000-3d-10-0"}},
		},
		"a pair was taken with another VF": {
			held("worker-1/kata-vfio.dev", pairedGPU+"-vf-0000-3d-10-0"),
			map[string][]string{"worker-1/kata-vfio.dev": {pairedGPU, pairedGPU + "-vf-0000-3d-10-0", "gpu-0000-4b-00-0"}, nicPool: nil},
		},
		"a taken pair's GPU is gone": {
			held("worker-1/kata-vfio.dev", "gpu-0000-99-00-0-"+pairedVF),
			map[string][]string{"worker-1/kata-vfio.dev": {pairedGPU, "gpu-0000-4b-00-0", "gpu-0000-99-00-0-" + pairedVF}, nicPool: {"vf-0000-3d-10-0"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := paired(t)
			test.change(n)
			pools := publish.Pools(n)
			checkPools(t, pools)
			for pool, devices := range test.want {
				if devices == nil {
					delete(test.want, pool)
				}
			}
			if diff := cmp.Diff(test.want, poolNames(pools)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// held returns a change by which a device is allocated.
func held(pool, name string) func(n *publish.Node) {
	return func(n *publish.Node) { n.Allocated = append(n.Allocated, publish.Allocated{Pool: pool, Name: name}) }
}

func TestPairOrItsParts(t *testing.T) {
	tests := map[string]struct {
		held []publish.Allocated
		ask  []string
		want []string
	}{
		"a pair":                 {nil, []string{"gpu-vf"}, []string{pairName}},
		"a GPU":                  {nil, []string{"gpu"}, []string{pairedGPU}},
		"a pair and a GPU":       {nil, []string{"gpu-vf", "gpu"}, []string{pairName, "gpu-0000-4b-00-0"}},
		"a GPU of a taken pair":  {[]publish.Allocated{{Pool: "worker-1/kata-vfio.dev", Name: pairName}}, []string{"gpu", "gpu"}, nil},
		"a pair of a taken GPU":  {[]publish.Allocated{{Pool: "worker-1/kata-vfio.dev", Name: pairedGPU}}, []string{"gpu-vf"}, nil},
		"two pairs":              {nil, []string{"gpu-vf", "gpu-vf"}, nil},
		"the VF that is kept":    {nil, []string{"vf", "vf"}, nil},
		"a VF beside a pair":     {[]publish.Allocated{{Pool: "worker-1/kata-vfio.dev", Name: pairName}}, []string{"vf"}, []string{"vf-0000-3d-10-0"}},
		"a pair whose VF is out": {[]publish.Allocated{{Pool: nicPool, Name: pairedVF}}, []string{"gpu-vf"}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, quotas := range []bool{false, true} {
				n := paired(t)
				n.Allocated = test.held
				choose(n, &v1alpha1.NodeConfig{Devices: everything().Devices, Pairing: v1alpha1.PairingSwitch, QuotaCounters: quotas})
				if diff := cmp.Diff(test.want, allocate(t, publish.Pools(n), test.held, claimFor(test.ask...))); diff != "" {
					t.Errorf("quotaCounters %t (-want +got):\n%s", quotas, diff)
				}
			}
		})
	}
}

func TestPairIsAsGoodAsItsParts(t *testing.T) {
	gpu, vf := addr(t, "0000:3b:00.0"), addr(t, "0000:3d:10.1")
	function := func(n *publish.Node, a pci.Address) *device.Function { f, _ := n.Snapshot.Function(a); return f }
	tests := map[string]struct {
		change func(n *publish.Node)
		want   []string // taints, with their values
	}{
		"well":                      {func(*publish.Node) {}, nil},
		"the GPU is quarantined":    {func(n *publish.Node) { refuse(n, gpu, rule.Quarantined) }, []string{"quarantined=Quarantined"}},
		"the VF lost its link":      {func(n *publish.Node) { refuse(n, vf, rule.LinkLost) }, []string{"link-lost="}},
		"the VF is not isolated":    {func(n *publish.Node) { blemish(n, vf, rule.NoReset, rule.High) }, []string{"not-isolated=NoReset"}},
		"the VF has no verdict":     {func(n *publish.Node) { delete(n.Assessments, vf) }, []string{"not-isolated=NotJudged"}},
		"the VF is dead":            {func(n *publish.Node) { refuse(n, vf, rule.ConfigSpaceDead) }, []string{"dead="}},
		"taken, and pairs given up": {func(n *publish.Node) { held("worker-1/kata-vfio.dev", pairName)(n); pair(n, v1alpha1.PairingNone) }, []string{"withdrawn=NotOurs"}},
		"taken, and the VF is gone": {
			func(n *publish.Node) {
				held("worker-1/kata-vfio.dev", pairName)(n)
				n.Snapshot.Functions = slices.DeleteFunc(n.Snapshot.Functions, func(f device.Function) bool { return f.Address == vf })
				pair(n, v1alpha1.PairingSwitch)
			},
			[]string{"withdrawn=Gone"},
		},
		"taken, and the node uses the VF": {
			func(n *publish.Node) {
				held("worker-1/kata-vfio.dev", pairName)(n)
				function(n, vf).Uses = []device.Use{{Kind: device.UseMaster}}
				pair(n, v1alpha1.PairingSwitch)
			},
			[]string{"withdrawn=Forbidden"},
		},
		"both are quarantined": {
			func(n *publish.Node) {
				refuse(n, gpu, rule.Quarantined)
				refuse(n, vf, rule.Quarantined)
			},
			[]string{"quarantined=Quarantined"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := paired(t)
			test.change(n)
			var got []string
			for _, taint := range deviceNamed(publish.Pools(n), pairName).Taints {
				got = append(got, taint.Key[len(v1alpha1.DriverName)+1:]+"="+taint.Value)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPairsAttributes(t *testing.T) {
	n := paired(t)
	vf, _ := n.Snapshot.Function(addr(t, "0000:3d:10.1"))
	vf.Children.RDMA = []string{"mlx5_3"}
	blemish(n, vf.Address, rule.DirectMappedRegion, rule.Medium)
	pools := publish.Pools(n)
	gpu, got := deviceNamed(pools, pairedGPU), deviceNamed(pools, pairName)
	want := gpu.DeepCopy().Attributes
	text := func(v string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &v} }
	want[publish.AttrType], want[publish.AttrVF], want[publish.AttrPF] = text("gpu-vf"), text("0000:3d:10.1"), text("0000:3d:00.0")
	want[publish.AttrVFIndex] = resourceapi.DeviceAttribute{IntValue: new(int64(1))}
	want[publish.AttrRDMA] = resourceapi.DeviceAttribute{BoolValue: new(true)}
	want[publish.AttrIsolated] = resourceapi.DeviceAttribute{BoolValue: new(false)}
	want[publish.AttrAuditSeverity] = text("medium")
	if diff := cmp.Diff(want, got.Attributes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(gpu.Capacity, got.Capacity); diff != "" {
		t.Errorf("the capacity is not the GPU's (-want +got):\n%s", diff)
	}
}

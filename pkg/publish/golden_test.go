package publish_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// mixed is a node with a bit of everything.
func mixed(t testing.TB) *publish.Node {
	second := hopper(t, "0000:3c:00.0", 21)
	second.Driver = "vfio-pci"
	disk := function(t, "10000:01:00.0", nvme, 30)
	disk.NUMANode, disk.Root = nil, "pci10000:00"
	functions := []device.Function{
		function(t, "0000:00:01.0", bridge, 1), hopper(t, "0000:3b:00.0", 20), second, sound(t, "0000:3c:00.1", 22), disk,
	}
	functions = append(functions, pfWith(t, "0000:5e:00.0", 7, 2, 40)...)
	functions = append(functions, pfWith(t, "0000:81:00.0", 4, 0, 50)...)
	n := nodeOf(functions...)
	n.Snapshot.Functions[5].Children.RDMA = []string{"mlx5_0"}
	blemish(n, addr(t, "0000:3b:00.0"), rule.NoInterruptRemapping, rule.High)
	blemish(n, addr(t, "10000:01:00.0"), rule.DirectMappedRegion, rule.Medium)
	v := n.Assessments[addr(t, "0000:3c:00.0")]
	v.Isolation.Notes = []rule.Verdict{{Code: "ATSEnabled", Severity: rule.Low, Text: "ATS is on."}}
	n.Assessments[addr(t, "0000:3c:00.0")] = v
	return n
}

// hgx is a node with an HGX board, eight GPUs and four NVSwitches, whose config selects both.
func hgx(t testing.TB) *publish.Node {
	var functions []device.Function
	for i := range 4 {
		f := function(t, fmt.Sprintf("0000:%02x:00.0", i+6), 0x068000, i+1)
		f.Vendor, f.Device, f.Driver, f.Model = 0x10de, 0x22a3, "vfio-pci", "GH100 [H100 NVSwitch]"
		f.Switch, f.Capabilities.Header = new(addr(t, "0000:04:00.0")), pci.HeaderNormal
		f.BARs = []device.BAR{{Index: 0, Size: 32 << 20, Is64: true, Prefetchable: true}}
		functions = append(functions, f)
	}
	for i, bus := range []int{0x18, 0x19, 0x3a, 0x3b, 0x9a, 0x9b, 0xba, 0xbb} {
		f := hopper(t, fmt.Sprintf("0000:%02x:00.0", bus), i+5)
		f.Driver, f.NUMANode, f.Switch = "vfio-pci", new(i/4), new(addr(t, fmt.Sprintf("0000:%02x:00.0", bus&^1-2)))
		functions = append(functions, f)
	}
	n := nodeOf(functions...)
	choose(n, &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{
		{Name: "gpus", Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}, Vendors: []pci.ID{0x10de}}, Policy: v1alpha1.PolicyBound},
		{Name: "nvswitches", Match: v1alpha1.DeviceMatch{Classes: []string{"0680"}, Vendors: []pci.ID{0x10de}}, Policy: v1alpha1.PolicyBound},
	}})
	return n
}

func TestGolden(t *testing.T) {
	tests := map[string]func(n *publish.Node){
		"mixed": func(*publish.Node) {},
		"allocated": func(n *publish.Node) {
			// The default config leaves PFs and disks out; the GPU was allocated
			// before its console was plugged in, one VF went away with its claim.
			choose(n, nil)
			second, _ := n.Snapshot.Function(addr(t, "0000:3c:00.0"))
			second.Uses = []device.Use{{Kind: device.UseConsole, Name: "card0"}}
			choose(n, nil)
			n.Allocated = []publish.Allocated{
				{Pool: "worker-1/kata-vfio.dev", Name: "gpu-0000-3c-00-0"},
				{Pool: "worker-1/kata-vfio.dev", Name: "nvme-10000-01-00-0"},
				{Pool: "worker-1/kata-vfio.dev/pf-0000-5e-00-0", Name: "vf-0000-5e-10-1"},
				{Pool: "worker-1/kata-vfio.dev/pf-0000-5e-00-0", Name: "vf-0000-5e-10-6"},
				{Pool: "worker-1/kata-vfio.dev/pf-0000-81-00-0", Name: "pf-0000-81-00-0"},
			}
		},
		"unwell": func(n *publish.Node) {
			refuse(n, addr(t, "0000:3b:00.0"), rule.Quarantined, rule.LinkLost, rule.FatalErrors)
			refuse(n, addr(t, "10000:01:00.0"), rule.ConfigSpaceDead)
			delete(n.Assessments, addr(t, "0000:5e:10.0"))
		},
		"shared": func(n *publish.Node) { shareGPU(n, addr(t, "0000:3b:00.0")) },
		"quotas": func(n *publish.Node) {
			cfg := everything()
			cfg.QuotaCounters = true
			choose(n, cfg)
		},
		// A claim has a GPU since before the upgrade, and a NIC is new.
		"upgraded": func(n *publish.Node) {
			for a := range published(publish.Pools(n)) {
				if a.Name != "pf-0000-81-00-0" {
					n.Lingering = append(n.Lingering, publish.Allocated{Pool: device.FormerPool(a.Pool), Name: a.Name})
				}
			}
			n.Allocated = []publish.Allocated{{Pool: "worker-1", Name: "gpu-0000-3c-00-0"}}
		},
		"hgx":     func(n *publish.Node) { *n = *hgx(t) },
		"nothing": func(n *publish.Node) { *n = *nodeOf() },
		"paired":  func(n *publish.Node) { *n = *pairedBoard(t) }, // test/allocator allocates from it
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			n := mixed(t)
			change(n)
			pools := publish.Pools(n)
			for _, p := range pools {
				wantVocabulary(t, p)
			}
			got, err := json.MarshalIndent(pools, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			path := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("(-want +got), go test -update rewrites:\n%s", diff)
			}
		})
	}
}

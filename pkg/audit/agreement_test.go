package audit_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// seeds is how many nodes are generated. One that fails names its seed, and
// `go test -run 'TestAuditAndPluginAgree/generated/seed_17$'` shows it alone.
const seeds = 2000

// tally counts the cases of a property.
type tally struct{ nodes, nodeWide, devices, tainted int }

// TestAuditAndPluginAgree: what is published without a taint is what plan accepts, and the tables
// and pictures of the audit say the same.
func TestAuditAndPluginAgree(t *testing.T) {
	var all tally
	for _, b := range board.All() {
		t.Run("board/"+b.Name, func(t *testing.T) { all.try(t, scanned(t, b.Build(t).Kernel)) })
	}
	for name, script := range scripts() {
		t.Run("script/"+name, func(t *testing.T) {
			k := sysfstest.New(t)
			script(k)
			all.try(t, scanned(t, k))
		})
	}
	t.Run("generated", func(t *testing.T) {
		for seed := range uint64(seeds) {
			t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { all.node(t, generate(seed)) })
		}
	})
	t.Logf("tried on %d nodes, %d of them with a fault of the whole node, with %d published devices, %d of them tainted", all.nodes, all.nodeWide, all.devices, all.tainted)
	if all.nodeWide < all.nodes/20 {
		t.Errorf("%d of %d nodes have a fault of the whole node, want a twentieth", all.nodeWide, all.nodes)
	}
	if all.devices < 20_000 || all.tainted < all.devices/5 || all.tainted > all.devices*4/5 {
		t.Errorf("%d devices, %d tainted: want 20,000 and a fifth of each kind", all.devices, all.tainted)
	}
}

// TestChecksOfTheWholeNodeCountWithoutAPlugin: on a node without a plugin, as a captured tree is one, what is shown of a
// device goes by the checks that its plugin would refuse it for.
func TestChecksOfTheWholeNodeCountWithoutAPlugin(t *testing.T) {
	all, err := check.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(*board.Tree)
		check  string // that refuses each device
	}{
		"as it is":                            {func(*board.Tree) {}, ""},
		"an argument that fakes ACS":          {func(b *board.Tree) { b.Boot("pcie_acs_override=downstream,multifunction") }, "ACS-006"},
		"no-IOMMU mode":                       {func(b *board.Tree) { b.SetParameter("vfio", "enable_unsafe_noiommu_mode", "Y") }, "IOM-003"},
		"interrupt remapping without sources": {func(b *board.Tree) { b.Boot("intremap=nosid") }, "IOM-008"},
	} {
		for _, b := range board.All() {
			t.Run(name+"/"+b.Name, func(t *testing.T) {
				tree := b.Build(t)
				tt.change(tree)
				fsys, snapshot := tree.Read()
				n, unread := check.Planned(facts.New(fsys, snapshot), all, "2026-11-22")
				if len(unread) > 0 {
					t.Error(unread)
				}
				var c tally
				c.node(t, n)
				inv := audit.NewInventory(n, nil)
				for i := range inv.Devices {
					d := &inv.Devices[i]
					fails := slices.ContainsFunc(d.Refusals, func(r rule.Verdict) bool { return r.Code == rule.FailsAudit && strings.Contains(r.Text, tt.check) })
					if tt.check != "" && n.Selection.Choice(d.Address).Ours && (!fails || d.Grade() != audit.Bad) {
						t.Errorf("%s: refusals %v, grade %v; want one for %s", d.Address, d.Refusals, d.Grade(), tt.check)
					}
				}
			})
		}
	}
}

// scripts are the kinds of hardware that the kernel's double knows.
func scripts() map[string]func(*sysfstest.Kernel) {
	return map[string]func(*sysfstest.Kernel){
		"GPU":              func(k *sysfstest.Kernel) { k.AddGPU(0x3b) },
		"GPU and audio":    func(k *sysfstest.Kernel) { k.AddGPUWithAudio(0x62, 15) },
		"companions":       func(k *sysfstest.Kernel) { k.AddGPUWithCompanions(0x62) },
		"NIC":              func(k *sysfstest.Kernel) { k.AddNIC(0x21, 7) },
		"HCA":              func(k *sysfstest.Kernel) { k.AddHCA(0x21, 4) },
		"NVMe":             func(k *sysfstest.Kernel) { k.AddNVMe(0x21) },
		"behind a bridge":  func(k *sysfstest.Kernel) { k.AddBehindBridge(0x62, 15) },
		"busy mate":        func(k *sysfstest.Kernel) { k.AddWithBusyMate(0x62, 15) },
		"GPU and NIC":      func(k *sysfstest.Kernel) { k.AddGPUAndNIC(0x39, 2) },
		"without an IOMMU": func(k *sysfstest.Kernel) { k.WithoutIOMMU(); k.AddGPU(0x3b) },
		"iommufd":          func(k *sysfstest.Kernel) { k.WithIOMMUFD(); k.AddGPU(0x3b) },
		"console":          func(k *sysfstest.Kernel) { k.AddConsole(); k.AddGPU(0x3b) },
		"NVIDIA modeset":   addModesetDisplay,
		"256 functions":    func(k *sysfstest.Kernel) { k.Scale(256) },
	}
}

// addModesetDisplay adds a GPU that nvidia_drm uses for its display, and one without a display.
func addModesetDisplay(k *sysfstest.Kernel) {
	k.AddRootPort(0x62)
	display := sysfstest.GPU(pci.Address{Bus: 0x62})
	display.Class = pci.Class(pci.ClassVGA) << 8
	k.Add(display)
	k.AddGPU(0x3b)
	k.SetNVIDIAModeset(true)
}

// TestDisplayThatItsDriverUsesIsTainted, and the GPU beside it is not.
func TestDisplayThatItsDriverUsesIsTainted(t *testing.T) {
	k := sysfstest.New(t)
	addModesetDisplay(k)
	var c tally
	c.try(t, scanned(t, k))
	if want := (tally{nodes: 2, devices: 4, tainted: 2}); c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
}

func scanned(t *testing.T, k *sysfstest.Kernel) *device.Snapshot {
	t.Helper()
	fs, err := sysfs.Open(k.Root())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	s, err := inventory.Scan(t.Context(), fs)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// try checks a snapshot by the default config and by one that names everything.
func (c *tally) try(t *testing.T, s *device.Snapshot) {
	t.Helper()
	for _, config := range []*v1alpha1.NodeConfig{nil, everything()} {
		c.node(t, plan.Node{Snapshot: s, Selection: nodeconfig.Select(config, s)})
	}
}

func everything() *v1alpha1.NodeConfig {
	return &v1alpha1.NodeConfig{
		Devices: []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: []string{"gpu", "pf", "vf", "gpuvf", "nvme", "accelerator", "other"}}}},
		Pairing: v1alpha1.PairingSwitch,
	}
}

// node checks one node.
func (c *tally) node(t *testing.T, n plan.Node) {
	t.Helper()
	n.Name = "node-1"
	c.nodes++
	if n.NotReady != nil || n.Damaged != "" || n.Snapshot.Host.NoIOMMUMode || n.Failing != nil && len(n.Failing(pci.Address{})) > 0 {
		c.nodeWide++
	}
	published := &publish.Node{Name: n.Name, Snapshot: n.Snapshot, Selection: n.Selection, Assessments: map[pci.Address]plan.Assessment{}}
	assessor := plan.NewAssessor(n)
	for _, f := range n.Selection.Ours() {
		published.Assessments[f.Address] = assessor.Assess(f)
	}
	rows := newRows(n)
	for pool, p := range publish.Pools(published) {
		for _, slice := range p.Slices {
			for i := range slice.Devices {
				d := &slice.Devices[i]
				c.devices++
				if len(d.Taints) > 0 {
					c.tainted++
				}
				agree(t, n, rows, pool, d.Name, len(d.Taints) > 0)
			}
		}
	}
}

// newRows returns the rows of the tables and pictures, by address.
func newRows(n plan.Node) map[pci.Address]*audit.Device {
	inv := audit.NewInventory(n, nil)
	rows := map[pci.Address]*audit.Device{}
	var enter func(nodes []*audit.Node)
	enter = func(nodes []*audit.Node) {
		for _, node := range nodes {
			rows[node.Device.Address] = node.Device
			for _, vf := range node.VFs {
				rows[vf.Address] = vf
			}
			enter(node.Children)
		}
	}
	for _, root := range audit.Roots(inv) {
		enter(root.Children)
	}
	return rows
}

// agree checks one device: its taints against the plan of a claim for it, and against
// what is shown of its functions.
func agree(t *testing.T, n plan.Node, rows map[pci.Address]*audit.Device, pool, name string, tainted bool) {
	t.Helper()
	parts, err := device.ParseParts(name)
	if err != nil {
		t.Fatal(err)
	}
	req := &claim.Request{UID: "uid-of-nobody", Namespace: "tenant", Name: "default"}
	shown := true
	for _, part := range parts {
		d := claim.Device{Request: "one", Pool: pool, Name: part.Name, Address: part.Address}
		if len(parts) > 1 {
			d.Pair = name
		}
		d.VFIO.Default()
		req.Devices = append(req.Devices, d)
		shown = shown && rows[part.Address].Grade() != audit.Bad && rows[part.Address].Grade() != audit.None
	}
	own := len(req.Devices)
	if f, _ := n.Snapshot.Function(parts[0].Address); f.IsNVSwitch() {
		req.Devices = append(req.Devices, boardOf(n.Snapshot, f)...)
	}
	_, err = plan.Make(req, n)
	refused, held := refusedFor(err, req.Devices[:own])
	switch {
	case tainted && !refused && !held:
		t.Errorf("%s is tainted, and plan accepts it", name)
	case !tainted && refused:
		t.Errorf("%s has no taint, and plan refuses it: %v", name, err)
	}
	if shown == tainted {
		t.Errorf("%s: shown as fit %t, tainted %t (plan: %v)", name, shown, tainted, err)
	}
}

// boardOf returns the GPUs and NVSwitches that a claim for an NVSwitch has to have, without the switch itself.
func boardOf(s *device.Snapshot, nvSwitch *device.Function) []claim.Device {
	var devices []claim.Device
	for i := range s.Functions {
		if f := &s.Functions[i]; f.IsOnNVLink() && f != nvSwitch {
			d := claim.Device{Request: "board", Name: f.Name(), Address: f.Address}
			d.VFIO.Default()
			devices = append(devices, d)
		}
	}
	return devices
}

// refusedFor reports whether a claim is refused because of the devices, and whether other claims hold them.
func refusedFor(err error, devices []claim.Device) (refused, held bool) {
	all, ok := errors.AsType[*rule.RefusedError](err)
	if !ok {
		return err != nil, false
	}
	for _, r := range all.Verdicts {
		of := slices.ContainsFunc(devices, func(d claim.Device) bool { return d.Name == r.Device })
		refused = refused || of && r.Code != rule.Held
		held = held || of && r.Code == rule.Held
	}
	return refused, held
}

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	parts "github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// pluginNode is a board with a plugin on it.
type pluginNode struct {
	*board.Tree
	t *testing.T
	// config is the plugin's; inPod says that it is in no file of the node.
	config *v1alpha1.NodeConfig
	inPod  bool
	// failing and attempted are facts that only the plugin knows.
	failing   map[pci.Address][]rule.Failure
	attempted map[pci.Address]rule.Code
	// window is the space of its VMs for hot-plugged functions.
	window uint64
}

// openedNode decides over the devices of a node. It implements [dra.PublishedNode].
type openedNode struct {
	node   *pluginNode
	opened *parts.Node
	gate   func(pci.Address) []rule.Failure
}

func (o openedNode) PlanNode(ctx context.Context, snap *device.Snapshot) (plan.Node, error) {
	known, err := o.opened.Preparer.PlanNode(ctx, snap)
	known.Attempted = o.node.attempted
	return known, err
}

func (o openedNode) Failing(a pci.Address) []rule.Failure {
	return append(o.gate(a), o.node.failing[a]...)
}

func (o openedNode) Drains(snap *device.Snapshot) []maintain.Draining {
	drains, err := o.opened.Maintainer.DrainsIn(snap)
	if err != nil {
		o.node.t.Fatal(err)
	}
	return drains
}

func (openedNode) Lost() map[string]string    { return nil }
func (openedNode) Versions() publish.Versions { return publish.Versions{} }

// slices publishes the node as the plugin does, and returns the taints of the functions
// that are published by themselves.
func (n *pluginNode) slices() map[pci.Address][]resourceapi.DeviceTaint {
	n.t.Helper()
	opened, err := parts.Look(parts.Config{Root: n.Root(), StateDir: parts.DefaultStateDir, RunDir: parts.DefaultRunDir, Node: n.config, Name: "worker-1", HotPlugWindow: n.window})
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = opened.Close() }()
	p := dra.NewPublisher(dra.PublisherConfig{
		NodeName: "worker-1", Node: openedNode{n, opened, n.gate()}, Records: opened.Parts.Journal, Health: dra.NewHealth(),
		Metrics: metrics.New(opened.Parts.Journal, func() int { return 0 }),
	})
	var written written
	s := n.Scan()
	if err := p.Publish(n.t.Context(), &written, s); err != nil {
		n.t.Fatal(err)
	}
	if n.inPod {
		said := p.Published()
		said.BootID, said.Config = s.Host.BootID, n.config
		if err := plugin.NewRunFiles(n.Path(parts.DefaultRunDir)).Publish(said); err != nil {
			n.t.Fatal(err)
		}
	}
	return written.taints(n.t)
}

// gate returns the checks that fail for a function, as Prepare asks for them.
func (n *pluginNode) gate() func(pci.Address) []rule.Failure {
	n.t.Helper()
	fsys, _ := n.Read()
	failures, _, err := plugin.Checks{Profile: finding.Profiles()[0], Counts: rule.High}.Gate(n.t.Context(), fsys, n.config, n.Root())
	if err != nil {
		n.t.Fatal(err)
	}
	return func(a pci.Address) []rule.Failure {
		var all []rule.Failure
		for _, id := range failures.IDs(a) {
			all = append(all, rule.Failure{ID: id, Severity: rule.High})
		}
		return all
	}
}

// written is the output of a publisher.
type written struct{ resourceslice.DriverResources }

func (w *written) PublishResources(_ context.Context, r resourceslice.DriverResources) error {
	w.DriverResources = r
	return nil
}

func (w *written) taints(t *testing.T) map[pci.Address][]resourceapi.DeviceTaint {
	t.Helper()
	all := map[pci.Address][]resourceapi.DeviceTaint{}
	for _, pool := range w.Pools {
		for _, slice := range pool.Slices {
			for i := range slice.Devices {
				functions, err := device.ParseParts(slice.Devices[i].Name)
				if err != nil {
					t.Fatal(err)
				}
				if len(functions) == 1 {
					all[functions[0].Address] = slice.Devices[i].Taints
				}
			}
		}
	}
	return all
}

// store is the node's journal.
func (n *pluginNode) store() *journal.Store {
	n.t.Helper()
	s, err := journal.Open(n.Path(journal.DefaultDir))
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

// ours returns the functions that the config selects.
func (n *pluginNode) ours() []*device.Function {
	return nodeconfig.Select(n.config, n.Scan()).Ours()
}

// records returns the claims' records.
func (n *pluginNode) records() []*journal.Record {
	n.t.Helper()
	all, errs := n.store().List()
	if len(all) == 0 || len(errs) > 0 {
		n.t.Fatalf("the board has %d records, errors %v; want some", len(all), errs)
	}
	return all
}

// events are what may be on a node that decides over its devices.
func events() map[string]func(*pluginNode) {
	return map[string]func(*pluginNode){
		"as it is": func(*pluginNode) {},
		"a config": func(n *pluginNode) { n.config = everything() },
		"a drain": func(n *pluginNode) {
			f := n.ours()[0]
			if err := n.store().MarkDrained(n.t.Context(), journal.Drain{Address: f.Address, Reason: "RMA"}); err != nil {
				n.t.Fatal(err)
			}
		},
		"a quarantined record": func(n *pluginNode) {
			rec := *n.records()[0]
			rec.State, rec.Reason = journal.Quarantined, "the reset failed"
			n.Save(&rec)
		},
		"a quarantined record of another boot": func(n *pluginNode) {
			rec := *n.records()[0]
			rec.State, rec.Reason, rec.BootID = journal.Quarantined, "the reset failed", "another"
			n.Save(&rec)
		},
		"a record of another boot": func(n *pluginNode) {
			rec := *n.records()[0]
			rec.BootID = "another"
			n.Save(&rec)
		},
		"a damaged record":              func(n *pluginNode) { n.damage(n.records()[0]) },
		"a record under another's name": func(n *pluginNode) { n.Put(journal.DefaultDir+"/other.json", n.Text(n.file(n.records()[0]))) },
		"fatal errors":                  func(n *pluginNode) { n.CountFatalErrors(n.ours()[0].Address, 2) },
		"fatal errors that are accounted for": func(n *pluginNode) {
			s := n.Scan()
			f := n.ours()[0]
			mark := journal.FatalErrors{Address: f.Address, BootID: s.Host.BootID, Inode: f.Inode, Count: 2}
			n.CountFatalErrors(mark.Address, 2)
			if err := n.store().MarkFatalErrors(n.t.Context(), mark); err != nil {
				n.t.Fatal(err)
			}
		},
		"a tenant's leftovers": func(n *pluginNode) {
			if err := n.store().MarkNeedsReset(n.t.Context(), journal.ResetMark{Address: n.ours()[0].Address}); err != nil {
				n.t.Fatal(err)
			}
		},
		"a device that fell off": func(n *pluginNode) { n.FallOff(n.ours()[0].Address) },
		"a device in D3cold":     func(n *pluginNode) { coldOff(n.Tree, n.ours()[0].Address) },
		"BARs without an address": func(n *pluginNode) {
			takeAddresses(n.Tree, n.ours()[0].Address)
		},
		"the firmware's frame buffer": func(n *pluginNode) {
			keepFrameBuffer(n.Tree, n.gpuOnVFIO())
		},
		"a failed attempt": func(n *pluginNode) {
			n.inPod, n.attempted = true, map[pci.Address]rule.Code{n.ours()[0].Address: rule.InUse}
		},
		"hot plug":                          func(n *pluginNode) { n.inPod, n.window = true, plan.FirmwareWindow },
		"an argument that fakes ACS":        func(n *pluginNode) { n.Boot("pcie_acs_override=downstream") },
		"an argument that switches ACS off": func(n *pluginNode) { n.Boot("pci=disable_acs_redir=" + n.portOf(n.ours()[0]).String()) },
		"an argument about an absent port":  func(n *pluginNode) { n.Boot("pci=disable_acs_redir=0000:fe:1f.7") },
		"no-IOMMU mode":                     func(n *pluginNode) { n.SetParameter("vfio", "enable_unsafe_noiommu_mode", "Y") },
		"ATS":                               func(n *pluginNode) { n.EnableATS(n.ours()[0].Address) },
		"a reset by power management only":  func(n *pluginNode) { n.resetBy(n.ours()[0], "pm") },
		"a failure that a waiver accepts": func(n *pluginNode) {
			n.Boot("pcie_acs_override=downstream")
			n.Put("etc/kata-vfio/waivers.yaml", "waivers: [{rule: ACS-006, scope: '*', until: 2999-12-31, reason: a test, author: tester}]\n")
		},
		"a run file of another boot": func(n *pluginNode) {
			n.Boot("pcie_acs_override=downstream")
			n.Put("run/kata-vfio/published.json", `{"bootID": "another", "nodeName": "worker-1", "devices": []}`)
		},
		"a check that fails": func(n *pluginNode) {
			n.inPod, n.failing = true, map[pci.Address][]rule.Failure{n.ours()[0].Address: {{ID: "ACS-017", Severity: rule.High}}}
		},
	}
}

// gpuOnVFIO returns a GPU that the config selects and a VFIO driver has.
func (n *pluginNode) gpuOnVFIO() *device.Function {
	n.t.Helper()
	for _, f := range n.ours() {
		if f.Type == device.GPU && device.IsVFIO(f.Driver) {
			return f
		}
	}
	n.t.Fatal("no GPU is on VFIO")
	return nil
}

// coldOff takes a function's power away for good.
func coldOff(b *board.Tree, a pci.Address) {
	b.FallOff(a)
	b.Put("sys/bus/pci/devices/"+a.String()+"/power_state", "D3cold\n")
}

// takeAddresses leaves a function's BARs without addresses.
func takeAddresses(b *board.Tree, a pci.Address) {
	b.Put("sys/bus/pci/devices/"+a.String()+"/resource", strings.Repeat("0x0000000000000000 0x0000000000ffffff 0x0000000020040200\n", 2)+
		strings.Repeat("0x0000000000000000 0x0000000000000000 0x0000000000000000\n", 11))
}

// keepFrameBuffer leaves the firmware's frame buffer in a function's memory.
func keepFrameBuffer(b *board.Tree, f *device.Function) {
	for _, bar := range f.BARs {
		if !bar.IO {
			b.Put("proc/iomem", fmt.Sprintf("%08x-%08x : %s\n  %08x-%08x : BOOTFB\n", bar.Start, bar.Start+bar.Size-1, f.Address, bar.Start, bar.Start+0xfff))
			return
		}
	}
}

// portOf returns the port right above a function.
func (n *pluginNode) portOf(f *device.Function) pci.Address {
	n.t.Helper()
	if len(f.Upstream) == 0 {
		n.t.Fatalf("%s is below no port", f.Address)
	}
	return f.Upstream[len(f.Upstream)-1]
}

// resetBy has the kernel offer one reset method.
func (n *pluginNode) resetBy(f *device.Function, method string) {
	n.Put("sys/bus/pci/devices/"+f.Address.String()+"/reset_method", method+"\n")
}

func (n *pluginNode) file(rec *journal.Record) string {
	return journal.DefaultDir + "/" + rec.ID() + ".json"
}

func (n *pluginNode) damage(rec *journal.Record) { n.Put(n.file(rec), "{") }

// everything is a config that names other functions than the default one.
func everything() *v1alpha1.NodeConfig {
	c := &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{
		{Match: v1alpha1.DeviceMatch{Types: []string{"vf"}}, Exclude: true},
		{Match: v1alpha1.DeviceMatch{Types: []string{"gpu", "pf", "nvme", "other"}}},
	}}
	c.Default()
	return c
}

// TestCommandsShowWhatTheSliceShows: with whatever may be on a node, by a config in a file
// or in the plugin's pod, devices and topology show a device as fit where its slice has no
// taint, and as unfit where it has one.
func TestCommandsShowWhatTheSliceShows(t *testing.T) {
	tried, tainted := 0, 0
	try := func(b board.Board, name string, inPod bool) {
		t.Run(fmt.Sprintf("%s/%s/in a pod %t", b.Name, name, inPod), func(t *testing.T) {
			n := &pluginNode{Tree: b.Build(t), t: t, config: nodeconfig.Default(), inPod: inPod}
			events()[name](n)
			n.configure()
			want := n.slices()
			for _, taints := range want {
				tried++
				if len(taints) > 0 {
					tainted++
				}
			}
			n.compare(want)
		})
	}
	for _, b := range board.All() {
		switch b.Name {
		case "server": // a small one
			for name := range events() {
				try(b, name, false)
				try(b, name, true)
			}
		case "hgx": // as many files as all others
		default:
			try(b, "a config", true)
			try(b, "a damaged record", false)
		}
	}
	t.Logf("compared %d devices, %d of them tainted", tried, tainted)
	if tainted < tried/20 || tried < 150 {
		t.Errorf("compared %d devices, %d of them tainted: want 150 and some of each kind", tried, tainted)
	}
}

// configure leaves the config where the plugin finds it: on the node, or, for one in its
// pod, another one on the node, which must not count.
func (n *pluginNode) configure() {
	cfg := n.config
	if n.inPod {
		cfg = &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{}}
		cfg.Default()
	}
	data, err := json.Marshal(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	n.Put("etc/kata-vfio/node.yaml", string(data))
}

// compare runs the commands and compares their output with the slices.
func (n *pluginNode) compare(want map[pci.Address][]resourceapi.DeviceTaint) {
	n.t.Helper()
	shown := map[string]map[pci.Address]bool{
		"devices -o json": n.json(), "devices": n.marks("devices"), "devices -o wide": n.marks("devices", "-o", "wide"),
		"topology -o tree": n.marks("topology", "-o", "tree"),
	}
	for _, a := range slices.SortedFunc(maps.Keys(want), pci.Address.Compare) {
		for command, fit := range shown {
			if ok, found := fit[a]; !found || ok == (len(want[a]) > 0) {
				n.t.Errorf("%s: `%s` shows it %t as fit %t, its slice has the taints %v", a, command, found, ok, want[a])
			}
		}
	}
}

// json returns which functions are fit for claims by devices -o json.
func (n *pluginNode) json() map[pci.Address]bool {
	n.t.Helper()
	var doc struct {
		Devices []struct {
			Address  pci.Address
			Isolated bool
			Refusals []rule.Verdict
		}
	}
	if err := json.Unmarshal([]byte(n.run("devices", "-o", "json")), &doc); err != nil {
		n.t.Fatal(err)
	}
	fit := map[pci.Address]bool{}
	for _, d := range doc.Devices {
		fit[d.Address] = d.Isolated && len(d.Refusals) == 0
	}
	return fit
}

// marks returns which functions have the mark of one that is fit.
func (n *pluginNode) marks(args ...string) map[pci.Address]bool {
	n.t.Helper()
	fit := map[pci.Address]bool{}
	lines := bufio.NewScanner(strings.NewReader(n.run(args...)))
	for lines.Scan() {
		line := strings.TrimLeft(lines.Text(), " │├└─")
		mark, rest, _ := strings.Cut(line, " ")
		if _, err := pci.ParseAddress(mark); err == nil {
			mark, rest = "", line
		}
		words := strings.Fields(rest)
		if len(words) == 0 {
			continue
		}
		a, err := pci.ParseAddress(words[0])
		if _, seen := fit[a]; err == nil && !seen {
			fit[a] = mark == "✓" || mark == "!"
		}
	}
	return fit
}

func (n *pluginNode) run(args ...string) string {
	n.t.Helper()
	stdout, _, err := execute(n.t, append(args, "--root", n.Root())...)
	if err != nil {
		n.t.Fatal(err)
	}
	return stdout
}

// TestNodeAndDevicesEndWithOneVerdict: what `devices` shows as refused to every claim makes `node` fail, and the other way
// round.
func TestNodeAndDevicesEndWithOneVerdict(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*board.Tree)
		code   int
	}{
		"in good order": {func(*board.Tree) {}, 0},
		"a GPU beside a drive that the node uses": {func(b *board.Tree) { b.AddWithBusyMate(0x71, 71) }, exitFindings},
		"an argument that fakes ACS":              {func(b *board.Tree) { b.Boot("pcie_acs_override=downstream") }, exitFindings},
		"a GPU that fell off":                     {func(b *board.Tree) { b.FallOff(b.Devices["spare"]) }, exitFindings},
		"a GPU in D3cold":                         {func(b *board.Tree) { coldOff(b, b.Devices["spare"]) }, exitFindings},
		"a GPU whose BARs have no address":        {func(b *board.Tree) { takeAddresses(b, b.Devices["spare"]) }, exitFindings},
		"the firmware's frame buffer in a GPU on vfio-pci": {func(b *board.Tree) {
			f, _ := b.Scan().Function(b.Devices["spare"])
			keepFrameBuffer(b, f)
		}, exitFindings},
		"a port whose ACS is off": {func(b *board.Tree) { b.SetACS(b.Devices["port"], 0) }, exitFindings},
		"a less severe failure":   {func(b *board.Tree) { b.SetParameter("vfio_iommu_type1", "dma_entry_limit", "4194304") }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			tree := board.Switch(t)
			tt.change(tree)
			for _, command := range []string{"node", "devices"} {
				stdout, _, err := execute(t, command, "--fail-on", "high", "--root", tree.Root())
				code := 0
				if err != nil {
					code = exitCode(err)
				}
				if code != tt.code {
					t.Errorf("%s: exit code %d (%v), want %d\n%s", command, code, err, tt.code, stdout)
				}
			}
		})
	}
}

// TestAgreementNamesUnreadFiles: a verdict that rests on less than the plugin's says so.
func TestAgreementNamesUnreadFiles(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*pluginNode)
		want   string
	}{
		"a damaged record": {func(n *pluginNode) { n.damage(n.records()[0]) }, "a record of the journal could not be read"},
		"a config that is not valid": {
			func(n *pluginNode) { n.Put("etc/kata-vfio/node.yaml", "kind: NodeConfig\nspec: {}\n") },
			"the node's config could not be read, so that functions are selected by the default one: /etc/kata-vfio/node.yaml: ",
		},
		"a note of the plugin's that is not valid": {
			func(n *pluginNode) { n.Put("run/kata-vfio/published.json", "{") },
			"what the plugin publishes could not be read",
		},
		"a map of memory that can't be read": {
			func(n *pluginNode) { n.Put("proc/iomem/x", "") },
			"the map of memory could not be read, so that a frame buffer of the firmware in a GPU's memory may be missed: /proc/iomem: ",
		},
		"a journal that is not a directory": {
			func(n *pluginNode) {
				n.Delete(journal.DefaultDir)
				n.Put("var/lib/kata-vfio/elsewhere", "")
				n.Put(journal.DefaultDir, "")
			},
			"marks of the journal could not be read",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := &pluginNode{Tree: board.Server(t), t: t}
			tt.change(n)
			for _, command := range []string{"devices", "topology"} {
				_, stderr, err := execute(t, command, "--root", n.Root())
				if err != nil || !strings.Contains(stderr, "warning: "+tt.want) {
					t.Errorf("%s: err %v, stderr %q; want a warning that %s", command, err, stderr, tt.want)
				}
			}
		})
	}
}

// TestAnArchiveIsJudgedAsItsNode: records, drains and config travel with a node's copy.
func TestAnArchiveIsJudgedAsItsNode(t *testing.T) {
	n := &pluginNode{Tree: board.Server(t), t: t, config: everything()}
	events()["a drain"](n)
	events()["a quarantined record"](n)
	events()["fatal errors that are accounted for"](n)
	n.configure()
	file := t.TempDir() + "/node.tgz"
	n.run("collect", "--file", file)
	want := n.run("devices")
	stdout, stderr, err := execute(t, "devices", "--root", file)
	if err != nil || stderr != "" {
		t.Fatalf("err %v, stderr %q", err, stderr)
	}
	if stdout != want {
		t.Errorf("the archive shows\n%s\nthe node\n%s", stdout, want)
	}
}

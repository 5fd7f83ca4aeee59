//go:build lab

package discovery_test

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// TestPlaces checks the facts that the topology was built for.
func TestPlaces(t *testing.T) {
	snap := stage.Scan(t)
	for address, want := range map[string]struct {
		kind   device.Type
		node   int
		above  string // the lowest switch
		groups []string
	}{
		topology.PF0:       {device.PFType, 0, "", []string{topology.PF0}},
		topology.GPU0:      {device.GPU, 0, "", []string{topology.GPU0}},
		topology.NVMe0:     {device.NVMe, 0, "", []string{topology.NVMe0}},
		topology.GPU4:      {device.GPU, 0, topology.Switch0, []string{topology.GPU4Port, topology.GPU4}},
		topology.SwitchNIC: {device.PFType, 0, topology.Switch0, []string{topology.SwitchNICPort, topology.SwitchNIC}},
		topology.GPU1:      {device.GPU, 1, "", []string{topology.GPU1, topology.GPU1Audio}},
		topology.GPU1Audio: {device.Other, 1, "", []string{topology.GPU1, topology.GPU1Audio}},
		topology.Edu0:      {device.Other, 1, "", []string{topology.Bridge0, topology.Edu0, topology.NIC1}},
		topology.GPU5:      {device.GPU, 1, "", []string{topology.GPU5Port, topology.GPU5}},
		topology.GPU3:      {device.GPU, 1, "", []string{topology.GPU3}},
		topology.Switch0:   {device.Bridge, 0, "", []string{topology.Switch0}},
	} {
		f := stage.Function(t, snap, address)
		above := ""
		if f.Switch != nil {
			above = f.Switch.String()
		}
		g, _ := snap.GroupWith(f)
		if f.Type != want.kind || f.NUMANode == nil || *f.NUMANode != want.node || above != want.above || !slices.Equal(texts(g.Members), want.groups) {
			t.Errorf("%s is a %s on NUMA node %v below switch %q in a group with %v; want %+v", address, f.Type, f.NUMANode, above, g.Members, want)
		}
	}
	if acs := isolation.ReadACS(snap, stage.Function(t, snap, topology.GPU5Port)); acs != isolation.ACSAbsent {
		t.Errorf("ACS of the port of GPU5 is %s, want %s", acs, isolation.ACSAbsent)
	}
	if host := snap.Host; len(host.IOMMUs) != 1 || len(host.IRQChips) == 0 || host.NoIOMMUMode || len(host.UnsafeInterrupts) > 0 {
		t.Errorf("the host is %+v", host)
	}
}

// verdict is an isolation.Verdict in brief.
type verdict struct {
	reasons []rule.Code
	method  string
	set     []string
}

func verdictOn(t *testing.T, snap *device.Snapshot, address string) verdict {
	t.Helper()
	v, brief := isolation.Judge(snap, stage.Function(t, snap, address)), verdict{}
	for i := range v.Reasons {
		brief.reasons = append(brief.reasons, v.Reasons[i].Code)
		if v.Reasons[i].Fix == "" || v.Reasons[i].Text == "" || len(v.Reasons[i].Evidence) == 0 {
			t.Errorf("%s: a reason without text, fix or evidence: %+v", address, v.Reasons[i])
		}
	}
	if v.Isolated != (len(brief.reasons) == 0) {
		t.Errorf("%s: isolated is %t, with the reasons %v", address, v.Isolated, brief.reasons)
	}
	if v.Reset != nil {
		brief.method, brief.set = v.Reset.Method, texts(v.Reset.Set)
	}
	return brief
}

// TestVerdicts checks the verdict on each kind of place. Behind the switch without ACS, each device has a group by the
// kernel's word (Linux 6.12), and can reach its neighbor all the same.
func TestVerdicts(t *testing.T) {
	kernel.VFs(t, topology.PF0, "2")
	kernel.VFs(t, topology.NVMe0, "2")
	snap := stage.Scan(t)
	alone := func(method, address string) verdict { return verdict{method: method, set: []string{address}} }
	exposed := func(address string) verdict {
		return verdict{reasons: []rule.Code{rule.PeerToPeerPossible}, method: "bus", set: []string{address}}
	}
	pair := verdict{method: isolation.HotReset, set: []string{topology.GPU1, topology.GPU1Audio}}
	bridged := verdict{reasons: []rule.Code{rule.GroupNotViable}, method: isolation.HotReset, set: []string{topology.Edu0, topology.NIC1}}
	bridge := verdict{reasons: []rule.Code{rule.Bridge}}
	for address, want := range map[string]verdict{
		topology.PF0: alone("flr", topology.PF0), topology.NVMe0: alone("flr", topology.NVMe0),
		topology.VF(topology.PF0, 1):   alone("flr", topology.VF(topology.PF0, 1)),
		topology.VF(topology.NVMe0, 1): alone("flr", topology.VF(topology.NVMe0, 1)),
		topology.GPU0:                  alone("bus", topology.GPU0), topology.GPU2: alone("bus", topology.GPU2),
		topology.GPU3: alone("flr", topology.GPU3), topology.GPU4: exposed(topology.GPU4),
		topology.GPU5: alone("bus", topology.GPU5), topology.BigBAR: alone("bus", topology.BigBAR),
		topology.NIC0: alone("bus", topology.NIC0), topology.SwitchNIC: exposed(topology.SwitchNIC),
		topology.GPU1: pair, topology.GPU1Audio: pair,
		topology.Edu0: bridged, topology.NIC1: bridged,
		topology.Bridge0: bridge, topology.GPU5Port: bridge, topology.Switch0: bridge,
	} {
		if diff := cmp.Diff(want, verdictOn(t, snap, address), cmp.AllowUnexported(verdict{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", address, diff)
		}
	}
	v := isolation.Judge(snap, stage.Function(t, snap, topology.Edu0))
	if r := v.Reasons[0]; r.Culprit == nil || r.Culprit.String() != topology.Bridge0 || !strings.Contains(r.Text, "shpchp") || !strings.Contains(r.Fix, "unbind") {
		t.Errorf("the reason against %s does not name the bridge, its driver and the way out: %+v", topology.Edu0, r)
	}
}

// TestUses checks what keeps the machine's own devices from being taken: its interface to the outside, its state disk,
// and a PF with an address.
func TestUses(t *testing.T) {
	outside := interfaceFunction(t, defaultInterface(t))
	pf := kernel.Interface(t, topology.PF0)
	command(t, "ip", "address", "replace", "10.9.0.21/24", "dev", pf)
	t.Cleanup(func() { command(t, "ip", "address", "flush", "dev", pf) })
	command(t, "ip", "link", "set", pf, "up")
	t.Cleanup(func() { command(t, "ip", "link", "set", pf, "down") })
	snap := stage.Scan(t)
	wantUse(t, snap, outside, device.UseAddress, addressOf(t, defaultInterface(t)))
	wantUse(t, snap, outside, device.UseRoute, "default")
	wantUse(t, snap, topology.PF0, device.UseAddress, "10.9.0.21/24")
	used := 0
	for i := range snap.Functions {
		for _, u := range snap.Functions[i].Uses {
			if u.Kind == device.UseMount && u.Detail == "/var/lib" {
				used++
			}
		}
	}
	if used != 1 {
		t.Errorf("%d functions carry /var/lib", used)
	}
	if f := stage.Function(t, snap, topology.PF1); len(f.Uses) != 0 {
		t.Errorf("%s is used: %v", topology.PF1, f.Uses)
	}
}

func wantUse(t *testing.T, snap *device.Snapshot, address string, kind device.UseKind, detail string) {
	t.Helper()
	uses := stage.Function(t, snap, address).Uses
	if !slices.ContainsFunc(uses, func(u device.Use) bool { return u.Kind == kind && strings.HasPrefix(u.Detail, detail) }) {
		t.Errorf("the uses of %s are %v; want a %s %s", address, uses, kind, detail)
	}
}

// defaultInterface is the one with the default route.
func defaultInterface(t *testing.T) string {
	t.Helper()
	fields := strings.Fields(command(t, "ip", "-4", "route", "show", "default"))
	i := slices.Index(fields, "dev")
	if i < 0 {
		t.Fatalf("no default route: %v", fields)
	}
	return fields[i+1]
}

// interfaceFunction is the address of the function of an interface.
func interfaceFunction(t *testing.T, name string) string {
	t.Helper()
	place, err := filepath.EvalSymlinks(filepath.Join("/sys/class/net", name, "device"))
	if err != nil {
		t.Fatal(err)
	}
	if base := filepath.Base(place); strings.HasPrefix(base, "virtio") {
		place = filepath.Dir(place)
	}
	return filepath.Base(place)
}

func addressOf(t *testing.T, name string) string {
	t.Helper()
	i, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := i.Addrs()
	if err != nil || len(addrs) == 0 {
		t.Fatalf("addresses of %s: %v, %v", name, addrs, err)
	}
	return addrs[0].String()
}

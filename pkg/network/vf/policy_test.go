package vf_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/vftest"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// node is a scripted node with a PF of two VFs.
type node struct {
	k     *sysfstest.Kernel
	pf    pci.Address
	links *vftest.Links
	*vf.Policy
}

func newNode(t *testing.T, d vftest.Driver) *node {
	t.Helper()
	n := &node{k: sysfstest.New(t)}
	n.pf, _ = n.k.AddNIC(0x21, 2)
	fs, err := sysfs.Open(n.k.Root())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	n.links = vftest.New(t, fs, d)
	n.Policy = &vf.Policy{FS: fs, Links: n.links, Switches: n.links.Switches()}
	return n
}

// everything is a value for each setting other than what drivers begin with.
func everything() *device.VFSettings {
	return &device.VFSettings{
		MAC: "02:00:5e:10:00:01", VLAN: &device.VLAN{ID: 100, QoS: 3, Protocol: "802.1ad"}, Rate: &device.TxRate{Min: 10, Max: 1000},
		LinkState: "enable", SpoofCheck: new(false), RSSQuery: new(true), Trust: new(true),
	}
}

func TestApplySetsOneByOneAndReadsBack(t *testing.T) {
	n := newNode(t, vftest.Complete())
	before, others, err := n.Read(t.Context(), n.pf, 1)
	if err != nil || len(others) != 1 {
		t.Fatalf("Read = %+v, %v, %v", before, others, err)
	}
	want := everything()
	if err := n.Supported(t.Context(), n.pf, 1, want); err != nil || len(n.links.Writes()) > 0 {
		t.Fatalf("Supported = %v with changes %v", err, n.links.Writes())
	}
	if err := n.Apply(t.Context(), n.pf, 1, want); err != nil {
		t.Fatal(err)
	}
	const at = "0000:21:00.0 vf 1 "
	writes := []string{
		at + "linkState enable", at + "txRate 10 to 1000 Mbit/s", at + "vlan 100 802.1ad qos 3",
		at + "spoofCheck off", at + "rssQuery on", at + "trust on", at + "mac 02:00:5e:10:00:01",
	}
	if diff := cmp.Diff(writes, n.links.Writes()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(*want, n.links.Settings(n.pf, 1)); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if err := n.Apply(t.Context(), n.pf, 1, want); err != nil || len(n.links.Writes()) != len(writes) {
		t.Errorf("applied again: %v with writes %v", err, n.links.Writes()[len(writes):])
	}
	if err := n.Apply(t.Context(), n.pf, 1, &before.Settings); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before.Settings, n.links.Settings(n.pf, 1)); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
	if other := n.links.Settings(n.pf, 0); cmp.Diff(before.Settings, other) != "" {
		t.Errorf("the other VF has %s", other.String())
	}
}

func TestUplinkTellsOfThePFsLink(t *testing.T) {
	n := newNode(t, vftest.Igb())
	for _, c := range []struct {
		change      func()
		up, carrier bool
	}{
		{func() {}, true, true},
		{n.links.Unplug, true, false},
		{n.links.TurnOff, false, false},
	} {
		c.change()
		link, err := n.Uplink(t.Context(), n.pf)
		if err != nil || link.Up != c.up || link.Carrier != c.carrier || len(link.VFs) != 2 {
			t.Errorf("Uplink = %+v, %v; want up: %t, carrier: %t", link, err, c.up, c.carrier)
		}
	}
	n.links.Pretend("0000:99:00.0")
	if link, err := n.Uplink(t.Context(), n.pf); err == nil {
		t.Errorf("of another namespace: %+v", link)
	}
}

func TestApplyLeavesAloneWhatIsNotAskedFor(t *testing.T) {
	n := newNode(t, vftest.Complete())
	n.links.Set(n.pf, 0, func(s *device.VFSettings) { s.VLAN = &device.VLAN{ID: 7, Protocol: "802.1Q"} })
	if err := n.Apply(t.Context(), n.pf, 0, &device.VFSettings{Trust: new(true)}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"0000:21:00.0 vf 0 trust on"}, n.links.Writes()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// TestSupportedNamesWhatADriverLacks: before anything is changed, except for the
// minimum rate, which igb refuses by its value only.
func TestSupportedNamesWhatADriverLacks(t *testing.T) {
	for name, tt := range map[string]struct {
		driver vftest.Driver
		want   device.VFSettings
		lacks  device.VFSetting
	}{
		"link state on igb":        {vftest.Igb(), device.VFSettings{LinkState: "enable"}, device.VFLinkState},
		"802.1ad on igb":           {vftest.Igb(), device.VFSettings{VLAN: &device.VLAN{ID: 5, Protocol: "802.1ad"}}, device.VFVLAN},
		"a switch not reported":    {vftest.Driver{Silent: []device.VFSetting{device.VFTrust}}, device.VFSettings{Trust: new(true)}, device.VFTrust},
		"an address not reported":  {vftest.Driver{Silent: []device.VFSetting{device.VFMAC}}, device.VFSettings{MAC: "02:00:5e:10:00:01"}, device.VFMAC},
		"RSS query on igb":         {vftest.Igb(), device.VFSettings{RSSQuery: new(true)}, device.VFRSSQuery},
		"a GUID on Ethernet":       {vftest.Complete(), device.VFSettings{PortGUID: "02:00:5e:10:00:00:00:01"}, device.VFPortGUID},
		"a MAC on InfiniBand":      {vftest.InfiniBand(), device.VFSettings{MAC: "02:00:5e:10:00:01"}, device.VFMAC},
		"spoof check that refuses": {vftest.Driver{Refuses: map[device.VFSetting]error{device.VFSpoofCheck: unix.EOPNOTSUPP}}, device.VFSettings{SpoofCheck: new(false)}, device.VFSpoofCheck},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, tt.driver)
			err := n.Supported(t.Context(), n.pf, 0, &tt.want)
			lacking, ok := errors.AsType[*vf.SettingError](err)
			if !ok || lacking.Setting != tt.lacks || !lacking.Unsupported() || !strings.Contains(err.Error(), string(tt.lacks)) {
				t.Errorf("Supported = %v, want that %s is not", err, tt.lacks)
			}
			if writes := n.links.Writes(); len(writes) > 0 {
				t.Errorf("changed %v", writes)
			}
		})
	}
}

func TestMinimumRateOfIgbIsRefusedFirst(t *testing.T) {
	n := newNode(t, vftest.Igb())
	want := &device.VFSettings{MAC: "02:00:5e:10:00:01", Rate: &device.TxRate{Min: 10}, Trust: new(true)}
	err := n.Apply(t.Context(), n.pf, 0, want)
	if lacking, ok := errors.AsType[*vf.SettingError](err); !ok || lacking.Setting != device.VFTxRate || !lacking.Unsupported() {
		t.Errorf("Apply = %v, want that txRate is not supported", err)
	}
	if writes := n.links.Writes(); len(writes) > 0 {
		t.Errorf("changed %v", writes)
	}
}

func TestApplyWaitsForAPFThatResetsTheVF(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := vftest.Complete()
		d.Busy = 3
		n := newNode(t, d)
		if err := n.Apply(t.Context(), n.pf, 0, &device.VFSettings{Trust: new(true)}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"0000:21:00.0 vf 0 trust on"}, n.links.Writes()); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
		d.Busy = 1000
		n.links.Use(d)
		err := n.Apply(t.Context(), n.pf, 0, &device.VFSettings{Trust: new(false)})
		if busy, ok := errors.AsType[*vf.SettingError](err); !ok || busy.Unsupported() || !errors.Is(err, unix.EAGAIN) {
			t.Errorf("a PF that stays busy: %v, want its word", err)
		}
	})
}

func TestRatesOnIgbNeedALink(t *testing.T) {
	n := newNode(t, vftest.Igb())
	n.links.Unplug()
	want := &device.VFSettings{Rate: &device.TxRate{Max: 100}}
	for name, err := range map[string]error{
		"Supported": n.Supported(t.Context(), n.pf, 0, want), "Apply": n.Apply(t.Context(), n.pf, 0, want),
	} {
		if refused, ok := errors.AsType[*vf.SettingError](err); !ok || !refused.NeedsLink() || refused.Unsupported() {
			t.Errorf("%s = %v, want that the PF has no link", name, err)
		}
	}
}

// TestVFThatIsLeftOutIsWaitedFor: those after it would be taken for it.
func TestVFThatIsLeftOutIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := vftest.Complete()
		d.Hides = 3
		n := newNode(t, d)
		if err := n.Apply(t.Context(), n.pf, 1, &device.VFSettings{Trust: new(true)}); err != nil {
			t.Error(err)
		}
		d.Hides = 1000
		n.links.Use(d)
		if _, _, err := n.Read(t.Context(), n.pf, 1); !errors.Is(err, unix.EAGAIN) {
			t.Errorf("Read = %v, want that the PF does not tell of it", err)
		}
	})
}

// TestGUIDs: the first are not written back to see whether they can be, since
// no device takes a zero.
func TestGUIDs(t *testing.T) {
	n := newNode(t, vftest.InfiniBand())
	want := &device.VFSettings{NodeGUID: "02:00:5e:10:00:00:00:01", PortGUID: "02:00:5e:10:00:00:00:02", LinkState: "auto"}
	for range 2 {
		if err := n.Supported(t.Context(), n.pf, 1, want); err != nil {
			t.Fatal(err)
		}
		if err := n.Apply(t.Context(), n.pf, 1, want); err != nil {
			t.Fatal(err)
		}
		want = &device.VFSettings{NodeGUID: "02:00:5e:10:00:00:00:03", PortGUID: "02:00:5e:10:00:00:00:04", LinkState: "auto"}
	}
	if diff := cmp.Diff("linkState auto, nodeGUID 02:00:5e:10:00:00:00:03, portGUID 02:00:5e:10:00:00:00:04", textOf(n.links.Settings(n.pf, 1))); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	_, others, err := n.Read(t.Context(), n.pf, 0)
	if diff := cmp.Diff([]string{"02:00:5e:10:00:00:00:03", "02:00:5e:10:00:00:00:04"}, others); diff != "" || err != nil {
		t.Errorf("others (-want +got):\n%s, %v", diff, err)
	}
}

func textOf(s device.VFSettings) string { return s.String() }

// switchdev is a node whose PF is in switchdev mode, with two VFs.
func switchdev(t *testing.T, d vftest.Driver) *node {
	t.Helper()
	n := newNode(t, d)
	n.setVFs(t, "0")
	if err := n.SetMode(t.Context(), n.pf, vf.Switchdev); err != nil {
		t.Fatal(err)
	}
	n.setVFs(t, "2")
	return n
}

func (n *node) setVFs(t *testing.T, count string) {
	t.Helper()
	if err := n.k.Write(sysfs.FunctionPath(n.pf)+"/sriov_numvfs", []byte(count)); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Mode(t.Context(), n.pf); err != nil { // the interfaces' double sees the VFs go and come
		t.Fatal(err)
	}
}

// TestSwitchdevMode: the address is the port's, the rates are the PF's, and the
// representor's business is refused, whatever the driver reports of it.
func TestSwitchdevMode(t *testing.T) {
	for name, ports := range map[string]bool{"with addresses of ports": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			d := vftest.Eswitch()
			d.PortMAC = ports
			n := switchdev(t, d)
			state, _, err := n.Read(t.Context(), n.pf, 1)
			if err != nil || state.Representor() == "" || textOf(state.Settings) != "linkState auto, txRate any to any Mbit/s, mac 00:00:00:00:00:00" {
				t.Fatalf("Read = %+v, %v", state, err)
			}
			want := &device.VFSettings{MAC: "02:00:5e:10:00:01", Rate: &device.TxRate{Max: 100}}
			if err := errors.Join(n.Supported(t.Context(), n.pf, 1, want), n.Apply(t.Context(), n.pf, 1, want)); err != nil {
				t.Fatal(err)
			}
			if got := n.links.Settings(n.pf, 1); got.MAC != want.MAC || got.Rate.Max != 100 {
				t.Errorf("the PF imposes %s", got.String())
			}
			for setting, want := range map[device.VFSetting]*device.VFSettings{
				device.VFVLAN:       {VLAN: &device.VLAN{ID: 7, Protocol: "802.1Q"}},
				device.VFSpoofCheck: {SpoofCheck: new(true)}, device.VFTrust: {Trust: new(true)},
			} {
				err := n.Supported(t.Context(), n.pf, 1, want)
				refused, ok := errors.AsType[*vf.SettingError](err)
				if !ok || refused.Setting != setting || !refused.Unsupported() || !strings.Contains(err.Error(), "switchdev mode") ||
					!strings.Contains(err.Error(), state.Representor()) {
					t.Errorf("%s: %v, want that it is the business of %s", setting, err, state.Representor())
				}
			}
		})
	}
}

func TestModes(t *testing.T) {
	n := newNode(t, vftest.Eswitch())
	if m, err := n.Mode(t.Context(), n.pf); err != nil || m != vf.Legacy {
		t.Errorf("Mode = %q, %v", m, err)
	}
	if err := n.SetMode(t.Context(), n.pf, vf.Switchdev); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("with VFs: %v, want the driver's word", err)
	}
	n = newNode(t, vftest.Igb())
	if m, err := n.Mode(t.Context(), n.pf); err != nil || m != "" {
		t.Errorf("Mode of igb = %q, %v", m, err)
	}
}

func TestApplyDoesNotTrustADriversWord(t *testing.T) {
	n := newNode(t, vftest.Driver{Deaf: []device.VFSetting{device.VFSpoofCheck}})
	n.links.Set(n.pf, 0, func(s *device.VFSettings) { s.SpoofCheck = new(false) })
	err := n.Apply(t.Context(), n.pf, 0, &device.VFSettings{SpoofCheck: new(true)})
	wrong, ok := errors.AsType[*vf.SettingError](err)
	if !ok || wrong.Setting != device.VFSpoofCheck || wrong.Unsupported() || wrong.Got != "off" {
		t.Errorf("Apply = %v, want that the PF took it and says off", err)
	}
}

// bare makes the PF one whose interface was moved to another namespace.
func (n *node) bare(t *testing.T) {
	if err := os.RemoveAll(filepath.Join(n.k.Root(), sysfs.FunctionPath(n.pf), "net")); err != nil {
		t.Fatal(err)
	}
}

func TestPFsThatCannotBeAsked(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*testing.T, *node)
		index  int
		want   string
	}{
		"without an interface": {change: func(t *testing.T, n *node) { n.bare(t) }, want: "has no network interface"},
		"in another namespace": {change: func(_ *testing.T, n *node) { n.links.Pretend("0000:99:00.0") }, want: "0000:99:00.0 and not of PF 0000:21:00.0"},
		"without such a VF":    {change: func(*testing.T, *node) {}, index: 2, want: "2 VFs and none of index 2"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, vftest.Igb())
			tt.change(t, n)
			if _, _, err := n.Read(t.Context(), n.pf, tt.index); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Read = %v, want %q", err, tt.want)
			}
			if err := n.Apply(t.Context(), n.pf, tt.index, everything()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Apply = %v, want %q", err, tt.want)
			}
			if err := n.Supported(t.Context(), n.pf, tt.index, everything()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Supported = %v, want %q", err, tt.want)
			}
		})
	}
}

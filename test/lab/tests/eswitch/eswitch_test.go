//go:build lab

package eswitch_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	values "github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
)

// Every setting of Ethernet, as the kernel's own tool sees it, and back.
func TestEswitchSettings(t *testing.T) {
	s := newSim(t)
	before, _, err := s.Read(t.Context(), s.pf, 1)
	if err != nil {
		t.Fatal(err)
	}
	said := s.askIP(t)
	want := &values.VFSettings{
		MAC: "02:00:5e:10:00:01", VLAN: &values.VLAN{ID: 100, QoS: 3, Protocol: "802.1ad"}, Rate: &values.TxRate{Min: 10, Max: 1000},
		LinkState: "enable", SpoofCheck: new(true), RSSQuery: new(true), Trust: new(true),
	}
	if err := s.Supported(t.Context(), s.pf, 1, want); err != nil {
		t.Fatal(err)
	}
	// As text: the driver keeps the protocol of the tag 0, which is none.
	if now, _, err := s.Read(t.Context(), s.pf, 1); err != nil || now.Settings.String() != before.Settings.String() {
		t.Fatalf("asking what is supported has changed %s to %+v, %v", before.Settings.String(), now, err)
	}
	if err := s.Apply(t.Context(), s.pf, 1, want); err != nil {
		t.Fatal(err)
	}
	got := s.askIP(t)
	if diff := cmp.Diff(said[0], got[0]); diff != "" {
		t.Errorf("the other VF, as ip says (-before +now):\n%s", diff)
	}
	if vlan := got[1].VLANs; len(vlan) != 1 || vlan[0].VLAN != 100 || vlan[0].QoS != 3 || !strings.EqualFold(vlan[0].Protocol, "802.1ad") {
		t.Errorf("ip says VLANs %+v", vlan)
	}
	if v := got[1]; v.MAC != want.MAC || v.Rate.Min != 10 || v.Rate.Max != 1000 || v.State != "enable" || !v.SpoofCheck || !v.Trust || !v.RSSQuery {
		t.Errorf("ip says %+v", v)
	}
	if err := s.Apply(t.Context(), s.pf, 1, &before.Settings); err != nil {
		t.Fatal(err)
	}
	if now, _, err := s.Read(t.Context(), s.pf, 1); err != nil || now.Settings.String() != before.Settings.String() {
		t.Errorf("restored to %+v, %v; want %s", now, err, before.Settings.String())
	}
}

// What the driver lacks is told by name, before anything changes.
func TestEswitchRefusals(t *testing.T) {
	s := newSim(t)
	for setting, want := range map[values.VFSetting]*values.VFSettings{
		values.VFNodeGUID: {NodeGUID: "02:00:5e:10:00:00:00:01"},
		values.VFPortGUID: {PortGUID: "02:00:5e:10:00:00:00:01"},
	} {
		err := s.Supported(t.Context(), s.pf, 0, want)
		if refused, ok := errors.AsType[*vf.SettingError](err); !ok || refused.Setting != setting || !refused.Unsupported() {
			t.Errorf("%s: %v, want that it is not supported", setting, err)
		}
	}
	group := &values.VFSettings{MAC: "01:00:5e:10:00:01"}
	if refused, ok := errors.AsType[*vf.SettingError](s.Apply(t.Context(), s.pf, 0, group)); !ok || !errors.Is(refused, unix.EINVAL) {
		t.Errorf("a group's address: %v, want the driver's word", refused)
	}
	if err := s.Apply(t.Context(), s.pf, 2, &values.VFSettings{Trust: new(true)}); err == nil || !strings.Contains(err.Error(), "none of index 2") {
		t.Errorf("a VF that is not there: %v", err)
	}
}

// The modes as the kernel's own tool sees them, both ways, with a representor for each VF in one of them.
func TestBothModes(t *testing.T) {
	s := newSim(t)
	kernel.Write(t, device+"/sriov_numvfs", "0")
	for _, mode := range []vf.Mode{vf.Legacy, vf.Switchdev, vf.Switchdev, vf.Legacy} {
		if err := s.SetMode(t.Context(), s.pf, mode); err != nil {
			t.Fatal(err)
		}
		kernel.Write(t, device+"/sriov_numvfs", "2")
		got, err := s.Mode(t.Context(), s.pf)
		if err != nil || got != mode || askDevlink(t) != string(mode) {
			t.Errorf("in %s mode: %q, %v; devlink says %q", mode, got, err, askDevlink(t))
		}
		var known []string
		for index := range 2 {
			s.copy(t)
			state, _, err := s.Read(t.Context(), s.pf, index)
			if err != nil {
				t.Fatal(err)
			}
			if name := state.Representor(); name != "" {
				known = append(known, name)
			}
		}
		slices.Sort(known)
		if diff := cmp.Diff(s.representors(t), known); diff != "" || len(known) != map[vf.Mode]int{vf.Switchdev: 2}[mode] {
			t.Errorf("representors in %s mode (-there +known):\n%s", mode, diff)
		}
		kernel.Write(t, device+"/sriov_numvfs", "0")
	}
}

// In switchdev mode the address is set and read back, and what is the representor's business is refused with its name.
func TestSettingsInSwitchdevMode(t *testing.T) {
	s := newSim(t)
	kernel.Write(t, device+"/sriov_numvfs", "0")
	if err := s.SetMode(t.Context(), s.pf, vf.Switchdev); err != nil {
		t.Fatal(err)
	}
	kernel.Write(t, device+"/sriov_numvfs", "2")
	s.copy(t)
	state, _, err := s.Read(t.Context(), s.pf, 1)
	if err != nil {
		t.Fatal(err)
	}
	for setting, want := range map[values.VFSetting]*values.VFSettings{
		values.VFVLAN:       {VLAN: &values.VLAN{ID: 5, Protocol: "802.1Q"}},
		values.VFSpoofCheck: {SpoofCheck: new(true)}, values.VFTrust: {Trust: new(true)},
		values.VFTxRate: {Rate: &values.TxRate{Max: 100}}, // the driver's own refusal
	} {
		err := s.Supported(t.Context(), s.pf, 1, want)
		refused, ok := errors.AsType[*vf.SettingError](err)
		if !ok || refused.Setting != setting || !refused.Unsupported() || !strings.Contains(err.Error(), state.Representor()) {
			t.Errorf("%s: %v, want that it is the business of %s", setting, err, state.Representor())
		}
	}
	want := &values.VFSettings{MAC: "02:00:5e:10:00:01"}
	if err := errors.Join(s.Supported(t.Context(), s.pf, 1, want), s.Apply(t.Context(), s.pf, 1, want)); err != nil {
		t.Fatal(err)
	}
	if got := s.askIP(t)[1].MAC; got != want.MAC {
		t.Errorf("ip says MAC %s", got)
	}
	// This driver gives no address by the port; the kernel has understood what was asked.
	err = s.Switches.SetMAC(t.Context(), vf.Handle{}, state.Port.Index, want.MAC)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("the address by the port: %v, want that the driver does not support it", err)
	}
	t.Log(err)
}

// A device without devlink has no mode.
func TestDeviceWithoutDevlink(t *testing.T) {
	d := vf.NewDevlink("/proc")
	s, err := d.Read(t.Context(), vf.Handle{Bus: "pci", Name: "0000:21:00.0"})
	if err != nil || s.Mode != "" || len(s.Ports) > 0 {
		t.Errorf("Read = %+v, %v", s, err)
	}
}

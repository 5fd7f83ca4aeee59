// Package vf reads and changes the settings that a PF imposes on its VFs: addresses, VLANs, rates, spoof checking, trust
// and link state. The PF keeps them, so they also apply to a VF on vfio-pci, and to its guest.
//
// Every change is read back, because a driver may accept a setting and do something else.
package vf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/link"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Link is a PF's interface with its VFs, as package link reads it.
type Link = link.Link

// State is a VF as its PF knows it.
type State = link.State

// Counters are a VF's.
type Counters = link.Counters

// Mode is the mode of a PF's eswitch.
type Mode = link.Mode

// Handle names a device in devlink.
type Handle = link.Handle

// Switch is the eswitch of a PF.
type Switch = link.Switch

// Port is where a VF is connected to an eswitch.
type Port = link.Port

// The modes of an eswitch.
const (
	Legacy    = link.Legacy
	Switchdev = link.Switchdev
)

// Links are the node's interfaces; [Rtnetlink] is the real one. Interfaces are identified by number, which
// outlives a rename.
type Links interface {
	Read(ctx context.Context, number int) (*Link, error)
	Write(ctx context.Context, number, index int, s device.VFSetting, to *device.VFSettings) error
}

// Switches are the eswitches of the node's PFs; [Devlink] is the real one.
type Switches interface {
	Read(ctx context.Context, h Handle) (*Switch, error)
	SetMode(ctx context.Context, h Handle, m Mode) error
	SetMAC(ctx context.Context, h Handle, port uint32, mac string) error
}

// Policy changes what PFs impose on their VFs. Its methods may be called from
// several goroutines, for one VF by one at a time.
type Policy struct {
	FS       *sysfs.FS
	Links    Links
	Switches Switches
}

// look reads what the PF imposes, on the VF of that index above all.
func (p *Policy) look(ctx context.Context, pf pci.Address, index int) (*uplink, *State, error) {
	link, err := p.uplink(ctx, pf)
	if err != nil {
		return nil, nil, err
	}
	state, err := link.vf(index)
	return link, state, err
}

// Read returns what the PF imposes on its VF of that index, and the addresses of
// its other VFs. Its errors match [NoInterfaceError] where the PF has none.
func (p *Policy) Read(ctx context.Context, pf pci.Address, index int) (*State, []string, error) {
	link, state, err := p.look(ctx, pf, index)
	if err != nil {
		return nil, nil, err
	}
	var others []string
	for i := range link.VFs {
		for _, s := range device.VFAddresses() {
			if value := link.VFs[i].Settings.Value(s); i != index && value != "" {
				others = append(others, value)
			}
		}
	}
	return state, others, nil
}

// Counters returns what the PF has counted for each of its VFs, by index.
func (p *Policy) Counters(ctx context.Context, pf pci.Address) ([]Counters, error) {
	link, err := p.link(ctx, pf)
	if err != nil {
		return nil, err
	}
	all := make([]Counters, len(link.VFs))
	for i := range link.VFs {
		all[i] = link.VFs[i].Counters
	}
	return all, nil
}

// Uplink returns the PF's interface: whether it is up and has a carrier, and its VFs. Its
// errors match [NoInterfaceError] where the PF has none.
func (p *Policy) Uplink(ctx context.Context, pf pci.Address) (*Link, error) {
	link, err := p.link(ctx, pf)
	if err != nil {
		return nil, err
	}
	return link.Link, nil
}

// Mode returns the mode of the PF's eswitch, empty where its driver has none.
func (p *Policy) Mode(ctx context.Context, pf pci.Address) (Mode, error) {
	s, err := p.Switches.Read(ctx, handle(pf))
	if err != nil {
		return "", err
	}
	return s.Mode, nil
}

// SetMode brings the PF's eswitch to a mode and reads it back. The caller has
// seen that the PF has no VFs. It may be repeated.
func (p *Policy) SetMode(ctx context.Context, pf pci.Address, m Mode) error {
	if err := p.Switches.SetMode(ctx, handle(pf), m); err != nil {
		return fmt.Errorf("set the eswitch of PF %s to %s mode: %w", pf, m, err)
	}
	got, err := p.Mode(ctx, pf)
	if err == nil && got != m {
		err = fmt.Errorf("set the eswitch of PF %s to %s mode: the kernel took it and says %q", pf, m, got)
	}
	return err
}

// Supported finds out whether the PF's driver knows the settings that want has
// values for, without a change: what it does not report it can't be asked to
// verify, and what it reports is written back as it is.
func (p *Policy) Supported(ctx context.Context, pf pci.Address, index int, want *device.VFSettings) error {
	link, state, err := p.look(ctx, pf, index)
	if err != nil {
		return err
	}
	have := &state.Settings
	for _, s := range have.Differ(want) {
		if have.Value(s) == "" {
			return link.refused(index, s, want, nil)
		}
		if have.Value(s) == NoGUID { // no value to write, and what reports GUIDs sets them
			continue
		}
		if err := p.write(ctx, link, index, s, harmless(have, want, s)); err != nil {
			return link.refused(index, s, want, err)
		}
	}
	return nil
}

// NoGUID is the GUID of a VF that did not get one.
const NoGUID = "00:00:00:00:00:00:00:00"

// refused is the error for a setting that a VF could not be given.
func (l *uplink) refused(index int, s device.VFSetting, want *device.VFSettings, err error) *SettingError {
	return &SettingError{
		PF: l.pf, Index: index, Setting: s, Want: want.Value(s), Err: err,
		NoCarrier: !l.Carrier, Switchdev: l.mode.Switchdev(), Representor: l.VFs[index].Representor(),
	}
}

// harmless returns a value whose writing shows whether the driver supports a setting: the present value, with the
// wanted protocol if there is no VLAN.
func harmless(have, want *device.VFSettings, s device.VFSetting) *device.VFSettings {
	if s != device.VFVLAN || have.VLAN.ID != 0 {
		return have
	}
	probe := *have
	probe.VLAN = &device.VLAN{QoS: have.VLAN.QoS, Protocol: want.VLAN.Protocol}
	return &probe
}

// Apply brings the settings that want has values for to those values, one by
// one, and reads them back. What is so already is left alone: it may be
// repeated. After an error, a [SettingError] where the PF did not take one,
// those before it in the order of [device.AllVFSettings] are changed.
func (p *Policy) Apply(ctx context.Context, pf pci.Address, index int, want *device.VFSettings) error {
	link, state, err := p.look(ctx, pf, index)
	if err != nil {
		return err
	}
	differ := state.Settings.Differ(want)
	for _, s := range differ {
		if err := p.write(ctx, link, index, s, want); err != nil {
			return link.refused(index, s, want, err)
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return p.verify(ctx, pf, index, want)
}

// verify reads back the written settings.
func (p *Policy) verify(ctx context.Context, pf pci.Address, index int, want *device.VFSettings) error {
	link, state, err := p.look(ctx, pf, index)
	if err != nil {
		return err
	}
	for _, s := range state.Settings.Differ(want) {
		wrong := link.refused(index, s, want, nil)
		wrong.Got = state.Settings.Value(s)
		return wrong
	}
	return nil
}

// write writes one setting, the MAC by the VF's port where that has one.
func (p *Policy) write(ctx context.Context, l *uplink, index int, s device.VFSetting, to *device.VFSettings) error {
	port := l.VFs[index].Port
	return again(ctx, func() error {
		if s == device.VFMAC && port != nil && port.MAC != "" {
			return p.Switches.SetMAC(ctx, handle(l.pf), port.Index, to.MAC)
		}
		return p.Links.Write(ctx, l.number, index, s, to)
	})
}

const (
	// busyLimit is for a VF that its PF is just resetting, as i40e and ice do when
	// its driver lets go or its trust changes; they wait some 3 s for it themselves.
	busyLimit = 5 * time.Second
	busyPause = 100 * time.Millisecond
)

// again repeats a request while the PF is busy with the VF.
func again(ctx context.Context, request func() error) error {
	for start := time.Now(); ; {
		err := request()
		busy := errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EBUSY) || errors.Is(err, nl.ErrDumpInterrupted)
		if !busy || time.Since(start) > busyLimit {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(busyPause):
		}
	}
}

// uplink is a PF's interface, and its eswitch, as they were read.
type uplink struct {
	*Link
	pf     pci.Address
	number int
	mode   Mode
}

// uplink reads what the PF imposes.
func (p *Policy) uplink(ctx context.Context, pf pci.Address) (*uplink, error) {
	l, err := p.link(ctx, pf)
	if err != nil {
		return nil, err
	}
	s, err := p.Switches.Read(ctx, handle(pf))
	if err != nil {
		return nil, fmt.Errorf("PF %s: %w", pf, err)
	}
	l.mode = s.Mode
	if !s.Mode.Switchdev() {
		return l, nil
	}
	if err := l.Connect(s.Ports); err != nil {
		return nil, fmt.Errorf("PF %s: %w", pf, err)
	}
	return l, nil
}

// link reads the PF's interface, again while that leaves a VF out: it is found
// by its function, since names change, and checked against it, since numbers are
// of a namespace.
func (p *Policy) link(ctx context.Context, pf pci.Address) (*uplink, error) {
	l := &uplink{pf: pf}
	var err error
	if l.number, err = p.number(pf); err != nil {
		return nil, err
	}
	err = again(ctx, func() error {
		l.Link, err = p.Links.Read(ctx, l.number)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("PF %s: %w", pf, err)
	}
	if l.Parent != "" && l.Parent != pf.String() {
		return nil, fmt.Errorf("interface %d (%s) is that of %s and not of PF %s: the plugin sees another network namespace than /sys shows", l.number, l.Name, l.Parent, pf)
	}
	return l, nil
}

func handle(pf pci.Address) Handle { return Handle{Bus: "pci", Name: pf.String()} }

// vf returns the VF of that index; VFs may go between two looks.
func (l *uplink) vf(index int) (*State, error) {
	if index < 0 || index >= len(l.VFs) {
		return nil, fmt.Errorf("PF %s has %d VFs and none of index %d", l.pf, len(l.VFs), index)
	}
	return &l.VFs[index], nil
}

// number returns the number of the PF's interface.
func (p *Policy) number(pf pci.Address) (int, error) {
	number, err := link.Number(p.FS, pf)
	if number == 0 && err == nil {
		driver, err := p.FS.Driver(pf)
		return 0, errors.Join(&NoInterfaceError{PF: pf, Driver: driver}, err)
	}
	return number, err
}

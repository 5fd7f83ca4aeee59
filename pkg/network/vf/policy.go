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

// Counters are the counters of a VF.
type Counters = link.Counters

// Mode is the mode of a PF's eswitch.
type Mode = link.Mode

// Handle identifies a device in devlink.
type Handle = link.Handle

// Switch is the eswitch of a PF.
type Switch = link.Switch

// Port connects a VF to an eswitch.
type Port = link.Port

// The modes of an eswitch.
const (
	Legacy    = link.Legacy
	Switchdev = link.Switchdev
)

// Links are the node's interfaces. [Rtnetlink] implements it. Interfaces are identified by index, which a rename does
// not change.
type Links interface {
	Read(ctx context.Context, number int) (*Link, error)
	Write(ctx context.Context, number, index int, s device.VFSetting, to *device.VFSettings) error
}

// Switches are the eswitches of the node's PFs. [Devlink] implements it.
type Switches interface {
	Read(ctx context.Context, h Handle) (*Switch, error)
	SetMode(ctx context.Context, h Handle, m Mode) error
	SetMAC(ctx context.Context, h Handle, port uint32, mac string) error
}

// Policy changes what PFs impose on their VFs. It is safe for concurrent use with different VFs.
type Policy struct {
	FS       *sysfs.FS
	Links    Links
	Switches Switches
}

// look reads the PF's interface, and returns the VF with the index too.
func (p *Policy) look(ctx context.Context, pf pci.Address, index int) (*uplink, *State, error) {
	up, err := p.uplink(ctx, pf)
	if err != nil {
		return nil, nil, err
	}
	state, err := up.vf(index)
	return up, state, err
}

// Read returns what the PF imposes on the VF with an index, and the addresses of its other VFs. The error matches
// [NoInterfaceError] if the PF has no interface.
func (p *Policy) Read(ctx context.Context, pf pci.Address, index int) (*State, []string, error) {
	s, err := p.Look(ctx, pf, index)
	if err != nil {
		return nil, nil, err
	}
	return s.State, s.Others, nil
}

// Seen is a VF as its PF had it at one look.
type Seen struct {
	// State is what the PF imposes on the VF, and Others are the addresses of its other VFs.
	State  *State
	Others []string

	policy *Policy
	link   *uplink
	index  int
}

// Look is [Policy.Read] that also answers what the PF supports.
func (p *Policy) Look(ctx context.Context, pf pci.Address, index int) (*Seen, error) {
	up, state, err := p.look(ctx, pf, index)
	if err != nil {
		return nil, err
	}
	seen := &Seen{State: state, policy: p, link: up, index: index}
	for i := range up.link.VFs {
		for _, s := range device.VFAddresses() {
			if value := up.link.VFs[i].Settings.Value(s); i != index && value != "" {
				seen.Others = append(seen.Others, value)
			}
		}
	}
	return seen, nil
}

// Counters returns the counters of the PF's VFs, by index.
func (p *Policy) Counters(ctx context.Context, pf pci.Address) ([]Counters, error) {
	up, err := p.link(ctx, pf)
	if err != nil {
		return nil, err
	}
	all := make([]Counters, len(up.link.VFs))
	for i := range up.link.VFs {
		all[i] = up.link.VFs[i].Counters
	}
	return all, nil
}

// Uplink returns the PF's interface: whether it is up and has a carrier, and its VFs. The error matches
// [NoInterfaceError] if the PF has no interface.
func (p *Policy) Uplink(ctx context.Context, pf pci.Address) (*Link, error) {
	up, err := p.link(ctx, pf)
	if err != nil {
		return nil, err
	}
	return up.link, nil
}

// Mode returns the mode of the PF's eswitch, or "" if its driver has none.
func (p *Policy) Mode(ctx context.Context, pf pci.Address) (Mode, error) {
	s, err := p.Switches.Read(ctx, handle(pf))
	if err != nil {
		return "", err
	}
	return s.Mode, nil
}

// SetMode sets the mode of the PF's eswitch and reads it back. The caller has verified that the PF has no VFs. It can
// be repeated.
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

// Supported returns an error if the PF's driver does not support the settings that have values in want. It changes
// nothing: a setting that the driver does not report can't be verified, and one that it reports is written back
// unchanged.
func (p *Policy) Supported(ctx context.Context, pf pci.Address, index int, want *device.VFSettings) error {
	s, err := p.Look(ctx, pf, index)
	if err != nil {
		return err
	}
	return s.Supported(ctx, want)
}

// Supported is [Policy.Supported] of the VF that was seen.
func (v *Seen) Supported(ctx context.Context, want *device.VFSettings) error {
	have := &v.State.Settings
	for _, s := range have.Differ(want) {
		if have.Value(s) == "" {
			return v.link.refused(v.index, s, want, nil)
		}
		if have.Value(s) == NoGUID { // nothing to write back, and drivers that report GUIDs can set them
			continue
		}
		if err := v.policy.write(ctx, v.link, v.index, s, harmless(have, want, s)); err != nil {
			return v.link.refused(v.index, s, want, err)
		}
	}
	return nil
}

// NoGUID is the GUID of a VF for which none was set.
const NoGUID = "00:00:00:00:00:00:00:00"

// refused returns the error for a setting that could not be made.
func (l *uplink) refused(index int, s device.VFSetting, want *device.VFSettings, err error) *SettingError {
	return &SettingError{
		PF: l.pf, Index: index, Setting: s, Want: want.Value(s), Err: err,
		NoCarrier: !l.link.Carrier, Switchdev: l.mode.Switchdev(), Representor: l.link.VFs[index].Representor(),
	}
}

// harmless returns a value that shows, when written, whether the driver supports a setting: the current value, with the
// wanted protocol if there is no VLAN.
func harmless(have, want *device.VFSettings, s device.VFSetting) *device.VFSettings {
	if s != device.VFVLAN || have.VLAN.ID != 0 {
		return have
	}
	probe := *have
	probe.VLAN = &device.VLAN{QoS: have.VLAN.QoS, Protocol: want.VLAN.Protocol}
	return &probe
}

// Apply sets the settings that have values in want, one by one, and reads them back. It leaves correct ones unchanged,
// so it can be repeated. After an error (a [SettingError] if the PF refused a setting), the settings before it in the
// order of [device.AllVFSettings] are changed.
func (p *Policy) Apply(ctx context.Context, pf pci.Address, index int, want *device.VFSettings) error {
	up, state, err := p.look(ctx, pf, index)
	if err != nil {
		return err
	}
	differ := state.Settings.Differ(want)
	for _, s := range differ {
		if err := p.write(ctx, up, index, s, want); err != nil {
			return up.refused(index, s, want, err)
		}
	}
	if len(differ) == 0 {
		return nil
	}
	// An answer without an error says that the driver took the request. What is in force is read back.
	return p.verify(ctx, up, index, want)
}

// verify reads back the written settings, from the interface to which they were written: the kernel gives its index to no other one.
func (p *Policy) verify(ctx context.Context, written *uplink, index int, want *device.VFSettings) error {
	up := &uplink{pf: written.pf, number: written.number}
	if err := p.read(ctx, up); err != nil {
		return err
	}
	state, err := up.vf(index)
	if err != nil {
		return err
	}
	for _, s := range state.Settings.Differ(want) {
		wrong := up.refused(index, s, want, nil)
		wrong.Got = state.Settings.Value(s)
		return wrong
	}
	return nil
}

// write writes one setting. It sets the MAC at the VF's port, if there is one.
func (p *Policy) write(ctx context.Context, l *uplink, index int, s device.VFSetting, to *device.VFSettings) error {
	port := l.link.VFs[index].Port
	return again(ctx, func() error {
		if s == device.VFMAC && port != nil && port.MAC != "" {
			return p.Switches.SetMAC(ctx, handle(l.pf), port.Index, to.MAC)
		}
		return p.Links.Write(ctx, l.number, index, s, to)
	})
}

const (
	// busyLimit is the time to wait for a VF that its PF is resetting, as i40e and ice do when its driver is unbound or
	// its trust changes. They wait about 3 s themselves.
	busyLimit = 5 * time.Second
	busyPause = 100 * time.Millisecond
)

// again repeats a request while the PF is busy with the VF.
func again(ctx context.Context, request func() error) error {
	for start := time.Now(); ; {
		err := request()
		// A PF's driver answers so while a VF is being reset, which a former tenant's end or our own reset may have begun.
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

// uplink is a PF's interface and eswitch as they were read.
type uplink struct {
	link   *Link
	pf     pci.Address
	number int
	mode   Mode
}

// uplink reads the PF's interface and eswitch.
func (p *Policy) uplink(ctx context.Context, pf pci.Address) (*uplink, error) {
	number, err := p.number(pf)
	if err != nil {
		return nil, err
	}
	l := &uplink{pf: pf, number: number}
	return l, p.read(ctx, l)
}

// read reads an interface, whose number is known, and its eswitch.
func (p *Policy) read(ctx context.Context, l *uplink) error {
	if err := p.readLink(ctx, l); err != nil {
		return err
	}
	s, err := p.Switches.Read(ctx, handle(l.pf))
	if err != nil {
		return fmt.Errorf("PF %s: %w", l.pf, err)
	}
	l.mode = s.Mode
	if !s.Mode.Switchdev() {
		return nil
	}
	if err := l.link.Connect(s.Ports); err != nil {
		return fmt.Errorf("PF %s: %w", l.pf, err)
	}
	return nil
}

// link reads the PF's interface without its eswitch. It finds the interface by its function, because names change.
func (p *Policy) link(ctx context.Context, pf pci.Address) (*uplink, error) {
	number, err := p.number(pf)
	if err != nil {
		return nil, err
	}
	l := &uplink{pf: pf, number: number}
	return l, p.readLink(ctx, l)
}

// readLink reads an interface, and again while the answer lacks a VF. It verifies the function, because an index is valid in one
// namespace only.
func (p *Policy) readLink(ctx context.Context, l *uplink) error {
	err := again(ctx, func() (err error) {
		l.link, err = p.Links.Read(ctx, l.number)
		return err
	})
	if err != nil {
		return fmt.Errorf("PF %s: %w", l.pf, err)
	}
	// Before Linux 5.14 the kernel does not name the parent (IFLA_PARENT_DEV_NAME).
	if l.link.Parent != "" && l.link.Parent != l.pf.String() {
		return fmt.Errorf("interface %d (%s) is that of %s and not of PF %s: the plugin sees another network namespace than /sys shows", l.number, l.link.Name, l.link.Parent, l.pf)
	}
	return nil
}

func handle(pf pci.Address) Handle { return Handle{Bus: "pci", Name: pf.String()} }

// vf returns the VF with an index. VFs can disappear between two reads.
func (l *uplink) vf(index int) (*State, error) {
	if index < 0 || index >= len(l.link.VFs) {
		return nil, fmt.Errorf("PF %s has %d VFs and none of index %d", l.pf, len(l.link.VFs), index)
	}
	return &l.link.VFs[index], nil
}

// number returns the index of the PF's interface.
func (p *Policy) number(pf pci.Address) (int, error) {
	number, err := link.Number(p.FS, pf)
	if number == 0 && err == nil {
		driver, err := p.FS.Driver(pf)
		return 0, errors.Join(&NoInterfaceError{PF: pf, Driver: driver}, err)
	}
	return number, err
}

package vf

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Links are the node's interfaces; [Rtnetlink] is the real one. An interface
// goes by its number, which outlives a rename.
type Links interface {
	Read(ctx context.Context, number int) (*Link, error)
	Write(ctx context.Context, number, index int, s device.VFSetting, to *device.VFSettings) error
}

// Policy changes what PFs impose on their VFs. Its methods may be called from
// several goroutines, for one VF by one at a time.
type Policy struct {
	FS    *sysfs.FS
	Links Links
}

// NoInterfaceError says that a PF has no network interface where the plugin
// can see it, so that nothing can be imposed on its VFs.
type NoInterfaceError struct {
	PF pci.Address
	// Driver is the PF's, empty for none.
	Driver string
}

func (e *NoInterfaceError) Error() string {
	if e.Driver == "" {
		return fmt.Sprintf("PF %s has no driver and so no network interface; bind it to its driver", e.PF)
	}
	return fmt.Sprintf("PF %s (driver %s) has no network interface on this node; if it was moved into another network namespace, move it back", e.PF, e.Driver)
}

// SettingError says that a setting of a VF could not be had.
type SettingError struct {
	PF      pci.Address
	Index   int
	Setting device.VFSetting
	// Want is the value asked for.
	Want string
	// Got is the value that the PF has all the same, where it took the setting
	// without an error; empty for one that it does not report.
	Got string
	// Err is the kernel's word, nil where it took the setting.
	Err error
	// NoCarrier is set where the PF has no link, without which some drivers take
	// no rates (igb compares them with the link's speed).
	NoCarrier bool
}

func (e *SettingError) Error() string {
	what := fmt.Sprintf("set %s of VF %d of PF %s to %s", e.Setting, e.Index, e.PF, e.Want)
	switch {
	case e.NeedsLink():
		return what + ": the PF's driver refuses this while the PF has no link"
	case e.Unsupported():
		return what + ": the PF's driver does not support this setting"
	case e.Err != nil:
		return what + ": " + e.Err.Error()
	}
	return fmt.Sprintf("%s: the PF took it and says %q", what, e.Got)
}

func (e *SettingError) Unwrap() error { return e.Err }

// Unsupported reports whether the PF's driver has no such setting, or not this
// value of it: it does not report it, or the kernel says so. Drivers answer
// EINVAL for a value that is right by the kernel's own rules.
func (e *SettingError) Unsupported() bool {
	if e.NeedsLink() {
		return false
	}
	return e.Err == nil && e.Got == "" || errors.Is(e.Err, unix.EOPNOTSUPP) || errors.Is(e.Err, unix.EPROTONOSUPPORT) || errors.Is(e.Err, unix.EINVAL)
}

// NeedsLink reports whether the driver may take the setting once the PF has a
// link.
func (e *SettingError) NeedsLink() bool { return e.NoCarrier && errors.Is(e.Err, unix.EINVAL) }

// Read returns what the PF imposes on its VF of that index, and the MAC
// addresses of its other VFs. Its errors match [NoInterfaceError] where the PF
// has none.
func (p *Policy) Read(ctx context.Context, pf pci.Address, index int) (*State, []string, error) {
	_, link, err := p.link(ctx, pf)
	if err != nil {
		return nil, nil, err
	}
	state, err := link.vf(pf, index)
	if err != nil {
		return nil, nil, err
	}
	var others []string
	for i := range link.VFs {
		if i != index {
			others = append(others, link.VFs[i].Settings.MAC)
		}
	}
	return state, others, nil
}

// Counters returns what the PF has counted for each of its VFs, by index.
func (p *Policy) Counters(ctx context.Context, pf pci.Address) ([]Counters, error) {
	_, link, err := p.link(ctx, pf)
	if err != nil {
		return nil, err
	}
	all := make([]Counters, len(link.VFs))
	for i := range link.VFs {
		all[i] = link.VFs[i].Counters
	}
	return all, nil
}

// Supported finds out whether the PF's driver knows the settings that want has
// values for, without a change: what it does not report it can't be asked to
// verify, and what it reports is written back as it is.
func (p *Policy) Supported(ctx context.Context, pf pci.Address, index int, want *device.VFSettings) error {
	number, link, err := p.link(ctx, pf)
	if err != nil {
		return err
	}
	state, err := link.vf(pf, index)
	if err != nil {
		return err
	}
	have := &state.Settings
	for _, s := range have.Differ(want) {
		refused := &SettingError{PF: pf, Index: index, Setting: s, Want: want.Value(s), NoCarrier: !link.Carrier}
		if have.Value(s) == "" {
			return refused
		}
		if refused.Err = p.write(ctx, number, index, s, harmless(have, want, s)); refused.Err != nil {
			return refused
		}
	}
	return nil
}

// harmless is what can be written to see whether the driver takes a setting:
// the value that is there, with the protocol that is wanted where there is no
// VLAN.
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
	number, link, err := p.link(ctx, pf)
	if err != nil {
		return err
	}
	state, err := link.vf(pf, index)
	if err != nil {
		return err
	}
	differ := state.Settings.Differ(want)
	for _, s := range differ {
		if err := p.write(ctx, number, index, s, want); err != nil {
			return &SettingError{PF: pf, Index: index, Setting: s, Want: want.Value(s), Err: err, NoCarrier: !link.Carrier}
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return p.verify(ctx, pf, number, index, want)
}

const (
	// busyLimit is for a VF that its PF is just resetting, as i40e and ice do when
	// its driver lets go or its trust changes; they wait some 3 s for it themselves.
	busyLimit = 5 * time.Second
	busyPause = 100 * time.Millisecond
)

// write writes one setting, again while the PF is busy with the VF.
func (p *Policy) write(ctx context.Context, number, index int, s device.VFSetting, to *device.VFSettings) error {
	for start := time.Now(); ; {
		err := p.Links.Write(ctx, number, index, s, to)
		busy := errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EBUSY)
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

func (p *Policy) verify(ctx context.Context, pf pci.Address, number, index int, want *device.VFSettings) error {
	link, err := p.Links.Read(ctx, number)
	if err != nil {
		return err
	}
	state, err := link.vf(pf, index)
	if err != nil {
		return err
	}
	got := &state.Settings
	for _, s := range got.Differ(want) {
		return &SettingError{PF: pf, Index: index, Setting: s, Want: want.Value(s), Got: got.Value(s)}
	}
	return nil
}

// link finds the PF's interface: by its function, since names change, and
// checked against it, since numbers are of a namespace.
func (p *Policy) link(ctx context.Context, pf pci.Address) (int, *Link, error) {
	number, err := p.number(pf)
	if err != nil {
		return 0, nil, err
	}
	link, err := p.Links.Read(ctx, number)
	if err != nil {
		return 0, nil, fmt.Errorf("PF %s: %w", pf, err)
	}
	if link.Parent != "" && link.Parent != pf.String() {
		return 0, nil, fmt.Errorf("interface %d (%s) is that of %s and not of PF %s: the plugin sees another network namespace than /sys shows", number, link.Name, link.Parent, pf)
	}
	return number, link, nil
}

// vf returns the VF of that index; VFs may go between two looks.
func (l *Link) vf(pf pci.Address, index int) (*State, error) {
	if index < 0 || index >= len(l.VFs) {
		return nil, fmt.Errorf("PF %s has %d VFs and none of index %d", pf, len(l.VFs), index)
	}
	return &l.VFs[index], nil
}

// number returns the number of the PF's interface.
func (p *Policy) number(pf pci.Address) (int, error) {
	names, err := p.uplinks(pf)
	if err != nil {
		return 0, fmt.Errorf("find the interface of PF %s: %w", pf, err)
	}
	if len(names) == 0 {
		driver, err := p.FS.Driver(pf)
		return 0, errors.Join(&NoInterfaceError{PF: pf, Driver: driver}, err)
	}
	if len(names) > 1 { // two ports on one function (mlx4)
		return 0, fmt.Errorf("PF %s has several interfaces (%s), and which one its VFs belong to is not known", pf, strings.Join(names, ", "))
	}
	text, err := p.FS.ReadString(path.Join(netDir(pf), names[0], "ifindex"))
	if err != nil {
		return 0, fmt.Errorf("find the interface of PF %s: %w", pf, err)
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("interface %s of PF %s: number %q: %w", names[0], pf, text, err)
	}
	return number, nil
}

func netDir(pf pci.Address) string { return path.Join(sysfs.FunctionPath(pf), "net") }

// representor is the port name of an interface that stands for a VF or a
// subfunction in switchdev mode ("pf0vf3", "c1pf0sf88"); it hangs on the PF's
// function like the PF's own (Documentation/networking/switchdev.rst).
var representor = regexp.MustCompile(`pf\d+(vf|sf)\d+$`)

// uplinks returns the PF's interfaces without representors.
func (p *Policy) uplinks(pf pci.Address) ([]string, error) {
	dir := netDir(pf)
	there, err := p.FS.Exists(dir)
	if err != nil || !there {
		return nil, err
	}
	names, err := p.FS.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool {
		port, err := p.FS.ReadString(path.Join(dir, name, "phys_port_name"))
		return err == nil && representor.MatchString(port) // drivers without port names answer EOPNOTSUPP
	}), nil
}

// Package vftest has network interfaces and eswitches of PFs on a scripted sysfs, which behave like rtnetlink, devlink
// and the PF drivers, and refuse what they refuse. The lab's tests confirm that for igb and netdevsim.
package vftest

import (
	"context"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Driver is the behavior of a PF's driver.
type Driver struct {
	// Refuses has the errors for unsupported settings. The driver reports most of them nevertheless.
	Refuses map[device.VFSetting]error
	// Silent are the settings that it does not report.
	Silent []device.VFSetting
	// Deaf are the settings that it accepts without effect.
	Deaf []device.VFSetting
	// MinRate and QinQ: it supports minimum rates and 802.1ad.
	MinRate, QinQ bool
	// RatesByLink: it accepts no rates without a link.
	RatesByLink bool
	// RSSQuery: it reports, and can set, whether a VF may read its hash key. Other drivers do not report it.
	RSSQuery bool
	// InfiniBand: the PFs are InfiniBand ports, which have only GUIDs and a link state.
	InfiniBand bool
	// Eswitch: it has modes. PortMAC: in switchdev mode, VFs get their addresses at their ports.
	Eswitch, PortMAC bool
	// Hides is the number of reads at first that lack the last VF, as with ice while it resets the VF.
	Hides int
	// Busy is the number of writes that it refuses at first, while it resets the VF.
	Busy int
}

// Igb returns the driver of the lab's NICs, as observed on Linux 6.12.
func Igb() Driver {
	return Driver{Refuses: map[device.VFSetting]error{device.VFLinkState: unix.EOPNOTSUPP}, RatesByLink: true}
}

// Complete returns a driver that supports all settings of Ethernet.
func Complete() Driver { return Driver{MinRate: true, QinQ: true, RSSQuery: true} }

// InfiniBand returns the driver of a ConnectX whose port is InfiniBand.
func InfiniBand() Driver { return Driver{InfiniBand: true} }

// Eswitch returns a driver with switchdev mode, as for ConnectX and E810.
func Eswitch() Driver { return Driver{MinRate: true, Eswitch: true, PortMAC: true} }

// found returns the initial settings of a VF.
func (d *Driver) found() device.VFSettings {
	if d.InfiniBand {
		return device.VFSettings{LinkState: "disable", NodeGUID: vf.NoGUID, PortGUID: vf.NoGUID}
	}
	s := device.VFSettings{
		MAC: "00:00:00:00:00:00", VLAN: &device.VLAN{Protocol: "802.1Q"}, Rate: &device.TxRate{}, LinkState: "auto",
		SpoofCheck: new(true), Trust: new(false),
	}
	if d.RSSQuery {
		s.RSSQuery = new(false)
	}
	return s
}

// Links are the interfaces of a scripted node's PFs. It is safe for concurrent use.
type Links struct {
	tb testing.TB
	fs *sysfs.FS

	mu     sync.Mutex // guards the fields below
	driver Driver
	parent string // reported for all interfaces instead of their function
	down   bool   // no PF has a link
	off    bool   // all interfaces are down
	boot   string // the boot in which pfs is valid
	pfs    map[pci.Address][]vf.State
	modes  map[pci.Address]vf.Mode
	writes []string
}

// New returns the interfaces of the node's PFs, all with one driver. Wrong use fails the test.
func New(tb testing.TB, fs *sysfs.FS, d Driver) *Links {
	return &Links{tb: tb, fs: fs, driver: d, pfs: map[pci.Address][]vf.State{}, modes: map[pci.Address]vf.Mode{}}
}

// Use changes the driver.
func (l *Links) Use(d Driver) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.driver = d
}

// Pretend makes all interfaces report the function as their parent, as if their numbers belonged to another namespace
// than sysfs.
func (l *Links) Pretend(parent string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parent = parent
}

// Unplug removes all links.
func (l *Links) Unplug() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
}

// Plug restores all links.
func (l *Links) Plug() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

// TurnOff takes all interfaces down, as `ip link set NAME down` does.
func (l *Links) TurnOff() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.off = true
}

// Set changes a VF without the driver's rules, as another program could.
func (l *Links) Set(pf pci.Address, index int, change func(*device.VFSettings)) {
	l.tb.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.state(pf, index).Settings)
}

// Count sets the counters of a VF.
func (l *Links) Count(pf pci.Address, index int, c vf.Counters) {
	l.tb.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state(pf, index).Counters = c
}

// Settings returns what the PF imposes on a VF.
func (l *Links) Settings(pf pci.Address, index int) device.VFSettings {
	l.tb.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state(pf, index).Settings
}

// state returns an existing VF. Callers hold mu.
func (l *Links) state(pf pci.Address, index int) *vf.State {
	l.tb.Helper()
	if err := l.sync(pf); err != nil {
		l.tb.Fatalf("read the VFs of %s: %v", pf, err)
	}
	if index < 0 || index >= len(l.pfs[pf]) {
		l.tb.Fatalf("PF %s has no VF %d", pf, index)
	}
	return &l.pfs[pf][index]
}

// Writes returns all written settings that changed something, in order, such as "0000:21:00.0 vf 1 vlan 100 802.1Q".
func (l *Links) Writes() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.writes...)
}

// Read implements [vf.Links].
func (l *Links) Read(ctx context.Context, number int) (*vf.Link, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	pf, name, err := l.find(ctx, number)
	if err != nil {
		return nil, err
	}
	if err := l.sync(pf); err != nil {
		return nil, err
	}
	link := &vf.Link{Name: name, Parent: pf.String(), Up: !l.off, Carrier: !l.down && !l.off}
	if l.parent != "" {
		link.Parent = l.parent
	}
	for _, s := range l.pfs[pf] {
		for _, silent := range l.driver.Silent {
			s.Settings.Take(silent, &device.VFSettings{})
		}
		link.VFs = append(link.VFs, s)
	}
	if l.driver.Hides > 0 {
		l.driver.Hides--
		return nil, unix.EAGAIN
	}
	return link, nil
}

// Write implements [vf.Links].
func (l *Links) Write(ctx context.Context, number, index int, s device.VFSetting, to *device.VFSettings) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	pf, _, err := l.find(ctx, number)
	if err != nil {
		return err
	}
	if err := l.sync(pf); err != nil {
		return err
	}
	if index < 0 || index >= len(l.pfs[pf]) {
		return unix.EINVAL
	}
	if l.driver.Busy > 0 {
		l.driver.Busy--
		return unix.EAGAIN
	}
	if err := l.refusal(pf, s, to); err != nil {
		return err
	}
	l.put(pf, index, s, to)
	return nil
}

// put applies a setting, or not, as the driver does. Callers hold mu.
func (l *Links) put(pf pci.Address, index int, s device.VFSetting, to *device.VFSettings) {
	have := &l.pfs[pf][index].Settings
	if have.Value(s) == to.Value(s) || slices.Contains(l.driver.Deaf, s) {
		return
	}
	have.Take(s, to)
	l.writes = append(l.writes, fmt.Sprintf("%s vf %d %s %s", pf, index, s, to.Value(s)))
}

// refusal returns the error of the kernel or the driver for a value. Callers hold mu.
func (l *Links) refusal(pf pci.Address, s device.VFSetting, to *device.VFSettings) error {
	if err := l.driver.Refuses[s]; err != nil {
		return err
	}
	found := l.driver.found()
	if found.Value(s) == "" {
		return unix.EOPNOTSUPP
	}
	if l.modes[pf].Switchdev() && slices.Contains([]device.VFSetting{device.VFVLAN, device.VFSpoofCheck, device.VFTrust}, s) {
		return unix.EOPNOTSUPP
	}
	switch s {
	case device.VFLinkState, device.VFSpoofCheck, device.VFRSSQuery, device.VFTrust: // any value
	case device.VFMAC:
		if mac, err := net.ParseMAC(to.MAC); err != nil || mac[0]&1 != 0 {
			return unix.EINVAL
		}
	case device.VFVLAN:
		return l.vlanRefusal(to.VLAN)
	case device.VFTxRate:
		if l.down && l.driver.RatesByLink || to.Rate.Min != 0 && !l.driver.MinRate {
			return unix.EINVAL
		}
	case device.VFNodeGUID, device.VFPortGUID: // the device takes no zero
		if to.Value(s) == vf.NoGUID {
			return unix.EINVAL
		}
	}
	return nil
}

func (l *Links) vlanRefusal(v *device.VLAN) error {
	switch {
	case v.ID > 4095 || v.QoS > 7:
		return unix.EINVAL
	case v.Protocol != "802.1Q" && !l.driver.QinQ:
		return unix.EPROTONOSUPPORT
	}
	return nil
}

// sync adapts the PF's list to its VFs. New VFs have the drivers' initial settings. The settings of disabled VFs are
// lost, and all settings on reboot.
func (l *Links) sync(pf pci.Address) error {
	boot, err := l.fs.ReadString("proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	if boot != l.boot {
		l.boot = boot
		clear(l.pfs)
		clear(l.modes)
	}
	text, err := l.fs.ReadString(path.Join(sysfs.FunctionPath(pf), "sriov_numvfs"))
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	if n == 0 {
		l.pfs[pf] = nil
	}
	for len(l.pfs[pf]) < n {
		l.pfs[pf] = append(l.pfs[pf], vf.State{Settings: l.driver.found()})
	}
	return nil
}

// find returns the PF of the interface with an index.
func (l *Links) find(ctx context.Context, number int) (pci.Address, string, error) {
	if err := ctx.Err(); err != nil {
		return pci.Address{}, "", err
	}
	names, err := l.fs.ReadDir("sys/class/net")
	if err != nil {
		return pci.Address{}, "", err
	}
	for _, name := range names {
		text, err := l.fs.ReadString(path.Join("sys/class/net", name, "ifindex"))
		if err != nil || text != strconv.Itoa(number) {
			continue
		}
		link, err := l.fs.ReadLink(path.Join("sys/class/net", name)) // .../0000:21:00.0/net/eth0
		if err != nil {
			return pci.Address{}, "", err
		}
		a, err := pci.ParseAddress(path.Base(path.Dir(path.Dir(link))))
		return a, name, err
	}
	return pci.Address{}, "", unix.ENODEV
}

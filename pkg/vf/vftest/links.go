// Package vftest has network interfaces of PFs that do what rtnetlink and the
// PF drivers do, on a scripted sysfs. It refuses what they refuse; the lab's
// tests confirm that for igb.
package vftest

import (
	"context"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/vf"
)

// Driver is what a PF's driver can do.
type Driver struct {
	// Refuses are the errors of settings that it does not have; it reports most
	// of them all the same.
	Refuses map[device.VFSetting]error
	// Silent are settings that it does not report.
	Silent []device.VFSetting
	// Deaf are settings that it takes and does not make.
	Deaf []device.VFSetting
	// MinRate and QinQ are whether it has minimum rates and 802.1ad.
	MinRate, QinQ bool
	// RatesByLink is whether it takes no rates without a link.
	RatesByLink bool
	// Busy is how many writes it refuses at first, while it resets the VF.
	Busy int
}

// Igb is the driver of the lab's NICs, as seen there on Linux 6.12.
func Igb() Driver {
	return Driver{Refuses: map[device.VFSetting]error{device.VFLinkState: unix.EOPNOTSUPP}, RatesByLink: true}
}

// Complete is a driver that has all settings.
func Complete() Driver { return Driver{MinRate: true, QinQ: true} }

// Links are the interfaces of a scripted node's PFs. Methods may be called from
// several goroutines.
type Links struct {
	fs *sysfs.FS

	mu     sync.Mutex // guards what follows
	driver Driver
	parent string // of all interfaces, where it is not the truth
	down   bool
	boot   string // the boot in which pfs is true
	pfs    map[pci.Address][]vf.State
	writes []string
}

// New returns the interfaces of the node's PFs, with the driver for all.
func New(fs *sysfs.FS, d Driver) *Links {
	return &Links{fs: fs, driver: d, pfs: map[pci.Address][]vf.State{}}
}

// Use changes the driver.
func (l *Links) Use(d Driver) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.driver = d
}

// Pretend has all interfaces say that they are of that function, as when
// numbers are of another namespace than sysfs.
func (l *Links) Pretend(parent string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parent = parent
}

// Unplug takes all links away.
func (l *Links) Unplug() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
}

// Plug brings them back.
func (l *Links) Plug() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

// Set changes a VF past the driver's rules, as somebody else would.
func (l *Links) Set(pf pci.Address, index int, change func(*device.VFSettings)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.sync(pf); err != nil {
		panic(err) // a mistake of the test
	}
	change(&l.pfs[pf][index].Settings)
}

// Count has the PF count for a VF.
func (l *Links) Count(pf pci.Address, index int, c vf.Counters) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.sync(pf); err != nil {
		panic(err) // a mistake of the test
	}
	l.pfs[pf][index].Counters = c
}

// Settings returns what the PF imposes on a VF.
func (l *Links) Settings(pf pci.Address, index int) device.VFSettings {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.sync(pf); err != nil {
		panic(err) // a mistake of the test
	}
	return l.pfs[pf][index].Settings
}

// Writes returns all settings that were written and changed something, as
// "0000:21:00.0 vf 1 vlan 100 802.1Q", in order.
func (l *Links) Writes() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.writes...)
}

// Read is vf.Links'.
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
	link := &vf.Link{Name: name, Parent: pf.String(), Up: true, Carrier: !l.down}
	if l.parent != "" {
		link.Parent = l.parent
	}
	for _, s := range l.pfs[pf] {
		for _, silent := range l.driver.Silent {
			put(&s.Settings, silent, &device.VFSettings{})
		}
		link.VFs = append(link.VFs, s)
	}
	return link, nil
}

// Write is vf.Links'.
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
	if err := l.refusal(s, to); err != nil {
		return err
	}
	have := &l.pfs[pf][index].Settings
	if have.Value(s) == to.Value(s) {
		return nil
	}
	if slices.Contains(l.driver.Deaf, s) {
		return nil
	}
	put(have, s, to)
	l.writes = append(l.writes, fmt.Sprintf("%s vf %d %s %s", pf, index, s, to.Value(s)))
	return nil
}

// refusal is what the kernel and the driver say to a value.
func (l *Links) refusal(s device.VFSetting, to *device.VFSettings) error {
	if err := l.driver.Refuses[s]; err != nil {
		return err
	}
	switch s {
	case device.VFLinkState, device.VFSpoofCheck, device.VFTrust: // any value
	case device.VFMAC:
		if mac, err := net.ParseMAC(to.MAC); err != nil || mac[0]&1 != 0 {
			return unix.EINVAL
		}
	case device.VFVLAN:
		if to.VLAN.ID > 4095 || to.VLAN.QoS > 7 {
			return unix.EINVAL
		}
		if to.VLAN.Protocol != "802.1Q" && !l.driver.QinQ {
			return unix.EPROTONOSUPPORT
		}
	case device.VFTxRate:
		if l.down && l.driver.RatesByLink {
			return unix.EINVAL
		}
		if to.Rate.Min != 0 && !l.driver.MinRate {
			return unix.EINVAL
		}
	}
	return nil
}

// put copies one setting.
func put(have *device.VFSettings, s device.VFSetting, to *device.VFSettings) {
	switch s {
	case device.VFMAC:
		have.MAC = to.MAC
	case device.VFVLAN:
		have.VLAN = to.VLAN
	case device.VFTxRate:
		have.Rate = to.Rate
	case device.VFLinkState:
		have.LinkState = to.LinkState
	case device.VFSpoofCheck:
		have.SpoofCheck = to.SpoofCheck
	case device.VFTrust:
		have.Trust = to.Trust
	}
}

// sync makes the PF's list as long as it has VFs. New ones have what drivers
// begin with; those that were disabled are forgotten, and all over a reboot.
func (l *Links) sync(pf pci.Address) error {
	boot, err := l.fs.ReadString("proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	if boot != l.boot {
		l.boot = boot
		clear(l.pfs)
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
		l.pfs[pf] = append(l.pfs[pf], vf.State{Settings: device.VFSettings{
			MAC: "00:00:00:00:00:00", VLAN: &device.VLAN{Protocol: "802.1Q"}, Rate: &device.TxRate{}, LinkState: "auto",
			SpoofCheck: new(true), Trust: new(false),
		}})
	}
	return nil
}

// find returns the PF whose interface has the number.
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

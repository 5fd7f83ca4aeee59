// Package link reads the node's network interfaces and their VFs by rtnetlink, eswitches by devlink, and flow control by
// ethtool. It changes nothing; package vf writes.
package link

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Link is a PF's network interface with its VFs.
type Link struct {
	Name string `json:"name"`
	// Parent is the address of the interface's function. It is empty on kernels before 5.15.
	Parent string `json:"parent,omitempty"`
	// Up is the administrative state, Carrier the physical link's.
	Up      bool `json:"up"`
	Carrier bool `json:"carrier"`
	// VFs are in the order of their indexes.
	VFs []State `json:"vfs,omitempty"`
}

// State is a VF as its PF reports it. JSON omits the counters.
type State struct {
	Settings device.VFSettings `json:"settings"`
	Counters Counters          `json:"-"`
	// Port is the VF's port while its PF is in switchdev mode, otherwise nil.
	Port *Port `json:"port,omitempty"`
}

// Representor returns the name of the interface that represents the VF on the node, or "".
func (s *State) Representor() string {
	if s.Port == nil {
		return ""
	}
	return s.Port.Representor
}

// Counters count a VF's traffic since it was enabled, in the VF's direction. All are 0 if the PF's driver counts
// nothing, which the kernel reports like no traffic.
type Counters struct {
	RxPackets, TxPackets uint64
	RxBytes, TxBytes     uint64
	RxDropped, TxDropped uint64
}

// Connect adapts the settings of VFs to switchdev mode, with the ports of the PF's eswitch. In that mode the PF does not
// have VLANs, spoof check and trust: drivers refuse to change them, and report the values of legacy mode (mlx5) or wrong
// ones (ice reports a spoof check that it has switched off, ice_vsi_ctx_clear_antispoof).
func (l *Link) Connect(ports []Port) error {
	for i := range l.VFs {
		vf := &l.VFs[i]
		vf.Settings.VLAN, vf.Settings.SpoofCheck, vf.Settings.Trust = nil, nil, nil
		for _, port := range ports {
			if port.VF != i {
				continue
			}
			if vf.Port != nil {
				return fmt.Errorf("%s has two ports for VF %d (%s, %s), and which one is its own is not known", l.Name, i, vf.Port.Representor, port.Representor)
			}
			vf.Port = &port
			// In switchdev mode the address is set on the port's function, and the PF's own answer may have the former one.
			if port.MAC != "" {
				vf.Settings.MAC = port.MAC
			}
		}
	}
	return nil
}

// Live reports whether the tree belongs to a running node, whose interfaces can be queried, and returns the path of its
// proc for [NewRtnetlink]. A copy has no procfs, whatever its links say. The error says why the network namespace of a
// running node is unavailable.
func Live(fs *sysfs.FS) (proc string, live bool, err error) {
	dir, err := fs.OpenDir("proc/1")
	if err != nil {
		return "", false, nil //nolint:nilerr // a running node has processes
	}
	defer dir.Close()
	var stat unix.Statfs_t
	if err := unix.Fstatfs(dir.Fd(), &stat); err != nil {
		return "", false, fmt.Errorf("look at the node's proc: %w", err)
	}
	if stat.Type != unix.PROC_SUPER_MAGIC {
		return "", false, nil
	}
	space, err := unix.Openat(dir.Fd(), "ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", true, fmt.Errorf("find the node's network namespace: %w", err)
	}
	_ = unix.Close(space) // nothing was written to it
	return filepath.Join(fs.Path(), "proc"), true, nil
}

// Number returns the index of a PF's interface, or 0 if it has none in the network namespace of sysfs.
func Number(fs *sysfs.FS, pf pci.Address) (int, error) {
	names, err := uplinks(fs, pf)
	if err != nil {
		return 0, fmt.Errorf("find the interface of PF %s: %w", pf, err)
	}
	if len(names) == 0 {
		return 0, nil
	}
	if len(names) > 1 { // two ports on one function (mlx4)
		return 0, fmt.Errorf("PF %s has several interfaces (%s), and which one its VFs belong to is not known", pf, strings.Join(names, ", "))
	}
	text, err := fs.ReadString(path.Join(netDir(pf), names[0], "ifindex"))
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

// representor matches the port name of an interface that represents a VF or a subfunction in switchdev mode ("pf0vf3",
// "c1pf0sf88"). The interface belongs to the PF's function, as the PF's own does
// (Documentation/networking/switchdev.rst).
var representor = regexp.MustCompile(`pf\d+(vf|sf)\d+$`)

// uplinks returns the PF's interfaces, without representors.
func uplinks(fs *sysfs.FS, pf pci.Address) ([]string, error) {
	dir := netDir(pf)
	there, err := fs.Exists(dir)
	if err != nil || !there {
		return nil, err
	}
	names, err := fs.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var ups []string
	for _, name := range names {
		port, err := fs.InterfaceText(path.Join(dir, name, "phys_port_name"))
		if errors.Is(err, sysfs.ErrLocked) { // its name may be that of a representor
			return nil, fmt.Errorf("read the port's name of %s: %w", name, errNoAnswer)
		}
		if err != nil || !representor.MatchString(port) { // drivers without port names return EOPNOTSUPP
			ups = append(ups, name)
		}
	}
	return ups, nil
}

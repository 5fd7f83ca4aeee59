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

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

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
	if s.Mode.Switchdev() {
		return l, l.connect(s.Ports)
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

// connect enters what is true of VFs in switchdev mode. VLANs, spoof check and
// trust are none of the PF's there: drivers refuse to change them, and report
// what was in legacy mode (mlx5) or what does not hold (ice says that it checks
// the sender and has switched that off, ice_vsi_ctx_clear_antispoof).
func (l *uplink) connect(ports []Port) error {
	for i := range l.VFs {
		vf := &l.VFs[i]
		vf.Settings.VLAN, vf.Settings.SpoofCheck, vf.Settings.Trust = nil, nil, nil
		for _, port := range ports {
			if port.VF != i {
				continue
			}
			if vf.Port != nil {
				return fmt.Errorf("PF %s has two ports for VF %d (%s, %s), and which one is its own is not known", l.pf, i, vf.Port.Representor, port.Representor)
			}
			vf.Port = &port
			if port.MAC != "" {
				vf.Settings.MAC = port.MAC
			}
		}
	}
	return nil
}

// vf returns the VF of that index; VFs may go between two looks.
func (l *uplink) vf(index int) (*State, error) {
	if index < 0 || index >= len(l.VFs) {
		return nil, fmt.Errorf("PF %s has %d VFs and none of index %d", l.pf, len(l.VFs), index)
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

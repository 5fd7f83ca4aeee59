package vf

import (
	"context"
	"errors"
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/network/vf/link"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
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

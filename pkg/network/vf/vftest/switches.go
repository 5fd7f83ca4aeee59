package vftest

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Switches returns the eswitches of the same PFs.
func (l *Links) Switches() *Switches { return &Switches{l} }

// Switches are the eswitches of a scripted node's PFs. It is safe for concurrent use.
type Switches struct{ links *Links }

// firstPort is the index of VF 0's port.
const firstPort = 100

// Read implements [vf.Switches].
func (s *Switches) Read(ctx context.Context, h vf.Handle) (*vf.Switch, error) {
	l := s.links
	l.mu.Lock()
	defer l.mu.Unlock()
	pf, err := l.device(ctx, h)
	if err != nil || !l.driver.Eswitch {
		return &vf.Switch{}, err
	}
	sw := &vf.Switch{Mode: vf.Legacy}
	if !l.modes[pf].Switchdev() {
		return sw, nil
	}
	sw.Mode = vf.Switchdev
	for i := range l.pfs[pf] {
		port := vf.Port{Index: uint32(firstPort + i), VF: i, Representor: fmt.Sprintf("%s_%d", pf.Label(), i)}
		if l.driver.PortMAC {
			port.MAC = l.pfs[pf][i].Settings.MAC
		}
		sw.Ports = append(sw.Ports, port)
	}
	return sw, nil
}

// SetMode implements [vf.Switches]. Like ice, it refuses while there are VFs.
func (s *Switches) SetMode(ctx context.Context, h vf.Handle, m vf.Mode) error {
	l := s.links
	l.mu.Lock()
	defer l.mu.Unlock()
	pf, err := l.device(ctx, h)
	if err != nil {
		return err
	}
	if !l.driver.Eswitch || len(l.pfs[pf]) > 0 {
		return unix.EOPNOTSUPP
	}
	l.modes[pf] = m
	l.writes = append(l.writes, fmt.Sprintf("%s eswitch %s", pf, m))
	return nil
}

// SetMAC implements [vf.Switches].
func (s *Switches) SetMAC(ctx context.Context, h vf.Handle, port uint32, mac string) error {
	l := s.links
	l.mu.Lock()
	defer l.mu.Unlock()
	pf, err := l.device(ctx, h)
	if err != nil {
		return err
	}
	index := int(port) - firstPort
	if !l.modes[pf].Switchdev() || index < 0 || index >= len(l.pfs[pf]) {
		return unix.ENODEV
	}
	if !l.driver.PortMAC {
		return unix.EOPNOTSUPP
	}
	l.put(pf, index, device.VFMAC, &device.VFSettings{MAC: mac})
	return nil
}

// device returns the PF with a name, up to date. Callers hold mu.
func (l *Links) device(ctx context.Context, h vf.Handle) (pci.Address, error) {
	if err := ctx.Err(); err != nil {
		return pci.Address{}, err
	}
	pf, err := pci.ParseAddress(h.Name)
	if err != nil || h.Bus != "pci" {
		return pf, unix.ENODEV
	}
	return pf, l.sync(pf)
}

package isolation

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// Separate says how f gets an IOMMU group of its own, as a phrase for a fix. The kernel
// makes groups by the ACS of the ports above a function, when it finds them.
func Separate(s *device.Snapshot, f *device.Function) string {
	for _, addr := range slices.Backward(f.Upstream) {
		if port, ok := s.Function(addr); ok && port.Capabilities.Express != nil && ACSOf(s, port) == ACSOff {
			return fmt.Sprintf("switch ACS of port %s on: %s", addr, acsAtBoot(port))
		}
	}
	return fmt.Sprintf("move %s to a slot whose ports have ACS, or enable ACS (for VFs also ARI) in the firmware setup", f.Address)
}

// acsAtBoot says how the kernel gets to switch a port's ACS on. It does so by itself for
// IOMMUs unless an argument says otherwise: disable_acs_redir switches redirection off, and
// config_acs sets each switch (Documentation/admin-guide/kernel-parameters.txt, since 6.11).
func acsAtBoot(p *device.Function) string {
	return fmt.Sprintf("take `pci=disable_acs_redir=` off the kernel command line if it names the port, or boot with `pci=config_acs=%s@%s` (Linux 6.11 or later)",
		acsFlags(missingACS(p.Capabilities.ACS)), p.Address)
}

// acsFlags writes switches as config_acs takes them, the lowest on the right: 1 is on, x as
// it is.
func acsFlags(on uint16) string {
	flags := []byte("xxxxxxx")
	for i := range flags {
		if on&(1<<i) != 0 {
			flags[len(flags)-1-i] = '1'
		}
	}
	return string(flags)
}

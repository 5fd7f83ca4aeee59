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
			return fmt.Sprintf("switch ACS of port %s on: %s", addr, ACSAtBoot(port))
		}
	}
	return otherSlotFix(f.Address.String())
}

// ACSAtBoot says how the kernel gets to switch a port's ACS on. The port has ACS.
func ACSAtBoot(p *device.Function) string {
	return acsAtBootBy(acsFlags(missingACS(p.Capabilities.ACS)) + "@" + p.Address.String())
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

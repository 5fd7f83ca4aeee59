package isolation_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// No switch of ACS and no slot separates what is behind VMD.
func TestFunctionBehindVMDIsSeparatedByTheFirmware(t *testing.T) {
	for domain, vmd := range map[uint32]bool{0x10000: true, 0xffff: false, 0: false} {
		f := &device.Function{Address: pci.Address{Domain: domain, Bus: 1}}
		if got := isolation.Separate(&device.Snapshot{}, f); strings.Contains(got, "disable VMD") != vmd {
			t.Errorf("domain %x: Separate = %q, want VMD in it: %t", domain, got, vmd)
		}
	}
}

package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// roomForBARs is the fix for BARs without an address. "pci=realloc" makes the kernel enlarge the windows of bridges
// (Documentation/admin-guide/kernel-parameters.txt). It does not help if the firmware keeps all windows below 4 GiB,
// where GPUs don't fit.
const roomForBARs = "switch on Above 4G Decoding in the firmware setup (with Resizable BAR it needs room for the largest size), or boot with `pci=realloc`"

// placed refuses functions with BARs that have no address. VFIO enables a function when it is opened, and the kernel
// does not enable a function that lacks one of its memory or I/O BARs (drivers/pci/setup-res.c pci_enable_resources).
// The ROM does not count.
func (c *candidate) placed() *rule.Verdict {
	for _, f := range c.opened() {
		if bars := f.UnassignedBARs(); len(bars) > 0 {
			return c.mate(f, rule.BARsUnassigned,
				fmt.Sprintf("%s: %s, so the kernel can't enable the function for a VM", f.Address, withoutAddress("BAR", bars)),
				roomForBARs)
		}
	}
	return nil
}

// reservable refuses functions if the kernel keeps a part of their memory for the firmware's frame buffer, because VFIO
// reserves a whole BAR or none (drivers/vfio/pci/vfio_pci_core.c vfio_pci_core_setup_barmap).
func (c *candidate) reservable() *rule.Verdict {
	for _, f := range c.opened() {
		if f.IsReserved() {
			return c.mate(f, rule.BARReserved, fmt.Sprintf("%s (driver %s): %s", f.Address, f.Driver, f.Uses[0]), f.UseFix())
		}
	}
	return nil
}

// opened returns the functions that the VM opens. The other functions of the assignment set are bound to VFIO, but not
// opened.
func (c *candidate) opened() []*device.Function {
	if c.claimed.VFIO.Companions != v1alpha1.CompanionsGive {
		return []*device.Function{c.f}
	}
	var all []*device.Function
	for _, t := range c.members() {
		if t.f == c.f || t.role == RoleCompanion {
			all = append(all, t.f)
		}
	}
	return all
}

// withoutAddress returns "BAR 1 and BAR 3 have no address".
func withoutAddress(kind string, bars []int) string {
	words := make([]string, len(bars))
	for i, n := range bars {
		words[i] = kind + " " + strconv.Itoa(n)
	}
	last := len(words) - 1
	if last == 0 {
		return words[0] + " has no address"
	}
	return strings.Join(words[:last], ", ") + " and " + words[last] + " have no address"
}

// noRoomForVFs says why the kernel can't create VFs of a PF; empty if it has memory for them. The kernel logs "not
// enough MMIO resources for SR-IOV" (drivers/pci/iov.c sriov_enable).
func noRoomForVFs(pf *device.Function) string {
	if len(pf.PF.UnassignedBARs) == 0 {
		return ""
	}
	return withoutAddress("VF BAR", pf.PF.UnassignedBARs) + ", so the kernel can't make VFs"
}

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// find looks the function up and checks that it is what its name says.
func (c *candidate) find() *Refusal {
	s := c.node.Snapshot
	f, ok := s.Function(c.claimed.Address)
	if !ok {
		return &Refusal{
			Code: Absent,
			Text: fmt.Sprintf("this node has no PCI function %s", c.claimed.Address),
			Fix:  "if it was removed or its VFs were deleted, delete the claim so that it is allocated anew; `kata-vfio-audit devices` lists what is here",
		}
	}
	if f.Name() != c.claimed.Name {
		return &Refusal{
			Code: WrongType, Driver: f.Driver,
			Text: fmt.Sprintf("%s is a %s now (%s:%s, class %s)", f.Address, f.Type, f.Vendor, f.Device, f.Class),
			Fix:  "delete the claim so that it is allocated anew from the current ResourceSlices",
		}
	}
	c.f, c.choice = f, c.node.Selection.Choice(f.Address)
	c.all = take(s, f)
	return nil
}

// settings refuses what the claim's parameters ask for and can't have.
func (c *candidate) settings() *Refusal {
	if c.claimed.AdminAccess {
		return &Refusal{
			Code: AdminAccess,
			Text: "adminAccess is asked for, but a function that is in a VM can't be shared",
			Fix:  "remove adminAccess from the request; use kata-vfio-audit to look at devices in use",
		}
	}
	return nil
}

// selected checks that the function is ours by the node's config.
func (c *candidate) selected() *Refusal {
	if c.f.ConfigDead {
		return &Refusal{
			Code: Dead, Driver: c.f.Driver,
			Text: fmt.Sprintf("configuration space of %s reads all ones: the function does not answer", c.f.Address),
			Fix:  "check its power and seating; remove and rescan it, or restart the node",
		}
	}
	switch {
	case c.choice.Forbidden:
		return &Refusal{
			Code: Forbidden, Driver: c.f.Driver,
			Text: fmt.Sprintf("%s (driver %s) must not be taken: %s", c.f.Address, driverName(c.f.Driver), c.choice.Why),
			Fix:  "free it of that use first, or claim another device",
		}
	case !c.choice.Ours:
		return &Refusal{
			Code: NotOurs, Driver: c.f.Driver,
			Text: fmt.Sprintf("%s (driver %s) is not ours: %s", c.f.Address, driverName(c.f.Driver), c.choice.Why),
			Fix:  "name it in the node config (kind NodeConfig, devices[].match) if kata-vfio shall have it",
		}
	}
	return nil
}

// free checks that no other record holds what would be taken.
func (c *candidate) free() *Refusal {
	for _, t := range c.all {
		if t.f.Locked {
			return c.mate(t.f, Locked,
				fmt.Sprintf("an operation on %s hangs in the kernel, so its state can't be read", t.f.Address),
				"end the process that has the device open, or restart the node")
		}
		h, ok := c.node.Holdings[t.f.Address]
		if ok && h.Quarantined != "" {
			return c.mate(t.f, Quarantined,
				fmt.Sprintf("%s is quarantined since claim %s: %s", t.f.Address, c.nameOf(h.Claim), h.Quarantined),
				fmt.Sprintf("run `kata-vfio-plugin unprepare %s` to try the reset again", h.Claim.UID))
		}
		if ok && !h.Standing && h.Claim.UID != c.ref.UID {
			return c.mate(t.f, Held,
				fmt.Sprintf("%s is held by claim %s", t.f.Address, c.nameOf(h.Claim)),
				"wait until that claim's pod is gone, or unprepare it; `kata-vfio-plugin status` shows who has what")
		}
		if !ok && c.node.Damaged != "" && device.IsVFIO(t.f.Driver) {
			return c.mate(t.f, Unexplained,
				fmt.Sprintf("%s is on %s and the unreadable record %s may own it", t.f.Address, t.f.Driver, c.node.Damaged),
				"repair or remove that file once no VM uses the function")
		}
	}
	return nil
}

// nameOf names another claim. A refusal is shown to the tenant who claims, whom
// the names of others are none of his business: the UID tells the operator.
func (c *candidate) nameOf(other Ref) string {
	if other.Namespace == c.ref.Namespace {
		return other.String()
	}
	return other.UID + " of another namespace"
}

// standsAlone keeps a PF and its VFs out of two tenants' hands.
func (c *candidate) standsAlone() *Refusal {
	for _, t := range c.all {
		if t.f.PF != nil && t.f.PF.NumVFs > 0 {
			return c.mate(t.f, PFBusy,
				fmt.Sprintf("%s is a PF with %d VFs enabled, which binding it to vfio-pci would destroy", t.f.Address, t.f.PF.NumVFs),
				fmt.Sprintf("free the VFs and run `echo 0 > /sys/bus/pci/devices/%s/sriov_numvfs`, or claim a VF", t.f.Address))
		}
		if t.f.VF == nil {
			continue
		}
		if pf, ok := c.node.Snapshot.Function(t.f.VF.PF); ok && device.IsVFIO(pf.Driver) {
			return c.mate(pf, PFBusy,
				fmt.Sprintf("%s is a VF of %s, which is on %s and may be a tenant's", t.f.Address, pf.Address, pf.Driver),
				"give the PF back to its driver first")
		}
	}
	return nil
}

// isolated judges the function, and the companions in other groups that the
// VM gets with it.
func (c *candidate) isolated() *Refusal {
	c.verdict = isolation.Judge(c.node.Snapshot, c.f)
	if r := c.judged(&c.verdict); r != nil {
		return r
	}
	for _, t := range c.all {
		if t.role != RoleCompanion || c.claimed.VFIO.Companions != v1alpha1.CompanionsGive {
			continue
		}
		verdict := isolation.Judge(c.node.Snapshot, t.f)
		if r := c.judged(&verdict); r != nil {
			return r
		}
	}
	return c.matesTakeable()
}

// judged turns the first reason of a verdict that nothing waives into a refusal.
func (c *candidate) judged(v *isolation.Verdict) *Refusal {
	for i := range v.Reasons {
		r := &v.Reasons[i]
		if c.tolerated(r.Code) {
			continue
		}
		refusal := &Refusal{Code: NotIsolated, Driver: c.f.Driver, Text: r.Text, Fix: r.Fix, Culprit: r.Culprit}
		if r.Code == isolation.NotViable {
			refusal.Code = NotViable
		}
		if r.Culprit != nil {
			if f, ok := c.node.Snapshot.Function(*r.Culprit); ok {
				refusal.Driver = f.Driver
			}
		}
		return refusal
	}
	return nil
}

// tolerated reports whether the class's parameters waive a reason. What VFIO
// itself would refuse can't be waived, and resets have a check of their own.
func (c *candidate) tolerated(code isolation.Code) bool {
	if code == isolation.NoReset {
		return true
	}
	if slices.Contains([]isolation.Code{isolation.NotViable, isolation.NoGroup, isolation.Dead}, code) {
		return false
	}
	allow := c.claimed.VFIO.AllowUnisolated
	return allow != nil && *allow
}

// audited refuses what fails a check of the plugin's. A taint keeps such a device
// from claims, but a tenant may tolerate taints.
func (c *candidate) audited() *Refusal {
	allow := c.claimed.VFIO.AllowUnisolated
	if c.node.Failing == nil || allow != nil && *allow {
		return nil
	}
	for _, t := range c.all {
		ids := c.node.Failing(t.f.Address)
		if len(ids) == 0 {
			continue
		}
		return &Refusal{
			Code: FailsAudit, Driver: t.f.Driver,
			Text: fmt.Sprintf("%s fails %s of the node's audit", t.f.Address, strings.Join(ids, ", ")),
			Fix: fmt.Sprintf("`kata-vfio-audit node` says what is wrong and `kata-vfio-audit explain %s` why it matters; a failure that is accepted needs a waiver",
				ids[0]),
		}
	}
	return nil
}

// matesTakeable refuses a group mate or companion that the node itself needs,
// which may lie in another group than the one judged.
func (c *candidate) matesTakeable() *Refusal {
	for _, t := range c.all {
		if t.role == RoleDevice {
			continue
		}
		if t.f.Group == nil {
			return c.mate(t.f, NotIsolated,
				fmt.Sprintf("%s goes with %s and is in no IOMMU group", t.f.Address, c.f.Address),
				"switch the IOMMU on in the firmware and on the kernel command line")
		}
		if ch := c.node.Selection.Choice(t.f.Address); ch.Forbidden {
			return c.mate(t.f, Forbidden,
				fmt.Sprintf("%s (driver %s) goes with %s and must not be taken: %s", t.f.Address, driverName(t.f.Driver), c.f.Address, ch.Why),
				"free it of that use first, or claim another device")
		}
	}
	return nil
}

// backend settles the kernel interface.
func (c *candidate) backend() *Refusal {
	iommufd := c.node.Snapshot.Host.IOMMUFD
	want := c.claimed.VFIO.Backend
	if want == v1alpha1.BackendIOMMUFD && !iommufd {
		return &Refusal{
			Code: NoBackend,
			Text: "backend IOMMUFD is asked for, but this kernel has no /dev/iommu",
			Fix:  "load the iommufd module or use a kernel with CONFIG_IOMMUFD and CONFIG_VFIO_DEVICE_CDEV, or say `backend: Auto`",
		}
	}
	c.settled = v1alpha1.BackendGroup
	if c.isEndpoint() {
		return nil // Kata takes one by its group
	}
	if iommufd && want != v1alpha1.BackendGroup {
		c.settled = v1alpha1.BackendIOMMUFD
	}
	if c.claimed.VFIO.Companions == v1alpha1.CompanionsGive && c.settled == v1alpha1.BackendGroup {
		return &Refusal{
			Code: NoBackend,
			Text: "companions: Give needs the IOMMUFD backend; with a group node the VMM takes what it wants of the group",
			Fix:  "say `companions: Withhold`, or use a kernel with iommufd",
		}
	}
	return nil
}

// mate returns a refusal on account of f, which may be the device itself.
func (c *candidate) mate(f *device.Function, code Code, text, fix string) *Refusal {
	r := &Refusal{Code: code, Driver: f.Driver, Text: text, Fix: fix}
	if f.Address != c.claimed.Address {
		r.Culprit = new(f.Address)
	}
	return r
}

func driverName(driver string) string {
	if driver == "" {
		return "none"
	}
	return driver
}

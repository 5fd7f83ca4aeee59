package plan

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// presence returns the checks that the node has the device. If one of them fails, no other check applies.
func presence() []func(*candidate) *rule.Verdict {
	return []func(*candidate) *rule.Verdict{(*candidate).allocatedHere, (*candidate).present}
}

// checks returns all further checks, in the order in which their refusals are reported. Each check returns at most one
// reason, and changes nothing. The plan is made from a candidate that no check refuses. [Assessor.Assess] runs the same
// checks for a claim that sets no parameters.
func checks() []func(*candidate) *rule.Verdict {
	return []func(*candidate) *rule.Verdict{
		(*candidate).allocatedFromItsPool, (*candidate).ofItsNamespace,
		(*candidate).settings, (*candidate).alive, (*candidate).selected, (*candidate).drained,
		(*candidate).unlocked, (*candidate).clean, (*candidate).unheld, (*candidate).explained, (*candidate).letGo,
		(*candidate).sanitized, (*candidate).exclusive,
		(*candidate).linked, (*candidate).sound,
		(*candidate).isolated, (*candidate).companionsIsolated, (*candidate).wholeBoard,
		(*candidate).standsAlone, (*candidate).matesTakeable, (*candidate).matesSelected, (*candidate).acceptedByVFIO, (*candidate).placed, (*candidate).reservable, (*candidate).configured, (*candidate).provided, (*candidate).pooled, (*candidate).endpoint,
		(*candidate).resettable, (*candidate).backendAvailable, (*candidate).pluggableTogether, (*candidate).pluggedByGroup, (*candidate).hotPluggable, (*candidate).audited,
		(*candidate).nodeReady,
	}
}

// refused returns the reasons against the candidate, each as its check finds it.
func (c *candidate) refused() iter.Seq[rule.Verdict] {
	return func(yield func(rule.Verdict) bool) {
		for r := range c.failed(presence()) {
			// The other checks need the function, so its absence is the only reason.
			yield(r)
			return
		}
		for r := range c.failed(checks()) {
			if !yield(r) {
				return
			}
		}
	}
}

// failed returns the verdicts of the checks that fail.
func (c *candidate) failed(checks []func(*candidate) *rule.Verdict) iter.Seq[rule.Verdict] {
	return func(yield func(rule.Verdict) bool) {
		for _, check := range checks {
			r := check(c)
			if r == nil {
				continue
			}
			r.Device, r.Address = c.claimed.Name, c.claimed.Address
			if !yield(*r) {
				return
			}
		}
	}
}

// present checks that the node has the function, and that the function's type is the type in the device's name.
func (c *candidate) present() *rule.Verdict {
	f, ok := c.node.Snapshot.Function(c.claimed.Address)
	if !ok {
		return &rule.Verdict{
			Code: rule.Absent,
			Text: fmt.Sprintf("this node has no PCI function %s", c.claimed.Address),
			Fix:  "if it was removed or its VFs were deleted, delete the claim, so that a new one is allocated; `kata-vfio-audit devices` lists this node's functions",
		}
	}
	// PCI addresses are reused: after a card is replaced or the bus is renumbered, another function can have this
	// address. The name contains the type and so detects the change.
	if !f.HasName(c.claimed.Name) {
		return &rule.Verdict{
			Code: rule.WrongType, Driver: f.Driver,
			Text: fmt.Sprintf("%s is now a %s (%s:%s, class %s)", f.Address, f.Type, f.Vendor, f.Device, f.Class),
			Fix:  "delete the claim, so that a new one is allocated from the current ResourceSlices",
		}
	}
	return nil
}

// settings refuses parameters that no device supports.
func (c *candidate) settings() *rule.Verdict {
	if c.claimed.AdminAccess {
		return &rule.Verdict{
			Code: rule.AdminAccess,
			Text: "the claim requests adminAccess, but a function in a VM can't be shared",
			Fix:  "remove adminAccess from the request; use kata-vfio-audit to look at devices in use",
		}
	}
	return nil
}

// alive checks that the function answers.
func (c *candidate) alive() *rule.Verdict {
	if !c.f.ConfigDead {
		return nil
	}
	return &rule.Verdict{
		Code: rule.ConfigSpaceDead, Driver: c.f.Driver,
		Text: isolation.DeadText(c.f),
		Fix:  c.known.fix(c.f, rule.ConfigSpaceDead),
	}
}

// selected checks that the node config selects the function and that the node does not need it.
func (c *candidate) selected() *rule.Verdict {
	switch {
	// The node's own use counts first, even if a rule selects the function.
	case c.choice.Forbidden:
		return &rule.Verdict{
			Code: c.choice.Against(), Driver: c.f.Driver,
			Text: fmt.Sprintf("%s (driver %s) must not be taken: %s", c.f.Address, driverName(c.f.Driver), c.choice.Why),
			Fix:  c.useFix() + ", or claim another device",
		}
	case !c.choice.Ours:
		fix := "to give it to kata-vfio, add it to the node config (kind NodeConfig, devices[].match)"
		if c.choice.Code == rule.GPUNotSliced {
			fix = "to permit slices of that GPU, name it in the node config (kind NodeConfig, gpuSlices[].match), or claim a whole GPU"
		}
		return &rule.Verdict{
			Code: c.choice.Against(), Driver: c.f.Driver,
			Text: fmt.Sprintf("%s (driver %s) does not belong to kata-vfio: %s", c.f.Address, driverName(c.f.Driver), c.choice.Why),
			Fix:  fix,
		}
	}
	return nil
}

// useFix returns what ends the reason for which the function must not be taken.
func (c *candidate) useFix() string {
	if c.choice.Code == rule.PFStaysOnHost {
		return "claim one of its VFs"
	}
	return cmp.Or(c.f.UseFix(), "stop that use first")
}

// Retakeable says whether a function may be taken back from a host driver for a record that has the function. It
// refuses if the node needs the function now, or if the node config does not select it: the plan judged the function
// when the record was made, but somebody has given it to the driver since. f is a function of the snapshot.
func Retakeable(s *device.Snapshot, selection *nodeconfig.Selection, f *device.Function, role Role) *rule.Verdict {
	c := candidate{f: f, choice: selection.Choice(f.Address)}
	withGPU := func(pci.Address) bool { return true } // the record has it
	if role != RoleDevice && !c.choice.Forbidden && !needsRule(s, selection, f, withGPU) {
		return nil
	}
	r := c.selected()
	if r != nil {
		r.Device, r.Address = f.Name(), f.Address
	}
	return r
}

// isolated checks the isolation of the function.
func (c *candidate) isolated() *rule.Verdict {
	judgment := c.known.judgment(c.f)
	return c.judged(&judgment)
}

// companionsIsolated checks the isolation of companions in other groups that the VM gets too.
func (c *candidate) companionsIsolated() *rule.Verdict {
	if c.claimed.VFIO.Companions != v1alpha1.CompanionsGive {
		return nil
	}
	for _, t := range c.members() {
		if t.role != RoleCompanion {
			continue
		}
		judgment := c.known.judgment(t.f)
		if r := c.judged(&judgment); r != nil {
			return r
		}
	}
	return nil
}

// judged returns a refusal for the first reason of a judgment that the class's parameters do not waive.
func (c *candidate) judged(v *isolation.Judgment) *rule.Verdict {
	for i := range v.Reasons {
		r := &v.Reasons[i]
		if c.tolerated(r.Code) {
			continue
		}
		refusal := &rule.Verdict{Code: rule.NotIsolated, Driver: c.f.Driver, Text: r.Text, Fix: r.Fix, Culprit: r.Culprit}
		if r.Code == rule.GroupNotViable {
			refusal.Code = rule.GroupNotViable
		}
		if r.Culprit != nil {
			if f, ok := c.node.Snapshot.Function(*r.Culprit); ok {
				refusal.Driver = f.Driver
			}
		}
		if r.Code == rule.GroupNotViable {
			joinMates(refusal, v.Reasons[i+1:])
		}
		return refusal
	}
	return nil
}

// tolerated reports whether the class's parameters waive a reason. A reason that VFIO itself enforces can't be waived,
// and resets have their own check.
func (c *candidate) tolerated(code rule.Code) bool {
	if code == rule.NoReset {
		return true
	}
	if slices.Contains([]rule.Code{rule.GroupNotViable, rule.NoIOMMUGroup, rule.ConfigSpaceDead}, code) {
		return false
	}
	allow := c.claimed.VFIO.AllowUnisolated
	return allow != nil && *allow
}

// audited refuses a function that fails one of the audit's checks. A taint keeps most claims away from such a function,
// but a tenant can tolerate taints.
func (c *candidate) audited() *rule.Verdict {
	allow := c.claimed.VFIO.AllowUnisolated
	if c.node.Failing == nil || allow != nil && *allow {
		return nil
	}
	failing := c.set.having(failsAudit, func(f *device.Function) bool { return len(c.node.Failing(f.Address)) > 0 })
	if len(failing) == 0 {
		return nil
	}
	f := failing[0]
	ids := c.node.Failing(f.Address)
	return &rule.Verdict{
		Code: rule.FailsAudit, Driver: f.Driver, Check: ids[0],
		Text: fmt.Sprintf("%s fails %s of the node's audit", f.Address, strings.Join(ids, ", ")),
		Fix: fmt.Sprintf("`kata-vfio-audit node` says what is wrong and `kata-vfio-audit explain %s` why it matters; `kata-vfio-audit waive %s --scope %s` accepts the failure until a day",
			ids[0], ids[0], f.Address),
	}
}

// nodeReady refuses every function of a node that refuses all new claims.
func (c *candidate) nodeReady() *rule.Verdict {
	why := c.node.NotReady
	if why == nil {
		return nil
	}
	return &rule.Verdict{
		Code: rule.NodeNotReady, Driver: c.f.Driver, Obstacle: why.Obstacle,
		Text: "the node refuses all new claims: " + why.Text, Fix: "after that, the taint is removed within a minute",
	}
}

// backendAvailable refuses a claim whose parameters need a kernel interface that the node does not have.
func (c *candidate) backendAvailable() *rule.Verdict {
	if c.claimed.VFIO.Backend == v1alpha1.BackendIOMMUFD && !c.node.Snapshot.Host.IOMMUFD {
		return &rule.Verdict{
			Code: rule.BackendUnavailable,
			Text: "the claim requests backend IOMMUFD, but this kernel has no /dev/iommu",
			Fix:  "load the iommufd module or use a kernel with CONFIG_IOMMUFD and CONFIG_VFIO_DEVICE_CDEV, or set `backend: Auto`",
		}
	}
	// A physical endpoint is alone in its assignment set, so it has no companions.
	if c.isEndpoint() {
		return nil
	}
	if c.claimed.VFIO.Companions == v1alpha1.CompanionsGive && c.backend() == v1alpha1.BackendGroup {
		return &rule.Verdict{
			Code: rule.BackendUnavailable,
			Text: "companions: Give needs the IOMMUFD backend; with a group node, Kata decides which functions of the group it plugs",
			Fix:  "set `companions: Withhold`; if each companion has its own IOMMU group, a kernel with iommufd also works",
		}
	}
	return nil
}

// backend returns the kernel interface by which the VM gets the device. Kata takes a physical endpoint by its group.
func (c *candidate) backend() v1alpha1.Backend {
	if c.node.Snapshot.Host.IOMMUFD && c.claimed.VFIO.Backend != v1alpha1.BackendGroup && !c.isEndpoint() {
		return v1alpha1.BackendIOMMUFD
	}
	return v1alpha1.BackendGroup
}

// acceptedByVFIO refuses functions that can't be bound to a VFIO driver, and functions that must not leave their
// present driver.
func (c *candidate) acceptedByVFIO() *rule.Verdict {
	refused := c.set.having(isRefusedByVFIO, func(f *device.Function) bool { return c.refusedByVFIO(f) != nil })
	if len(refused) == 0 {
		return nil
	}
	return c.refusedByVFIO(refused[0])
}

// refusedByVFIO says why a VFIO driver can't or must not take f; nil if it may.
func (c *candidate) refusedByVFIO(f *device.Function) *rule.Verdict {
	switch driver, _ := vfioDriver(&c.node.Snapshot.Host, f); {
	// A VFIO driver that has the function has accepted it already.
	case device.IsVFIO(f.Driver):
	case f.ServesVFIO() && !f.OnVFIO():
		return c.mate(f, rule.DriverServesVFIO,
			fmt.Sprintf("%s has no VFIO device, which only driver nvidia can make for a VF of its GPU (its driver is %s)", f.Address, driverName(f.Driver)),
			"enable the GPU's VFs with /usr/lib/nvidia/sriov-manage -e on Linux 6.8 or later with vGPU 17 or later; vGPUs as mediated devices "+
				"(mdev, before Linux 6.8) are not supported: assign the whole GPU instead")
	case f.ServesVFIO() && !c.isVGPU(f):
		return c.mate(f, rule.DriverServesVFIO,
			fmt.Sprintf("driver %s of %s serves VFIO itself, as for vGPU, and the function works with that driver only", f.Driver, f.Address),
			"assign the whole GPU, exclude its VFs by a rule of the node config, or name their vGPU type there (gpuSlices[].nvidia)")
	case f.ServesVFIO():
	case driver == device.GenericVFIO && f.IsDenylisted() && !c.node.Snapshot.Host.VFIODenylistOff:
		return c.mate(f, rule.OnVFIODenylist,
			fmt.Sprintf("%s (%s:%s) is on the denylist of vfio-pci, which refuses it because of known errata", f.Address, f.Vendor, f.Device),
			"do not assign it to tenants you do not trust; else load vfio_pci with disable_denylist=1 (/etc/modprobe.d), and reboot")
	}
	return nil
}

// mate returns a refusal of the candidate because of f, which may be the candidate's own function or a mate.
func (c *candidate) mate(f *device.Function, code rule.Code, text, fix string) *rule.Verdict {
	r := &rule.Verdict{Code: code, Driver: f.Driver, Text: text, Fix: fix}
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

// linked refuses a function that lost its PCIe link, and a VF whose PF did.
func (c *candidate) linked() *rule.Verdict {
	unlinked := func(f *device.Function) bool { return slices.ContainsFunc(c.withPF(f), (*device.Function).LinkDown) }
	for _, t := range c.set.having(isUnlinked, unlinked) {
		for _, f := range c.withPF(t) {
			if f.LinkDown() {
				return c.mate(f, rule.LinkLost,
					fmt.Sprintf("the PCIe link of %s is down (width 0 of x%d)", f.Address, f.Link.MaxWidth),
					"check its power and seating; remove and rescan it, or restart the node")
			}
		}
	}
	return nil
}

// sound refuses a function that reported fatal errors, and a VF whose PF did.
func (c *candidate) sound() *rule.Verdict {
	isFatal := func(f *device.Function) bool { return c.node.FatalErrors[f.Address] }
	unsound := func(f *device.Function) bool { return slices.ContainsFunc(c.withPF(f), isFatal) }
	for _, t := range c.set.having(isUnsound, unsound) {
		for _, f := range c.withPF(t) {
			if isFatal(f) {
				return c.mate(f, rule.FatalErrors,
					fmt.Sprintf("%s reported fatal PCIe errors since its last proven reset", f.Address),
					fmt.Sprintf("look at the kernel's log and at /sys/bus/pci/devices/%s/aer_dev_fatal; check the device, then drain and undrain it, or restart the node", f.Address))
			}
		}
	}
	return nil
}

// withPF returns f, and its PF if it has one: a VF uses the link of its PF.
func (c *candidate) withPF(f *device.Function) []*device.Function {
	if f.VF != nil {
		if pf, ok := c.node.Snapshot.Function(f.VF.PF); ok {
			return []*device.Function{f, pf}
		}
	}
	return []*device.Function{f}
}

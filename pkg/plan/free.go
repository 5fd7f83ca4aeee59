package plan

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// unlocked refuses a function on which an operation hangs in the kernel.
func (c *candidate) unlocked() *rule.Verdict {
	if locked := c.set.having(isLocked, func(f *device.Function) bool { return f.Locked }); len(locked) > 0 {
		return c.locked(locked[0])
	}
	return nil
}

// clean refuses a function that could not be proven clean after an earlier claim.
func (c *candidate) clean() *rule.Verdict {
	unclean := c.set.having(isQuarantined, func(f *device.Function) bool { return c.node.Owners[f.Address].Quarantined != "" })
	if len(unclean) == 0 {
		return nil
	}
	h := c.node.Owners[unclean[0].Address]
	return c.mate(unclean[0], rule.Quarantined,
		fmt.Sprintf("%s has been quarantined since claim %s: %s", unclean[0].Address, c.holderName(h.Claim), h.Quarantined),
		fmt.Sprintf("run `kata-vfio-plugin unprepare %s` to try the reset again", h.Claim.UID))
}

// unheld checks that no other claim has a function of the assignment set.
func (c *candidate) unheld() *rule.Verdict {
	held := c.set.having(isHeld, func(f *device.Function) bool {
		h, ok := c.node.Owners[f.Address]
		// If the record is the claim's own, its Prepare is repeated. Functions of policy "bound" are lent to claims.
		return ok && h.Quarantined == "" && !h.Bound && h.Claim.UID != c.ref.UID
	})
	if len(held) == 0 {
		return nil
	}
	return c.mate(held[0], rule.Held,
		fmt.Sprintf("%s is held by claim %s", held[0].Address, c.holderName(c.node.Owners[held[0].Address].Claim)),
		"wait until that claim's pod has ended, or unprepare it; `kata-vfio-plugin status` lists the claims with their devices")
}

// explained refuses a function on a VFIO driver if no claim's record explains why it is there and a damaged record may
// be the record of its claim. A record of policy "bound" does not explain that, because claims borrow its functions.
func (c *candidate) explained() *rule.Verdict {
	if c.node.Damaged == "" {
		return nil
	}
	unexplained := c.set.having(isUnexplained, func(f *device.Function) bool {
		h, ok := c.node.Owners[f.Address]
		return (!ok || h.Bound) && f.OnVFIO()
	})
	if len(unexplained) == 0 {
		return nil
	}
	return c.mate(unexplained[0], rule.DamagedRecord,
		fmt.Sprintf("%s is on %s and the unreadable record %s may own it", unexplained[0].Address, unexplained[0].Driver, c.node.Damaged),
		"repair or remove that file once no VM uses the function")
}

// holderName returns the name of another claim for a refusal. The tenant sees the refusal and must not learn names of
// other tenants' claims, so a claim of another namespace is shown by its UID. The UID is enough for the operator.
func (c *candidate) holderName(other Ref) string {
	if other.Namespace == c.ref.Namespace {
		return other.String()
	}
	return other.UID + " of another namespace"
}

// locked refuses a function on which an operation hangs in the kernel.
func (c *candidate) locked(f *device.Function) *rule.Verdict {
	text := fmt.Sprintf("an operation on %s hangs in the kernel, so its state can't be read", f.Address)
	fix := "end the process that has the device open, or restart the node"
	if f.Detaching != "" {
		text = fmt.Sprintf("unbinding %s from driver %s hangs in the kernel", f.Address, f.Detaching)
	}
	// No signal and no timeout ends the wait of such a driver, so a retry does not help.
	if device.WaitsForUsers(f.Detaching) {
		fix = device.NeverLetsGo
	}
	return c.mate(f, rule.Locked, text, fix)
}

// letGo refuses a GPU that its driver can't release. If modeset of nvidia_drm is on, the driver itself uses each GPU
// that has a display engine, and an unbind waits in the kernel until that use ends. The driver does not use GPUs
// without a display engine (3D controllers).
func (c *candidate) letGo() *rule.Verdict {
	if !c.node.Snapshot.Host.NVIDIAModeset {
		return nil
	}
	kept := c.set.having(isKeptByDriver, func(f *device.Function) bool {
		return device.WaitsForUsers(f.Driver) && f.Class.Sub() == pci.ClassVGA
	})
	if len(kept) == 0 {
		return nil
	}
	return c.mate(kept[0], rule.Forbidden,
		fmt.Sprintf("%s can't be unbound from driver %s: nvidia_drm has modeset on and uses the GPU for its display, and the unbind would hang in the kernel", kept[0].Address, kept[0].Driver),
		"keep the driver off it (policy: bound, with early binding), or set nvidia_drm's modeset=0 on the kernel command line or in modprobe.d and restart the node")
}

// drained refuses a drained function. A taint keeps such a device from claims, but a tenant may tolerate taints.
func (c *candidate) drained() *rule.Verdict {
	a, ok := c.known.drains(&c.node).Find(c.f)
	if !ok {
		return nil
	}
	r := &rule.Verdict{
		Code: rule.Drained, Driver: c.f.Driver,
		Text: fmt.Sprintf("%s is being drained: %s", a, c.node.Drained[a]),
		Fix:  fmt.Sprintf("claim another device, or run `kata-vfio-plugin undrain %s` on the node", a),
	}
	if a != c.f.Address {
		r.Culprit = new(a)
	}
	return r
}

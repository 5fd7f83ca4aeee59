package plan

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// unlocked refuses what hangs in the kernel.
func (c *candidate) unlocked() *Refusal {
	for _, t := range c.all {
		if t.f.Locked {
			return c.locked(t.f)
		}
	}
	return nil
}

// clean refuses what could not be proven clean after an earlier claim.
func (c *candidate) clean() *Refusal {
	for _, t := range c.all {
		if h := c.node.Owners[t.f.Address]; h.Quarantined != "" {
			return c.mate(t.f, Quarantined,
				fmt.Sprintf("%s is quarantined since claim %s: %s", t.f.Address, c.nameOf(h.Claim), h.Quarantined),
				fmt.Sprintf("run `kata-vfio-plugin unprepare %s` to try the reset again", h.Claim.UID))
		}
	}
	return nil
}

// unheld checks that no other claim holds what would be taken.
func (c *candidate) unheld() *Refusal {
	for _, t := range c.all {
		h, ok := c.node.Owners[t.f.Address]
		if ok && h.Quarantined == "" && !h.Bound && h.Claim.UID != c.ref.UID {
			return c.mate(t.f, Held,
				fmt.Sprintf("%s is held by claim %s", t.f.Address, c.nameOf(h.Claim)),
				"wait until that claim's pod is gone, or unprepare it; `kata-vfio-plugin status` shows who has what")
		}
	}
	return nil
}

// explained refuses a function on a VFIO driver that only a damaged record may explain.
func (c *candidate) explained() *Refusal {
	if c.node.Damaged == "" {
		return nil
	}
	for _, t := range c.all {
		if _, ok := c.node.Owners[t.f.Address]; !ok && device.IsVFIO(t.f.Driver) {
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

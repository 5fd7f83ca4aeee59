package plan

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Provision is what one rule of the node's config does to a PF.
type Provision struct {
	// Rule is the PF as the config names it.
	Rule string `json:"rule"`
	// PF is the PF's address; zero where the node has no such PF.
	PF pci.Address `json:"pf,omitzero"`
	// Have and Want are numbers of VFs.
	Have int `json:"have"`
	Want int `json:"want"`
	// Refused says why the number stays as it is, and Fix what to do; both are
	// empty where it may change or is right.
	Refused string `json:"refused,omitempty"`
	Fix     string `json:"fix,omitempty"`
}

// Due reports whether the number of VFs is to be changed.
func (p *Provision) Due() bool { return p.Refused == "" && p.Have != p.Want }

// String returns the provision as a phrase: "PF 0000:3b:00.0 (ens1f0): 0 -> 8
// VFs".
func (p *Provision) String() string {
	name := "PF " + p.Rule
	if p.PF != (pci.Address{}) && p.PF.String() != p.Rule {
		name = fmt.Sprintf("PF %s (%s)", p.PF, p.Rule)
	}
	switch {
	case p.Refused != "":
		return fmt.Sprintf("%s: %s; %s", name, p.Refused, p.Fix)
	case p.Have == p.Want:
		return fmt.Sprintf("%s: has its %d VFs", name, p.Have)
	}
	return fmt.Sprintf("%s: %d -> %d VFs", name, p.Have, p.Want)
}

// Provisions returns what the rules do to the node's PFs, in their order. The
// kernel changes a number of VFs only by way of none, so that all VFs of the PF
// must be free for it: one that is a claim's, or of use to the node, keeps the
// number as it is.
func Provisions(rules []v1alpha1.VFRule, n Node) []Provision {
	all := make([]Provision, len(rules))
	for i := range rules {
		all[i] = provision(&rules[i], n)
	}
	return all
}

func provision(rule *v1alpha1.VFRule, n Node) Provision {
	p := Provision{Rule: rule.PF, Want: *rule.Count}
	pf := findPF(n.Snapshot, rule.PF)
	if pf == nil {
		p.Refused, p.Fix = "this node has no such PF", "correct virtualFunctions of the node config; `kata-vfio-audit devices` lists what is here"
		return p
	}
	p.PF, p.Have = pf.Address, pf.PF.NumVFs
	if p.Have == p.Want {
		return p
	}
	p.Refused, p.Fix = notProvisionable(pf, p.Want, n)
	return p
}

// findPF finds a PF by its address or its interface.
func findPF(s *device.Snapshot, name string) *device.Function {
	for i := range s.Functions {
		f := &s.Functions[i]
		if f.PF != nil && (f.Address.String() == name || slices.Contains(f.Children.Net, name)) {
			return f
		}
	}
	return nil
}

// notProvisionable returns why the PF can't have that many VFs now, and the way
// out.
func notProvisionable(pf *device.Function, want int, n Node) (why, fix string) {
	switch {
	case want > pf.PF.TotalVFs:
		return fmt.Sprintf("%d VFs are wanted, and it can have %d", want, pf.PF.TotalVFs),
			"lower the count, or raise the limit in the device's firmware"
	case device.IsVFIO(pf.Driver):
		return "it is on " + pf.Driver + " and may be in a VM", "give the PF back to its driver first"
	case pf.Driver == "":
		return "it has no driver, which makes VFs", "bind the PF to its driver"
	case pf.Locked:
		return "an operation on it hangs in the kernel", "restart the node"
	}
	for _, a := range pf.PF.VFs {
		if why := vfTaken(a, n); why != "" {
			return fmt.Sprintf("it has %d VFs and %d are wanted, which the kernel makes only by way of none; but VF %s %s", pf.PF.NumVFs, want, a, why),
				"free that VF, and run `kata-vfio-plugin provision` or restart the plugin"
		}
	}
	return "", ""
}

// vfTaken says who has a VF; empty when it is free.
func vfTaken(a pci.Address, n Node) string {
	if h, ok := n.Holdings[a]; ok {
		return "is held by claim " + h.Claim.String()
	}
	f, ok := n.Snapshot.Function(a)
	switch {
	case !ok:
		return ""
	case f.Locked:
		return "hangs in the kernel"
	case device.IsVFIO(f.Driver):
		return "is on " + f.Driver + " and may be in a VM"
	case len(f.Uses) > 0:
		return "is in use: " + f.Uses[0].String()
	}
	return ""
}

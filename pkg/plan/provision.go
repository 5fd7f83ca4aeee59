package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Provision is the change that one rule of the node config makes to a PF.
type Provision struct {
	// Rule names the PF as the node config does, by its address or its interface.
	Rule string `json:"rule"`
	// PF is the PF's address; zero if the node has no such PF.
	PF pci.Address `json:"pf,omitzero"`
	// Absent is whether the node has no such PF, and the rule is optional.
	Absent bool `json:"absent,omitempty"`
	// Have and Want are numbers of VFs.
	Have int `json:"have"`
	Want int `json:"want"`
	// HaveMode and WantMode are modes of the eswitch in devlink's words, "legacy" and "switchdev". Both are empty if
	// the config sets none.
	HaveMode string `json:"haveMode,omitempty"`
	WantMode string `json:"wantMode,omitempty"`
	// Autoprobe says whether host drivers can take the PF's VFs when they are created. The plugin switches that off if
	// the rule wants VFs.
	Autoprobe bool `json:"autoprobe,omitempty"`
	// OnHostDrivers are VFs that host drivers have and no claim does. If the VFs are not created again, they stay on
	// these drivers.
	OnHostDrivers []pci.Address `json:"onHostDrivers,omitempty"`
	// Refused says why the PF is not changed, and Fix how to make the change possible. Both are empty if the PF may be
	// changed, or need not be.
	Refused string `json:"refused,omitempty"`
	Fix     string `json:"fix,omitempty"`
	// Waits says whether the refusal is only because a VF is in use, and the rule does not reduce the number of VFs.
	// The change can be tried again when that VF is free.
	Waits bool `json:"waits,omitempty"`
	// Failed says whether the change began and did not succeed. Then Refused has the error.
	Failed bool `json:"failed,omitempty"`
}

// Due reports whether the PF has to be changed.
func (p *Provision) Due() bool { return p.Refused == "" && !p.Right() }

// Right reports whether the PF is as the rule wants it.
func (p *Provision) Right() bool { return !p.Remakes() && !p.keepsDriversOff() }

// Remakes reports whether the PF's VFs are removed and created again.
func (p *Provision) Remakes() bool { return p.Have != p.Want || p.ChangesMode() }

// TakesAway reports whether the PF would have fewer VFs than now.
func (p *Provision) TakesAway() bool { return p.Want < p.Have }

func (p *Provision) keepsDriversOff() bool { return p.Autoprobe && p.Want > 0 }

// ChangesMode reports whether the mode has to change.
func (p *Provision) ChangesMode() bool { return p.HaveMode != p.WantMode }

// String returns the provision as a phrase: "PF 0000:3b:00.0 (ens1f0): 0 -> 8
// VFs".
func (p *Provision) String() string {
	name := "PF " + p.Rule
	if p.PF != (pci.Address{}) && p.PF.String() != p.Rule {
		name = fmt.Sprintf("PF %s (%s)", p.PF, p.Rule)
	}
	switch {
	case p.Absent:
		return name + ": not on this node, and its rule is optional"
	case p.Refused != "":
		return fmt.Sprintf("%s: %s; %s", name, p.Refused, p.Fix)
	case p.Right():
		return fmt.Sprintf("%s: has its %s%s", name, countVFs(p.Have), p.staying())
	case !p.Remakes():
		return fmt.Sprintf("%s: has its %s, host drivers are kept from them (sriov_drivers_autoprobe)%s", name, countVFs(p.Have), p.staying())
	case p.ChangesMode():
		return fmt.Sprintf("%s: %d -> %s, eswitch %s -> %s", name, p.Have, countVFs(p.Want), p.HaveMode, p.WantMode)
	}
	return fmt.Sprintf("%s: %d -> %s", name, p.Have, countVFs(p.Want))
}

// staying names the VFs that stay on host drivers: ", on host drivers still: 0000:3b:02.0".
func (p *Provision) staying() string {
	if len(p.OnHostDrivers) == 0 {
		return ""
	}
	names := make([]string, len(p.OnHostDrivers))
	for i, a := range p.OnHostDrivers {
		names[i] = a.String()
	}
	return ", on host drivers still: " + strings.Join(names, " ")
}

// Eswitch is the answer of a PF's driver about its eswitch: the mode, which is empty without an eswitch, or an error.
type Eswitch struct {
	Mode string
	Err  error
}

// Provisions returns the changes of the node's PFs, in the order of the rules. eswitches has the PFs for which a rule
// sets a mode. All VFs of a PF must be free before it is changed, because Linux changes the number of VFs only through
// zero (drivers/pci/iov.c: sriov_numvfs_store returns EBUSY), and some drivers (ice) change the mode only without VFs.
// So a PF stays unchanged if a claim or the node uses one of its VFs. Two rules may match one PF, one by its address
// and one by its interface. Then the second rule is refused, because each would undo the other.
func Provisions(rules []v1alpha1.VFRule, n Node, eswitches map[pci.Address]Eswitch) []Provision {
	all := make([]Provision, len(rules))
	for i := range rules {
		all[i] = provision(&rules[i], n, eswitches)
		all[i].refuseSecond(all[:i])
	}
	return all
}

// refuseSecond refuses p if an earlier one is for the same PF.
func (p *Provision) refuseSecond(before []Provision) {
	same := func(o Provision) bool { return p.PF != (pci.Address{}) && o.PF == p.PF }
	if i := slices.IndexFunc(before, same); i >= 0 {
		p.Waits = false
		p.Refused = fmt.Sprintf("it is the PF of rule %s too, which holds", before[i].Rule)
		p.Fix = fmt.Sprintf("leave %s or %s out of virtualFunctions of the node config: only one rule may set the VFs of a PF", before[i].Rule, p.Rule)
	}
}

func provision(rule *v1alpha1.VFRule, n Node, eswitches map[pci.Address]Eswitch) Provision {
	p := Provision{Rule: rule.PF, Want: *rule.Count}
	pf := FindPF(n.Snapshot, rule.PF)
	switch {
	case pf == nil && rule.Optional:
		p.Absent, p.Want = true, 0
		return p
	case pf == nil:
		p.Refused, p.Fix = "this node has no such PF", "load the PF's driver if the rule names an interface, or correct virtualFunctions of the node config; `kata-vfio-audit devices` lists this node's functions"
		return p
	}
	p.PF, p.Have, p.Autoprobe = pf.Address, pf.PF.NumVFs, pf.PF.Autoprobe
	p.OnHostDrivers = onHostDrivers(pf, n)
	if a, out := NewDrains(n.Snapshot, n.Drained).Find(pf); out {
		p.Refused, p.Fix = fmt.Sprintf("%s is being drained: %s", a, n.Drained[a]), fmt.Sprintf("run `kata-vfio-plugin undrain %s`", a)
		return p
	}
	if rule.EswitchMode != "" {
		e := eswitches[pf.Address]
		p.HaveMode, p.WantMode = e.Mode, strings.ToLower(string(rule.EswitchMode))
		if p.Refused, p.Fix = notSwitchable(pf, e); p.Refused != "" {
			return p
		}
	}
	if !p.Right() {
		p.Refused, p.Fix = p.notProvisionable(pf, n)
	}
	return p
}

// onHostDrivers returns the VFs of the PF that host drivers have. It leaves out VFs of claims, because a physical
// endpoint is on a host driver too.
func onHostDrivers(pf *device.Function, n Node) (vfs []pci.Address) {
	for _, a := range pf.PF.VFs {
		f, ok := n.Snapshot.Function(a)
		if _, held := n.Owners[a]; ok && !held && f.Driver != "" && !device.IsVFIO(f.Driver) {
			vfs = append(vfs, a)
		}
	}
	return vfs
}

// notSwitchable returns why the mode of the PF can't be set, and the fix. A PF without a host driver is refused later,
// for that reason.
func notSwitchable(pf *device.Function, e Eswitch) (why, fix string) {
	switch {
	case e.Err != nil:
		return "eswitchMode: " + e.Err.Error(), "fix the error; the plugin retries, or run `kata-vfio-plugin provision`"
	case e.Mode == "" && pf.Driver != "" && !device.IsVFIO(pf.Driver):
		return fmt.Sprintf("eswitchMode: its driver %s has no eswitch modes", pf.Driver), "leave eswitchMode out of the node config for this PF"
	}
	return "", ""
}

// FindPF finds a PF by its address or its interface; nil if there is none.
func FindPF(s *device.Snapshot, name string) *device.Function {
	for i := range s.Functions {
		f := &s.Functions[i]
		if f.PF != nil && (f.Address.String() == name || slices.Contains(f.Children.Net, name)) {
			return f
		}
	}
	return nil
}

// notProvisionable returns why the PF can't have that number of VFs, or that mode, now, and the fix.
func (p *Provision) notProvisionable(pf *device.Function, n Node) (why, fix string) {
	switch {
	case !p.Remakes(): // sriov_drivers_autoprobe affects later probes only: no claim's VF changes
		return "", ""
	case p.Want > pf.PF.TotalVFs:
		return fmt.Sprintf("it needs %s, but supports %d", countVFs(p.Want), pf.PF.TotalVFs),
			"lower the count, or raise the limit in the device's firmware"
	case device.IsVFIO(pf.Driver):
		return "it is on " + pf.Driver + " and may be in a VM", "give the PF back to its driver first"
	case pf.Driver == "":
		return "it has no driver, and only a driver creates VFs", "bind the PF to its driver"
	case pf.Locked:
		return "an operation on it hangs in the kernel", "restart the node"
	case p.Want > 0 && noRoomForVFs(pf) != "":
		return noRoomForVFs(pf), "switch on SR-IOV and Above 4G Decoding in the firmware setup, or boot with `pci=realloc`"
	}
	for _, a := range pf.PF.VFs {
		if why := vfTaken(a, n); why != "" {
			p.Waits = p.Want >= p.Have
			return fmt.Sprintf("%s only while the PF has no VFs, but VF %s %s", p.difference(), a, why),
				p.freeThat()
		}
	}
	return "", ""
}

// freeThat returns the fix for a VF that is in use. The plugin reduces the number of VFs only when it starts.
func (p *Provision) freeThat() string {
	if p.TakesAway() {
		return "stop using that VF, then run `kata-vfio-plugin provision` or restart the plugin"
	}
	return "stop using that VF; the plugin retries, or run `kata-vfio-plugin provision`"
}

// difference returns the actual and the configured state: "it has 4 VFs, but needs 8; the kernel changes the number".
func (p *Provision) difference() string {
	if p.ChangesMode() {
		return fmt.Sprintf("it has %s and its eswitch is in %s mode, but %s mode is required; drivers set it", countVFs(p.Have), p.HaveMode, p.WantMode)
	}
	return fmt.Sprintf("it has %s, but needs %d; the kernel changes the number", countVFs(p.Have), p.Want)
}

// vfTaken describes the use of a VF. It is empty if the VF is free.
func vfTaken(a pci.Address, n Node) string {
	if h, ok := n.Owners[a]; ok {
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

func countVFs(n int) string {
	if n == 1 {
		return "1 VF"
	}
	return fmt.Sprintf("%d VFs", n)
}

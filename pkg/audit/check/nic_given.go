package check

import (
	"fmt"
	"regexp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// givenVF is a VF of a network card that tenants have or may have, with what its
// PF imposes on it.
type givenVF struct {
	*device.Function
	settings *device.VFSettings
	uplink   *facts.Uplink
	seen     facts.Fact
}

// infiniband reports whether the VF has a GUID in place of a MAC address; it knows
// no VLANs and no spoof check.
func (v *givenVF) infiniband() bool { return v.Class.Sub() == pci.ClassInfiniBand }

// plainName are the names of interfaces that mean nothing to a shell: a copy of a
// node may hold any.
var plainName = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._-]*$`)

// command returns the start of the command that sets something of the VF.
func (v *givenVF) command() string {
	name := v.uplink.Link.Name
	if !plainName.MatchString(name) {
		name = "<PF's interface>"
	}
	return fmt.Sprintf("ip link set %s vf %d", name, v.VF.Index)
}

// vfVerdict is what is wrong with one VF; the zero value is nothing.
type vfVerdict struct {
	state     finding.State
	text, fix string
}

// vfTally judges VFs one by one. A failure is one of the VF; what can't be told, or
// is for a person to look at, is mostly so for all VFs of a PF and said once.
type vfTally struct {
	found  []finding.Finding
	shared map[string]int // into found
	judged []*givenVF
}

func (t *vfTally) add(v *givenVF, r vfVerdict) {
	if r.state == "" {
		return
	}
	key := v.VF.PF.String() + r.text
	if i, ok := t.shared[key]; ok && r.state != finding.Fail {
		t.found[i].Devices = append(t.found[i].Devices, v.Address)
		return
	}
	f := finding.Finding{State: r.state, Remediation: r.fix, Devices: []pci.Address{v.Address}, Evidence: evidence(configured(v))}
	if r.state == finding.Fail {
		f.Device = new(v.Address)
		f.Text = fmt.Sprintf("VF %d of PF %s %s", v.VF.Index, v.VF.PF, r.text)
	} else {
		f.Object = "PF " + v.VF.PF.String()
		f.Text = fmt.Sprintf("VFs of PF %s: %s", v.VF.PF, r.text)
		t.shared[key] = len(t.found)
	}
	t.found = append(t.found, f)
}

// configured is what the PF says of a VF.
func configured(v *givenVF) []facts.Fact {
	seen := v.seen
	if v.settings != nil {
		seen.Value = v.settings.String()
	}
	return []facts.Fact{seen}
}

// eachVF judges the network VFs that are given away and of the kind.
func eachVF(n *facts.Node, kind func(*givenVF) bool, judge func(*givenVF) vfVerdict) []finding.Finding {
	t := vfTally{shared: map[string]int{}}
	for _, f := range networkVFs(n) {
		v := &givenVF{Function: f}
		if !kind(v) {
			continue
		}
		t.judged = append(t.judged, v)
		v.settings, v.seen = n.VFSettings(f)
		if v.settings == nil {
			why := unknown("what the PF imposes on them", v.seen)
			t.add(v, vfVerdict{state: finding.Unknown, text: why[0].Text})
			continue
		}
		v.uplink, _ = n.Uplink(f.VF.PF)
		t.add(v, judge(v))
	}
	switch {
	case len(t.judged) == 0:
		return notApplicable("no such VF is given away")
	case len(t.found) == 0:
		return showing(pass(count(len(t.judged), "VF")), t.judged, configured)
	}
	return t.found
}

// networkVFs returns the VFs of network cards that tenants have or may have.
func networkVFs(n *facts.Node) []*device.Function {
	var vfs []*device.Function
	for _, f := range n.Functions(device.VFType) {
		if f.VF != nil && f.Class.Base() == pci.BaseNetwork && n.IsAvailable(f.Address) {
			vfs = append(vfs, f)
		}
	}
	return vfs
}

func ethernet(v *givenVF) bool { return !v.infiniband() }

func infiniband(v *givenVF) bool { return v.infiniband() }

func anyVF(*givenVF) bool { return true }

// byRepresentor is for what PFs in switchdev mode don't decide.
func byRepresentor(what string) vfVerdict {
	return vfVerdict{state: finding.Manual, text: "the PF is in switchdev mode: " + what + " is the business of the rules on the VFs' representors, which have to be looked at"}
}

func unreported(what string) vfVerdict {
	return vfVerdict{state: finding.Unknown, text: "the PF's driver does not report " + what}
}

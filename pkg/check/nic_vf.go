package check

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/finding"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
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

// command returns the start of the command that sets something of the VF.
func (v *givenVF) command() string {
	return fmt.Sprintf("ip link set %s vf %d", v.uplink.Link.Name, v.VF.Index)
}

// verdict is what is wrong with one VF; the zero value is nothing.
type verdict struct {
	state     finding.State
	text, fix string
}

// tally judges VFs one by one. A failure is one of the VF; what can't be told, or
// is for a person to look at, is mostly so for all VFs of a PF and said once.
type tally struct {
	found  []finding.Finding
	shared map[string]int // into found
	judged int
}

func (t *tally) add(v *givenVF, r verdict) {
	f := finding.Finding{State: r.state, Text: r.text, Remediation: r.fix, Devices: []pci.Address{v.Address}, Evidence: evidence([]facts.Fact{v.seen})}
	switch r.state {
	case "":
	case finding.Fail:
		f.Device = new(v.Address)
		f.Text = fmt.Sprintf("VF %d of PF %s %s", v.VF.Index, v.VF.PF, r.text)
		t.found = append(t.found, f)
	default:
		key := v.VF.PF.String() + r.text
		if i, ok := t.shared[key]; ok {
			t.found[i].Devices = append(t.found[i].Devices, v.Address)
			return
		}
		f.Object = "PF " + v.VF.PF.String()
		f.Text = fmt.Sprintf("VFs of PF %s: %s", v.VF.PF, r.text)
		t.shared[key] = len(t.found)
		t.found = append(t.found, f)
	}
}

// eachVF judges the network VFs that are given away and of the kind.
func eachVF(n *facts.Node, kind func(*givenVF) bool, judge func(*givenVF) verdict) []finding.Finding {
	t := tally{shared: map[string]int{}}
	for _, f := range networkVFs(n) {
		v := &givenVF{Function: f}
		if !kind(v) {
			continue
		}
		t.judged++
		v.settings, v.seen = n.VFSettings(f)
		if v.settings == nil {
			why := unknown("what the PF imposes on them", v.seen)
			t.add(v, verdict{state: finding.Unknown, text: why[0].Text})
			continue
		}
		v.uplink, _ = n.Uplink(f.VF.PF)
		t.add(v, judge(v))
	}
	switch {
	case t.judged == 0:
		return notApplicable("no such VF is given away")
	case len(t.found) == 0:
		return pass(count(t.judged, "VF"))
	}
	return t.found
}

// networkVFs returns the VFs of network cards that tenants have or may have.
func networkVFs(n *facts.Node) []*device.Function {
	var vfs []*device.Function
	for _, f := range n.Functions(device.VFType) {
		if f.VF != nil && f.Class.Base() == pci.BaseNetwork && n.IsPublished(f.Address) {
			vfs = append(vfs, f)
		}
	}
	return vfs
}

func ethernet(v *givenVF) bool { return !v.infiniband() }

func infiniband(v *givenVF) bool { return v.infiniband() }

func anyVF(*givenVF) bool { return true }

// byRepresentor is for what PFs in switchdev mode don't decide.
func byRepresentor(what string) verdict {
	return verdict{state: finding.Manual, text: "the PF is in switchdev mode: " + what + " is the business of the rules on the VFs' representors, which have to be looked at"}
}

func unreported(what string) verdict {
	return verdict{state: finding.Unknown, text: "the PF's driver does not report " + what}
}

func spoofChecked(n *facts.Node) []finding.Finding {
	return eachVF(n, ethernet, func(v *givenVF) verdict {
		on := v.settings.SpoofCheck
		switch {
		case v.uplink.Switchdev():
			return byRepresentor("who sends as whom")
		case on == nil:
			return unreported("spoof check")
		case !*on:
			return verdict{finding.Fail, "has its spoof check off", "`" + v.command() + " spoofchk on`"}
		}
		return verdict{}
	})
}

func untrusted(n *facts.Node) []finding.Finding {
	return eachVF(n, ethernet, func(v *givenVF) verdict {
		on := v.settings.Trust
		switch {
		case v.uplink.Switchdev():
			return byRepresentor("what a VF may ask for")
		case on == nil:
			return unreported("trust")
		case *on:
			return verdict{finding.Fail, "is trusted", "`" + v.command() + " trust off`"}
		}
		return verdict{}
	})
}

func inVLAN(n *facts.Node) []finding.Finding {
	return eachVF(n, ethernet, func(v *givenVF) verdict {
		vlan := v.settings.VLAN
		switch {
		case v.uplink.Switchdev():
			return byRepresentor("where they send")
		case vlan == nil:
			return unreported("VLANs")
		case vlan.ID == 0:
			return verdict{finding.Fail, "is in no VLAN", "`" + v.command() + " vlan <ID>`"}
		}
		return verdict{}
	})
}

// ownMAC and ownGUIDs look for addresses that a PF does not impose, or twice.
func ownMAC(n *facts.Node) []finding.Finding {
	seen := map[string]*givenVF{}
	return eachVF(n, ethernet, func(v *givenVF) verdict {
		if v.settings.MAC == "" {
			return unreported("MAC addresses")
		}
		return unique(seen, v, "MAC address", v.settings.MAC)
	})
}

func ownGUIDs(n *facts.Node) []finding.Finding {
	nodes, ports := map[string]*givenVF{}, map[string]*givenVF{}
	return eachVF(n, infiniband, func(v *givenVF) verdict {
		if v.settings.NodeGUID == "" || v.settings.PortGUID == "" {
			return unreported("GUIDs")
		}
		if r := unique(nodes, v, "node GUID", v.settings.NodeGUID); r.state != "" {
			return r
		}
		return unique(ports, v, "port GUID", v.settings.PortGUID)
	})
}

// unique says whether the address is none, or that of a VF that was seen before.
func unique(seen map[string]*givenVF, v *givenVF, what, address string) verdict {
	if strings.Trim(address, "0:") == "" {
		return verdict{state: finding.Fail, text: "has no " + what + " from its PF"}
	}
	if other := seen[address]; other != nil {
		return verdict{state: finding.Fail, text: fmt.Sprintf("has the %s %s, as %s has", what, address, other.Address)}
	}
	seen[address] = v
	return verdict{}
}

// bounded is for VFs that share a port with another tenant's.
func bounded(n *facts.Node) []finding.Finding {
	tenants := map[pci.Address][]string{}
	for _, f := range networkVFs(n) {
		pf := f.VF.PF
		if _, done := tenants[pf]; !done {
			tenants[pf] = n.TenantsOf(vfsOf(n, pf)...)
		}
	}
	shared := func(v *givenVF) bool { return len(tenants[v.VF.PF]) > 1 && len(n.TenanciesOf(v.Address)) > 0 }
	return eachVF(n, shared, func(v *givenVF) verdict {
		switch {
		case v.settings.Rate == nil:
			return unreported("rates")
		case v.settings.Rate.Max == 0:
			return verdict{finding.Fail, "sends as fast as it can beside other tenants' VFs", "`" + v.command() + " max_tx_rate <Mbit/s>`"}
		}
		return verdict{}
	})
}

func quiet(n *facts.Node) []finding.Finding {
	return eachVF(n, anyVF, func(v *givenVF) verdict {
		s := v.settings
		switch {
		case s.RSSQuery != nil && *s.RSSQuery:
			return verdict{finding.Fail, "may read the PF's hash key", "`" + v.command() + " query_rss off`"}
		case s.LinkState == "enable":
			return verdict{finding.Fail, "has a link whatever its port has", "`" + v.command() + " state auto`"}
		}
		return verdict{}
	})
}

// asGiven holds what PFs impose against what the journal says was set for a claim.
func asGiven(n *facts.Node) []finding.Finding {
	want := map[pci.Address]*plan.VFChange{}
	for _, rec := range n.Records() {
		for i := range rec.Plan.Functions {
			if f := &rec.Plan.Functions[i]; f.VF != nil && isPrepared(rec) {
				want[f.Address] = f.VF
			}
		}
	}
	changed := func(v *givenVF) bool { return want[v.Address] != nil }
	return eachVF(n, changed, func(v *givenVF) verdict {
		asked := want[v.Address].Want
		var differs []string
		for _, s := range v.settings.Differ(&asked) {
			if asked.Value(s) != plan.Choose {
				differs = append(differs, fmt.Sprintf("%s %s in place of %s", s, orElse(v.settings.Value(s), "unreported"), asked.Value(s)))
			}
		}
		if len(differs) == 0 {
			return verdict{}
		}
		return verdict{state: finding.Fail, text: "has " + strings.Join(differs, ", ")}
	})
}

package check

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

func spoofChecked(n *facts.Node) []finding.Finding {
	return eachVF(n, ethernet, func(v *givenVF) vfVerdict {
		on := v.settings.SpoofCheck
		switch {
		case v.uplink.Switchdev():
			return byRepresentor("who sends as whom")
		case on == nil:
			return unreported("spoof check")
		case !*on:
			return vfVerdict{finding.Fail, "has its spoof check off", "`" + v.command() + " spoofchk on`"}
		}
		return vfVerdict{}
	})
}

func untrusted(n *facts.Node) []finding.Finding {
	return eachVF(n, ethernet, func(v *givenVF) vfVerdict {
		on := v.settings.Trust
		switch {
		case v.uplink.Switchdev():
			return byRepresentor("what a VF may ask for")
		case on == nil:
			return unreported("trust")
		case *on:
			return vfVerdict{finding.Fail, "is trusted", "`" + v.command() + " trust off`"}
		}
		return vfVerdict{}
	})
}

func inVLAN(n *facts.Node) []finding.Finding {
	return eachVF(n, ethernet, func(v *givenVF) vfVerdict {
		vlan := v.settings.VLAN
		switch {
		case v.uplink.Switchdev():
			return byRepresentor("where they send")
		case vlan == nil:
			return unreported("VLANs")
		case vlan.ID == 0:
			return vfVerdict{finding.Fail, "is in no VLAN", "`" + v.command() + " vlan <ID>`"}
		}
		return vfVerdict{}
	})
}

// ownMAC and ownGUIDs look for addresses that a PF does not impose, or twice.
func ownMAC(n *facts.Node) []finding.Finding {
	seen := map[string]*givenVF{}
	return eachVF(n, ethernet, func(v *givenVF) vfVerdict {
		if v.settings.MAC == "" {
			return unreported("MAC addresses")
		}
		return uniqueAddress(seen, v, "MAC address", v.settings.MAC)
	})
}

func ownGUIDs(n *facts.Node) []finding.Finding {
	nodes, ports := map[string]*givenVF{}, map[string]*givenVF{}
	return eachVF(n, infiniband, func(v *givenVF) vfVerdict {
		if v.settings.NodeGUID == "" || v.settings.PortGUID == "" {
			return unreported("GUIDs")
		}
		if r := uniqueAddress(nodes, v, "node GUID", v.settings.NodeGUID); r.state != "" {
			return r
		}
		return uniqueAddress(ports, v, "port GUID", v.settings.PortGUID)
	})
}

// uniqueAddress says whether the address is none, or that of a VF that was seen before.
func uniqueAddress(seen map[string]*givenVF, v *givenVF, what, address string) vfVerdict {
	if strings.Trim(address, "0:") == "" {
		return vfVerdict{state: finding.Fail, text: "has no " + what + " from its PF"}
	}
	if other := seen[address]; other != nil {
		return vfVerdict{state: finding.Fail, text: fmt.Sprintf("has the %s %s, as %s has", what, address, other.Address)}
	}
	seen[address] = v
	return vfVerdict{}
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
	return eachVF(n, shared, func(v *givenVF) vfVerdict {
		switch {
		case v.settings.Rate == nil:
			return unreported("rates")
		case v.settings.Rate.Max == 0:
			return vfVerdict{finding.Fail, "sends as fast as it can beside other tenants' VFs", "`" + v.command() + " max_tx_rate <Mbit/s>`"}
		}
		return vfVerdict{}
	})
}

func quiet(n *facts.Node) []finding.Finding {
	return eachVF(n, anyVF, func(v *givenVF) vfVerdict {
		s := v.settings
		switch {
		case s.RSSQuery != nil && *s.RSSQuery:
			return vfVerdict{finding.Fail, "may read the PF's hash key", "`" + v.command() + " query_rss off`"}
		case s.LinkState == "enable":
			return vfVerdict{finding.Fail, "has a link whatever its port has", "`" + v.command() + " state auto`"}
		}
		return vfVerdict{}
	})
}

// asGiven holds what PFs impose against what the journal says was set for a claim.
func asGiven(n *facts.Node) []finding.Finding {
	want := map[pci.Address]*plan.VFChange{}
	for _, rec := range n.Records() {
		for i := range rec.Plan.Functions {
			if f := &rec.Plan.Functions[i]; f.VF != nil && rec.State == journal.Prepared {
				want[f.Address] = f.VF
			}
		}
	}
	changed := func(v *givenVF) bool { return want[v.Address] != nil }
	return eachVF(n, changed, func(v *givenVF) vfVerdict {
		asked := want[v.Address].Want
		var differs []string
		for _, s := range v.settings.Differ(&asked) {
			if asked.Value(s) != plan.Choose {
				differs = append(differs, fmt.Sprintf("%s %s in place of %s", s, orElse(v.settings.Value(s), "unreported"), asked.Value(s)))
			}
		}
		if len(differs) == 0 {
			return vfVerdict{}
		}
		return vfVerdict{state: finding.Fail, text: "has " + strings.Join(differs, ", ")}
	})
}

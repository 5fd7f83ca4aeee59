package check

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// nicChecks returns the checks of group NIC: the traffic that a tenant's VF may send, and the owner of its PF. The
// settings that a PF imposes come from netlink, in the node's network namespace.
func nicChecks() []Check {
	return slices.Concat(senderChecks(), ownerChecks(), neighborChecks())
}

// senderChecks cover source-address spoofing by VFs, their VLANs, and the pause frames of a port.
func senderChecks() []Check {
	return []Check{
		{ID: "NIC-001", Judge: spoofCheck().judge},
		{ID: "NIC-002", Judge: trust().judge},
		{ID: "NIC-003", Judge: vlan().judge},
		{ID: "NIC-004", Judge: ownMAC},
		{ID: "NIC-005", Judge: noSharedVLAN},
		{ID: "NIC-010", Judge: noPause},
	}
}

// neighborChecks are about the effects that VFs of one port have on each other.
func neighborChecks() []Check {
	return []Check{
		{ID: "NIC-009", Judge: bounded},
		{ID: "NIC-012", Judge: quiet},
		{ID: "NIC-013", Judge: ownGUIDs},
		{ID: "NIC-015", Judge: filteredElsewhere},
		{ID: "NIC-016", Judge: noInterface},
		{ID: "NIC-018", Judge: asGiven},
	}
}

// givenVF is a VF of a network card that tenants hold or can get, with the settings that its PF imposes.
type givenVF struct {
	function *device.Function
	settings *device.VFSettings
	uplink   *facts.Uplink
	seen     facts.Fact
}

// plainName matches interface names without characters that are special to a shell. A copy of a node may have any name.
var plainName = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._-]*$`)

// command returns the start of the command that sets something of the VF.
func (v *givenVF) command() string {
	name := v.uplink.Link.Name
	if !plainName.MatchString(name) {
		name = "<PF's interface>"
	}
	return fmt.Sprintf("ip link set %s vf %d", name, v.function.VF.Index)
}

// vfVerdict is the fault of one VF. The zero value means that it has none.
type vfVerdict struct {
	state     finding.State
	text, fix string
}

// failed returns the fault of a VF, and the ip-link command that repairs it.
func (v *givenVF) failed(text, command string) vfVerdict {
	return vfVerdict{finding.Fail, text, "`" + v.command() + " " + command + "`"}
}

// vfTally judges VFs one by one. A failure belongs to a VF. Unknown and manual results usually apply to all VFs of a PF,
// and are reported once.
type vfTally struct {
	found  Answer
	shared map[string]int // into found
}

func (t *vfTally) add(v *givenVF, r vfVerdict) {
	key := v.function.VF.PF.String() + r.text
	i, told := t.shared[key]
	switch {
	case r.state == "":
	case r.state == finding.Fail:
		text := fmt.Sprintf("VF %d of PF %s %s", v.function.VF.Index, v.function.VF.PF, r.text)
		t.found = append(t.found, fail(text, configured(v)...).fix(r.fix).on(v.function)...)
	case told:
		t.found[i].Devices = append(t.found[i].Devices, v.function.Address)
	default:
		t.shared[key] = len(t.found)
		text := fmt.Sprintf("VFs of PF %s: %s", v.function.VF.PF, r.text)
		t.found = append(t.found, say(r.state, text, configured(v)).fix(r.fix).object("PF "+v.function.VF.PF.String()).reaching(v.function.Address)...)
	}
}

// configured is the configuration of a VF that its PF reports.
func configured(v *givenVF) []facts.Fact {
	seen := v.seen
	if v.settings != nil {
		seen.Value = v.settings.String()
	}
	return []facts.Fact{seen}
}

// eachVF judges the assignable network VFs of the kind.
func eachVF(n *facts.Node, kind func(*givenVF) bool, judge func(*givenVF) vfVerdict) Answer {
	t := vfTally{shared: map[string]int{}}
	var judged []*givenVF
	for _, f := range networkVFs(n) {
		v := &givenVF{function: f}
		if !kind(v) {
			continue
		}
		judged = append(judged, v)
		v.settings, v.seen = n.VFSettings(f)
		if v.settings == nil {
			t.add(v, vfVerdict{state: finding.Unknown, text: unknown("their settings", v.seen)[0].Text})
			continue
		}
		v.uplink, _ = n.Uplink(f.VF.PF)
		t.add(v, judge(v))
	}
	return conclude(t.found, judged, "VF", "no such VF is assignable", configured)
}

// networkVFs returns the VFs of network cards that tenants hold or can get.
func networkVFs(n *facts.Node) []*device.Function {
	return slices.DeleteFunc(n.Functions(device.VFType), func(f *device.Function) bool {
		return f.VF == nil || f.Class.Base() != pci.BaseNetwork || !n.IsAvailable(f.Address)
	})
}

func ethernet(v *givenVF) bool { return !infiniband(v) }

// infiniband reports whether the VF has a GUID instead of a MAC address. Such a VF has no VLANs and no spoof check.
func infiniband(v *givenVF) bool { return v.function.Class.Sub() == pci.ClassInfiniBand }

func anyVF(*givenVF) bool { return true }

// byRepresentor is for settings that representors, not PFs, decide in switchdev mode.
func byRepresentor(what string) vfVerdict {
	return vfVerdict{state: finding.Manual, text: "the PF is in switchdev mode: rules on the VFs' representors decide " + what + "; check them"}
}

func unreported(what string) vfVerdict {
	return vfVerdict{state: finding.Unknown, text: "the PF's driver does not report " + what}
}

// vfSetting is a setting that a PF has to impose on a VF.
type vfSetting struct {
	// name is the setting in the answer if the PF's driver does not report it. rules is what representors decide in switchdev mode.
	name, rules string
	// value returns whether the setting is in order; nil if it is not reported.
	value func(*device.VFSettings) *bool
	// bad describes the fault of the VF, and command is the argument of ip-link that repairs it.
	bad, command string
}

func spoofCheck() vfSetting {
	return vfSetting{
		name: "spoof check", rules: "source addresses", bad: "has spoof checking off", command: "spoofchk on",
		value: func(s *device.VFSettings) *bool { return s.SpoofCheck },
	}
}

func trust() vfSetting {
	return vfSetting{name: "trust", rules: "privileges", bad: "is trusted", command: "trust off", value: func(s *device.VFSettings) *bool {
		if s.Trust == nil {
			return nil
		}
		return new(!*s.Trust)
	}}
}

func vlan() vfSetting {
	return vfSetting{name: "VLANs", rules: "VLANs", bad: "is in no VLAN", command: "vlan <ID>", value: func(s *device.VFSettings) *bool {
		if s.VLAN == nil {
			return nil
		}
		// VLAN 0 means that the PF puts the VF in none (ip-link(8)).
		return new(s.VLAN.ID != 0)
	}}
}

func (s vfSetting) judge(n *facts.Node) Answer {
	return eachVF(n, ethernet, func(v *givenVF) vfVerdict {
		good := s.value(v.settings)
		switch {
		case v.uplink.Switchdev():
			return byRepresentor(s.rules)
		case good == nil:
			return unreported(s.name)
		case !*good:
			return v.failed(s.bad, s.command)
		}
		return vfVerdict{}
	})
}

// ownMAC and ownGUIDs fail for addresses that a PF does not impose, or imposes twice.
func ownMAC(n *facts.Node) Answer {
	seen := map[string]*givenVF{}
	return eachVF(n, ethernet, func(v *givenVF) vfVerdict {
		if v.settings.MAC == "" {
			return unreported("MAC addresses")
		}
		return uniqueAddress(seen, v, "MAC address", v.settings.MAC)
	})
}

func ownGUIDs(n *facts.Node) Answer {
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

// uniqueAddress fails if the VF has no address, or the same address as another VF.
func uniqueAddress(seen map[string]*givenVF, v *givenVF, what, address string) vfVerdict {
	// All zero means that the PF imposes none, so that the guest can choose any.
	if strings.Trim(address, "0:") == "" {
		return vfVerdict{state: finding.Fail, text: "has no " + what + " from its PF"}
	}
	if other := seen[address]; other != nil {
		return vfVerdict{state: finding.Fail, text: fmt.Sprintf("has the %s %s of %s", what, address, other.function.Address)}
	}
	seen[address] = v
	return vfVerdict{}
}

// bounded judges VFs that share a port with a VF of another tenant.
func bounded(n *facts.Node) Answer {
	crowded := map[pci.Address]bool{}
	for _, pf := range givingPFs(n) {
		crowded[pf.Address] = len(n.Owners(pf.PF.VFs...)) > 1
	}
	shared := func(v *givenVF) bool { return crowded[v.function.VF.PF] && len(preparedFor(n, v.function.Address)) > 0 }
	return eachVF(n, shared, func(v *givenVF) vfVerdict {
		switch {
		case v.settings.Rate == nil:
			return unreported("rates")
		// 0 means that there is no limit (ip-link(8): max_tx_rate).
		case v.settings.Rate.Max == 0:
			return v.failed("has no transmit limit beside other tenants' VFs", "max_tx_rate <Mbit/s>")
		}
		return vfVerdict{}
	})
}

func quiet(n *facts.Node) Answer {
	return eachVF(n, anyVF, func(v *givenVF) vfVerdict {
		s := v.settings
		switch {
		// A driver without the switch reports none. Of the kernel's drivers only ixgbe has it, because VFs of its cards share the PF's key
		// (ndo_set_vf_rss_query_en in include/linux/netdevice.h).
		case s.RSSQuery != nil && *s.RSSQuery:
			return v.failed("can read the PF's RSS key", "query_rss off")
		// With "enable", VFs of the node reach each other even while the PF's link is down (ip-link(8)).
		case s.LinkState == "enable":
			return v.failed("has a forced link", "state auto")
		}
		return vfVerdict{}
	})
}

// asGiven compares the settings that PFs impose on VFs with the settings in the journal for the VFs' claims.
func asGiven(n *facts.Node) Answer {
	want := map[pci.Address]*plan.VFChange{}
	for _, rec := range n.Records() {
		for i := range rec.Plan.Functions {
			if f := &rec.Plan.Functions[i]; f.VF != nil && isPrepared(n, rec) {
				want[f.Address] = f.VF
			}
		}
	}
	changed := func(v *givenVF) bool { return want[v.function.Address] != nil }
	return eachVF(n, changed, func(v *givenVF) vfVerdict {
		asked := want[v.function.Address].Want
		var differs []string
		for _, s := range v.settings.Differ(&asked) {
			// An address that is still to be generated can't differ.
			if asked.Value(s) != plan.Choose {
				differs = append(differs, fmt.Sprintf("%s %s instead of %s", s, cmp.Or(v.settings.Value(s), "unreported"), asked.Value(s)))
			}
		}
		if len(differs) == 0 {
			return vfVerdict{}
		}
		return vfVerdict{state: finding.Fail, text: "has " + strings.Join(differs, ", ")}
	})
}

// filteredElsewhere leaves the filters of VFs' traffic to a person, because no file shows them.
func filteredElsewhere(n *facts.Node) Answer {
	vfs := networkVFs(n)
	if len(vfs) == 0 {
		return notApplicable("no network VF is assignable")
	}
	text := fmt.Sprintf("no NetworkPolicy applies to %s; check what filters their traffic", count(len(vfs), "VF"))
	return say(finding.Manual, text, nil).reaching(addresses(vfs)...)
}

package check

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

const showVFs = "ip -d link show dev <PF's interface>"

// nicChecks returns the checks of group NIC: what a tenant's VF may send, and which
// process has its PF. The settings that a PF imposes come from netlink, in the node's
// network namespace.
func nicChecks() []Check {
	return slices.Concat(senderChecks(), ownerChecks(), neighbourChecks())
}

// senderChecks are about as whom a VF may send, and where, and what the VFs of one port have in common.
func senderChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "NIC-001", Title: "Ensure that tenants' VFs have spoof checking on", Severity: isolation.High,
			Why:     "Without it, a VF can use the MAC address of another tenant or of the node and get its traffic.",
			Fix:     "`ip link set <PF> vf <N> spoofchk on`, and `spoofCheck: true` in the DeviceClass",
			Verify:  showVFs,
			Sources: []string{"ip-link(8): vf NUM spoofchk", "Linux: include/uapi/linux/if_link.h IFLA_VF_SPOOFCHK"},
		}, Judge: spoofCheck().judge},
		{Rule: finding.Rule{
			ID: "NIC-002", Title: "Ensure that tenants' VFs are not trusted", Severity: isolation.High,
			Why:     "A trusted VF can change its MAC address and receive all traffic.",
			Fix:     "`ip link set <PF> vf <N> trust off`, and `trust: false` in the DeviceClass",
			Verify:  showVFs,
			Sources: []string{"ip-link(8): vf NUM trust", "Linux: include/uapi/linux/if_link.h IFLA_VF_TRUST"},
		}, Judge: trust().judge},
		{Rule: finding.Rule{
			ID: "NIC-003", Title: "Ensure that tenants' VFs are bound to a VLAN", Severity: isolation.High,
			Why:     "Otherwise a VF can tag frames for any VLAN of the port.",
			Fix:     "`ip link set <PF> vf <N> vlan <ID>`, or switchdev mode with rules on the VF's representor",
			Verify:  showVFs,
			Sources: []string{"ip-link(8): vf NUM vlan", "Linux: Documentation/networking/switchdev.rst"},
		}, Judge: vlan().judge},
		{Rule: finding.Rule{
			ID: "NIC-004", Title: "Ensure that tenants' VFs have unique MAC addresses from the PF", Severity: isolation.Medium,
			Why:     "Otherwise the guest can choose the address of another VF.",
			Fix:     "`ip link set <PF> vf <N> mac <address>`, or let Prepare choose one",
			Verify:  showVFs,
			Sources: []string{"ip-link(8): vf NUM mac"},
		}, Judge: ownMAC},
		{Rule: finding.Rule{
			ID: "NIC-005", Title: "Ensure that tenants share no VLAN of a card's embedded switch", Severity: isolation.Medium,
			Why:     "In legacy mode, the card forwards frames between VFs of one VLAN past all filters.",
			Fix:     "give each tenant its own VLAN, or use switchdev mode (`devlink dev eswitch set pci/<PF> mode switchdev`) with rules on the VFs' representors",
			Verify:  "devlink dev eswitch show pci/<PF>; " + showVFs,
			Sources: []string{"Linux: Documentation/networking/devlink/devlink-eswitch-attr.rst", "Linux: Documentation/networking/switchdev.rst"},
		}, Judge: noSharedVLAN},
		{Rule: finding.Rule{
			ID: "NIC-010", Title: "Ensure that VFs can't stop their port with pause frames", Severity: isolation.Medium,
			Why:     "A switch that obeys a VM's pause frames stops the whole port. Spoof checking and VLANs don't prevent it.",
			Fix:     "`ethtool -A <PF's interface> autoneg off rx off tx off`, and disable flow control at the switch port; for RDMA, use priority flow control with a watchdog at the switch",
			Verify:  "ethtool -a <PF's interface>; dcb pfc show dev <PF's interface>",
			Sources: []string{"Smolyar, Ben-Yehuda, Tsafrir: Securing Self-Virtualizing Ethernet Devices, USENIX Security 2015", "ethtool(8): --show-pause"},
		}, Judge: noPause},
	}
}

// ownerChecks are about the owners of PFs.
func ownerChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "NIC-006", Title: "Ensure that a PF with assignable VFs stays on its kernel driver", Severity: isolation.Critical, Cheap: true,
			Why:     "The PF controls its VFs' addresses, filters and often their traffic.",
			Fix:     "bind the PF to its kernel driver, or assign none of its VFs to others",
			Verify:  "readlink /sys/bus/pci/devices/<PF>/driver",
			Sources: []string{"Linux: drivers/vfio/pci/vfio_pci.c (enable_sriov)"},
		}, Judge: hostHasPF},
		{Rule: finding.Rule{
			ID: "NIC-007", Title: "Ensure that no tenant has a whole network card", Severity: isolation.High, Cheap: true, Static: true,
			Why:     "A PF includes firmware and settings that outlive the tenant.",
			Fix:     "assign a VF, or place the card in a node of one tenant",
			Verify:  "kata-vfio-audit devices",
			Sources: []string{"PCI-SIG SR-IOV 1.1: the PF configures and manages SR-IOV"},
		}, Judge: noWholeNIC},
		{Rule: finding.Rule{
			ID: "NIC-008", Title: "Ensure that host drivers don't probe new VFs", Severity: isolation.Medium, Cheap: true,
			Why:     "A host driver would use a VF that a tenant may have left in any state.",
			Fix:     "`echo 0 > /sys/bus/pci/devices/<PF>/sriov_drivers_autoprobe` before you create VFs",
			Verify:  "grep . /sys/bus/pci/devices/*/sriov_drivers_autoprobe",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-bus-pci sriov_drivers_autoprobe"},
		}, Judge: noAutoprobe},
	}
}

// neighbourChecks are about what a VF gets of the others, and they of it.
func neighbourChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "NIC-009", Title: "Ensure that VFs of tenants that share a port have a transmit limit", Severity: isolation.Low,
			Why:     "A VF without a limit can starve the others.",
			Fix:     "`ip link set <PF> vf <N> max_tx_rate <Mbit/s>`",
			Verify:  showVFs,
			Sources: []string{"ip-link(8): vf NUM max_tx_rate"},
		}, Judge: bounded},
		{Rule: finding.Rule{
			ID: "NIC-012", Title: "Ensure that tenants' VFs can't read the RSS key, and follow the port's link state", Severity: isolation.Low,
			Why:     "The key lets a tenant direct traffic to one queue. A forced link hides outages.",
			Fix:     "`ip link set <PF> vf <N> query_rss off state auto`",
			Verify:  showVFs,
			Sources: []string{"ip-link(8): vf NUM query_rss, state"},
		}, Judge: quiet},
		{Rule: finding.Rule{
			ID: "NIC-013", Title: "Ensure that tenants' InfiniBand VFs have unique GUIDs from the PF", Severity: isolation.High,
			Why:     "The subnet manager assigns partitions by GUID.",
			Fix:     "`ip link set <PF> vf <N> node_guid <GUID>` and `port_guid <GUID>`; configure partitions (P_Keys) in the subnet manager",
			Verify:  showVFs,
			Sources: []string{"ip-link(8): vf NUM node_guid, port_guid"},
		}, Judge: ownGUIDs},
		{Rule: finding.Rule{
			ID: "NIC-015", Title: "Ensure that VF traffic is filtered outside of Kubernetes", Severity: isolation.High, Static: true, Cheap: true,
			Why:     "A NetworkPolicy applies to the pod's CNI interface and does not see VF traffic.",
			Fix:     "filter at the switch port, in the VLAN, or by rules on the VF's representor in switchdev mode",
			Verify:  "kubectl get networkpolicy -A; bridge vlan show; tc filter show dev <representor> ingress",
			Sources: []string{"Linux: Documentation/networking/switchdev.rst"},
		}, Judge: filteredElsewhere},
		{Rule: finding.Rule{
			ID: "NIC-016", Title: "Ensure that a tenant's VF is not a host interface", Severity: isolation.Medium, Cheap: true,
			Why:     "A host driver has the VF as well as, or instead of, the tenant.",
			Fix:     "prepare the claim again; find what bound the VF (udev, a driver that loaded later)",
			Verify:  "ls /sys/bus/pci/devices/<VF>/net",
			Sources: []string{"Linux: drivers/vfio/vfio_main.c (a function has one driver)"},
		}, Judge: noInterface},
		{Rule: finding.Rule{
			ID: "NIC-018", Title: "Ensure that VF settings match the claim", Severity: isolation.High,
			Why:     "The PF's driver lost the settings in a reset, or another program changed them.",
			Fix:     "find what changed them, and restart the claim's pod so that Prepare sets them again",
			Verify:  showVFs + "; cat /var/lib/kata-vfio/journal/<claim UID>.json",
			Sources: []string{"kata-vfio's journal"},
		}, Judge: asGiven},
	}
}

// givenVF is a VF of a network card that tenants have or may have, with what its
// PF imposes on it.
type givenVF struct {
	*device.Function
	settings *device.VFSettings
	uplink   *facts.Uplink
	seen     facts.Fact
}

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

// failed says what is wrong with a VF, and what ip-link has to set.
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
	key := v.VF.PF.String() + r.text
	i, told := t.shared[key]
	switch {
	case r.state == "":
	case r.state == finding.Fail:
		text := fmt.Sprintf("VF %d of PF %s %s", v.VF.Index, v.VF.PF, r.text)
		t.found = append(t.found, fail(text, configured(v)...).fix(r.fix).on(v.Function)...)
	case told:
		t.found[i].Devices = append(t.found[i].Devices, v.Address)
	default:
		t.shared[key] = len(t.found)
		text := fmt.Sprintf("VFs of PF %s: %s", v.VF.PF, r.text)
		t.found = append(t.found, say(r.state, text, configured(v)).fix(r.fix).object("PF "+v.VF.PF.String()).reaching(v.Address)...)
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
		v := &givenVF{Function: f}
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

// networkVFs returns the VFs of network cards that tenants have or may have.
func networkVFs(n *facts.Node) []*device.Function {
	return slices.DeleteFunc(n.Functions(device.VFType), func(f *device.Function) bool {
		return f.VF == nil || f.Class.Base() != pci.BaseNetwork || !n.IsAvailable(f.Address)
	})
}

func ethernet(v *givenVF) bool { return !infiniband(v) }

// infiniband reports whether the VF has a GUID in place of a MAC address; it knows
// no VLANs and no spoof check.
func infiniband(v *givenVF) bool { return v.Class.Sub() == pci.ClassInfiniBand }

func anyVF(*givenVF) bool { return true }

// byRepresentor is for what PFs in switchdev mode don't decide.
func byRepresentor(what string) vfVerdict {
	return vfVerdict{state: finding.Manual, text: "the PF is in switchdev mode: rules on the VFs' representors decide " + what + "; check them"}
}

func unreported(what string) vfVerdict {
	return vfVerdict{state: finding.Unknown, text: "the PF's driver does not report " + what}
}

// vfSetting is what a PF has to impose on a VF.
type vfSetting struct {
	// name is the setting that the PF's driver may not report, and rules the setting that representors decide instead in
	// switchdev mode.
	name, rules string
	// value returns whether the setting is in order; nil where it is not reported.
	value func(*device.VFSettings) *bool
	// bad says what is wrong with the VF, and command what ip-link sets.
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

// ownMAC and ownGUIDs look for addresses that a PF does not impose, or twice.
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

// uniqueAddress fails if the VF has no address, or that of another VF.
func uniqueAddress(seen map[string]*givenVF, v *givenVF, what, address string) vfVerdict {
	if strings.Trim(address, "0:") == "" {
		return vfVerdict{state: finding.Fail, text: "has no " + what + " from its PF"}
	}
	if other := seen[address]; other != nil {
		return vfVerdict{state: finding.Fail, text: fmt.Sprintf("has the %s %s of %s", what, address, other.Address)}
	}
	seen[address] = v
	return vfVerdict{}
}

// bounded is for VFs that share a port with another tenant's.
func bounded(n *facts.Node) Answer {
	shared := func(v *givenVF) bool {
		return len(n.TenantsOf(vfsOf(n, v.VF.PF)...)) > 1 && len(n.TenanciesOf(v.Address)) > 0
	}
	return eachVF(n, shared, func(v *givenVF) vfVerdict {
		switch {
		case v.settings.Rate == nil:
			return unreported("rates")
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
		case s.RSSQuery != nil && *s.RSSQuery:
			return v.failed("can read the PF's RSS key", "query_rss off")
		case s.LinkState == "enable":
			return v.failed("has a forced link", "state auto")
		}
		return vfVerdict{}
	})
}

// asGiven compares the settings that PFs impose with those that the journal has for a claim.
func asGiven(n *facts.Node) Answer {
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
				differs = append(differs, fmt.Sprintf("%s %s instead of %s", s, cmp.Or(v.settings.Value(s), "unreported"), asked.Value(s)))
			}
		}
		if len(differs) == 0 {
			return vfVerdict{}
		}
		return vfVerdict{state: finding.Fail, text: "has " + strings.Join(differs, ", ")}
	})
}

// vfsOf returns the PF's VFs.
func vfsOf(n *facts.Node, pf pci.Address) []pci.Address {
	if f, ok := n.Snapshot.Function(pf); ok && f.PF != nil {
		return f.PF.VFs
	}
	return nil
}

// givingPFs returns the PFs with assignable VFs.
func givingPFs(n *facts.Node) []*device.Function {
	return functionsWhere(n, func(f *device.Function) bool { return len(givenBy(n, f)) > 0 })
}

// givenBy returns the assignable VFs of a PF.
func givenBy(n *facts.Node, f *device.Function) []pci.Address {
	if f.PF == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(f.PF.VFs), func(vf pci.Address) bool { return !n.IsAvailable(vf) })
}

// eachPF judges the PFs with assignable VFs. Findings reach those VFs.
func eachPF(n *facts.Node, read func(*device.Function) []facts.Fact, judge func(pf *device.Function, vfs string) Answer) Answer {
	pfs := givingPFs(n)
	return conclude(over(pfs, func(pf *device.Function) Answer {
		vfs := givenBy(n, pf)
		return judge(pf, count(len(vfs), "VF")).on(pf).reaching(vfs...)
	}), pfs, "PF", "no VF is assignable", read)
}

func hostHasPF(n *facts.Node) Answer {
	return eachPF(n, one(driverFact), func(pf *device.Function, vfs string) Answer {
		driver := link(pf.Address, "driver", pf.Driver)
		switch held := n.TenanciesOf(pf.Address); {
		case len(held) > 0:
			return fail(fmt.Sprintf("claim %s has PF %s, which has %s for tenants", held[0].Claim(), pf.Address, vfs), driver)
		case onVFIODriver(pf):
			return fail(fmt.Sprintf("PF %s is on %s: whoever opens it controls its %s", pf.Address, pf.Driver, vfs), driver)
		case pf.Driver == "":
			return fail(fmt.Sprintf("PF %s has no driver that enforces the settings of its %s", pf.Address, vfs), driver)
		}
		return nil
	})
}

// noWholeNIC speaks of cards that a tenant has, or that wait for one on a VFIO driver.
func noWholeNIC(n *facts.Node) Answer {
	cards := slices.DeleteFunc(n.Functions(device.PFType), func(f *device.Function) bool { return f.Class.Base() != pci.BaseNetwork })
	found := over(cards, func(f *device.Function) Answer {
		switch held := n.TenanciesOf(f.Address); {
		case len(held) > 0:
			return fail(fmt.Sprintf("claim %s has the whole card %s", held[0].Claim(), f.Address), stateOf(held[0].Record)).on(f)
		case onVFIODriver(f):
			return fail(fmt.Sprintf("the whole card %s is on %s and assignable", f.Address, f.Driver), driverFact(f)).on(f)
		}
		return nil
	})
	return conclude(found, cards, "card", "the node has no network card", one(driverFact))
}

func noAutoprobe(n *facts.Node) Answer {
	autoprobe := attributeFile(n, "sriov_drivers_autoprobe")
	return eachPF(n, autoprobe, func(pf *device.Function, _ string) Answer {
		if !pf.PF.Autoprobe {
			return nil
		}
		seen := autoprobe(pf)
		return fail(fmt.Sprintf("host drivers probe new VFs of PF %s that have no override", pf.Address), seen...).fix(fmt.Sprintf("`echo 0 > %s`", seen[0].Path))
	})
}

// filteredElsewhere reminds of what no file says: where VFs' traffic is filtered.
func filteredElsewhere(n *facts.Node) Answer {
	vfs := networkVFs(n)
	if len(vfs) == 0 {
		return notApplicable("no network VF is assignable")
	}
	text := fmt.Sprintf("no NetworkPolicy applies to %s; check what filters their traffic", count(len(vfs), "VF"))
	return say(finding.Manual, text, nil).reaching(addresses(vfs)...)
}

// noInterface leaves out VFs that wait for their VM on their own driver, which is
// how Kata takes a network interface.
func noInterface(n *facts.Node) Answer {
	var held []*device.Function
	found := over(networkVFs(n), func(f *device.Function) Answer {
		return over(n.TenanciesOf(f.Address), func(t facts.Tenancy) Answer {
			if fn, ok := t.Record.Plan.Function(f.Address); t.Record.State != journal.Prepared || ok && fn.Endpoint != nil {
				return nil
			}
			held = append(held, f)
			if len(f.Children.Net) == 0 {
				return nil
			}
			names := strings.Join(f.Children.Net, ", ")
			seen := facts.Fact{Path: fmt.Sprintf("/sys/bus/pci/devices/%s/net", f.Address), Value: names, How: "list"}
			return fail(fmt.Sprintf("VF %s of claim %s is the host interface %s (driver %s)", f.Address, t.Claim(), names, f.Driver), seen).on(f)
		})
	})
	return conclude(found, held, "VF", "no claim has a VF", one(driverFact))
}

// noSharedVLAN looks at the VFs that claims hold, card by card.
func noSharedVLAN(n *facts.Node) Answer {
	var seen []facts.Fact
	shared := slices.DeleteFunc(givingPFs(n), func(pf *device.Function) bool { return !isEthernet(pf) || len(n.TenantsOf(pf.PF.VFs...)) < 2 })
	found := over(shared, func(pf *device.Function) Answer {
		uplink, fact := n.Uplink(pf.Address)
		seen = append(seen, fact)
		switch {
		case uplink == nil:
			return unknown("the VLANs of its tenants", fact).on(pf).reaching(pf.PF.VFs...)
		case !uplink.Switchdev():
			return sharedVLANs(n, pf)
		}
		return nil
	})
	return orPassWith(found, len(shared), "PF", "no tenants share a PF", seen)
}

// isEthernet reports whether a PF is one of a card for Ethernet.
func isEthernet(pf *device.Function) bool {
	return pf.Class.Base() == pci.BaseNetwork && pf.Class.Sub() != pci.ClassInfiniBand
}

// sharedVLANs names the tenants of each VLAN of a PF with several tenants.
func sharedVLANs(n *facts.Node, pf *device.Function) Answer {
	members := map[int][]pci.Address{}
	var ids []int
	for _, f := range functionsAt(n, pf.PF.VFs) {
		if f.VF == nil || len(n.TenanciesOf(f.Address)) == 0 {
			continue
		}
		settings, fact := n.VFSettings(f)
		if settings == nil || settings.VLAN == nil {
			return say(finding.Unknown, fmt.Sprintf("can't tell the VLANs of tenants: PF %s does not report them", pf.Address), []facts.Fact{fact}).on(pf).reaching(pf.PF.VFs...)
		}
		id := settings.VLAN.ID
		if members[id] == nil {
			ids = append(ids, id)
		}
		members[id] = append(members[id], f.Address)
	}
	_, fact := n.Uplink(pf.Address)
	return over(ids, func(id int) Answer {
		tenants := n.TenantsOf(members[id]...)
		if len(tenants) < 2 {
			return nil
		}
		place := fmt.Sprintf("VLAN %d", id)
		if id == 0 {
			place = "no VLAN"
		}
		said := fail(fmt.Sprintf("VFs of %s share %s on PF %s, whose eswitch is in legacy mode", strings.Join(tenants, " and "), place, pf.Address), fact)
		for _, a := range members[id] {
			said.seen(facts.Fact{Path: fact.Path + " " + a.String(), Value: place, How: "netlink"})
		}
		return said.on(pf).reaching(members[id]...)
	})
}

// noPause asks the ports of PFs with assignable VFs.
func noPause(n *facts.Node) Answer {
	var seen []facts.Fact
	pfs := slices.DeleteFunc(givingPFs(n), func(pf *device.Function) bool { return !isEthernet(pf) })
	found := over(pfs, func(pf *device.Function) Answer {
		vfs := givenBy(n, pf)
		uplink, fact := n.Uplink(pf.Address)
		fact.Value = ""
		switch {
		case uplink == nil:
			return unknown("whether its port uses pause frames", fact).on(pf).reaching(vfs...)
		case uplink.Pause == nil:
			fact.Status, fact.Err = facts.Broken, cmp.Or(uplink.PauseError, "its driver does not report pause parameters, or the archive is from an older version")
			return unknown("whether its port uses pause frames", fact).on(pf).reaching(vfs...)
		}
		frames := fmt.Sprintf("receive %t, send %t", uplink.Pause.Receive, uplink.Pause.Send)
		fact.Value = "pause frames: " + frames
		seen = append(seen, fact)
		if !uplink.Pause.Receive && !uplink.Pause.Send {
			return nil
		}
		return fail(fmt.Sprintf("the port of PF %s uses pause frames (%s) and has %s for tenants", pf.Address, frames, count(len(vfs), "VF")), fact).on(pf).reaching(vfs...)
	})
	return orPassWith(found, len(pfs), "PF", "no Ethernet VF is assignable", seen)
}

// orPassWith returns the findings, or a pass with the facts.
func orPassWith(found Answer, asked int, what, none string, seen []facts.Fact) Answer {
	if asked == 0 {
		return notApplicable(none)
	}
	return showing(found.or(pass(count(asked, what))), seen, one(itself))
}

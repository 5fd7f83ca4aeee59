package check

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

const showVFs = "ip -d link show dev <PF's interface>"

// nicChecks returns the checks of group NIC: what a tenant's VF may send, and who
// has its PF. What a PF imposes is asked for by netlink, in the node's network
// namespace.
func nicChecks() []Check {
	return slices.Concat(senderChecks(), nicPortChecks(), ownerChecks(), neighbourChecks())
}

// senderChecks are about as whom a VF may send, and where.
func senderChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "NIC-001", Title: "VFs of tenants have their sender checked", Severity: isolation.High,
			Why:     "a VF without spoof check sends with the MAC address of another tenant or of the node, and gets its traffic",
			Fix:     "`ip link set <PF> vf <N> spoofchk on`, and `spoofCheck: true` in the DeviceClass",
			Verify:  showVFs,
			Sources: []string{"ip-link(8): vf NUM spoofchk", "Linux: include/uapi/linux/if_link.h IFLA_VF_SPOOFCHK"},
		}, Judge: spoofChecked},
		{Rule: finding.Rule{
			ID: "NIC-002", Title: "VFs of tenants are not trusted by their PF", Severity: isolation.High,
			Why:     "a trusted VF may change its own MAC address and listen to all that passes",
			Fix:     "`ip link set <PF> vf <N> trust off`, and `trust: false` in the DeviceClass",
			Verify:  showVFs,
			Sources: []string{"ip-link(8): vf NUM trust", "Linux: include/uapi/linux/if_link.h IFLA_VF_TRUST"},
		}, Judge: untrusted},
		{Rule: finding.Rule{
			ID: "NIC-003", Title: "VFs of tenants are bound to a VLAN", Severity: isolation.High,
			Why:     "a VF without a VLAN of its PF's sends into any VLAN that the port carries, by tagging its frames itself",
			Fix:     "`ip link set <PF> vf <N> vlan <ID>`, or switchdev mode with rules on the VF's representor",
			Verify:  showVFs,
			Sources: []string{"ip-link(8): vf NUM vlan", "Linux: Documentation/networking/switchdev.rst"},
		}, Judge: inVLAN},
		{Rule: finding.Rule{
			ID: "NIC-004", Title: "VFs of tenants have MAC addresses of their own from the PF", Severity: isolation.Medium,
			Why:     "without an administrative address the guest chooses one, also that of another VF",
			Fix:     "`ip link set <PF> vf <N> mac <address>`, or let the claim's prepare choose one",
			Verify:  showVFs,
			Sources: []string{"ip-link(8): vf NUM mac"},
		}, Judge: ownMAC},
	}
}

// ownerChecks are about who has a PF.
func ownerChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "NIC-006", Title: "The PF of a tenant's VF is in the hands of its kernel driver", Severity: isolation.Critical, Cheap: true,
			Why:     "who has the PF sees and controls all of its VFs: their addresses, filters, and on many cards their traffic",
			Fix:     "take the PF from VFIO and bind it to its driver, or give its VFs to nobody else",
			Verify:  "readlink /sys/bus/pci/devices/<PF>/driver",
			Sources: []string{"Linux: drivers/vfio/pci/vfio_pci.c (enable_sriov)"},
		}, Judge: hostHasPF},
		{Rule: finding.Rule{
			ID: "NIC-007", Title: "No tenant has a whole network card", Severity: isolation.High, Cheap: true, Static: true,
			Why:     "with a PF come its firmware and all of its settings, which outlive the tenancy",
			Fix:     "give a VF in its place, or put the card into a node that is one tenant's for good",
			Verify:  "kata-vfio-audit devices",
			Sources: []string{"PCI-SIG SR-IOV 1.1: the PF configures and manages SR-IOV"},
		}, Judge: noWholeNIC},
		{Rule: finding.Rule{
			ID: "NIC-008", Title: "Host drivers leave new VFs alone", Severity: isolation.Medium, Cheap: true,
			Why:     "a driver of the node that probes a VF talks to a function that a tenant may have left in any state",
			Fix:     "`echo 0 > /sys/bus/pci/devices/<PF>/sriov_drivers_autoprobe` before the VFs are made",
			Verify:  "grep . /sys/bus/pci/devices/*/sriov_drivers_autoprobe",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-bus-pci sriov_drivers_autoprobe"},
		}, Judge: noAutoprobe},
	}
}

// neighbourChecks are about what a VF gets of the others, and they of it.
func neighbourChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "NIC-009", Title: "VFs of several tenants on one port are bounded in what they send", Severity: isolation.Low,
			Why:     "a VF without a rate takes the port from the others",
			Fix:     "`ip link set <PF> vf <N> max_tx_rate <Mbit/s>`",
			Verify:  showVFs,
			Sources: []string{"ip-link(8): vf NUM max_tx_rate"},
		}, Judge: bounded},
		{Rule: finding.Rule{
			ID: "NIC-012", Title: "VFs of tenants can't read their PF's hash key, and have a link when it has one", Severity: isolation.Low,
			Why:     "who knows the hash key can steer its traffic onto one queue; a link state that is forced hides an outage, or lets VFs talk behind a port that is down",
			Fix:     "`ip link set <PF> vf <N> query_rss off state auto`",
			Verify:  showVFs,
			Sources: []string{"ip-link(8): vf NUM query_rss, state"},
		}, Judge: quiet},
		{Rule: finding.Rule{
			ID: "NIC-013", Title: "InfiniBand VFs of tenants have GUIDs of their own from the PF", Severity: isolation.High,
			Why:     "the subnet manager knows a VF by its GUID: one without gets no partition of its own, two alike get each other's",
			Fix:     "`ip link set <PF> vf <N> node_guid <GUID>` and `port_guid <GUID>`; partitions (P_Keys) are the subnet manager's",
			Verify:  showVFs,
			Sources: []string{"ip-link(8): vf NUM node_guid, port_guid"},
		}, Judge: ownGUIDs},
		{Rule: finding.Rule{
			ID: "NIC-015", Title: "The network of tenants' VFs is filtered outside of Kubernetes", Severity: isolation.High, Static: true, Cheap: true,
			Why:     "a NetworkPolicy is made by the CNI on the pod's own interface: it does not see what goes through a VF",
			Fix:     "filter at the switch port, in the VLAN, or by rules on the VF's representor in switchdev mode",
			Verify:  "kubectl get networkpolicy -A; bridge vlan show; tc filter show dev <representor> ingress",
			Sources: []string{"Linux: Documentation/networking/switchdev.rst"},
		}, Judge: filteredElsewhere},
		{Rule: finding.Rule{
			ID: "NIC-016", Title: "A tenant's VF is no interface of the node too", Severity: isolation.Medium, Cheap: true,
			Why:     "a VF with an interface on the node is on a driver of the node: two have it, or the tenant has none",
			Fix:     "let the claim be prepared anew; see what bound the VF (udev, a driver loaded later)",
			Verify:  "ls /sys/bus/pci/devices/<VF>/net",
			Sources: []string{"Linux: drivers/vfio/vfio_main.c (a function has one driver)"},
		}, Judge: noInterface},
		{Rule: finding.Rule{
			ID: "NIC-018", Title: "A PF imposes on a VF what its claim was given", Severity: isolation.High,
			Why:     "what the claim's class asked for and what holds have parted: somebody, or the PF's driver after a reset, set something else",
			Fix:     "find who set it (network scripts, another operator), and give the claim's pod a new start so that prepare sets it again",
			Verify:  showVFs + "; cat /var/lib/kata-vfio/journal/<claim UID>.json",
			Sources: []string{"kata-vfio's journal"},
		}, Judge: asGiven},
	}
}

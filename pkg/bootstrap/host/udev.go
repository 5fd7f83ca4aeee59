package host

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const (
	udevPart = "udev"
	// rulesFile is read before the rules that load drivers (80-drivers.rules).
	rulesFile = "etc/udev/rules.d/10-kata-vfio.rules"
)

// vfProperty marks VFs in udev's database, for systemd-networkd.
const vfProperty = "KATA_VFIO_VF"

// udev writes one rules file for functions that vendor drivers must not bind, for PFs and their VFs, for the resets of functions, and
// for VFs that network managers leave alone.
func (n *node) udev(pfs []physicalFunction) {
	var rules strings.Builder
	for _, a := range n.blueprint.VFIO.KeepOff {
		fmt.Fprintf(&rules, "ACTION==\"add\", SUBSYSTEM==\"pci\", KERNEL==\"%s\", ATTR{driver_override}=\"vfio-pci\"\n", a)
	}
	for _, pf := range pfs {
		// When the PF is added, before it has VFs. The kernel then probes no driver for a VF without an override
		// (pci_device_can_probe in drivers/pci/pci-driver.c).
		fmt.Fprintf(&rules, "ACTION==\"add\", SUBSYSTEM==\"pci\", KERNEL==\"%s\", ATTR{sriov_drivers_autoprobe}=\"0\"\n", pf.address)
		if !pf.switched && pf.vfs > 0 {
			// The interface appears when the PF's driver can create VFs.
			fmt.Fprintf(&rules, "ACTION==\"add\", SUBSYSTEM==\"net\", KERNELS==\"%s\", ATTR{device/sriov_numvfs}=\"%d\"\n", pf.address, pf.vfs)
		}
	}
	rules.WriteString(n.resetRules())
	if *n.blueprint.Network.LeaveVFsAlone {
		// NetworkManager's own patterns match drivers and names, but the PF and VF of some vendors share a driver. The
		// parent function identifies a VF.
		fmt.Fprintf(&rules, "ACTION!=\"remove\", SUBSYSTEM==\"net\", TEST==\"device/physfn\", ENV{NM_UNMANAGED}=\"1\", ENV{%s}=\"1\"\n", vfProperty)
	}
	n.keptOff()
	n.resets()
	if rules.Len() == 0 {
		return
	}
	then := []state.FollowUp{state.UdevReload}
	if n.blueprint.Kernel.EarlyBinding {
		then = append([]state.FollowUp{state.Initramfs}, then...)
	}
	n.file(state.File{
		Part: udevPart, Path: rulesFile, Content: []byte(header + rules.String()),
		Why: "keeps other drivers and network managers off the listed functions", Then: then,
	})
}

// keptOff requires the driver override of functions that the running kernel has. It leaves another override, which a
// claim may have set, unchanged.
func (n *node) keptOff() {
	if !n.platform.Live {
		return
	}
	for _, a := range n.blueprint.VFIO.KeepOff {
		uevent, there, locked := n.attribute(udevPart, function(a, "uevent"))
		if locked {
			continue
		}
		if !there {
			n.problem(state.Problem{
				Part: udevPart, Code: rule.Absent, Text: fmt.Sprintf("vfio.keepOff names %s, but the node has no such function", a),
				Fix: "correct the blueprint; if the function exists, enable its slot or \"Above 4G decoding\" in the firmware setup",
			})
			continue
		}
		override, _, locked := n.attribute(udevPart, function(a, "driver_override"))
		if locked {
			continue
		}
		// The kernel prints "(null)" if no override is set.
		if override == "(null)" || override == "" || override == "vfio-pci" {
			n.setting(state.Setting{
				Part: udevPart, Path: function(a, "driver_override"), Value: "vfio-pci", Why: fmt.Sprintf("no vendor driver binds %s", a),
			})
		}
		if driver := line(uevent, "DRIVER="); driver != "" && !strings.Contains(driver, "vfio") {
			n.problem(state.Problem{
				Part: udevPart, Code: rule.StillBound, AtBoot: true, Text: fmt.Sprintf("%s is still bound to driver %s", a, driver),
				Fix: "reboot: bootstrap does not unbind a driver that may be using the function. If the driver binds it again, it loads in the initial RAM file system: set kernel.earlyBinding",
			})
		}
	}
}

const initramfsPart = "initramfs"

// earlyBinding adds the rules to the initial RAM file system, which may contain the vendor's driver.
func (n *node) earlyBinding() {
	if !n.blueprint.Kernel.EarlyBinding {
		return
	}
	n.boundByPolicy()
	f := state.File{Part: initramfsPart, Why: "keeps vendor drivers off in the initial RAM file system", Then: []state.FollowUp{state.Initramfs, state.Reboot}}
	switch n.platform.Initramfs {
	case UpdateInitramfs:
		f.Path, f.Content, f.Mode = "etc/initramfs-tools/hooks/kata-vfio", []byte(initramfsHook), 0o755
	case Dracut, TransactionalDracut:
		f.Path = "etc/dracut.conf.d/50-kata-vfio.conf"
		// dracut joins the values of all files, so each needs spaces around it (dracut.conf(5)).
		f.Content = []byte(header + "add_drivers+=\" vfio-pci \"\ninstall_items+=\" /" + rulesFile + " /" + optionsFile + " \"\n")
	case Mkinitcpio:
		f.Path, f.Content = mkinitcpioFile, []byte(header+mkinitcpioDropIn)
		n.mkinitcpio()
	case Booster:
		n.booster()
		return
	default:
		n.problem(state.Problem{
			Part: initramfsPart, Code: rule.EarlyBindingUnsupported, Fatal: true, Text: "kernel.earlyBinding: the node has neither update-initramfs, dracut nor mkinitcpio to generate the initial RAM file system",
			Fix: fmt.Sprintf("add /%s to the initial RAM file system yourself, and remove kernel.earlyBinding", rulesFile),
		})
		return
	}
	n.file(f)
}

const initramfsHook = `#!/bin/sh
# Written by kata-vfio-bootstrap, which restores it when it differs. "kata-vfio-bootstrap revert" removes it.
case "$1" in
prereqs)
	echo
	exit 0
	;;
esac
. /usr/share/initramfs-tools/hook-functions
manual_add_modules vfio-pci
mkdir -p "$DESTDIR/etc/udev/rules.d"
# The rules may be gone before this file is: no kernel's update fails for that.
[ ! -e /` + rulesFile + ` ] || cp -p /` + rulesFile + ` "$DESTDIR/etc/udev/rules.d/"
`

// boundByPolicy refuses early binding of functions whose policy in the node config is not "bound". With "on demand" the
// node uses a function until a claim comes, and early binding would keep the node's driver off it.
func (n *node) boundByPolicy() {
	text, there := n.text(initramfsPart, facts.NodeConfigFile)
	if !there {
		return
	}
	cfg, err := v1alpha1.DecodeNodeConfig([]byte(text))
	if err != nil {
		n.problem(state.Problem{
			Part: initramfsPart, Code: rule.FileDamaged, Fatal: true, Path: facts.NodeConfigFile, Text: fmt.Sprintf("kernel.earlyBinding requires policy bound, but the node config can't be read: %v", err),
			Fix: "correct /" + facts.NodeConfigFile,
		})
		return
	}
	for _, a := range n.blueprint.VFIO.KeepOff {
		n.boundBy(cfg, a)
	}
}

func (n *node) boundBy(cfg *v1alpha1.NodeConfig, a pci.Address) {
	snapshot, there := n.snapshot(a)
	choice := nodeconfig.Select(cfg, snapshot).Choice(a)
	switch {
	case choice.Ours && choice.Policy == v1alpha1.PolicyBound:
	case !there: // a rule may match the unknown type or vendor
		n.problem(state.Problem{
			Part: initramfsPart, Code: rule.EarlyBindingPolicy, Path: facts.NodeConfigFile, Text: fmt.Sprintf("kernel.earlyBinding requires policy bound, but the policy of %s is unknown, because the function can't be read here", a),
			Fix: "list its address in a rule of /" + facts.NodeConfigFile + " with policy: bound",
		})
	default:
		is := "not ours: " + choice.Why
		if choice.Ours {
			is = fmt.Sprintf("of policy %s (%s)", choice.Policy, choice.Rule)
		}
		n.problem(state.Problem{
			Part: initramfsPart, Code: rule.EarlyBindingPolicy, Fatal: true, Path: facts.NodeConfigFile, Text: fmt.Sprintf("kernel.earlyBinding requires policy bound, but in /%s %s is %s", facts.NodeConfigFile, a, is),
			Fix: "set policy: bound for it there, or remove kernel.earlyBinding from the blueprint",
		})
	}
}

// snapshot returns a snapshot of a function, with the properties that rules match, and of its PF. If the function does not
// exist, only its address is set.
func (n *node) snapshot(a pci.Address) (s *device.Snapshot, there bool) {
	f := device.Function{Address: a}
	class, there := n.number(a, "class")
	if !there {
		return &device.Snapshot{Functions: []device.Function{f}}, false
	}
	vendor, _ := n.number(a, "vendor")
	id, _ := n.number(a, "device")
	f.Class, f.Vendor, f.Device = pci.Class(class), pci.ID(vendor), pci.ID(id)
	all := []device.Function{}
	physical, _ := n.text(initramfsPart, function(a, "physfn/uevent"))
	if pf, err := pci.ParseAddress(line(physical, "PCI_SLOT_NAME=")); err == nil {
		nets, _ := n.tree.ReadDir(function(a, "physfn/net")) // a PF without a driver has none
		f.VF = &device.VF{PF: pf}
		all = append(all, device.Function{Address: pf, Children: device.Children{Net: nets}})
	}
	_, isPF := n.text(initramfsPart, function(a, "sriov_totalvfs"))
	f.Type = device.Classify(f.Class, f.Capabilities.Header, isPF, f.VF != nil)
	all = append(all, f)
	slices.SortFunc(all, func(a, b device.Function) int { return a.Address.Compare(b.Address) })
	return &device.Snapshot{Functions: all}, true
}

// number returns a hexadecimal attribute of a function.
func (n *node) number(a pci.Address, attribute string) (uint64, bool) {
	text, there := n.text(initramfsPart, function(a, attribute))
	number, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 32)
	return number, there && err == nil
}

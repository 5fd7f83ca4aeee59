package host

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/platform"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

const (
	udevPart = "udev"
	// rulesFile comes before the rules that load drivers (80-drivers.rules).
	rulesFile = "etc/udev/rules.d/10-kata-vfio.rules"
)

// vfProperty marks VFs in udev's database, for systemd-networkd.
const vfProperty = "KATA_VFIO_VF"

// udev writes one file of rules: functions that vendor drivers must not have, PFs and
// their VFs, and VFs that network managers leave alone.
func (n *node) udev(pfs []physicalFunction) {
	var rules strings.Builder
	for _, a := range n.blueprint.VFIO.KeepOff {
		fmt.Fprintf(&rules, "ACTION==\"add\", SUBSYSTEM==\"pci\", KERNEL==\"%s\", ATTR{driver_override}=\"vfio-pci\"\n", a)
	}
	for _, pf := range pfs {
		fmt.Fprintf(&rules, "ACTION==\"add\", SUBSYSTEM==\"pci\", KERNEL==\"%s\", ATTR{sriov_drivers_autoprobe}=\"0\"\n", pf.address)
		if !pf.switched && pf.vfs > 0 {
			// The interface appears when the PF's driver is ready for VFs.
			fmt.Fprintf(&rules, "ACTION==\"add\", SUBSYSTEM==\"net\", KERNELS==\"%s\", ATTR{device/sriov_numvfs}=\"%d\"\n", pf.address, pf.vfs)
		}
	}
	if *n.blueprint.Network.LeaveVFsAlone {
		// NetworkManager's own patterns know drivers and names, and PF and VF of some
		// makes have one driver. That a function has a parent is what makes it a VF.
		fmt.Fprintf(&rules, "ACTION!=\"remove\", SUBSYSTEM==\"net\", TEST==\"device/physfn\", ENV{NM_UNMANAGED}=\"1\", ENV{%s}=\"1\"\n", vfProperty)
	}
	n.keptOff()
	if rules.Len() == 0 {
		return
	}
	then := []state.FollowUp{state.UdevReload}
	if n.blueprint.Kernel.EarlyBinding {
		then = append([]state.FollowUp{state.Initramfs}, then...)
	}
	n.file(state.File{
		Part: udevPart, Path: rulesFile, Content: []byte(header + rules.String()),
		Why: "keeps drivers and network managers off what is ours, by address", Then: then,
	})
}

// keptOff asks for the override of functions that the running kernel has. One that a
// claim of the plugin's has set is left to it.
func (n *node) keptOff() {
	if !n.platform.Live {
		return
	}
	for _, a := range n.blueprint.VFIO.KeepOff {
		uevent, there := n.text(udevPart, function(a, "uevent"))
		if !there {
			n.problem(state.Problem{
				Part: udevPart, Text: fmt.Sprintf("vfio.keepOff names %s, and the node has no such function", a),
				Fix: "correct the blueprint, or switch the slot or \"Above 4G decoding\" on in the firmware setup if the function should be there",
			})
			continue
		}
		override, _ := n.text(udevPart, function(a, "driver_override"))
		if override == "(null)" || override == "" || override == "vfio-pci" {
			n.setting(state.Setting{
				Part: udevPart, Path: function(a, "driver_override"), Value: "vfio-pci", Why: fmt.Sprintf("no vendor driver takes %s any more", a),
			})
		}
		if driver := line(uevent, "DRIVER="); driver != "" && !strings.Contains(driver, "vfio") {
			n.problem(state.Problem{
				Part: udevPart, AtBoot: true, Text: fmt.Sprintf("%s is still on the driver %s", a, driver),
				Fix: "reboot; it is not taken from a driver that may be using it. Where the driver has it again after that, it comes from the initial RAM file system: set kernel.earlyBinding",
			})
		}
	}
}

const initramfsPart = "initramfs"

// earlyBinding brings the rules into the initial RAM file system, which may have the
// vendor's driver in it.
func (n *node) earlyBinding() {
	if !n.blueprint.Kernel.EarlyBinding {
		return
	}
	n.boundByPolicy()
	f := state.File{Part: initramfsPart, Why: "keeps vendor drivers off from the initial RAM file system on", Then: []state.FollowUp{state.Initramfs, state.Reboot}}
	switch n.platform.Initramfs {
	case platform.UpdateInitramfs:
		f.Path, f.Content, f.Mode = "etc/initramfs-tools/hooks/kata-vfio", []byte(initramfsHook), 0o755
	case platform.Dracut:
		f.Path = "etc/dracut.conf.d/50-kata-vfio.conf"
		f.Content = []byte(header + "add_drivers+=\" vfio-pci \"\ninstall_items+=\" /" + rulesFile + " /" + optionsFile + " \"\n")
	default:
		n.problem(state.Problem{
			Part: initramfsPart, Fatal: true, Text: "kernel.earlyBinding: what makes the initial RAM file system is neither update-initramfs nor dracut",
			Fix: fmt.Sprintf("bring /%s into it by hand, and leave kernel.earlyBinding out", rulesFile),
		})
		return
	}
	n.file(f)
}

const initramfsHook = `#!/bin/sh
# Written by kata-vfio-bootstrap, which writes it anew when it differs. "kata-vfio-bootstrap revert" takes it away.
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

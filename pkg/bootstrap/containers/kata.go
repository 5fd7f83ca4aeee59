package containers

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// kata is an installation of one of Kata's runtimes.
type kata struct {
	flavour blueprint.Flavor
	shim    string
	// shipped is the directory of Kata's own configurations, own that of the handlers' directories.
	shipped, own string
	handlers     []handler
}

// unpackedKata is Kata's own archive, unpacked at / by hand or by kata-deploy.
func unpackedKata(flavour blueprint.Flavor) kata {
	k := kata{flavour: flavour, shim: "/opt/kata/bin/containerd-shim-kata-v2", shipped: facts.KataUnpacked}
	if flavour == blueprint.FlavorRust {
		k.shim = "/opt/kata/runtime-rs/bin/containerd-shim-kata-v2"
		k.shipped = path.Join(k.shipped, facts.KataRust)
	}
	k.own = k.shipped
	return k
}

// packagedKata is a distribution's package of the Go runtime. /usr belongs to the distribution, so the handlers'
// directories are below /etc.
func packagedKata() kata {
	return kata{
		flavour: blueprint.FlavorGo, shim: "/usr/bin/containerd-shim-kata-v2",
		shipped: facts.KataPackaged, own: facts.KataSite,
	}
}

// extensionKata is the Go runtime of a system extension of Talos: below /usr/local, where extensions have their files.
// The handlers' directories are where Talos keeps files of its machine config.
func extensionKata() kata {
	return kata{
		flavour: blueprint.FlavorGo, shim: "/usr/local/bin/containerd-shim-kata-v2",
		shipped: "/usr/local/share/kata-containers", own: "/var/lib/kata-vfio/kata",
	}
}

// talos reports whether the node's system is Talos.
func (n node) talos() bool {
	return strings.Contains("\n"+n.Read("/etc/os-release").Value, "\nID=talos\n")
}

// findKata returns the installation, and false if there is none.
func (n node) findKata(flavour blueprint.Flavor) (kata, bool) {
	ways := []kata{unpackedKata(flavour)}
	switch {
	case flavour == blueprint.FlavorGo && n.talos():
		ways[0] = extensionKata()
	case flavour == blueprint.FlavorGo:
		ways = append(ways, packagedKata())
	}
	for _, k := range ways {
		if n.exists(k.shim) {
			return k, true
		}
	}
	return ways[0], false
}

// kataWants returns Kata's requirements: for each handler a configuration, which is a copy of one that Kata ships, and a
// drop-in beside it.
func kataWants(n node, o blueprint.Containers) (*wants, *kata, error) {
	w := &wants{part: "kata"}
	k, found := n.findKata(o.Kata)
	k.handlers = handlersBelow(&o, k.own)
	if !found {
		w.refuse(rule.KataNotInstalled, k.shim, fmt.Sprintf("Kata's runtime %q is not installed: %s does not exist.", o.Kata, k.shim),
			fmt.Sprintf("Unpack Kata's release archives at / (kata-static, and for the Go runtime from 4.1.0 on also kata-go-static), or choose Kata's other runtime (containers.kata: %s in the blueprint), then run bootstrap again.", o.Kata.Other()))
		return w, &k, nil
	}
	w.fact("shim", k.shim, k.shim)
	n.kataVersion(w)
	for i := range k.handlers {
		if err := n.handlerWants(w, &k, &k.handlers[i]); err != nil {
			return nil, &k, err
		}
	}
	if w.refused() {
		w.wanted.Files = nil
	}
	return w, &k, nil
}

// handlerWants adds Kata's requirements for one handler.
func (n node) handlerWants(w *wants, k *kata, h *handler) error {
	base, text, ok := n.kataBase(w, k, h)
	if !ok {
		return nil
	}
	qemu := base.Sub("hypervisor", "qemu")
	h.block = qemu.Setting("", "shared_fs").Text() == "none"
	ours, err := h.kataFragment(k, qemu)
	if err != nil {
		return err
	}
	if target, ok := n.link(h.config()); ok {
		w.refuse(rule.FileWrongType, h.config(), fmt.Sprintf("The handler's configuration is a link to %s, so Kata reads the drop-ins beside that file.", target),
			"Remove the link; bootstrap replaces it with a copy.")
	}
	// The copy does not exist before the first run, so it is checked from memory.
	n.with(h.config(), []byte(text)).checkKata(w, k.flavour, h, ours)
	w.file(h.config(), []byte(text), "the handler's configuration: a copy of "+path.Join(k.shipped, baseName(k, h.base)))
	w.file(h.dropIn(), []byte(ours), "plugs devices of claims into the VM, and ignores annotations")
	if h.hotPlug {
		w.warn(rule.HotPlugNotEnabled, h.dropIn(), "Devices are hot-plugged, but the plugin refuses such pods without --hot-plug.",
			"Set the plugin's flag --hot-plug (plugin.extraArgs in the chart) on all nodes.")
	}
	return nil
}

func baseName(k *kata, base blueprint.Base) string {
	name := "configuration-qemu"
	if base == blueprint.BaseGPU {
		name += "-nvidia-gpu"
	}
	return flavoured(name, ".toml", k.flavour)
}

// kataBase returns the shipped configuration to copy.
func (n node) kataBase(w *wants, k *kata, h *handler) (facts.Table, string, bool) {
	name := path.Join(k.shipped, baseName(k, h.base))
	file := n.Read(name)
	if !file.OK() {
		w.refuse(rule.KataConfigMissing, name, fmt.Sprintf("Kata's configuration for %ss can't be read from %s: %s", h.base, name, cause(file)),
			"Install a release of Kata that has it, or "+h.otherBase()+".")
		return nil, "", false
	}
	t, err := facts.ParseTable(file)
	if err != nil {
		w.refuse(rule.FileDamaged, name, "Kata's configuration can't be parsed: "+err.Error(), "Reinstall that release of Kata.")
		return nil, "", false
	}
	if !slices.Contains(t.Sub("hypervisor").Names(), "qemu") {
		w.refuse(rule.KataConfigMissing, name, name+" has no section [hypervisor.qemu].", "Install a release of Kata that uses QEMU.")
		return nil, "", false
	}
	return t, file.Value, true
}

// checkKata reports settings of other files that contradict bootstrap's, and requires the modules and programs that the
// settings of all files need.
func (n node) checkKata(w *wants, flavour blueprint.Flavor, h *handler, text string) {
	dropIn := h.dropIn()
	with := n.with(dropIn, []byte(text))
	effective := with.effectiveKata(w, h.config())
	want, err := facts.ParseTable(with.Read(dropIn))
	if err != nil {
		w.refuse(rule.FileDamaged, dropIn, err.Error(), "Report it: a shipped fragment is broken.")
		return
	}
	ours, got := want.Settings(), effective.Settings()
	for _, name := range sortedKeys(ours) {
		if is := got[name]; !is.Is(ours[name]) {
			w.overridden(name, is, ours[name])
		}
	}
	w.modules(kataModules(flavour, effective))
	n.checkVirtiofsd(w, flavour, h.dir, effective)
	if !ours["hypervisor.qemu.disable_block_device_use"].On() {
		w.checkBlockDevices(flavour, effective)
	}
}

// modules requires modules, each once.
func (w *wants) modules(all []state.Module) {
	for _, m := range all {
		if !slices.Contains(w.wanted.Modules, m) {
			w.wanted.Modules = append(w.wanted.Modules, m)
		}
	}
}

// effectiveKata returns the settings that Kata merges from a configuration and its drop-ins.
func (n node) effectiveKata(w *wants, base string) facts.Table {
	loaded := facts.LoadKata(n, base)
	for _, file := range loaded.Damaged {
		w.refuse(rule.FileDamaged, file.Path, "Kata would not start with "+file.Path+": "+cause(file), "Correct or remove it.")
	}
	return loaded.All
}

// overridden judges a setting of bootstrap that a file of the site overrides. Settings that keep tenants out must be
// bootstrap's, so it refuses the node. Sizes are the site's choice, so it records them as facts. For any other setting it
// warns.
func (w *wants) overridden(name string, is, ours facts.TableSetting) {
	text := fmt.Sprintf("%s sets %s, which overrides bootstrap's %s.", is.File, is.Fact().Value, ours.Fact().Value)
	fix := "Remove the setting from " + is.File + "."
	switch ours.Name {
	case "default_memory", "overhead_memory", "pcie_root_port":
		w.fact(name, is.Fact().Value, is.File)
	case "virtio_fs_extra_args":
		if facts.DropsMknod(is.List()) {
			w.fact(name, is.Fact().Value, is.File)
			return
		}
		w.refuse(rule.SettingOverridden, is.File, text, "Add \"--modcaps=-mknod\" to the list in "+is.File+", or remove it.")
	case "disable_block_device_use", "cold_plug_vfio", "hot_plug_vfio", "enable_annotations", "pod_resource_api_sock":
		w.refuse(rule.SettingOverridden, is.File, text, fix)
	default:
		w.warn(rule.SettingOverridden, is.File, text, fix)
	}
}

// kataVersionFile is part of Kata's release archive.
const kataVersionFile = "/opt/kata/VERSION"

func (n node) kataVersion(w *wants) {
	v := n.installed("kata-containers", "kata-runtime")
	// findKata prefers the unpacked archive to a package, so the archive's version wins.
	if file := n.Read(kataVersionFile); file.OK() {
		v = parseVersion(strings.TrimSpace(file.Value), kataVersionFile)
	}
	w.fact("version", v.String(), v.Source)
	if v.older(4, 0) {
		w.warn(rule.VersionTooOld, v.Source, "Kata is version "+v.Text+", but kata-vfio needs 4.x.", "Install a release of Kata 4.")
	}
}

// kataModules returns the kernel modules that Kata's shim needs on the node, according to Kata 4.1's sources.
func kataModules(flavour blueprint.Flavor, effective facts.Table) []state.Module {
	// The shim opens /dev/vhost-vsock to reach the agent in the VM: virtcontainers/utils/utils_linux.go FindContextID;
	// in the Rust runtime crates/hypervisor/src/device/driver/virtio_vsock.rs.
	all := []state.Module{{Name: "vhost_vsock", Config: "CONFIG_VHOST_VSOCK", Why: "the shim connects to the agent in the VM over vsock"}}
	switch flavour {
	case blueprint.FlavorGo:
		all = append(all, netlinkModules()...)
	case blueprint.FlavorRust:
		// Cold plug adds an iommufd object for each function, even one in a legacy group, and QEMU exits if /dev/iommu
		// does not exist: crates/hypervisor/src/qemu/cmdline_generator.rs add_vfio_device, seen with Kata 4.1.0.
		all = append(all, state.Module{
			Name: "iommufd", Config: "CONFIG_IOMMUFD, CONFIG_VFIO_DEVICE_CDEV", Why: "the Rust runtime plugs functions with iommufd, and not by group",
		})
	}
	if joinsByTCFilter(effective) {
		all = append(all, tcFilterModules()...)
	}
	return all
}

// netlinkModules are the modules of the netlink families that the Go runtime opens for each endpoint of the pod's
// network (virtcontainers/network_linux.go: netlink.NewHandle without families; vishvananda/netlink 1.3.1
// nl.SupportedNlFamilies: ROUTE, XFRM, NETFILTER). It uses only ROUTE, but fails if any of them is missing. The Rust
// runtime opens only ROUTE.
func netlinkModules() []state.Module {
	const why = "the Go runtime opens a socket of this netlink family for the pod's network"
	return []state.Module{
		{Name: "xfrm_user", Config: "CONFIG_XFRM_USER", Why: why},
		{Name: "nfnetlink", Config: "CONFIG_NETFILTER_NETLINK", Why: why},
	}
}

// tcFilterModules are the modules that join the pod's interface with the VM's: an ingress qdisc on both, and a u32
// filter that redirects all frames by mirred (virtcontainers/network_linux.go addQdiscIngress and addRedirectTCFilter;
// in the Rust runtime network_model/tc_filter_model.rs, with the same filter: rtnetlink 0.21).
func tcFilterModules() []state.Module {
	const why = "traffic control joins the pod's interface with the VM's"
	return []state.Module{
		{Name: "sch_ingress", Config: "CONFIG_NET_SCH_INGRESS", Why: why},
		{Name: "cls_u32", Config: "CONFIG_NET_CLS_U32", Why: why},
		{Name: "act_mirred", Config: "CONFIG_NET_ACT_MIRRED", Why: why},
	}
}

// joinsByTCFilter reports whether traffic control joins the pod's interfaces with the VM's, which is the default of
// both runtimes (virtcontainers/network.go DefaultNetInterworkingModel).
func joinsByTCFilter(effective facts.Table) bool {
	model := effective.Sub("runtime").Setting("", "internetworking_model").Text()
	return slices.Contains([]string{"", "default", "tcfilter"}, model)
}

// checkVirtiofsd refuses a Kata whose program for shared directories does not exist: the shim starts it before the VM. A
// name without a directory is searched in the PATH of the shim, which no file shows.
func (n node) checkVirtiofsd(w *wants, flavour blueprint.Flavor, dir string, effective facts.Table) {
	qemu := effective.Sub("hypervisor", "qemu")
	shared, daemon := qemu.Setting("", "shared_fs"), qemu.Setting("", "virtio_fs_daemon")
	if !needsVirtiofsd(flavour, shared) {
		return
	}
	program := daemon.Text()
	switch {
	case program == "":
		file := path.Join(dir, "configuration.toml")
		w.refuse(rule.VirtiofsdMissing, file, "Kata's VMs share a directory with the node (shared_fs), but virtio_fs_daemon is not set.",
			"Set virtio_fs_daemon to the path of virtiofsd in a drop-in of "+path.Join(dir, "config.d")+".")
	case path.IsAbs(program) && !n.exists(program):
		w.refuse(rule.VirtiofsdMissing, program, fmt.Sprintf("Kata's VMs share a directory with the node through %s (virtio_fs_daemon), which does not exist, so no VM starts.", program),
			"Unpack Kata's release archive kata-static, which has it, or install virtiofsd and set virtio_fs_daemon to its path in a drop-in of "+
				path.Join(dir, "config.d")+".")
	}
}

// checkBlockDevices refuses VMs that share directories with the node and get block devices by path. Only a file of the site can
// cause that: if the base configuration shares directories, bootstrap's drop-in disables block devices.
func (w *wants) checkBlockDevices(flavour blueprint.Flavor, effective facts.Table) {
	qemu := effective.Sub("hypervisor", "qemu")
	shared := qemu.Setting("", "shared_fs")
	if !needsVirtiofsd(flavour, shared) || qemu.Setting("", "disable_block_device_use").On() {
		return
	}
	w.refuse(rule.BlockDevicesByPath, shared.File, shared.File+" has the VMs share a directory with the node (shared_fs), and they get block devices by path.",
		"Set disable_block_device_use = true in "+shared.File+", or remove shared_fs from it.")
}

// needsVirtiofsd reports whether a way of sharing directories needs a program. By default, the Go runtime shares by
// virtio-fs (katautils/config.go sharedFS) and the Rust runtime does not share (kata-types SharedFsInfo).
func needsVirtiofsd(flavour blueprint.Flavor, shared facts.TableSetting) bool {
	if shared.Text() == "" {
		return flavour == blueprint.FlavorGo || shared.IsSet()
	}
	return slices.Contains([]string{"virtio-fs", "virtio-fs-nydus"}, shared.Text())
}

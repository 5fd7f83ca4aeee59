package containers

import (
	"fmt"
	"path"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes/config"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// kataModules returns the kernel modules that Kata's shim needs of the node, by Kata 4.1's sources.
func kataModules(flavour Flavour, effective config.Table) []state.Module {
	// The shim opens /dev/vhost-vsock, by which it reaches the agent in the VM: virtcontainers/utils/utils_linux.go FindContextID; in
	// the Rust runtime crates/hypervisor/src/device/driver/virtio_vsock.rs.
	all := []state.Module{{Name: "vhost_vsock", Config: "CONFIG_VHOST_VSOCK", Why: "the shim reaches the agent in the VM by vsock"}}
	switch flavour {
	case FlavourGo:
		all = append(all, netlinkModules()...)
	case FlavourRust:
		// Cold plug adds an iommufd object for each function, for one of a group too, and QEMU ends where /dev/iommu is not there:
		// crates/hypervisor/src/qemu/cmdline_generator.rs add_vfio_device, seen with Kata 4.1.0.
		all = append(all, state.Module{
			Name: "iommufd", Config: "CONFIG_IOMMUFD, CONFIG_VFIO_DEVICE_CDEV", Why: "the Rust runtime plugs functions by iommufd, and not by groups",
		})
	}
	if joinsByTCFilter(effective) {
		all = append(all, tcFilterModules()...)
	}
	return all
}

// netlinkModules are those of the netlink families that the Go runtime opens for each endpoint of the pod's network
// (virtcontainers/network_linux.go: netlink.NewHandle without families; vishvananda/netlink 1.3.1 nl.SupportedNlFamilies: ROUTE, XFRM,
// NETFILTER). It uses the first only, and fails where one of them is not there. The Rust runtime opens that one alone.
func netlinkModules() []state.Module {
	const why = "the Go runtime opens a socket of this netlink family for the pod's network"
	return []state.Module{
		{Name: "xfrm_user", Config: "CONFIG_XFRM_USER", Why: why},
		{Name: "nfnetlink", Config: "CONFIG_NETFILTER_NETLINK", Why: why},
	}
}

// tcFilterModules are those of what joins the pod's interface with the VM's: an ingress qdisc at both, and a u32 filter that redirects
// all frames by mirred (virtcontainers/network_linux.go addQdiscIngress and addRedirectTCFilter; in the Rust runtime
// network_model/tc_filter_model.rs, whose redirect is the same filter: rtnetlink 0.21).
func tcFilterModules() []state.Module {
	const why = "traffic control joins the pod's interface with the VM's"
	return []state.Module{
		{Name: "sch_ingress", Config: "CONFIG_NET_SCH_INGRESS", Why: why},
		{Name: "cls_u32", Config: "CONFIG_NET_CLS_U32", Why: why},
		{Name: "act_mirred", Config: "CONFIG_NET_ACT_MIRRED", Why: why},
	}
}

// joinsByTCFilter reports whether the pod's interfaces are joined with the VM's by traffic control, as both runtimes do by default
// (virtcontainers/network.go DefaultNetInterworkingModel).
func joinsByTCFilter(effective config.Table) bool {
	model := effective.Sub("runtime").Setting("", "internetworking_model").Text()
	return slices.Contains([]string{"", "default", "tcfilter"}, model)
}

// checkVirtiofsd refuses a Kata whose VMs share a directory with the node by a program that is not there: the shim starts it before
// the VM. A name without a directory is looked up in the PATH of whoever starts the shim, which no file tells.
func (n node) checkVirtiofsd(w *wants, k kata, effective config.Table) {
	qemu := effective.Sub("hypervisor", "qemu")
	shared, daemon := qemu.Setting("", "shared_fs"), qemu.Setting("", "virtio_fs_daemon")
	if !needsVirtiofsd(k.flavour, shared) {
		return
	}
	program := daemon.Text()
	switch {
	case program == "":
		file := path.Join(k.dir, "configuration.toml")
		w.refuse(file, "Kata's VMs share a directory with the node (shared_fs), and virtio_fs_daemon does not say by which program.",
			"Set virtio_fs_daemon to the path of virtiofsd in a drop-in of "+path.Join(k.dir, "config.d")+".")
	case path.IsAbs(program) && !n.exists(program):
		w.refuse(program, fmt.Sprintf("Kata's VMs share a directory with the node by %s (virtio_fs_daemon), which is not there: no VM would start.", program),
			"Unpack Kata's release archive (kata-static), which has it, or install virtiofsd and set virtio_fs_daemon to its path in a drop-in of "+
				path.Join(k.dir, "config.d")+".")
	}
}

// needsVirtiofsd reports whether a way of sharing directories has a program of its own. Where none is said, the Go runtime shares by
// virtio-fs (katautils/config.go sharedFS) and the Rust runtime not at all (kata-types SharedFsInfo).
func needsVirtiofsd(flavour Flavour, shared config.Setting) bool {
	if shared.Text() == "" {
		return flavour == FlavourGo || shared.IsSet()
	}
	return slices.Contains([]string{"virtio-fs", "virtio-fs-nydus"}, shared.Text())
}

package check

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// runtimePlugChecks are about how devices get into VMs.
func runtimePlugChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "RT-004", Title: "Kata asks a pod-resources socket which devices to plug, and it is there", Severity: isolation.High,
			Why: "with the socket's file missing the Go runtime believes the pod's annotations, and the Rust runtime boots the VM without " +
				"its devices; a socket that refuses connections fails the pod, which is safe",
			Fix: "set `pod_resource_api_sock` in a drop-in of Kata's config.d, and have the file exist from boot on: " +
				"`systemctl enable --now kata-vfio-pod-resources.socket`",
			Verify: "grep -r pod_resource_api_sock /opt/kata/share/defaults/kata-containers /etc/kata-containers; " +
				"ls -l /run/kata-vfio/pod-resources.sock; systemctl is-enabled kata-vfio-pod-resources.socket",
			Sources: []string{"Kata 4.1: pkg/containerd-shim-v2/device_cold_plug.go kubeletPodResourceSocketAvailable"},
		}, Judge: podResources},
		{Rule: finding.Rule{
			ID: "RT-017", Title: "Devices are in the VM from its boot on, and none is plugged later", Severity: isolation.Medium,
			Why: "what is plugged into a running VM was not there when the guest was measured and its policy was set, and the plugin can't check " +
				"that the VM has what its claim says",
			Fix:     "`cold_plug_vfio = \"root-port\"` and `hot_plug_vfio = \"no-port\"` in Kata's drop-in for the handler",
			Verify:  "grep -rE '(cold|hot)_plug_vfio' /opt/kata/share/defaults/kata-containers/kata-gpu",
			Sources: []string{"Kata 4.1: configuration-qemu.toml.in hot_plug_vfio"},
		}, Judge: ofDeviceVMs(noHotPlug)},
		{Rule: finding.Rule{
			ID: "RT-018", Title: "The guest's kernel drives the device", Severity: isolation.Info,
			Why:    "with vfio_mode \"vfio\" the guest binds the device to vfio-pci again and the container gets a VFIO node: it needs a guest IOMMU to confine anything",
			Fix:    "`vfio_mode = \"guest-kernel\"` in Kata's section [runtime], unless the workload has its own driver (DPDK)",
			Verify: "grep -r vfio_mode /opt/kata/share/defaults/kata-containers/kata-gpu",
		}, Judge: ofDeviceVMs(guestKernelMode)},
	}
}

// ourSocket is the plugin's, whose file a systemd unit of ours makes at boot.
const (
	ourSocket  = "/run/kata-vfio/pod-resources.sock"
	socketUnit = "kata-vfio-pod-resources.socket"
)

// podResources asks of each handler that cold-plugs, and looks at the next boot of
// those that ask us: /run is empty then.
func podResources(n *facts.Node) []finding.Finding {
	coldPlugs := func(_ *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) bool { return !k.OK() || k.ColdPlugs() }
	found := ofChosen(coldPlugs, socketIsThere)(n)
	if len(found) != 1 || found[0].State != finding.Pass {
		return found
	}
	for _, h := range runtimes.Of(n).Kata() {
		k := runtimes.KataOf(n, &h)
		if k.ColdPlugs() && k.Runtime("pod_resource_api_sock").Text() == ourSocket && !socketAtBoot(n) {
			units, wants := n.List(n.Real("etc/systemd/system/sockets.target.wants"))
			if !wants.Known() {
				return unknown("whether the socket is there after a boot", wants)
			}
			wants.Value = fmt.Sprintf("%d units, %s is not among them", len(units), socketUnit)
			later := fail(fmt.Sprintf("the socket is there now, but %s is not enabled: after a boot it is missing until the plugin runs", socketUnit), wants)
			later[0].Pending = "comes with the next boot"
			return later
		}
	}
	return found
}

func socketIsThere(n *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	s := k.Runtime("pod_resource_api_sock")
	if s.Text() == "" {
		return "pod_resource_api_sock is not set: Kata is told by annotations or by nobody which devices are the pod's", says(s)
	}
	stat, file := n.Stat(s.Text())
	seen := append(says(s), file)
	switch {
	case file.Status == facts.Absent:
		return fmt.Sprintf("the socket %q is not there", s.Text()), seen
	case file.OK() && !stat.IsSocket():
		return fmt.Sprintf("%q is no socket", s.Text()), seen
	}
	return "", seen
}

// socketAtBoot reports whether systemd makes the socket's file.
func socketAtBoot(n *facts.Node) bool {
	units, _ := n.List(n.Real("etc/systemd/system/sockets.target.wants"))
	return slices.Contains(units, socketUnit)
}

func noHotPlug(_ *facts.Node, h *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	cold, hot := k.Hypervisor("cold_plug_vfio"), k.Hypervisor("hot_plug_vfio")
	if k.HotPlugs() && !h.IsRust() {
		return fmt.Sprintf("hot_plug_vfio is %q: devices are plugged into running VMs", hot.Text()), says(cold, hot)
	}
	return "", says(cold)
}

func guestKernelMode(_ *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	mode := k.Runtime("vfio_mode")
	if text := mode.Text(); text != "" && text != "guest-kernel" {
		return fmt.Sprintf("vfio_mode is %q", text), says(mode)
	}
	return "", says(mode)
}

package check

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
)

// runtimeSharingChecks are about the directories that VMs share with the node, and the daemons behind them.
func runtimeSharingChecks() []Check {
	return []Check{
		{ID: "RT-019", Judge: daemonsConfined},
		{ID: "RT-034", Judge: mknod},
		{ID: "RT-035", Judge: ofKata(blockDevices)},
		{ID: "RT-036", Judge: knownBlockDevices},
	}
}

// unconfined matches arguments that switch virtiofsd's own confinement off, as one word or two.
var unconfined = regexp.MustCompile(`\b(sandbox|seccomp)[= ]none\b`)

// daemonsConfined judges the configuration and the running daemons.
func daemonsConfined(n *facts.Node) Answer {
	return withRunning(ofKata(sharedFiles)(n), unseen(n, len(runtimes.FileDaemons(n)), "how running virtiofsds are confined"))
}

func sharedFiles(n *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	args, mounts := k.Hypervisor("virtio_fs_extra_args"), k.Runtime("sandbox_bind_mounts")
	if off := unconfined.FindString(strings.Join(args.List(), " ")); off != "" {
		return fmt.Sprintf("virtiofsd runs with %q", off), says(args)
	}
	if list := mounts.List(); len(list) > 0 {
		return fmt.Sprintf("all VMs share these host directories: %q", list), says(mounts)
	}
	for _, daemon := range runtimes.FileDaemons(n) {
		if off := unconfined.FindString(daemon.Cmdline.Value); off != "" {
			return fmt.Sprintf("a running virtiofsd has %q", off), []facts.Fact{daemon.Cmdline}
		}
	}
	return "", says(args, mounts)
}

// sharesDirectories reports whether VMs of the handler share directories with the node. If the setting is missing, VMs of the Go
// runtime do, and VMs of the Rust runtime do not.
func sharesDirectories(h *runtimes.Handler, k *runtimes.Kata) bool {
	shared := k.Hypervisor("shared_fs")
	if !shared.IsSet() {
		return !h.IsRust()
	}
	return shared.Text() != "none"
}

func blockDevices(_ *facts.Node, h *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	shared, disabled := k.Hypervisor("shared_fs"), k.Hypervisor("disable_block_device_use")
	if sharesDirectories(h, k) && !disabled.On() {
		return "VMs share directories with the node, and disable_block_device_use is off", says(shared, disabled)
	}
	return "", says(shared, disabled)
}

// mknod judges the arguments of each handler's daemons, and the capabilities of the running daemons.
func mknod(n *facts.Node) Answer {
	found := ofKata(func(_ *facts.Node, h *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
		args := k.Hypervisor("virtio_fs_extra_args")
		if sharesDirectories(h, k) && !facts.DropsMknod(args.List()) {
			return "virtiofsd keeps CAP_MKNOD (its default)", says(args)
		}
		return "", says(args)
	})(n)
	daemons := runtimes.FileDaemons(n)
	running := over(daemons, func(d runtimes.FileDaemon) Answer {
		object := fmt.Sprintf("pid %d", d.PID)
		switch has, known := d.HasMknod(); {
		case !known:
			return unknown("whether a running virtiofsd has CAP_MKNOD", d.Capabilities).object(object)
		case has:
			return fail("a running virtiofsd has CAP_MKNOD", d.Capabilities, d.Cmdline).object(object)
		}
		return nil
	})
	return withRunning(found, append(running, unseen(n, len(daemons), "whether running virtiofsds have CAP_MKNOD")...))
}

// knownBlockDevices compares the block devices that each VMM has open with those of its pod's containers.
func knownBlockDevices(n *facts.Node) Answer {
	containers, listed := runtimes.Containers(n)
	volumes, unreadVolumes := runtimes.DirectVolumes(n)
	vmms, judged := runtimes.VMMs(n), 0
	found := over(vmms, func(v runtimes.VMM) Answer {
		if v.Sandbox == "" || !v.Has("vhost-user-fs") {
			return nil
		}
		judged++
		devices, unread := v.BlockDevices(n)
		unread = append(unread, unreadVolumes...)
		var answer Answer
		if len(unread) > 0 {
			answer = unknown("which block devices a VM has", unread...)
		}
		for _, d := range devices {
			if !hasBlockDevice(containers, v.Sandbox, d.Value) && !mountsDirectVolume(containers, volumes, v.Sandbox, d.Value) {
				answer = append(answer, fail(fmt.Sprintf("the VM of sandbox %s has the node's block device %s, which is not a device or directly assigned volume of its pod's containers", v.Sandbox, d.Value), d, v.Cmdline)...)
			}
		}
		return answer.object(fmt.Sprintf("pid %d", v.PID))
	})
	if judged == 0 {
		return unseen(n, len(vmms), "which VMs with shared directories run").or(notApplicable("no VM with shared directories runs"))
	}
	return found.or(hiddenBundles(listed, "which block devices pods have")).or(pass(count(judged, "VM"), listed...))
}

// mountsDirectVolume reports whether a container of the sandbox mounts a volume whose block device has the number.
func mountsDirectVolume(containers []runtimes.Container, volumes []runtimes.DirectVolume, sandbox, number string) bool {
	return slices.ContainsFunc(volumes, func(v runtimes.DirectVolume) bool {
		return v.Number == number && slices.ContainsFunc(containers, func(c runtimes.Container) bool {
			return c.Info.Sandbox == sandbox && slices.Contains(c.Info.Mounts, v.Path)
		})
	})
}

func hasBlockDevice(containers []runtimes.Container, sandbox, number string) bool {
	return slices.ContainsFunc(containers, func(c runtimes.Container) bool {
		return c.Info.Sandbox == sandbox && slices.Contains(c.Info.BlockDevices, number)
	})
}

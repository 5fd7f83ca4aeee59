package check

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// runtimeMemoryChecks are about guests' memory and files on the node.
func runtimeMemoryChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "RT-015", Title: "Guests' memory is not dumped to the node's disk", Severity: isolation.High,
			Why:    "a guest that panics leaves all of its memory, keys and data, in a file of the node, and a tenant can make its guest panic until the disk is full",
			Fix:    "`guest_memory_dump_path = \"\"` in Kata's hypervisor section, and remove what lies there",
			Verify: "grep -rE '^ *guest_memory_dump_path' /opt/kata/share/defaults/kata-containers",
		}, Judge: ofKata(mustBeEmpty("guest_memory_dump_path", "guests that panic are dumped to %q"))},
		{Rule: finding.Rule{
			ID: "RT-019", Title: "The file system daemon is confined, and shares nothing extra", Severity: isolation.High,
			Why:     "virtiofsd serves the guest's requests on the node: without its sandbox a flaw in it reaches the node's files, and extra mounts are in every VM",
			Fix:     "take `--sandbox=none` and `--seccomp=none` out of virtio_fs_extra_args, and set `sandbox_bind_mounts = []`",
			Verify:  "ps -eo args | grep virtiofsd; grep -rE 'virtio_fs_extra_args|sandbox_bind_mounts' /opt/kata/share/defaults/kata-containers",
			Sources: []string{"virtiofsd(1): --sandbox, --seccomp"},
		}, Judge: ofKata(sharedFiles)},
		{Rule: finding.Rule{
			ID: "RT-020", Title: "VMs share no template and no cache", Severity: isolation.Medium,
			Why:     "VMs that are cloned from one template share memory pages and the template's random state, across tenants",
			Fix:     "`enable_template = false` and `vm_cache_number = 0` in Kata's section [factory]",
			Verify:  "grep -rE 'enable_template|vm_cache_number' /opt/kata/share/defaults/kata-containers",
			Sources: []string{"Kata 4.1: docs/how-to/what-is-vm-templating-and-how-do-I-use-it.md"},
		}, Judge: ofKata(factory)},
		{Rule: finding.Rule{
			ID: "RT-021", Title: "vhost-user stores are off", Severity: isolation.Low,
			Why:    "a vhost-user back end maps the guest's memory: each socket in the store is a process outside of the VM with all of it",
			Fix:    "`enable_vhost_user_store = false` in Kata's hypervisor section, unless you run such storage",
			Verify: "grep -rE '^ *enable_vhost_user_store' /opt/kata/share/defaults/kata-containers",
		}, Judge: ofDeviceVMs(vhostUser)},
	}
}

// unconfined finds what switches virtiofsd's own confinement off, as one word or two.
var unconfined = regexp.MustCompile(`\b(sandbox|seccomp)[= ]none\b`)

func sharedFiles(n *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	args, mounts := k.Hypervisor("virtio_fs_extra_args"), k.Runtime("sandbox_bind_mounts")
	if off := unconfined.FindString(strings.Join(args.List(), " ")); off != "" {
		return fmt.Sprintf("virtiofsd runs with %q", off), says(args)
	}
	if list := mounts.List(); len(list) > 0 {
		return fmt.Sprintf("all VMs get these directories of the node: %q", list), says(mounts)
	}
	for _, daemon := range runtimes.VirtioFSDaemons(n) {
		if off := unconfined.FindString(daemon.Value); off != "" {
			return fmt.Sprintf("a virtiofsd that runs has %q", off), []facts.Fact{daemon}
		}
	}
	return "", says(args, mounts)
}

func factory(_ *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	template, cache := k.Factory("enable_template"), k.Factory("vm_cache_number")
	switch {
	case template.On():
		return "VMs are cloned from one template", says(template)
	case cache.Number() > 0:
		return fmt.Sprintf("%s waiting in a cache", count(int(cache.Number()), "VM")), says(cache)
	}
	return "", says(template, cache)
}

func vhostUser(_ *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	s := k.Hypervisor("enable_vhost_user_store")
	if s.On() {
		return "vhost-user back ends may map the memory of guests", says(s, k.Hypervisor("vhost_user_store_path"))
	}
	return "", says(s)
}

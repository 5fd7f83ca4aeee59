package check

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// runtimeGuestChecks are about what is inside of the VM.
func runtimeGuestChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "RT-013", Title: "Containers in guests have their seccomp profile", Severity: isolation.Low,
			Why:     "the guest's kernel drives the device: a container without its profile has more of that kernel to attack before it attacks the VMM",
			Fix:     "`disable_guest_seccomp = false` in Kata's section [runtime]; Kata ships it as true",
			Verify:  "grep -rE '^ *disable_guest_seccomp' /opt/kata/share/defaults/kata-containers",
			Sources: []string{"Kata 4.1: src/runtime/Makefile DEFDISABLEGUESTSECCOMP"},
		}, Judge: ofDeviceVMs(guestSeccomp)},
		{Rule: finding.Rule{
			ID: "RT-014", Title: "The guest runs no hooks from an image that nobody verifies", Severity: isolation.Medium,
			Why:    "hooks in guest_hook_path run as the guest's root for every container: whoever changes the image runs in every tenant's VM",
			Fix:    "`guest_hook_path = \"\"` in Kata's hypervisor section, or kernel_verity_params for the image",
			Verify: "grep -rE '^ *guest_hook_path' /opt/kata/share/defaults/kata-containers",
		}, Judge: ofDeviceVMs(guestHooks)},
		{Rule: finding.Rule{
			ID: "RT-022", Title: "The guest's image is verified when it boots", Severity: isolation.Medium,
			Why:     "one file is the root of every tenant's VM: changed on the node it is changed for all, and nothing notices",
			Fix:     "set kernel_verity_params to the root hash of the image (Kata's releases with verity bring it), and keep the annotation of that name disabled",
			Verify:  "grep -rE '^ *(image|kernel_verity_params)' /opt/kata/share/defaults/kata-containers; veritysetup dump <image>",
			Sources: []string{"Kata 4.1: kata-types KernelVerityParams"},
		}, Judge: ofDeviceVMs(verity)},
	}
}

func guestSeccomp(_ *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	s := k.Runtime("disable_guest_seccomp")
	if s.On() {
		return "seccomp profiles of containers are not applied in guests, Kata's default", says(s)
	}
	return "", says(s)
}

func guestHooks(_ *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	hooks, verity := k.Hypervisor("guest_hook_path"), k.Hypervisor("kernel_verity_params")
	if hooks.Text() != "" && verity.Text() == "" {
		return fmt.Sprintf("guests run hooks from %q of an image that is not verified", hooks.Text()), says(hooks, verity)
	}
	return "", says(hooks)
}

// verity asks of images. An initrd is part of what the VMM loads, and RT-024 sees
// to its owner.
func verity(_ *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	image, params := k.Hypervisor("image"), k.Hypervisor("kernel_verity_params")
	if image.Text() != "" && params.Text() == "" {
		return "kernel_verity_params is empty: the guest boots whatever the image holds", says(image, params)
	}
	return "", says(image, params)
}

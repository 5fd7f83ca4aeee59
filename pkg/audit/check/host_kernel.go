package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

func kernelChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "HOST-013", Title: "SELinux or AppArmor is enforcing", Severity: isolation.High,
			Why:     "a guest that breaks out of its VMM is root on the node then",
			Fix:     "`setenforce 1` and SELINUX=enforcing in /etc/selinux/config, or boot with apparmor=1 security=apparmor",
			Verify:  "cat /sys/kernel/security/lsm /sys/fs/selinux/enforce /sys/module/apparmor/parameters/enabled",
			Sources: []string{"Linux: Documentation/admin-guide/LSM/index.rst"},
		}, Judge: confined},
		{Rule: finding.Rule{
			ID: "HOST-018", Title: "The node's clock is set from outside", Severity: isolation.Medium,
			Why:     "evidence of who had a device when is worth what the clock is",
			Fix:     "run chrony or systemd-timesyncd",
			Verify:  "timedatectl show -p NTPSynchronized; chronyc tracking",
			Sources: []string{"systemd-timesyncd.service(8)"},
		}, Judge: clockSet},
		{Rule: finding.Rule{
			ID: "HOST-020", Title: "The kernel's doors for debugging are shut", Severity: isolation.Low,
			Why:     "kexec starts another kernel without a boot; the log and BPF help who looks for a way in",
			Fix:     "set them in /etc/sysctl.d: kernel.kexec_load_disabled=1, kernel.dmesg_restrict=1, kernel.unprivileged_bpf_disabled=2",
			Verify:  "sysctl kernel.kexec_load_disabled kernel.dmesg_restrict kernel.unprivileged_bpf_disabled",
			Sources: []string{"Linux: Documentation/admin-guide/sysctl/kernel.rst"},
		}, Judge: doorsShut},
	}
}

func confined(n *facts.Node) []finding.Finding {
	list := n.Read("sys/kernel/security/lsm")
	if !list.OK() {
		return unknown("which security modules the kernel runs", list)
	}
	modules := strings.Split(list.Value, ",")
	if slices.Contains(modules, "selinux") {
		enforce := n.Read("sys/fs/selinux/enforce")
		switch {
		case enforce.Is("1"):
			return pass("SELinux is enforcing", enforce)
		case enforce.OK():
			return fail("SELinux is permissive", enforce)
		}
		return unknown("whether SELinux is enforcing", enforce)
	}
	if slices.Contains(modules, "apparmor") {
		enabled := n.Read("sys/module/apparmor/parameters/enabled")
		switch {
		case enabled.On():
			return pass("AppArmor is on", enabled)
		case enabled.OK():
			return fail("AppArmor is off", enabled)
		}
		return unknown("whether AppArmor is on", enabled)
	}
	return fail("the kernel runs neither SELinux nor AppArmor", list)
}

// clockSet knows what systemd-timesyncd leaves; of others no file tells.
func clockSet(n *facts.Node) []finding.Finding {
	mark := n.Exists("run/systemd/timesync/synchronized")
	if mark.OK() {
		return pass("systemd-timesyncd has set it", mark)
	}
	return say(finding.Manual, "no file says whether the clock is set; ask the node", []facts.Fact{mark})
}

func doorsShut(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	var known []facts.Fact
	for _, door := range []struct {
		name string
		shut []string
	}{
		{"kernel.dmesg_restrict", []string{"1"}}, {"kernel.kexec_load_disabled", []string{"1"}}, {"kernel.unprivileged_bpf_disabled", []string{"1", "2"}},
	} {
		s := n.Sysctl(door.name)
		if s.Running.Status == facts.Absent {
			continue // the kernel was built without
		}
		known = append(known, s.Running)
		said := judgeSysctl(&s, door.shut)
		if said[0].State == finding.Pass {
			continue
		}
		said[0].Object = door.name
		found = append(found, said...)
	}
	switch {
	case len(found) > 0:
		return found
	case len(known) == 0:
		return unknown("the kernel's settings", n.Read("proc/sys/kernel/dmesg_restrict"))
	}
	return pass(count(len(known), "setting"), known...)
}

func judgeSysctl(s *facts.Setting, good []string) []finding.Finding {
	switch {
	case !s.Running.OK():
		return unknown(s.Name, s.Running)
	case !s.Running.Is(good...):
		return pending(fail(fmt.Sprintf("%s is %s", s.Name, s.Running.Value), s.Running), s, good...)
	}
	return setLater(pass(s.Running.Value, s.Running), s, good...)
}

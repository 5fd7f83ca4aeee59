package check

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
)

// kataSetting is a setting of Kata's configuration.
type kataSetting struct {
	// anyVM is set if the setting matters for all VMs, not only for VMs that can get devices.
	anyVM bool
	// of is the setting's section, and name is its name in the section.
	of   section
	name string
	bad  func(runtimes.Setting) bool
	// wrong describes the fault. It is a format with a verb for the value if it names the value.
	wrong string
}

// section is a section of Kata's configuration, by its method of [runtimes.Kata].
type section = func(*runtimes.Kata, string) runtimes.Setting

func hypervisor(k *runtimes.Kata, name string) runtimes.Setting { return k.Hypervisor(name) }

func shim(k *runtimes.Kata, name string) runtimes.Setting { return k.Runtime(name) }

// kataSettings are the rules that compare one setting of Kata with values.
func kataSettings() map[string]kataSetting {
	const anyVM, deviceVM = true, false
	return map[string]kataSetting{
		"RT-011": {deviceVM, hypervisor, "rootless", isOn, "its VMMs run as non-root users, who can't open VFIO nodes"},
		"RT-013": {deviceVM, shim, "disable_guest_seccomp", isOn, "guests don't apply seccomp profiles (Kata's default)"},
		"RT-015": {anyVM, hypervisor, "guest_memory_dump_path", isSet, "memory of guests that panic is dumped to %q"},
		"RT-016": {deviceVM, shim, "sandbox_cgroup_only", isOff, "VMMs are outside their pods' cgroups"},
		"RT-018": {deviceVM, shim, "vfio_mode", isSetAndNot("guest-kernel"), "vfio_mode is %q"},
		"RT-021": {deviceVM, hypervisor, "enable_vhost_user_store", isOn, "vhost-user back ends can map guest memory"},
	}
}

func isOn(s runtimes.Setting) bool { return s.On() }

func isOff(s runtimes.Setting) bool { return !s.On() }

func isSet(s runtimes.Setting) bool { return s.Text() != "" }

func isSetAndNot(good string) func(runtimes.Setting) bool {
	return func(s runtimes.Setting) bool { return s.Text() != "" && s.Text() != good }
}

// ofKataSetting is the check of a rule of [kataSettings].
func ofKataSetting(id string) Check {
	setting := kataSettings()[id]
	if setting.anyVM {
		return Check{ID: id, Judge: ofKata(setting.ask)}
	}
	return Check{ID: id, Judge: ofDeviceVMs(setting.ask)}
}

// ask is the [question] whether the setting is bad.
func (s kataSetting) ask(_ *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	found := s.of(k, s.name)
	switch {
	case !s.bad(found):
		return "", says(found)
	case strings.Contains(s.wrong, "%"):
		return fmt.Sprintf(s.wrong, found.Text()), says(found)
	}
	return s.wrong, says(found)
}

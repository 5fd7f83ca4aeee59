package containers

import (
	"cmp"
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes/config"
)

// checkCgroups compares containerd's way of making cgroups with the kubelet's. runc's
// default is not to use systemd (internal/cri/config DefaultRuntimeConfig).
func (c *containerd) checkCgroups(all config.Table) {
	cri := all.Sub("plugins", config.CRIRuntime, "containerd")
	name := cmp.Or(cri.Setting("", "default_runtime_name").Text(), "runc")
	s := cri.Sub("runtimes", name, "options").Setting(c.at.main, "SystemdCgroup")
	driver := "cgroupfs"
	if s.On() {
		driver = "systemd"
	}
	c.compareCgroups(c.node.kubelet(), driver, s.File, "SystemdCgroup in the options of the handler "+name)
}

// compareCgroups warns where the kubelet and the runtime make cgroups in two ways. A
// kubelet that is told nothing asks the runtime.
func (w *wants) compareCgroups(k *kubelet, driver, file, setting string) {
	w.fact("cgroup driver", driver, file)
	if k.CgroupDriver == "" || k.CgroupDriver == driver {
		return
	}
	w.warn(file, fmt.Sprintf("The kubelet uses the cgroup driver %s (%s), and the container runtime %s (%s).", k.CgroupDriver, k.cgroupFile, driver, file),
		fmt.Sprintf("Change %s, or the kubelet's cgroupDriver.", setting))
}

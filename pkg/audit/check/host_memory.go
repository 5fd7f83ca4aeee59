package check

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
)

// memoryChecks are about memory, and the BMC.
func memoryChecks() []Check {
	return []Check{
		{ID: "HOST-009", Judge: notMerged},
		{ID: "HOST-011", Judge: clearedMemory},
		{ID: "HOST-012", Judge: noPlainSwap},
		{ID: "HOST-016", Judge: correctedMemory},
		{ID: "HOST-019", Judge: bmcUnreachable},
	}
}

func notMerged(n *facts.Node) Answer {
	run := n.Read("sys/kernel/mm/ksm/run")
	switch {
	case run.Status == facts.Absent:
		return notApplicable("the kernel has no KSM", run)
	case !run.OK():
		return unknown("whether KSM merges pages", run)
	case run.Is("1"):
		return fail("KSM is merging pages", run)
	}
	// 0 stops KSM, but leaves pages merged. Only 2 splits them again
	// (Documentation/admin-guide/mm/ksm.rst).
	if shared := n.Read("sys/kernel/mm/ksm/pages_shared"); shared.OK() && !shared.Is("0") {
		return fail("KSM stopped, but pages are still merged", run, shared)
	}
	return pass("KSM does not run", run)
}

func clearedMemory(n *facts.Node) Answer {
	argument := n.BootArgument("init_on_alloc")
	config := n.Read("boot/config-" + n.Snapshot.Host.Kernel)
	standard := strings.Contains(config.Value, "CONFIG_INIT_ON_ALLOC_DEFAULT_ON=y\n")
	// The file has thousands of lines, of which one is evidence.
	config.Value = fmt.Sprintf("CONFIG_INIT_ON_ALLOC_DEFAULT_ON: %t", standard)
	switch {
	// The argument takes precedence over the default of the kernel's configuration.
	case argument.Running.OK() && isYes(argument.Running.Value):
		return setLater(pass("init_on_alloc=1", argument.Running), &argument, "1")
	case argument.Running.OK():
		return pending(fail("init_on_alloc="+argument.Running.Value, argument.Running), &argument, "1")
	case !argument.Running.Known():
		return unknown("the kernel's command line", argument.Running)
	case !config.OK():
		return unknown("the kernel's default for init_on_alloc", config)
	case standard:
		return setLater(pass("the kernel's default", config), &argument, "1")
	}
	return pending(fail("the kernel does not clear pages on allocation: init_on_alloc is neither set nor its default", config), &argument, "1")
}

func noPlainSwap(n *facts.Node) Answer {
	swaps := n.Read("proc/swaps")
	if !swaps.OK() {
		return unknown("whether the node has swap", swaps)
	}
	areas := slices.DeleteFunc(slices.Collect(strings.Lines(swaps.Value)), func(line string) bool {
		return len(strings.Fields(line)) < 2 || strings.Fields(line)[0] == "Filename"
	})
	if len(areas) == 0 {
		return pass("the node has no swap", swaps)
	}
	return over(areas, func(line string) Answer {
		fields := strings.Fields(line)
		return judgeSwap(n, fields[0], fields[1], swaps).object(fields[0])
	}).or(pass("all swap is in memory or encrypted", swaps))
}

// judgeSwap returns the fault of a swap area. Areas in memory (zram) and on dm-crypt
// have none.
func judgeSwap(n *facts.Node, name, kind string, swaps facts.Fact) Answer {
	device := strings.TrimPrefix(name, "/dev/")
	uuid := n.Read("sys/class/block/" + device + "/dm/uuid")
	switch {
	case kind == "file":
		return unknown("whether the file system of swap file "+name+" is encrypted", swaps)
	case strings.HasPrefix(device, "zram"):
		// zram can write idle pages to a disk
		// (Documentation/admin-guide/blockdev/zram.rst, "writeback").
		if backing := n.Read("sys/class/block/" + device + "/backing_dev"); backing.OK() && !backing.Is("none", "") {
			return fail(fmt.Sprintf("swap %s writes to %s", name, backing.Value), backing)
		}
		return nil
	case strings.HasPrefix(uuid.Value, "CRYPT-"):
		return nil
	// The prefix of a mapping's UUID names the program that made it. A volume group
	// may lie on dm-crypt itself.
	case strings.HasPrefix(uuid.Value, "LVM-"):
		return unknown("whether the volume group below swap "+name+" is encrypted", swaps)
	}
	return fail(fmt.Sprintf("swap %s is not encrypted", name), swaps)
}

func correctedMemory(n *facts.Node) Answer {
	const dir = "sys/devices/system/edac/mc"
	names, list := n.List(dir)
	corrected := 0
	var errors, modes Answer
	for _, controller := range names {
		if !strings.HasPrefix(controller, "mc") {
			continue
		}
		if counted := n.Read(path.Join(dir, controller, "ue_count")); counted.OK() && !counted.Is("0") {
			errors = append(errors, fail(fmt.Sprintf("memory controller %s counted %s uncorrectable errors", controller, counted.Value), counted)...)
		}
		modules, _ := n.List(path.Join(dir, controller))
		for _, module := range modules {
			// The words are those of edac_caps in drivers/edac/edac_mc_sysfs.c.
			// Unknown and Reserved prove neither ECC nor its absence.
			mode := n.Read(path.Join(dir, controller, module, "dimm_edac_mode"))
			switch {
			case mode.Is("None"):
				modes = append(modes, fail(fmt.Sprintf("memory module %s of %s has no ECC", module, controller), mode)...)
			case mode.OK() && !mode.Is("Unknown", "Reserved"):
				corrected++
			}
		}
	}
	found := slices.Concat(errors, modes)
	if corrected == 0 {
		return found.or(say(finding.Unknown, "no EDAC driver shows a memory module: ECC or its driver is missing", []facts.Fact{list}))
	}
	return found.or(pass(count(corrected, "memory module"), list))
}

// bmcUnreachable checks the device nodes of the interface, and the containers in
// namespaces that have devices.
func bmcUnreachable(n *facts.Node) Answer {
	names, class := n.List("sys/class/ipmi")
	switch {
	case !class.Known():
		return unknown("whether the node has a BMC interface", class)
	case len(names) == 0:
		return notApplicable("the node has no BMC interface", class)
	}
	containers, listed := tenantContainers(n)
	inside := over(containers, func(c runtimes.Container) Answer {
		source := reachesBMC(n, &c, names)
		if source == "" {
			return nil
		}
		return inContainer(n, &c, source, fmt.Sprintf("a container of pod %s/%s has %q and can reach the BMC", c.Info.Namespace, c.Info.Pod, source)).seen(class)
	})
	return slices.Concat(openInterfaces(n, names), inside, hiddenBundles(listed, "which host paths tenants' containers have")).
		or(pass("only root of the node can reach the BMC", class))
}

// openInterfaces fails for each device node that other users than root may open.
func openInterfaces(n *facts.Node, names []string) Answer {
	var nodes []string
	for _, name := range names {
		nodes = append(nodes, path.Join("dev", name))
	}
	found, _ := accessible(n, toOpen(), nodes)
	return found
}

// reachesBMC returns the mount or device of a container that reaches the interface.
func reachesBMC(n *facts.Node, c *runtimes.Container, names []string) string {
	for _, name := range names {
		node := "/dev/" + name
		number := n.Read(path.Join("sys/class/ipmi", name, "dev"))
		for _, device := range c.Info.Devices {
			if device == node || number.OK() && c.Info.CharDevices[device] == number.Value {
				return device
			}
		}
		// The mount of a directory above the node shows the node, too.
		for _, source := range c.Info.Mounts {
			if strings.HasPrefix(node+"/", strings.TrimSuffix("/"+n.Real(source), "/")+"/") {
				return source
			}
		}
	}
	return ""
}

package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// gpuChecks returns the checks of group GPU: links between GPUs that bypass the IOMMU, shared GPUs, and the
// device nodes that containers get.
func gpuChecks() []Check {
	return slices.Concat(fabricChecks(), partitionChecks(), fabricManagerChecks(), sharedChecks(), sliceChecks(), gpuNodeChecks())
}

// sharedChecks are about other links between GPUs, and about divided GPUs.
func sharedChecks() []Check {
	return []Check{
		{ID: "GPU-005", Judge: noBridge},
		{ID: "GPU-006", Judge: hiveWhole},
		{ID: "GPU-008", Judge: gpuECC},
		{ID: "GPU-009", Judge: wholeGPUs},
		{ID: "GPU-010", Judge: companionsTogether},
	}
}

// assignableGPUs returns the GPUs that tenants have or may have.
func assignableGPUs(n *facts.Node) []*device.Function {
	return slices.DeleteFunc(n.Functions(device.GPU), func(f *device.Function) bool { return !n.IsAvailable(f.Address) })
}

// byModel groups functions by the result of model, and returns the groups of several functions in its order.
func byModel(functions []*device.Function, model func(*device.Function) string) [][]*device.Function {
	models := map[string][]*device.Function{}
	for _, f := range functions {
		models[model(f)] = append(models[model(f)], f)
	}
	var several [][]*device.Function
	for _, name := range slices.Sorted(maps.Keys(models)) {
		if len(models[name]) > 1 {
			several = append(several, models[name])
		}
	}
	return several
}

// noBridge names GPUs that an NVLink bridge could join: those of one model, because a bridge fits no others.
func noBridge(n *facts.Node) Answer {
	if b := newFabric(n); len(b.switches) > 0 {
		return notApplicable("NVSwitches join the GPUs: see GPU-001")
	}
	nvidia := slices.DeleteFunc(assignableGPUs(n), func(f *device.Function) bool { return f.Vendor != pci.VendorNVIDIA })
	several := slices.Concat(byModel(nvidia, func(f *device.Function) string { return f.Device.String() })...)
	if len(several) == 0 {
		return notApplicable("no two NVIDIA GPUs of one model are assignable")
	}
	text := fmt.Sprintf("%s of the same model: look for NVLink bridges between them", count(len(several), "GPU"))
	return say(finding.Manual, text, nil).reaching(addresses(several)...)
}

func gpuECC(n *facts.Node) Answer {
	gpus := assignableGPUs(n)
	if len(gpus) == 0 {
		return notApplicable("no GPU is assignable")
	}
	return say(finding.Manual, "a GPU on a VFIO driver does not show ECC: look in the guest, or before you assign the GPU", nil).reaching(addresses(gpus)...)
}

// hiveWhole can see only the hives of GPUs on driver amdgpu. It checks GPUs of servers, because no VGA adapter has XGMI.
func hiveWhole(n *facts.Node) Answer {
	all := slices.DeleteFunc(n.Functions(device.GPU), func(f *device.Function) bool { return f.Vendor != pci.VendorAMD || f.Class.Sub() == pci.ClassVGA })
	if len(all) < 2 {
		return notApplicable("the node has fewer than two AMD accelerators")
	}
	hive := attributeFile(n, "xgmi_hive_info/xgmi_hive_id")
	hives := map[string][]*device.Function{}
	var hidden []*device.Function
	for _, f := range all {
		switch id := hive(f)[0]; {
		case id.OK():
			hives[id.Value] = append(hives[id.Value], f)
		case f.Driver != "amdgpu": // with amdgpu it is in no hive
			hidden = append(hidden, f)
		}
	}
	found := over(slices.Sorted(maps.Keys(hives)), func(id string) Answer {
		members := addresses(hives[id])
		tenants := n.Owners(members...)
		if len(tenants) < 2 {
			return nil
		}
		text := fmt.Sprintf("%[3]s share hive %[2]s (%[1]s)", count(len(members), "GPU"), id, strings.Join(tenants, " and "))
		return fail(text, hive(hives[id][0])...).object("hive " + id).reaching(members...)
	})
	if len(hidden) > 0 && len(n.Owners(addresses(all)...)) > 1 {
		found = append(found, unknown("the hives of GPUs that are not on amdgpu", hive(hidden[len(hidden)-1])...).reaching(addresses(hidden)...)...)
	}
	return showing(found.or(pass(count(len(all), "GPU")+", no two tenants in a hive", n.Journal())), all, hive)
}

func wholeGPUs(n *facts.Node) Answer {
	gpus := n.Functions(device.GPU)
	found := over(gpus, func(f *device.Function) Answer {
		vfs := listVFs(n, f.Address)
		var found Answer
		if tenants := n.Owners(vfs...); len(tenants) > 1 {
			found = fail(fmt.Sprintf("tenants share VFs of GPU %s: %s", f.Address, strings.Join(tenants, " and ")), n.Journal()).reaching(vfs...)
		}
		return slices.Concat(found, mediated(n, f), virtual(n, f, vfs)).on(f)
	})
	_, cut := n.List("sys/class/mdev_bus")
	return concludeAs(found, gpus, pass(count(len(gpus), "GPU"), cut), "the node has no GPU", one(driverFact))
}

// virtual fails for a virtual GPU that no claim has, because the plugin creates a virtual GPU for a claim, and removes it when the
// claim ends.
func virtual(n *facts.Node, f *device.Function, vfs []pci.Address) Answer {
	for _, vf := range vfs {
		// NVIDIA's vGPU manager shows the file for each VF. Without a virtual GPU it is 0.
		kind := n.Read(fmt.Sprintf("sys/bus/pci/devices/%s/nvidia/current_vgpu_type", vf))
		if kind.OK() && kind.Value != "0" && len(n.TenanciesAt(vf)) == 0 {
			return fail(fmt.Sprintf("GPU %s is divided into virtual GPUs: VF %s is one of type %s, and no claim has it", f.Address, vf, kind.Value), kind).reaching(vfs...)
		}
	}
	return nil
}

// mediated fails for the mediated devices of a function. They are directories below it, named by a UUID
// (Documentation/driver-api/vfio-mediated-device.rst).
func mediated(n *facts.Node, f *device.Function) Answer {
	parents, _ := n.List("sys/class/mdev_bus")
	if !slices.Contains(parents, f.Address.String()) {
		return nil
	}
	names, seen := n.List("sys/bus/pci/devices/" + f.Address.String())
	made := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return len(name) != 36 || strings.Count(name, "-") != 4 })
	if len(made) == 0 {
		return nil
	}
	// The directory lists all attributes of the function, so only its path is evidence.
	seen.Value = ""
	return fail(fmt.Sprintf("GPU %s is divided into %s", f.Address, count(len(made), "mediated device")), seen)
}

func companionsTogether(n *facts.Node) Answer {
	var judged []*device.Function
	found := over(n.Functions(device.GPU), func(f *device.Function) Answer {
		held := n.TenanciesAt(f.Address)
		if len(held) == 0 {
			return nil
		}
		companions := n.Snapshot.Companions(f)
		judged = append(judged, companions...)
		return over(companions, func(c *device.Function) Answer { return strayed(n, f, c, &held[0]).reaching(f.Address).on(c) })
	})
	return conclude(found, judged, "companion", "no assigned GPU has companions", one(driverFact))
}

// strayed fails if another claim or a host driver has companion c, instead of the claim that has its GPU f. A host driver may have it
// until the claim is prepared.
func strayed(n *facts.Node, f, c *device.Function, held *facts.Tenancy) Answer {
	other := n.TenanciesAt(c.Address)
	switch {
	case len(other) > 0 && other[0].Record.ID() != held.Record.ID():
		return fail(fmt.Sprintf("claim %s has %s, a companion of GPU %s of claim %s", other[0].Claim(), c.Address, f.Address, held.Claim()),
			stateFact(other[0].Record), stateFact(held.Record))
	case len(other) == 0 && isPrepared(n, held.Record) && c.Driver != "" && !onVFIODriver(c):
		return fail(fmt.Sprintf("host driver %s has %s while claim %s has its GPU %s", c.Driver, c.Address, held.Claim(), f.Address), driverFact(c))
	}
	return nil
}

// gpuNodeChecks are about the use of GPUs by the node and by containers.
func gpuNodeChecks() []Check {
	return []Check{
		{ID: "GPU-007", Judge: confidentialMode},
		{ID: "GPU-012", Judge: sameBARs},
		{ID: "GPU-013", Judge: noGPUDaemons},
		{ID: "GPU-015", Judge: gpuNodesInContainers},
	}
}

// sameBARs compares GPUs of the same vendor, device and subsystem.
func sameBARs(n *facts.Node) Answer {
	// The SR-IOV capability of the PF determines the BARs of a VF, and a function that does not answer shows no BARs.
	gpus := slices.DeleteFunc(assignableGPUs(n), func(f *device.Function) bool { return f.VF != nil || f.ConfigDead })
	models := byModel(gpus, func(f *device.Function) string {
		return fmt.Sprintf("%s:%s %s:%s", f.Vendor, f.Device, f.SubVendor, f.SubDevice)
	})
	return conclude(over(models, oddSizes), slices.Concat(models...), "GPU", "no two GPUs of one model are assignable", one(barFact))
}

func barFact(f *device.Function) facts.Fact { return attribute(f.Address, "resource", barSizes(f)) }

// oddSizes names the GPUs with other BAR sizes than most of their model.
func oddSizes(model []*device.Function) Answer {
	sizes := map[string][]*device.Function{}
	for _, f := range model {
		sizes[barSizes(f)] = append(sizes[barSizes(f)], f)
	}
	names := slices.Sorted(maps.Keys(sizes))
	// The names are sorted, so that two sizes with equally many GPUs give the same result in each run.
	most := names[0]
	for _, size := range names {
		if len(sizes[size]) > len(sizes[most]) {
			most = size
		}
	}
	return over(names, func(size string) Answer {
		if size == most {
			return nil
		}
		other := sizes[most][0]
		return over(sizes[size], func(f *device.Function) Answer {
			text := fmt.Sprintf("%s has BARs of %s, but %s of the same model has %s", f.Address, size, other.Address, most)
			return fail(text, barFact(f), barFact(other)).on(f)
		})
	})
}

// barSizes returns the sizes of a function's BARs in words: "BAR 0 16 MiB, BAR 1 64 GiB".
func barSizes(f *device.Function) string {
	var words []string
	for _, bar := range f.BARs {
		words = append(words, fmt.Sprintf("BAR %d %s", bar.Index, mebibytes(bar.Size)))
	}
	return cmp.Or(strings.Join(words, ", "), "none")
}

func mebibytes(size uint64) string {
	if size < 1<<20 {
		return fmt.Sprintf("%d KiB", size>>10)
	}
	return fmt.Sprintf("%d MiB", size>>20)
}

// noGPUDaemons applies to nodes without an NVIDIA GPU of their own. On other nodes, the daemons have a use.
func noGPUDaemons(n *facts.Node) Answer {
	nvidia := func(f *device.Function) bool { return f.Type == device.GPU && f.Vendor == pci.VendorNVIDIA }
	given := functionsWhere(n, func(f *device.Function) bool { return nvidia(f) && onVFIODriver(f) })
	own := functionsWhere(n, func(f *device.Function) bool { return nvidia(f) && f.Driver == "nvidia" })
	daemons := runtimes.GPUDaemons(n)
	drivers := facts.Fact{Path: "/sys/bus/pci/drivers/nvidia", Value: strings.Join(words(addresses(own)), " "), How: "list"}
	switch {
	case len(given) == 0:
		return notApplicable("no NVIDIA GPU is on a VFIO driver")
	case len(daemons) > 0 && len(own) == 0:
		text := count(len(daemons), "NVIDIA daemon") + " on the host, but all GPUs are on VFIO drivers"
		return fail(text, append(daemons, drivers)...).reaching(addresses(given)...)
	case len(daemons) > 0:
		return pass("the daemons serve the node's own GPUs", append(daemons, drivers)...)
	}
	none := facts.Fact{Path: "/" + sysfs.Proc, Value: "neither nvidia-persistenced nor nv-hostengine", How: "process"}
	return unseen(n, len(daemons), "whether NVIDIA's daemons run").or(pass("no such daemon runs", none, drivers))
}

func gpuNodesInContainers(n *facts.Node) Answer {
	gpus := assignableDisplays(n)
	if len(gpus) == 0 {
		return notApplicable("the node has no assignable GPU")
	}
	return eachConfigured(n, runtimes.TakesDevices, func(h *runtimes.Handler, k *runtimes.Kata) Answer { return nodesInContainers(h, k, gpus) })
}

// nodesInContainers looks for GPUs that the runtime does not report to the guest's agent. With vfio_mode "vfio" a
// container gets a VFIO node of the guest, and with visible_cdi_devices the pod names the devices for the agent.
func nodesInContainers(h *runtimes.Handler, k *runtimes.Kata, gpus []*device.Function) Answer {
	mode, visible := k.Runtime("vfio_mode"), k.Agent("visible_cdi_devices")
	if mode.Text() == "vfio" || visible.On() {
		return pass("", says(mode, visible)...)
	}
	seen := says(visible)
	lacking := slices.DeleteFunc(slices.Clone(gpus), func(f *device.Function) bool { return h.GuestKind(f) != "" })
	if len(lacking) == 0 {
		return pass("", seen...)
	}
	var words []string
	for _, f := range lacking {
		words = append(words, fmt.Sprintf("%s (vendor %s, class %s)", f.Address, f.Vendor, f.Class))
		seen = append(seen, attribute(f.Address, "vendor", "0x"+f.Vendor.String()), attribute(f.Address, "class", "0x"+f.Class.String()))
	}
	text := fmt.Sprintf("containers get no device node of %s: Kata requests none from the guest, and visible_cdi_devices is off", strings.Join(words, ", "))
	return fail(text, append(h.Facts(), seen...)...).reaching(addresses(lacking)...)
}

// assignableDisplays returns the GPUs and other accelerators that tenants have or can get, including virtual ones. The GPU of the
// node's own console counts only if the plugin publishes it.
func assignableDisplays(n *facts.Node) []*device.Function {
	return slices.DeleteFunc(assignable(n), func(f *device.Function) bool {
		base := f.Class.Base()
		return base != pci.BaseDisplay && base != pci.BaseAccelerator || f.BootVGA && !n.IsPublished(f.Address)
	})
}

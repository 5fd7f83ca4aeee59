package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// assignableGPUs returns the GPUs that tenants have or may have.
func assignableGPUs(n *facts.Node) []*device.Function {
	return slices.DeleteFunc(n.Functions(device.GPU), func(f *device.Function) bool { return !n.IsAvailable(f.Address) })
}

func gpuAddresses(functions []*device.Function) []pci.Address {
	var all []pci.Address
	for _, f := range functions {
		all = append(all, f.Address)
	}
	return all
}

// noBridge reminds of bridges between GPUs of one model: others don't fit.
func noBridge(n *facts.Node) []finding.Finding {
	if b := fabricOf(n); len(b.switches) > 0 {
		return notApplicable("the GPUs are joined by NVSwitches, see GPU-001")
	}
	models := map[pci.ID][]*device.Function{}
	for _, f := range assignableGPUs(n) {
		if f.Vendor == vendorNVIDIA {
			models[f.Device] = append(models[f.Device], f)
		}
	}
	var several []*device.Function
	for _, id := range slices.Sorted(maps.Keys(models)) {
		if len(models[id]) > 1 {
			several = append(several, models[id]...)
		}
	}
	if len(several) == 0 {
		return notApplicable("no two NVIDIA GPUs of one model are given away")
	}
	return concerning(gpuAddresses(several), []finding.Finding{{
		State: finding.Manual, Text: fmt.Sprintf("%s of the same model: whether a bridge joins some is for a person to see", count(len(several), "GPU")),
	}})
}

func gpuECC(n *facts.Node) []finding.Finding {
	gpus := assignableGPUs(n)
	if len(gpus) == 0 {
		return notApplicable("no GPU is given away")
	}
	return concerning(gpuAddresses(gpus), []finding.Finding{{
		State: finding.Manual, Text: "on a VFIO driver a GPU shows no ECC: ask in the guest, or before the GPU is given away",
	}})
}

// hiveWhole knows the hives of GPUs that amdgpu has. It looks at those of servers
// (no VGA adapter has XGMI).
func hiveWhole(n *facts.Node) []finding.Finding {
	hives := map[string][]pci.Address{}
	var hidden, all []pci.Address
	var first facts.Fact
	for _, f := range n.Functions(device.GPU) {
		if f.Vendor != vendorAMD || f.Class.Sub() == pci.ClassVGA {
			continue
		}
		all = append(all, f.Address)
		id := n.Read(fmt.Sprintf("sys/bus/pci/devices/%s/xgmi_hive_info/xgmi_hive_id", f.Address))
		switch {
		case id.OK():
			hives[id.Value] = append(hives[id.Value], f.Address)
		case f.Driver == "amdgpu": // in no hive
		default:
			hidden, first = append(hidden, f.Address), id
		}
	}
	var found []finding.Finding
	for _, id := range slices.Sorted(maps.Keys(hives)) {
		if tenants := n.TenantsOf(hives[id]...); len(tenants) > 1 {
			seen := n.Read(fmt.Sprintf("sys/bus/pci/devices/%s/xgmi_hive_info/xgmi_hive_id", hives[id][0]))
			said := fail(fmt.Sprintf("%s of hive %s are those of %s", count(len(hives[id]), "GPU"), id, strings.Join(tenants, " and ")), seen)
			said[0].Object = "hive " + id
			found = append(found, concerning(hives[id], said)...)
		}
	}
	if len(hidden) > 0 && len(n.TenantsOf(all...)) > 1 {
		said := unknown("which hive GPUs are in that amdgpu does not have", first)
		found = append(found, concerning(hidden, said)...)
	}
	switch {
	case len(all) < 2:
		return notApplicable("there are no two AMD accelerators")
	case len(found) > 0:
		return found
	}
	return showing(pass(count(len(all), "GPU")+", no two tenants in a hive", n.Journal()), functionsAt(n, all), attributeFile(n, "xgmi_hive_info/xgmi_hive_id"))
}

// wholeGPUs looks for VFs of several tenants on one GPU, mediated devices, and VFs
// that NVIDIA's vGPU manager made virtual GPUs of.
func wholeGPUs(n *facts.Node) []finding.Finding {
	gpus := n.Functions(device.GPU)
	var found []finding.Finding
	for _, f := range gpus {
		vfs := vfsOf(n, f.Address)
		if tenants := n.TenantsOf(vfs...); len(tenants) > 1 {
			said := fail(fmt.Sprintf("VFs of GPU %s are those of %s", f.Address, strings.Join(tenants, " and ")), n.Journal())
			found = append(found, about(f, concerning(vfs, said))...)
		}
		if made, seen := mediated(n, f); made > 0 {
			found = append(found, about(f, fail(fmt.Sprintf("GPU %s is cut up into %s", f.Address, count(made, "mediated device")), seen))...)
		}
		for _, vf := range vfs {
			if kind := n.Read(fmt.Sprintf("sys/bus/pci/devices/%s/nvidia/current_vgpu_type", vf)); kind.OK() && kind.Value != "0" {
				found = append(found, about(f, concerning(vfs, fail(fmt.Sprintf("GPU %s is cut up into virtual GPUs", f.Address), kind)))...)
				break
			}
		}
	}
	switch {
	case len(gpus) == 0:
		return notApplicable("there is no GPU")
	case len(found) == 0:
		_, cut := n.List("sys/class/mdev_bus")
		return showing(pass(count(len(gpus), "GPU"), cut), gpus, one(driverFact))
	}
	return found
}

// mediated counts the mediated devices of a function, which are directories of it
// that are named by a UUID.
func mediated(n *facts.Node, f *device.Function) (int, facts.Fact) {
	parents, _ := n.List("sys/class/mdev_bus")
	if !slices.Contains(parents, f.Address.String()) {
		return 0, facts.Fact{}
	}
	names, seen := n.List("sys/bus/pci/devices/" + f.Address.String())
	made := 0
	for _, name := range names {
		if len(name) == 36 && strings.Count(name, "-") == 4 {
			made++
		}
	}
	seen.Value = ""
	return made, seen
}

func companionsTogether(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	var judged []*device.Function
	for _, f := range n.Functions(device.GPU) {
		held := n.TenanciesOf(f.Address)
		if len(held) == 0 {
			continue
		}
		for _, c := range n.Snapshot.Companions(f) {
			judged = append(judged, c)
			driver := facts.Fact{Path: fmt.Sprintf("/sys/bus/pci/devices/%s/driver", c.Address), Value: c.Driver, How: "link"}
			other := n.TenanciesOf(c.Address)
			switch {
			case len(other) > 0 && other[0].Record.ID() != held[0].Record.ID():
				said := fail(fmt.Sprintf("claim %s has %s, which belongs to GPU %s of claim %s", other[0].Claim(), c.Address, f.Address, held[0].Claim()),
					recordOf(&other[0]), recordOf(&held[0]))
				found = append(found, about(c, concerning([]pci.Address{f.Address}, said))...)
			case len(other) == 0 && c.Driver != "" && !device.IsVFIO(c.Driver):
				said := fail(fmt.Sprintf("driver %s of the node has %s while claim %s has its GPU %s", c.Driver, c.Address, held[0].Claim(), f.Address), driver)
				found = append(found, about(c, concerning([]pci.Address{f.Address}, said))...)
			}
		}
	}
	switch {
	case len(judged) == 0:
		return notApplicable("no GPU with companions is given away")
	case len(found) == 0:
		return showing(pass(count(len(judged), "companion")), judged, one(driverFact))
	}
	return found
}

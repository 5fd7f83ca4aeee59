package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

const fmGuide = "NVIDIA Fabric Manager User Guide"

// gpuChecks returns the checks of group GPU: links between GPUs that don't pass
// the IOMMU, what else shares one, and what containers get of them.
func gpuChecks() []Check {
	return slices.Concat(fabricChecks(), sharedChecks(), confidentialGPUChecks(), gpuNodeChecks(), gpuInContainerChecks())
}

// fabricChecks are about NVSwitches.
func fabricChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "GPU-001", Title: "Ensure that a shared NVSwitch fabric is partitioned", Severity: isolation.Critical,
			Why:     "Without partitions, every GPU reaches the memory of all others through NVLink, past the IOMMU.",
			Fix:     "run Fabric Manager with FABRIC_MODE=1 (shared NVSwitch) and activate one partition for each claim, or give the whole board to one tenant",
			Verify:  "grep ^FABRIC_MODE= /usr/share/nvidia/nvswitch/fabricmanager.cfg",
			Sources: []string{fmGuide + ": FABRIC_MODE, Shared NVSwitch Virtualization Model"},
		}, Judge: fabricPartitioned},
		{Rule: finding.Rule{
			ID: "GPU-002", Title: "Ensure that a claim's GPUs form one fabric partition of their own", Severity: isolation.Critical,
			Why:     "GPUs of a partition reach each other through NVLink. No file shows active partitions: an impossible number of GPUs fails, and you check the rest.",
			Fix:     "select GPUs by partition in the claim (a constraint on an attribute), and activate only that partition",
			Verify:  "fmpm -l",
			Sources: []string{fmGuide + ": GPU Partitions", "NVIDIA Fabric-Manager-Client: fmpm"},
		}, Judge: onePartition},
		{Rule: finding.Rule{
			ID: "GPU-003", Title: "Ensure that Fabric Manager listens on the node only", Severity: isolation.High,
			Why:     "Its API has no password. Whoever reaches it can join tenants' partitions.",
			Fix:     "set FM_CMD_BIND_INTERFACE=127.0.0.1 or FM_CMD_UNIX_SOCKET_PATH=/run/nvidia-fabricmanager/socket, and restart nvidia-fabricmanager",
			Verify:  "ss -ltnp 'sport = :6666'",
			Sources: []string{fmGuide + ": FM_CMD_BIND_INTERFACE, FM_CMD_PORT_NUMBER, FM_CMD_UNIX_SOCKET_PATH"},
		}, Judge: fabricAPIIsLocal},
		{Rule: finding.Rule{
			ID: "GPU-004", Title: "Ensure that a tenant with an NVSwitch has the whole board", Severity: isolation.Critical, Cheap: true,
			Why:     "An NVSwitch routes to the memory of all GPUs of its board.",
			Fix:     "remove the NVSwitch from the claim, or give all GPUs and NVSwitches of the board to one tenant",
			Verify:  "lspci -d 10de::0680 -k; grep -l SW_MNG /sys/bus/pci/devices/*/vpd",
			Sources: []string{fmGuide + ": Full Passthrough Virtualization Model"},
		}, Judge: switchWithBoard},
	}
}

// sharedChecks are about what else joins two GPUs, or cuts one up.
func sharedChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "GPU-005", Title: "Ensure that no NVLink bridge joins GPUs of different tenants", Severity: isolation.High, Static: true, Cheap: true,
			Why:     "A bridge joins two GPUs past the IOMMU, and no file shows it.",
			Fix:     "look into the chassis and keep an inventory; give bridged GPUs to one tenant",
			Verify:  "nvidia-smi nvlink -s (with the GPUs on the nvidia driver, before VMs get them)",
			Sources: []string{"nvidia-smi: nvlink --status"},
		}, Judge: noBridge},
		{Rule: finding.Rule{
			ID: "GPU-006", Title: "Ensure that all GPUs of an XGMI hive belong to one tenant", Severity: isolation.High,
			Why:     "GPUs of a hive share one address space, past the IOMMU.",
			Fix:     "give all GPUs of the hive to one claim",
			Verify:  "cat /sys/bus/pci/devices/*/xgmi_hive_info/xgmi_hive_id",
			Sources: []string{"Linux: drivers/gpu/drm/amd/amdgpu/amdgpu_xgmi.c (DOC: AMDGPU XGMI Support)"},
		}, Judge: hiveWhole},
		{Rule: finding.Rule{
			ID: "GPU-008", Title: "Ensure that the memory of assignable GPUs corrects errors", Severity: isolation.Medium, Static: true, Cheap: true,
			Why:     "Without ECC, a tenant can flip bits of a neighbor on the same GPU, and errors go unnoticed.",
			Fix:     "`nvidia-smi -e 1` and a reset, with the GPU on its own driver",
			Verify:  "nvidia-smi -q -d ECC (in the guest, or with the GPU on its own driver)",
			Sources: []string{"nvidia-smi: --ecc-config"},
		}, Judge: gpuECC},
		{Rule: finding.Rule{
			ID: "GPU-009", Title: "Ensure that no GPU is divided between tenants", Severity: isolation.High,
			Why:     "Virtual GPUs and VFs share memory, caches and firmware of one GPU.",
			Fix:     "give whole GPUs to untrusted tenants, and keep divided GPUs on other nodes",
			Verify:  "ls /sys/bus/mdev/devices; cat /sys/bus/pci/devices/*/nvidia/current_vgpu_type",
			Sources: []string{"Linux: Documentation/driver-api/vfio-mediated-device.rst", "NVIDIA Virtual GPU Software User Guide: current_vgpu_type"},
		}, Judge: wholeGPUs},
		{Rule: finding.Rule{
			ID: "GPU-010", Title: "Ensure that companion functions of a GPU go with it", Severity: isolation.Medium, Cheap: true,
			Why:     "They share the GPU's reset and power. A host driver or another tenant could affect the card.",
			Fix:     "let the claim take them, as the plugin does, or unbind them: `echo <address> > /sys/bus/pci/devices/<address>/driver/unbind`",
			Verify:  "lspci -k -s <bus>:<device>",
			Sources: []string{"Linux: drivers/pci/quirks.c (GPU companion functions)"},
		}, Judge: companionsTogether},
	}
}

// assignableGPUs returns the GPUs that tenants have or may have.
func assignableGPUs(n *facts.Node) []*device.Function {
	return slices.DeleteFunc(n.Functions(device.GPU), func(f *device.Function) bool { return !n.IsAvailable(f.Address) })
}

// noBridge mentions bridges only between GPUs of one model, because others don't fit.
func noBridge(n *facts.Node) Answer {
	if b := fabricOf(n); len(b.switches) > 0 {
		return notApplicable("NVSwitches join the GPUs: see GPU-001")
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
		return notApplicable("no two NVIDIA GPUs of one model are assignable")
	}
	return Answer{{
		State: finding.Manual, Text: fmt.Sprintf("%s of the same model: look for NVLink bridges between them", count(len(several), "GPU")),
	}}.reaching(addresses(several)...)
}

func gpuECC(n *facts.Node) Answer {
	gpus := assignableGPUs(n)
	if len(gpus) == 0 {
		return notApplicable("no GPU is assignable")
	}
	return Answer{{
		State: finding.Manual, Text: "a GPU on a VFIO driver does not show ECC: look in the guest, or before you assign the GPU",
	}}.reaching(addresses(gpus)...)
}

// hiveWhole knows the hives of GPUs that amdgpu has. It looks at those of servers
// (no VGA adapter has XGMI).
func hiveWhole(n *facts.Node) Answer {
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
	var found Answer
	for _, id := range slices.Sorted(maps.Keys(hives)) {
		if tenants := n.TenantsOf(hives[id]...); len(tenants) > 1 {
			seen := n.Read(fmt.Sprintf("sys/bus/pci/devices/%s/xgmi_hive_info/xgmi_hive_id", hives[id][0]))
			found = append(found, fail(fmt.Sprintf("%[3]s share hive %[2]s (%[1]s)", count(len(hives[id]), "GPU"), id, strings.Join(tenants, " and ")), seen).
				object("hive "+id).reaching(hives[id]...)...)
		}
	}
	if len(hidden) > 0 && len(n.TenantsOf(all...)) > 1 {
		found = append(found, unknown("the hives of GPUs that are not on amdgpu", first).reaching(hidden...)...)
	}
	switch {
	case len(all) < 2:
		return notApplicable("the node has fewer than two AMD accelerators")
	case len(found) > 0:
		return found
	}
	return showing(pass(count(len(all), "GPU")+", no two tenants in a hive", n.Journal()), functionsAt(n, all), attributeFile(n, "xgmi_hive_info/xgmi_hive_id"))
}

// wholeGPUs looks for VFs of several tenants on one GPU, mediated devices, and VFs
// that NVIDIA's vGPU manager made virtual GPUs of.
func wholeGPUs(n *facts.Node) Answer {
	gpus := n.Functions(device.GPU)
	var found Answer
	for _, f := range gpus {
		vfs := vfsOf(n, f.Address)
		if tenants := n.TenantsOf(vfs...); len(tenants) > 1 {
			found = append(found, fail(fmt.Sprintf("tenants share VFs of GPU %s: %s", f.Address, strings.Join(tenants, " and ")), n.Journal()).reaching(vfs...).on(f)...)
		}
		if made, seen := mediated(n, f); made > 0 {
			found = append(found, fail(fmt.Sprintf("GPU %s is divided into %s", f.Address, count(made, "mediated device")), seen).on(f)...)
		}
		for _, vf := range vfs {
			if kind := n.Read(fmt.Sprintf("sys/bus/pci/devices/%s/nvidia/current_vgpu_type", vf)); kind.OK() && kind.Value != "0" {
				found = append(found, fail(fmt.Sprintf("GPU %s is divided into virtual GPUs", f.Address), kind).reaching(vfs...).on(f)...)
				break
			}
		}
	}
	switch {
	case len(gpus) == 0:
		return notApplicable("the node has no GPU")
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

func companionsTogether(n *facts.Node) Answer {
	var found Answer
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
				said := fail(fmt.Sprintf("claim %s has %s, a companion of GPU %s of claim %s", other[0].Claim(), c.Address, f.Address, held[0].Claim()),
					recordOf(&other[0]), recordOf(&held[0]))
				found = append(found, said.reaching(f.Address).on(c)...)
			case len(other) == 0 && c.Driver != "" && !device.IsVFIO(c.Driver):
				found = append(found, fail(fmt.Sprintf("host driver %s has %s while claim %s has its GPU %s", c.Driver, c.Address, held[0].Claim(), f.Address), driver).reaching(f.Address).on(c)...)
			}
		}
	}
	return conclude(found, judged, "companion", "no assigned GPU has companions", one(driverFact))
}

// gpuNodeChecks are about what the node itself does with GPUs.
func gpuNodeChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "GPU-012", Title: "Ensure that GPUs of one model have equal BAR sizes", Severity: isolation.Info, Cheap: true,
			Why:     "A resized BAR may not fit into a VM or may not survive a reset.",
			Fix:     "set Resizable BAR alike for all slots in the firmware setup, or write the common size to the GPU's resource<N>_resize while it has no driver",
			Verify:  "head -6 /sys/bus/pci/devices/<address>/resource; cat /sys/bus/pci/devices/<address>/resource*_resize",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-bus-pci resource<N>_resize"},
		}, Judge: sameBARs},
		{Rule: finding.Rule{
			ID: "GPU-013", Title: "Ensure that no host daemon waits for assignable GPUs", Severity: isolation.Low,
			Why:     "NVIDIA's daemons open every GPU on the host's driver and keep it from the next tenant.",
			Fix:     "`systemctl disable --now nvidia-persistenced nvidia-dcgm`, or remove their DaemonSets, on nodes that assign all their GPUs",
			Verify:  "pgrep -a nvidia-persiste; pgrep -a nv-hostengine; ls -l /sys/bus/pci/drivers/nvidia",
			Sources: []string{"NVIDIA: nvidia-persistenced(1)", "NVIDIA: DCGM user guide"},
		}, Judge: noGPUDaemons},
	}
}

// sameBARs compares GPUs of the same vendor, device and subsystem.
func sameBARs(n *facts.Node) Answer {
	models := map[string][]*device.Function{}
	for _, f := range assignableGPUs(n) {
		if f.VF == nil && !f.ConfigDead {
			model := fmt.Sprintf("%s:%s %s:%s", f.Vendor, f.Device, f.SubVendor, f.SubDevice)
			models[model] = append(models[model], f)
		}
	}
	var found Answer
	var seen []facts.Fact
	looked := 0
	for _, model := range slices.Sorted(maps.Keys(models)) {
		several := models[model]
		if len(several) < 2 {
			continue
		}
		looked += len(several)
		sizes := map[string][]*device.Function{}
		for _, f := range several {
			sizes[barSizes(f)] = append(sizes[barSizes(f)], f)
			seen = append(seen, attribute(f.Address, "resource", barSizes(f)))
		}
		found = append(found, oddSizes(sizes)...)
	}
	return orPassWith(found, looked, "GPU", "no two GPUs of one model are assignable", seen)
}

// oddSizes names the GPUs that are not as most of their model are.
func oddSizes(sizes map[string][]*device.Function) Answer {
	most := ""
	for _, size := range slices.Sorted(maps.Keys(sizes)) {
		if most == "" || len(sizes[size]) > len(sizes[most]) {
			most = size
		}
	}
	var found Answer
	for _, size := range slices.Sorted(maps.Keys(sizes)) {
		for _, f := range sizes[size] {
			if size != most {
				other := sizes[most][0]
				text := fmt.Sprintf("%s has BARs of %s, but %s of the same model has %s", f.Address, size, other.Address, most)
				found = append(found, fail(text, attribute(f.Address, "resource", size), attribute(other.Address, "resource", most)).on(f)...)
			}
		}
	}
	return found
}

// barSizes returns them in words: "BAR 0 16 MiB, BAR 1 64 GiB".
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

// noGPUDaemons is for nodes that have no NVIDIA GPU for themselves: on others the
// daemons have a use.
func noGPUDaemons(n *facts.Node) Answer {
	var given, own []*device.Function
	for _, f := range n.Functions(device.GPU) {
		switch {
		case f.Vendor != vendorNVIDIA:
		case device.IsVFIO(f.Driver):
			given = append(given, f)
		case f.Driver == "nvidia":
			own = append(own, f)
		}
	}
	daemons := runtimes.GPUDaemons(n)
	drivers := facts.Fact{Path: "/sys/bus/pci/drivers/nvidia", Value: strings.Join(addressesOf(own), " "), How: "list"}
	switch {
	case len(given) == 0:
		return notApplicable("no NVIDIA GPU is on a VFIO driver")
	case len(daemons) > 0 && len(own) == 0:
		text := count(len(daemons), "NVIDIA daemon") + " on the host, but all GPUs are on VFIO drivers"
		return fail(text, append(daemons, drivers)...).reaching(addresses(given)...)
	case len(daemons) > 0:
		return pass("the daemons serve the node's own GPUs", append(daemons, drivers)...)
	}
	return pass("no such daemon runs", facts.Fact{Path: "/proc", Value: "neither nvidia-persistenced nor nv-hostengine", How: "process"}, drivers)
}

func addressesOf(functions []*device.Function) []string {
	var all []string
	for _, f := range functions {
		all = append(all, f.Address.String())
	}
	return all
}

// gpuInContainerChecks are about what containers get of a GPU that their VM has.
func gpuInContainerChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "GPU-015", Title: "Ensure that containers get the device nodes of assignable GPUs", Severity: isolation.Low,
			Why:    "The nodes come from a CDI spec in the guest. Kata's Go runtime requests one for NVIDIA VGA and 3D controllers, the Rust runtime for NVIDIA, AMD and Intel.",
			Fix:    "let the guest write a CDI spec to /var/run/cdi, set `visible_cdi_devices = true` in Kata's section [agent.kata], and name the devices in the container's environment (`VISIBLE_CDI_DEVICES=amd.com/gpu=0`). See \"GPUs by vendor\" in runtimeclass/README.md",
			Verify: "lspci -nn | grep -E '\\[(03|12)[0-9a-f]{2}\\]'; grep -r visible_cdi_devices /opt/kata/share/defaults/kata-containers/kata-gpu",
			Sources: []string{
				"Kata 4.1: virtcontainers/container.go cdiDeviceKind", "Kata 4.1: runtime-rs resource/src/cdi_devices CDI_DEVICE_KIND_TABLE",
				"Kata 4.1: agent/src/device handle_cdi_devices",
			},
		}, Judge: gpuNodesInContainers},
	}
}

func gpuNodesInContainers(n *facts.Node) Answer {
	gpus := assignableDisplays(n)
	if len(gpus) == 0 {
		return notApplicable("the node has no assignable GPU")
	}
	return eachHandler(n, func(h *runtimes.Handler) (Answer, bool) {
		k := runtimes.KataOf(n, h)
		switch {
		case !runtimes.TakesDevices(n, h, k):
			return nil, false
		case !k.OK():
			return unknown("Kata's configuration", k.Damaged...).object("handler " + h.Name), true
		}
		return nodesInContainers(h, k, gpus).object("handler " + h.Name), true
	})
}

// nodesInContainers looks for GPUs that the runtime does not report to the guest's agent. With vfio_mode "vfio" a
// container gets a VFIO node of the guest, and with visible_cdi_devices the pod names the devices for the agent.
func nodesInContainers(h *runtimes.Handler, k *runtimes.Kata, gpus []*device.Function) Answer {
	mode, visible := k.Runtime("vfio_mode"), k.Agent("visible_cdi_devices")
	if mode.Text() == "vfio" || visible.On() {
		return pass("", says(mode, visible)...)
	}
	var lacking []pci.Address
	var words []string
	seen := says(visible)
	for _, f := range gpus {
		if h.GuestKind(f) != "" {
			continue
		}
		lacking = append(lacking, f.Address)
		words = append(words, fmt.Sprintf("%s (vendor %s, class %s)", f.Address, f.Vendor, f.Class))
		seen = append(seen, attribute(f.Address, "vendor", "0x"+f.Vendor.String()), attribute(f.Address, "class", "0x"+f.Class.String()))
	}
	if len(lacking) == 0 {
		return pass("", seen...)
	}
	text := fmt.Sprintf("containers get no device node of %s: Kata requests none from the guest, and visible_cdi_devices is off", strings.Join(words, ", "))
	return fail(text, append(h.Facts(), seen...)...).reaching(lacking...)
}

// assignableDisplays are the GPUs and other accelerators that tenants have or can get, virtual ones too, but for the node's own
// console, which counts only where the plugin publishes it.
func assignableDisplays(n *facts.Node) []*device.Function {
	return slices.DeleteFunc(assignable(n), func(f *device.Function) bool {
		base := f.Class.Base()
		return base != pci.BaseDisplay && base != pci.BaseAccelerator || f.BootVGA && !n.IsPublished(f.Address)
	})
}

const (
	vendorNVIDIA   = 0x10de
	vendorMellanox = 0x15b3
	vendorAMD      = 0x1002
	// classOtherBridge is that of an NVSwitch.
	classOtherBridge = 0x0680
	// switchManagement is in the VPD of a ConnectX function by which the NVSwitches of
	// B200 and B300 are managed: they have no function of their own on the PCI bus.
	switchManagement = "SW_MNG"
	fabricConfig     = "usr/share/nvidia/nvswitch/fabricmanager.cfg"
)

// fabric is a board of NVIDIA GPUs with the NVSwitches between them.
type fabric struct {
	gpus, switches []pci.Address
	// hidden are functions that may be NVSwitches, and whose VPD can't be read.
	hidden []facts.Fact
}

// missing returns the answer for a board without a known NVSwitch.
func (b *fabric) missing() Answer {
	if len(b.hidden) > 0 {
		return unknown("whether "+count(len(b.hidden), "ConnectX function")+" manages NVSwitches", b.hidden...).reaching(b.gpus...)
	}
	return notApplicable("the PCI bus has no NVSwitch")
}

func fabricOf(n *facts.Node) fabric {
	var b fabric
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		switch {
		case f.Vendor != vendorNVIDIA:
		case f.Class.Sub() == classOtherBridge:
			b.switches = append(b.switches, f.Address)
		case f.Type == device.GPU && f.Class.Sub() == pci.Class3D: // a card with a monitor has no NVLink to switches
			b.gpus = append(b.gpus, f.Address)
		}
	}
	b.addManaged(n)
	return b
}

// addManaged adds the NVSwitches that are managed by ConnectX functions. The VPD of
// others is not read: each word of it takes the device's time.
func (b *fabric) addManaged(n *facts.Node) {
	managed := slices.ContainsFunc(functionsAt(n, b.gpus), func(f *device.Function) bool { return switchesAreManaged(f.Device) })
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		if !managed || f.Vendor != vendorMellanox || f.VF != nil {
			continue
		}
		switch vpd := n.VPD(f.Address); {
		case strings.Contains(vpd.Value, switchManagement):
			b.switches = append(b.switches, f.Address)
		case !vpd.Known():
			b.hidden = append(b.hidden, vpd)
		}
	}
}

// switchesAreManaged reports whether the GPU's model has its NVSwitches behind ConnectX functions: GB100 (B100, B200)
// and GB110 (B300), by pci.ids.
func switchesAreManaged(id pci.ID) bool {
	return 0x2900 <= id && id <= 0x29ff || 0x3180 <= id && id <= 0x31ff
}

// owner returns the one tenant that has all GPUs of the board; empty for none.
func (b *fabric) owner(n *facts.Node) string {
	tenants := n.TenantsOf(b.gpus...)
	if len(tenants) != 1 || slices.ContainsFunc(b.gpus, func(a pci.Address) bool { return len(n.TenanciesOf(a)) == 0 }) {
		return ""
	}
	return tenants[0]
}

func fabricPartitioned(n *facts.Node) Answer {
	b := fabricOf(n)
	if len(b.switches) == 0 {
		return b.missing()
	}
	if !slices.ContainsFunc(b.gpus, n.IsAvailable) {
		return notApplicable("no GPU of the fabric is assignable")
	}
	config := n.Read(fabricConfig)
	mode, line := fabricSetting(config, "FABRIC_MODE")
	owner := b.owner(n)
	switch {
	case owner != "":
		return pass(fmt.Sprintf("all %d GPUs belong to %s", len(b.gpus), owner), line)
	case !config.OK():
		return unknown("how the fabric is partitioned (Fabric Manager may run in its own VM or container)", config).reaching(b.gpus...)
	case mode == "1", mode == "2":
		return pass("FABRIC_MODE="+mode+": partitions separate GPUs", line)
	}
	text := fmt.Sprintf("%s without partitions (FABRIC_MODE=%s): each reaches the memory of all others", count(len(b.gpus), "GPU"), cmp.Or(mode, "0"))
	if tenants := n.TenantsOf(b.gpus...); len(tenants) > 0 {
		text += "; tenants with such GPUs: " + strings.Join(tenants, ", ")
	}
	return fail(text, line).reaching(b.gpus...)
}

// fabricSetting returns what Fabric Manager's configuration sets a key to, the last
// time if there are several.
func fabricSetting(config facts.Fact, key string) (string, facts.Fact) {
	value := ""
	for line := range strings.Lines(config.Value) {
		name, v, ok := strings.Cut(line, "=")
		if ok && strings.TrimSpace(name) == key {
			value = strings.TrimSpace(v)
		}
	}
	if config.OK() {
		config.Value = key + "=" + value
	}
	return value, config
}

// onePartition reports by the number of GPUs that they can't be a partition: boards have partitions of 1, 2, 4, 8 and
// 16. Only Fabric Manager knows which ones are active.
func onePartition(n *facts.Node) Answer {
	b := fabricOf(n)
	if len(b.switches) == 0 {
		return b.missing()
	}
	var found Answer
	var held []pci.Address
	for _, rec := range n.Records() {
		var gpus []pci.Address
		for i := range rec.Plan.Functions {
			if a := rec.Plan.Functions[i].Address; slices.Contains(b.gpus, a) {
				gpus = append(gpus, a)
			}
		}
		if held = append(held, gpus...); len(gpus)&(len(gpus)-1) == 0 {
			continue
		}
		found = append(found, fail(fmt.Sprintf("claim %s has %d GPUs, which match no partition", rec.Plan.Claim, len(gpus)), stateOf(rec)).
			object("claim "+rec.Plan.Claim.Namespace+"/"+rec.Plan.Claim.Name).reaching(gpus...)...)
	}
	switch {
	case len(held) == 0:
		return notApplicable("no claim has a GPU of the fabric")
	case len(found) > 0:
		return found
	case b.owner(n) != "":
		return pass("all GPUs of the board belong to one tenant", n.Journal())
	}
	text := "no file shows the active partitions: compare `fmpm -l` with the GPUs of each claim"
	if tenants := n.TenantsOf(held...); len(tenants) > 1 {
		text = fmt.Sprintf("%s share a fabric, and %s", strings.Join(tenants, " and "), text)
	}
	_, mode := fabricSetting(n.Read(fabricConfig), "FABRIC_MODE")
	return say(finding.Manual, text, []facts.Fact{mode, n.Journal()}).reaching(held...)
}

func switchWithBoard(n *facts.Node) Answer {
	b := fabricOf(n)
	if len(b.switches) == 0 {
		return b.missing()
	}
	owner := b.owner(n)
	var found Answer
	for _, a := range b.switches {
		for _, t := range n.TenanciesOf(a) {
			if t.Tenant() == owner {
				continue
			}
			found = append(found, fail(fmt.Sprintf("claim %s has NVSwitch %s, but not all GPUs of the board", t.Claim(), a), recordOf(&t)).at(a).reaching(b.gpus...)...)
		}
	}
	if len(found) > 0 {
		return found
	}
	return showing(pass(count(len(b.switches), "NVSwitch function"), n.Journal()), functionsAt(n, b.switches), one(driverFact))
}

func fabricAPIIsLocal(n *facts.Node) Answer {
	if b := fabricOf(n); len(b.switches) == 0 {
		return b.missing()
	}
	config := n.Read(fabricConfig)
	socket, line := fabricSetting(config, "FM_CMD_UNIX_SOCKET_PATH")
	bind, bindLine := fabricSetting(config, "FM_CMD_BIND_INTERFACE")
	port, _ := fabricSetting(config, "FM_CMD_PORT_NUMBER")
	number, err := strconv.ParseUint(cmp.Or(port, "6666"), 10, 16)
	if err != nil {
		return unknown("the port that Fabric Manager listens on", config)
	}
	open, sockets := n.Listening(uint16(number))
	switch {
	case len(open) > 0:
		return fail(fmt.Sprintf("Fabric Manager's port %d is open on %s", number, strings.Join(open, ", ")), sockets, bindLine)
	case !config.OK():
		return unknown("where Fabric Manager listens", config)
	case socket == "" && bind != "" && bind != "localhost" && !strings.HasPrefix(bind, "127."):
		return fail("Fabric Manager listens on "+bind, bindLine)
	}
	return pass("it listens on "+cmp.Or(socket, cmp.Or(bind, "127.0.0.1")), line, bindLine, sockets)
}

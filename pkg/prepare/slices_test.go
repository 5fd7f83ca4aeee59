package prepare_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// slices permits slices of all GPUs by the rule.
func (w *world) slices(r v1alpha1.GPUSliceRule) {
	r.Match = v1alpha1.GPUMatch{Vendors: []pci.ID{pci.VendorIntel, pci.VendorNVIDIA, pci.VendorAMD}}
	w.node = &v1alpha1.NodeConfig{
		Devices:   []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: []string{"gpu", "gpuvf", "vf"}}}},
		GPUSlices: []v1alpha1.GPUSliceRule{r},
	}
	w.node.Default()
}

const vgpuFile = "nvidia/" + plan.VGPUType

// settingsOfSlices returns the values of slices that are not those of a fresh boot.
func (w *world) settingsOfSlices() []string {
	w.t.Helper()
	var changed []string
	for a := range w.bindings() {
		if now := w.k.ReadFile(a, vgpuFile); now != "" && now != "0" {
			changed = append(changed, fmt.Sprintf("%s is a vGPU of type %s", a, now))
		}
		for n := 1; n <= 3; n++ {
			for _, name := range []string{plan.XeExecQuantum, plan.XePreemptTimeout, plan.XePriority, plan.XeMemory} {
				now := w.k.ReadFile(a, sysfstest.XeValue(n, name))
				if now != "" && now != "0" && now != "[low] normal" {
					changed = append(changed, fmt.Sprintf("%s of VF %d of %s is %s", name, n, a, now))
				}
			}
		}
	}
	if w.fm != nil {
		for _, id := range w.fm.Active() {
			changed = append(changed, fmt.Sprintf("partition %d is active", id))
		}
	}
	changed = append(changed, w.fifth.changed()...)
	slices.Sort(changed)
	return changed
}

// wantNoSettings checks that no claim's settings are left.
func (w *world) wantNoSettings(where string) {
	w.t.Helper()
	if left := w.settingsOfSlices(); len(left) > 0 {
		w.t.Errorf("%s: settings of slices are left: %v, want none", where, left)
	}
}

// withXe is a node with an Intel GPU of three slices.
func withXe(t *testing.T, intel *v1alpha1.IntelSlices) (w *world, pf pci.Address, vfs []pci.Address) {
	t.Helper()
	w = newWorld(t)
	pf, vfs = w.k.AddXeHost(0x3b, 3)
	w.slices(v1alpha1.GPUSliceRule{Intel: intel})
	return w, pf, vfs
}

func (w *world) xe(pf pci.Address, n int, name string) string {
	return w.k.ReadFile(pf, sysfstest.XeValue(n, name))
}

// TestSliceOfIntelHasItsSettings while a claim has it, and what it had before afterwards; its neighbors keep theirs.
func TestSliceOfIntelHasItsSettings(t *testing.T) {
	w, pf, vfs := withXe(t, &v1alpha1.IntelSlices{ExecQuantumMs: new(16), PreemptTimeoutUs: new(8000), Priority: v1alpha1.SliceNormal, MemoryMiB: new(1023)})
	w.k.SetFile(pf, sysfstest.XeValue(2, plan.XeExecQuantum), "5")
	w.mustPrepare(w.request(uid, vfs[1]))
	want := []string{
		"exec_quantum_ms of VF 2 of 0000:3b:00.0 is 16",
		"preempt_timeout_us of VF 2 of 0000:3b:00.0 is 8000",
		"sched_priority of VF 2 of 0000:3b:00.0 is low [normal]",
		"vram_quota of VF 2 of 0000:3b:00.0 is 1073741824", // rounded up by the firmware
	}
	if diff := cmp.Diff(want, w.settingsOfSlices()); diff != "" {
		t.Errorf("prepared (-want +got):\n%s", diff)
	}
	e := w.lastEvent(ledger.Policy)
	if e == nil || len(e.Devices) != 1 || !slices.Contains(e.Devices[0].Provided, ledger.Provided{By: "xe", Name: plan.XeMemory, Value: "1073741824"}) {
		t.Errorf("the ledger has %+v, want the values as read back", e)
	}
	w.k.OnReset(vfs[1], func(string) (sysfstest.ResetEffect, error) {
		if w.k.ReadFile(pf, sysfstest.XeStop(2)) != "1" {
			t.Error("the VF is reset, and was not stopped before")
		}
		return sysfstest.ResetWorks, nil
	})
	w.mustUnprepare(uid)
	if got := w.k.ReadFile(pf, sysfstest.XeStop(1)); got != "" {
		t.Errorf("another VF was stopped: %q, want \"\"", got)
	}
	if got := w.xe(pf, 2, plan.XeExecQuantum); got != "5" {
		t.Errorf("after Unprepare exec_quantum_ms is %q, want 5 as found", got)
	}
	w.k.SetFile(pf, sysfstest.XeValue(2, plan.XeExecQuantum), "0")
	w.wantNoSettings("after Unprepare")
}

// TestSliceOfIntelIsBounded: by the defaults of the node config, no slice has the GPU without end, and a bound that an operator has set
// stays.
func TestSliceOfIntelIsBounded(t *testing.T) {
	w, pf, vfs := withXe(t, nil)
	w.k.SetFile(pf, sysfstest.XeValue(1, plan.XePreemptTimeout), "700")
	w.mustPrepare(w.request(uid, vfs[0]))
	if quantum, timeout := w.xe(pf, 1, plan.XeExecQuantum), w.xe(pf, 1, plan.XePreemptTimeout); quantum != "20" || timeout != "700" {
		t.Errorf("exec_quantum_ms %q, want 20; preempt_timeout_us %q, want 700 as found", quantum, timeout)
	}
	w.mustUnprepare(uid)
	if quantum, timeout := w.xe(pf, 1, plan.XeExecQuantum), w.xe(pf, 1, plan.XePreemptTimeout); quantum != "0" || timeout != "700" {
		t.Errorf("after Unprepare exec_quantum_ms %q, want 0; preempt_timeout_us %q, want 700", quantum, timeout)
	}
}

// TestSliceOfIntelIsStopped after each tenant, also if there is no setting to make: an operator has set both bounds, or the class asks for none.
func TestSliceOfIntelIsStopped(t *testing.T) {
	for name, c := range map[string]struct {
		quantum, timeout string
		unbounded        bool
	}{
		"bounds of the defaults":     {quantum: "0", timeout: "0"},
		"bounds of an operator":      {quantum: "5", timeout: "700"},
		"a class that asks for none": {quantum: "0", timeout: "0", unbounded: true},
	} {
		t.Run(name, func(t *testing.T) {
			w, pf, vfs := withXe(t, nil)
			w.k.SetFile(pf, sysfstest.XeValue(1, plan.XeExecQuantum), c.quantum)
			w.k.SetFile(pf, sysfstest.XeValue(1, plan.XePreemptTimeout), c.timeout)
			req := w.request(uid, vfs[0])
			req.Devices[0].VFIO.AllowUnisolated = new(c.unbounded)
			w.mustPrepare(req)
			if got := w.k.ReadFile(pf, sysfstest.XeStop(1)); got != "" {
				t.Errorf("stopped before a tenant had it: %q", got)
			}
			w.mustUnprepare(uid)
			if got := w.k.ReadFile(pf, sysfstest.XeStop(1)); got != "1" {
				t.Errorf("after the tenant, stop is %q, want 1", got)
			}
			if quantum, timeout := w.xe(pf, 1, plan.XeExecQuantum), w.xe(pf, 1, plan.XePreemptTimeout); quantum != c.quantum || timeout != c.timeout {
				t.Errorf("after Unprepare the bounds are %q and %q, want %q and %q", quantum, timeout, c.quantum, c.timeout)
			}
		})
	}
}

// TestSliceOfIntelGetsTheVeryValue: a value that is near the wanted one is not in force, and a rounded one is not set again.
func TestSliceOfIntelGetsTheVeryValue(t *testing.T) {
	w, pf, vfs := withXe(t, &v1alpha1.IntelSlices{MemoryMiB: new(8191)})
	const near, rounded = 8000 << 20, "8589934592"
	w.k.SetFile(pf, sysfstest.XeValue(1, plan.XeMemory), strconv.Itoa(near))
	w.mustPrepare(w.request(uid, vfs[0]))
	if got := w.xe(pf, 1, plan.XeMemory); got != rounded {
		t.Errorf("vram_quota is %s, want %s: 8191 MiB rounded up", got, rounded)
	}
	before := len(w.k.Writes())
	w.mustPrepare(w.request(uid, vfs[0])) // may be repeated while a VM runs
	for _, write := range w.k.Writes()[before:] {
		t.Errorf("a prepared claim writes %s to %s again, want no write", write.Value, write.Path)
	}
	w.mustUnprepare(uid)
	if got := w.xe(pf, 1, plan.XeMemory); got != strconv.Itoa(near) {
		t.Errorf("after Unprepare vram_quota is %s, want %d as found", got, near)
	}
}

// TestSliceOfAMDIsDividedAsConfigured, or refused with what it is.
func TestSliceOfAMDIsDividedAsConfigured(t *testing.T) {
	for name, c := range map[string]struct {
		compute, memory, want string
		says                  []string // none if it is prepared
	}{
		"as configured":       {"CPX", "NPS4", "CPX/NPS4", nil},
		"no word in the rule": {"SPX", "NPS1", "", nil},
		"another memory mode": {"CPX", "NPS1", "CPX/NPS4", []string{"0000:3b:00.0 is divided as CPX/NPS1", "says CPX/NPS4"}},
		"gim does not say it": {"failed to get current sp mode", "NPS4", "CPX/NPS4", []string{"does not say how it is"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			_, vfs := w.k.AddGIMHost(0x3b, 8, c.compute, c.memory)
			r := v1alpha1.GPUSliceRule{}
			if c.want != "" {
				r.AMD = &v1alpha1.AMDSlices{Profile: c.want}
			}
			w.slices(r)
			if len(c.says) == 0 {
				w.mustPrepare(w.request(uid, vfs[0]))
				return
			}
			_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, vfs[0]))
			if refused := wantRefused(t, err); refused == nil || !refused.Has(rule.UnsupportedSetting) {
				t.Errorf("Prepare = %v, want a refusal", err)
			}
			says(t, err, c.says...)
		})
	}
}

// TestSliceOfAMDHasTheConfiguredMemory, or is refused with what it has.
func TestSliceOfAMDHasTheConfiguredMemory(t *testing.T) {
	for name, c := range map[string]struct {
		vfs     int
		profile string
		memory  int
		says    []string // none if it is prepared
	}{
		"as configured":               {8, "", 24576, nil},
		"the whole GPU as one VF":     {1, "", 196608, nil},
		"with its profile":            {8, "CPX/NPS4", 24576, nil},
		"gim was loaded with one VF":  {1, "", 24576, []string{"each VF of GPU 0000:3b:00.0 has 196608 MiB with 1 VF", "says 24576", "vf_num"}},
		"gim was loaded with eight":   {8, "CPX/NPS4", 196608, []string{"has 24576 MiB with 8 VFs", "says 196608"}},
		"a number that no note names": {4, "", 49152, []string{"each VF of GPU 0000:3b:00.0 has 49152 MiB", "is not known when the GPU has 4 VFs", "leave amd.memoryMiB out"}},
		"the profile is another, too": {1, "SPX/NPS1", 24576, []string{"is divided as CPX/NPS4", "says SPX/NPS1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			_, vfs := w.k.AddGIMHost(0x3b, c.vfs, "CPX", "NPS4")
			w.slices(v1alpha1.GPUSliceRule{AMD: &v1alpha1.AMDSlices{Profile: c.profile, MemoryMiB: new(c.memory)}})
			if len(c.says) == 0 {
				w.mustPrepare(w.request(uid, vfs[0]))
				return
			}
			_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, vfs[0]))
			if refused := wantRefused(t, err); refused == nil || !refused.Has(rule.UnsupportedSetting) {
				t.Errorf("Prepare = %v, want a refusal", err)
			}
			says(t, err, c.says...)
		})
	}
}

// TestSliceOfIntelOnAnOlderKernel is refused unless the class accepts a slice without a bound.
func TestSliceOfIntelOnAnOlderKernel(t *testing.T) {
	w, pf, vfs := withXe(t, nil)
	for _, name := range []string{plan.XeExecQuantum, plan.XePreemptTimeout} {
		if err := w.k.RemoveFile(pf, sysfstest.XeValue(1, name)); err != nil {
			t.Fatal(err)
		}
	}
	req := w.request(uid, vfs[0])
	_, err := w.plugin(nil).Prepare(t.Context(), req)
	says(t, err, "the slice has the GPU without end", "allowUnisolated")
	req.Devices[0].VFIO.AllowUnisolated = new(true)
	w.mustPrepare(req)
}

// TestSliceOfIntelWhosePriorityIsFixed is refused if it is to have another one, and gets the one that it has.
func TestSliceOfIntelWhosePriorityIsFixed(t *testing.T) {
	w, pf, vfs := withXe(t, &v1alpha1.IntelSlices{Priority: v1alpha1.SliceNormal})
	w.k.FixFile(pf, sysfstest.XeValue(1, plan.XePriority))
	_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, vfs[0]))
	if refused := wantRefused(t, err); refused == nil || !refused.Has(rule.UnsupportedSetting) {
		t.Errorf("Prepare = %v, want a refusal of the setting", err)
	}
	says(t, err, "priority of "+vfs[0].String()+" is low", "bulk_profile")
	w.node.GPUSlices[0].Intel.Priority = v1alpha1.SliceLow
	w.mustPrepare(w.request(uid, vfs[0]))
	w.mustUnprepare(uid)
}

// TestWarmVGPU is reset once, and is ready then.
func TestWarmVGPU(t *testing.T) {
	w, vfs := withVGPUs(t)
	w.node.Devices[0].Warm = v1alpha1.Share{Amount: 1}
	w.node.GPUSlices[0].NVIDIA.Instances = 1
	w.keepWarm()
	w.keepWarm()
	if resets := w.k.Resets(); len(resets) != 1 {
		t.Errorf("%d resets of %s, want one: %v", len(resets), vfs[0], resets)
	}
	w.mustPrepare(w.request(uid, vfs[0]))
	if got := w.k.ReadFile(vfs[0], vgpuFile); got != "1428" {
		t.Errorf("type %q, want 1428", got)
	}
}

// TestSliceThatCannotHaveItsSettings is refused, and nothing is left of the try.
func TestSliceThatCannotHaveItsSettings(t *testing.T) {
	w, pf, vfs := withXe(t, &v1alpha1.IntelSlices{MemoryMiB: new(2048)})
	if err := w.k.RemoveFile(pf, sysfstest.XeValue(1, plan.XeMemory)); err != nil {
		t.Fatal(err)
	}
	_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, vfs[0]))
	if refused := wantRefused(t, err); refused == nil || !refused.Has(rule.UnsupportedSetting) {
		t.Errorf("Prepare = %v, want a refusal of the setting", err)
	}
	says(t, err, "driver xe has no vram_quota")
	if w.record(uid) != nil {
		t.Error("a record is left")
	}
	w.wantNoSettings("refused")
}

// withVGPUs is a node with an NVIDIA GPU whose four VFs can be vGPUs of two sizes.
func withVGPUs(t *testing.T) (w *world, vfs []pci.Address) {
	t.Helper()
	w = newWorld(t)
	w.k.WithIOMMUFD()
	return w, w.vgpus()
}

// vgpus adds that GPU.
func (w *world) vgpus() []pci.Address {
	w.t.Helper()
	_, vfs := w.k.AddVGPUHost(0x3b, 4,
		sysfstest.VGPUType{ID: 1428, Name: "NVIDIA H200X-35C", GiB: 35, Max: 4},
		sysfstest.VGPUType{ID: 1429, Name: "NVIDIA H200X-70C", GiB: 70, Max: 2})
	w.slices(v1alpha1.GPUSliceRule{NVIDIA: &v1alpha1.NVIDIASlices{VGPUType: "NVIDIA H200X-35C", Instances: 4}})
	return vfs
}

// TestVGPU is made for its claim, and freed before the reset after each tenant; the VF never leaves NVIDIA's driver.
func TestVGPU(t *testing.T) {
	w, vfs := withVGPUs(t)
	before := w.bindings()
	rec := w.mustPrepare(w.request(uid, vfs[1]))
	if got := w.k.ReadFile(vfs[1], vgpuFile); got != "1428" {
		t.Errorf("prepared: type %q, want 1428", got)
	}
	spec, err := w.specs.Read(uid)
	if err != nil {
		t.Fatal(err)
	}
	if nodes := spec.Devices[0].ContainerEdits.DeviceNodes; len(nodes) != 1 || nodes[0].Path != "/dev/vfio/devices/vfio1" {
		t.Errorf("nodes %+v, want the VF's VFIO device", nodes)
	}
	w.mustHandOver("first")
	mark := len(w.events)
	w.mustHandOver("second")
	want := []key{{plan.SetValue, vfs[1], "0"}, {plan.Reset, vfs[1], "flr"}, {plan.SetValue, vfs[1], "1428"}}
	if diff := cmp.Diff(want, w.executed(mark), cmp.AllowUnexported(key{})); diff != "" {
		t.Errorf("between two sandboxes (-want +got):\n%s", diff)
	}
	w.mustUnprepare(uid)
	w.wantNoSettings("after Unprepare")
	if diff := cmp.Diff(before, w.bindings()); diff != "" {
		t.Errorf("bindings (-want as before +got):\n%s", diff)
	}
	if written := w.k.Writes(); slices.ContainsFunc(written, func(a sysfstest.Write) bool { return strings.HasSuffix(a.Path, "bind") }) {
		t.Errorf("wrote %v, want no unbind or bind", written)
	}
	if fn := rec.Plan.Functions[0]; fn.Target != fn.Original || rec.Plan.ReturnsToHost() {
		t.Errorf("target %+v, original %+v, returns to host: %t; want the original as target, false", fn.Target, fn.Original, rec.Plan.ReturnsToHost())
	}
}

// TestVGPUByItsGroup: a kernel without nodes for single devices gives the VM the VF's group.
func TestVGPUByItsGroup(t *testing.T) {
	w := newWorld(t)
	vfs := w.vgpus()
	w.mustPrepare(w.request(uid, vfs[1]))
	spec, err := w.specs.Read(uid)
	if err != nil {
		t.Fatal(err)
	}
	if nodes := spec.Devices[0].ContainerEdits.DeviceNodes; len(nodes) != 1 || nodes[0].Path != w.groupNode(vfs[1]) {
		t.Errorf("nodes %+v, want %s", nodes, w.groupNode(vfs[1]))
	}
	w.mustUnprepare(uid)
	w.wantNoSettings("after Unprepare")
}

// TestVGPUThatIsRefused says why: a size that does not fit beside the others, a type that another program has set, a name that no driver
// knows, a VF beyond the instances, and a GPU whose rule has no type.
func TestVGPUThatIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		vf      int
		prepare func(*world, []pci.Address)
		code    rule.Code
		says    []string
	}{
		"another size on the GPU": {
			prepare: func(w *world, vfs []pci.Address) {
				_ = w.k.Write("sys/bus/pci/devices/"+vfs[3].String()+"/"+vgpuFile, []byte("1429"))
			},
			code: rule.UnsupportedSetting, says: []string{`can't be a vGPU of type "NVIDIA H200X-35C" now`, `"NVIDIA H200X-70C"`},
		},
		"another program's type": {
			prepare: func(w *world, vfs []pci.Address) { w.k.SetFile(vfs[0], vgpuFile, "1429") },
			code:    rule.UnsupportedSetting, says: []string{"is 1429 already, and no claim has it"},
		},
		"unknown name": {
			prepare: func(w *world, _ []pci.Address) { w.node.GPUSlices[0].NVIDIA.VGPUType = "NVIDIA L40S-12Q" },
			code:    rule.UnsupportedSetting, says: []string{`"NVIDIA L40S-12Q"`, `"NVIDIA H200X-35C"`},
		},
		"beyond the instances": {
			vf: 3, prepare: func(w *world, _ []pci.Address) { w.node.GPUSlices[0].NVIDIA.Instances = 2 },
			code: rule.GPUNotSliced, says: []string{"it is VF 3", "2 vGPUs"},
		},
		"no type in the node config": {
			prepare: func(w *world, _ []pci.Address) { w.node.GPUSlices[0].NVIDIA = nil },
			code:    rule.DriverServesVFIO, says: []string{"gpuSlices[].nvidia"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, vfs := withVGPUs(t)
			c.prepare(w, vfs)
			before := w.settingsOfSlices()
			_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, vfs[c.vf]))
			if refused := wantRefused(t, err); refused == nil || !refused.Has(c.code) {
				t.Errorf("Prepare = %v, want %s", err, c.code)
			}
			says(t, err, c.says...)
			if diff := cmp.Diff(before, w.settingsOfSlices()); diff != "" || w.record(uid) != nil {
				t.Errorf("record %v (want nil); settings (-want as before +got):\n%s", w.record(uid), diff)
			}
		})
	}
}

// TestVGPUThatIsNotFreed quarantines the VF, without a reset below the vGPU, until the driver frees it. A type that another program has
// set meanwhile is not touched.
func TestVGPUThatIsNotFreed(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*world, pci.Address)
		clear func(*world, pci.Address)
		says  string
	}{
		"the driver refuses": {
			spoil: func(w *world, vf pci.Address) {
				w.k.OnWrite(func(path, value string) error {
					if strings.HasSuffix(path, vgpuFile) && value == "0" && w.k.ReadFile(vf, "nvidia/creatable_vgpu_types") != "free" {
						return unix.EIO
					}
					return nil
				})
			},
			clear: func(w *world, vf pci.Address) { w.k.SetFile(vf, "nvidia/creatable_vgpu_types", "free") },
			says:  "input/output error",
		},
		"another program's type": {
			spoil: func(w *world, vf pci.Address) { w.k.SetFile(vf, vgpuFile, "1429") },
			clear: func(w *world, vf pci.Address) { w.k.SetFile(vf, vgpuFile, "0") },
			says:  "another program has set it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, vfs := withVGPUs(t)
			w.mustPrepare(w.request(uid, vfs[0]))
			c.spoil(w, vfs[0])
			_, err := w.plugin(nil).Unprepare(t.Context(), uid)
			if _, quarantined := errors.AsType[*prepare.QuarantinedError](err); !quarantined {
				t.Fatalf("Unprepare = %v, want a quarantine", err)
			}
			says(t, err, c.says)
			if resets := w.k.Resets(); len(resets) > 0 {
				t.Errorf("reset below a vGPU: %v, want none", resets)
			}
			if _, err := w.plugin(nil).Prepare(t.Context(), w.request(other, vfs[0])); err == nil {
				t.Error("another claim got the VF")
			}
			c.clear(w, vfs[0])
			w.mustUnprepare(uid)
			if len(w.k.Resets()) != 1 {
				t.Errorf("resets %v, want one", w.k.Resets())
			}
			w.wantNoSettings("at the end")
		})
	}
}

// TestVGPUWhoseWriteHangs fails in time. Whenever the kernel answers, no type is left of the write without a record.
func TestVGPUWhoseWriteHangs(t *testing.T) {
	for name, c := range map[string]struct {
		undo time.Duration // how long the undo waits, and the kernel answers after a second
		left bool
	}{
		"it is answered during the undo": {undo: 2 * time.Second},
		"it is answered after the undo":  {undo: 500 * time.Millisecond, left: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, vfs := withVGPUs(t)
				w.limit = 50 * time.Millisecond
				w.k.OnWrite(func(path, value string) error {
					if strings.HasSuffix(path, vgpuFile) && value != "0" {
						time.Sleep(time.Second)
					}
					return nil
				})
				p := w.plugin(nil, func(c2 *prepare.Config) { c2.UndoLimit = c.undo })
				_, err := p.Prepare(t.Context(), w.request(uid, vfs[0]))
				says(t, err, "the kernel has not answered")
				if rec := w.record(uid); (rec != nil) != c.left {
					t.Errorf("record %+v; want one: %t", rec, c.left)
				}
				time.Sleep(time.Second)
				if c.left {
					if _, err := p.Unprepare(t.Context(), uid); err != nil {
						t.Error(err)
					}
				}
				w.wantNoSettings("at the end")
			})
		})
	}
}

// TestRecordWithoutSettingsReadsBackAsItWas: Prepare of a prepared claim returns the record of the first, field by field.
func TestRecordWithoutSettingsReadsBackAsItWas(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	first := w.mustPrepare(w.request(uid, gpu))
	if diff := cmp.Diff(first.Plan, w.mustPrepare(w.request(uid, gpu)).Plan); diff != "" {
		t.Errorf("Prepare again (-want as at first +got):\n%s", diff)
	}
}

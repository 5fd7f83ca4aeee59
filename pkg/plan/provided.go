package plan

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Names of providers, which carry out settings.
const (
	// ProviderXe sets how Intel's driver xe shares a GPU.
	ProviderXe = "xe"
	// ProviderVGPU sets the vGPU type of VFs on NVIDIA's driver.
	ProviderVGPU = "nvidia-vgpu"
	// ProviderFabric has NVIDIA's Fabric Manager join GPUs by NVLink.
	ProviderFabric = "nvidia-fabric"
)

// Names of the settings of ProviderXe, which are the kernel's (Documentation/ABI/testing/sysfs-driver-intel-xe-sriov).
const (
	XeExecQuantum    = "exec_quantum_ms"
	XePreemptTimeout = "preempt_timeout_us"
	XePriority       = "sched_priority"
	XeMemory         = "vram_quota"
)

// VGPUType is the setting of ProviderVGPU. Its values are the number of a type, or "0" for none. In a plan that is only
// shown, the value is the name of the type.
const VGPUType = "current_vgpu_type"

// Without bounds, the work of one slice can keep the GPU from other slices for any time: the kernel's default is 0, "no
// limit". These bounds are used if nobody has set one.
const (
	defaultExecQuantumMs    = 20
	defaultPreemptTimeoutUs = 40_000
)

// provider is what is decided for one provider.
type provider struct {
	// name is the provider's name in settings and records. It is empty for a provider that makes no settings, and for
	// further, whose settings name their provider themselves.
	name string
	// decide returns the settings that the provider makes for a claimed device, or why the device can't have them. Both
	// are nil if the provider does not serve the device.
	decide func(*candidate) ([]Setting, *rule.Verdict)
	// stops reports whether the provider ends, between two tenants, what the device executes, even if it has no setting
	// for the device. It is nil for a provider that never does.
	stops func(*candidate) bool
}

// providers returns all providers. Each one with a name is in [bind.Providers] too.
func providers() []provider {
	return []provider{
		{decide: (*candidate).amdSlice},
		{name: ProviderXe, decide: (*candidate).xeSlice, stops: (*candidate).isOnXe},
		{name: ProviderVGPU, decide: (*candidate).vgpu},
		{name: ProviderFabric, decide: (*candidate).fabric},
		{decide: (*candidate).further},
	}
}

// provided refuses a device that can't have the settings that it needs.
func (c *candidate) provided() *rule.Verdict {
	for _, p := range providers() {
		if _, refusal := p.decide(c); refusal != nil {
			return refusal
		}
	}
	return nil
}

// providedSettings returns the settings of all providers for a device that no check refuses.
func (c *candidate) providedSettings() []Setting {
	var all []Setting
	for _, p := range providers() {
		settings, _ := p.decide(c)
		all = append(all, settings...)
	}
	return all
}

// servedBy returns the providers that end what the device executes between two tenants.
func (c *candidate) servedBy() []string {
	var all []string
	for _, p := range providers() {
		if p.stops != nil && p.stops(c) {
			all = append(all, p.name)
		}
	}
	return all
}

// further decides for the provider of [Node.Provides]. Such a provider has no rule in the node config, and stops no
// function for which it has no setting.
func (c *candidate) further() ([]Setting, *rule.Verdict) {
	if c.node.Provides == nil {
		return nil, nil
	}
	return c.node.Provides(c.f)
}

// isIntelSlice reports whether the device is a VF of an Intel GPU.
func (c *candidate) isIntelSlice() bool {
	return c.choice.Slice != nil && c.f.VF != nil && c.f.Vendor == pci.VendorIntel
}

// isOnXe reports whether driver xe has the GPU of the VF. If so, the provider stops each slice between two tenants,
// even if an operator has set the slice's bounds or the class asks for none.
func (c *candidate) isOnXe() bool {
	if !c.isIntelSlice() {
		return false
	}
	pf, ok := c.node.Snapshot.Function(c.f.VF.PF)
	return ok && pf.Driver == "xe"
}

// amdSlice refuses a VF if its GPU is divided in another way than the node config says. gim can't change the division
// for one claim.
func (c *candidate) amdSlice() ([]Setting, *rule.Verdict) {
	if c.choice.Slice == nil || c.choice.Slice.AMD == nil || c.f.VF == nil || c.f.Vendor != pci.VendorAMD {
		return nil, nil
	}
	want := c.choice.Slice.AMD
	if want.Profile != "" {
		if refusal := c.amdProfile(want.Profile); refusal != nil {
			return nil, refusal
		}
	}
	if want.MemoryMiB != nil {
		return nil, c.amdMemory(uint64(*want.MemoryMiB))
	}
	return nil, nil
}

// amdProfile refuses a VF of a GPU that gim has not divided as wanted.
func (c *candidate) amdProfile(want string) *rule.Verdict {
	switch now := c.node.Snapshot.Partition(c.f); now {
	case want:
		return nil
	case "":
		return c.mate(c.f, rule.UnsupportedSetting,
			fmt.Sprintf("the node config says that GPU %s is divided as %s, and its driver does not say how it is", c.f.VF.PF, want),
			"update gim, or leave amd.profile out of gpuSlices in the node config")
	default:
		return c.mate(c.f, rule.UnsupportedSetting,
			fmt.Sprintf("GPU %s is divided as %s, and the node config says %s", c.f.VF.PF, now, want),
			"end all VMs with VFs of the GPU and have gim divide it again (amd-smi sets it), or correct amd.profile in gpuSlices")
	}
}

// amdMemory refuses a VF if its memory, as published in its capacity, is not the wanted size. gim has no file with the
// memory of a VF, so the size is derived from the model and the number of VFs.
func (c *candidate) amdMemory(want uint64) *rule.Verdict {
	size, known := c.node.Snapshot.GPUMemory(c.f)
	if !known {
		return c.mate(c.f, rule.UnsupportedSetting,
			fmt.Sprintf("the node config says that each VF of GPU %s has %d MiB, and the memory of a VF of this model is not known when the GPU has %s", c.f.VF.PF, want, c.vfs()),
			"load gim with a number of VFs that its release notes name for the model, or leave amd.memoryMiB out of gpuSlices in the node config")
	}
	if now := size >> 20; now != want {
		return c.mate(c.f, rule.UnsupportedSetting,
			fmt.Sprintf("each VF of GPU %s has %d MiB with %s, and the node config says %d", c.f.VF.PF, now, c.vfs(), want),
			"end all VMs with VFs of the GPU and load gim with another vf_num, or correct amd.memoryMiB in gpuSlices")
	}
	return nil
}

// vfs returns how many VFs the device's PF has, as a phrase.
func (c *candidate) vfs() string {
	pf, ok := c.node.Snapshot.Function(c.f.VF.PF)
	switch {
	case !ok || pf.PF == nil:
		return "an unknown number of VFs"
	case pf.PF.NumVFs == 1:
		return "1 VF"
	}
	return fmt.Sprintf("%d VFs", pf.PF.NumVFs)
}

// xeSlice decides how driver xe shares the GPU of a VF.
func (c *candidate) xeSlice() ([]Setting, *rule.Verdict) {
	if !c.isIntelSlice() {
		return nil, nil
	}
	endless := c.claimed.VFIO.AllowUnisolated != nil && *c.claimed.VFIO.AllowUnisolated // the class accepts a slice without a bound
	if !c.isOnXe() {
		if endless {
			return nil, nil
		}
		return nil, c.withoutXe()
	}
	of := cmp.Or(c.choice.Slice.Intel, &v1alpha1.IntelSlices{})
	var all []Setting
	for _, bound := range []struct {
		name       string
		configured *int
		standard   int
	}{
		{XeExecQuantum, of.ExecQuantumMs, defaultExecQuantumMs},
		{XePreemptTimeout, of.PreemptTimeoutUs, defaultPreemptTimeoutUs},
	} {
		switch {
		case bound.configured != nil:
			all = append(all, xeSetting(bound.name, strconv.Itoa(*bound.configured)))
		case !endless:
			s := xeSetting(bound.name, strconv.Itoa(bound.standard))
			s.Replaces = new("0") // a bound that an operator has set stays
			all = append(all, s)
		}
	}
	if of.Priority != "" {
		all = append(all, xeSetting(XePriority, strings.ToLower(string(of.Priority))))
	}
	if of.MemoryMiB != nil {
		all = append(all, xeSetting(XeMemory, strconv.Itoa(*of.MemoryMiB<<20)))
	}
	return all, nil
}

func xeSetting(name, want string) Setting {
	return Setting{Provider: ProviderXe, Name: name, Want: want}
}

// withoutXe refuses a slice whose time nobody bounds.
func (c *candidate) withoutXe() *rule.Verdict {
	driver := "no driver"
	if pf, ok := c.node.Snapshot.Function(c.f.VF.PF); ok && pf.Driver != "" {
		driver = "driver " + pf.Driver
	}
	return c.mate(c.f, rule.UnsupportedSetting,
		fmt.Sprintf("%s is a slice of GPU %s, which %s has, and only driver xe can bound the time that a slice has the GPU", c.f.Address, c.f.VF.PF, driver),
		"bind the GPU to xe, or exclude its VFs by a rule of the node config")
}

// isVGPU reports whether f is a VF that the node config gives a vGPU type.
func (c *candidate) isVGPU(f *device.Function) bool {
	slice := c.node.Selection.Choice(f.Address).Slice
	return f.VF != nil && f.Vendor == pci.VendorNVIDIA && slice != nil && slice.NVIDIA != nil
}

// vgpu decides the type of a VF of an NVIDIA GPU. A VF has no type between claims: if it has one already, a person or a
// program without a record has set it, and the VF is refused.
func (c *candidate) vgpu() ([]Setting, *rule.Verdict) {
	if !c.isVGPU(c.f) {
		return nil, nil
	}
	if _, held := c.node.Owners[c.f.Address]; !held && c.f.VGPUType != "" && c.f.VGPUType != "0" {
		return nil, c.mate(c.f, rule.UnsupportedSetting,
			fmt.Sprintf("%s of %s is %s already, and no claim has it", VGPUType, c.f.Address, c.f.VGPUType),
			"end what uses it, then set it to 0",
		)
	}
	return []Setting{{
		Provider: ProviderVGPU, Name: VGPUType, Want: c.choice.Slice.NVIDIA.VGPUType, Replaces: new("0"), Activation: true,
	}}, nil
}

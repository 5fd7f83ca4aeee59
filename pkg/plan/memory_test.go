package plan_test

import (
	"errors"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/rule/ruletest"
)

// TestVFIOOpensTheFunction refuses what could be bound to vfio-pci, and not opened.
func TestVFIOOpensTheFunction(t *testing.T) {
	frame := device.Use{Kind: device.UseConsole, Name: "BOOTFB, simpledrm", Detail: "its BAR 0"}
	unassigned := func(numbers ...int) func(*device.Function) {
		return func(f *device.Function) {
			f.BARs = []device.BAR{{Index: 0, Start: 0xf600_0000, Size: 16 << 20}}
			for _, n := range numbers {
				f.BARs = append(f.BARs, device.BAR{Index: n, Size: 64 << 30, Is64: true, Unassigned: true})
			}
		}
	}
	for name, c := range map[string]struct {
		driver         string
		gpu, companion func(*device.Function)
		give           bool
		code           rule.Code // none if the plan is made
		text, fix      string
	}{
		"all BARs have an address": {driver: "nvidia", gpu: unassigned()},
		"two have none": {
			driver: "vfio-pci", gpu: unassigned(1, 3), code: rule.BARsUnassigned,
			text: "0000:a0:00.0: BAR 1 and BAR 3 have no address, so the kernel can't enable the function for a VM",
			fix:  "switch on Above 4G Decoding in the firmware setup (with Resizable BAR it needs room for the largest size), or boot with `pci=realloc`",
		},
		"three have none": {
			driver: "nvidia", gpu: unassigned(1, 2, 3), code: rule.BARsUnassigned,
			text: "0000:a0:00.0: BAR 1, BAR 2 and BAR 3 have no address, so the kernel can't enable the function for a VM",
		},
		"one has none": {
			driver: "nvidia", gpu: unassigned(1), code: rule.BARsUnassigned,
			text: "0000:a0:00.0: BAR 1 has no address, so the kernel can't enable the function for a VM",
		},
		"a companion's that stays on the node": {driver: "nvidia", companion: unassigned(0)},
		"a companion's that the VM gets": {
			driver: "nvidia", companion: unassigned(0), give: true, code: rule.BARsUnassigned,
			text: "0000:a0:00.1: BAR 0 has no address, so the kernel can't enable the function for a VM",
		},
		"the firmware's frame buffer in a GPU on vfio-pci": {
			driver: "vfio-pci", gpu: func(f *device.Function) { f.Uses = []device.Use{frame} }, code: rule.BARReserved,
			text: "0000:a0:00.0 (driver vfio-pci): the firmware's frame buffer (BOOTFB, simpledrm) is in its BAR 0, which VFIO can't reserve until it is gone",
			fix: "unbind its driver: `echo simple-framebuffer.0 > /sys/bus/platform/drivers/simple-framebuffer/unbind`. If /proc/iomem still lists a frame buffer " +
				"then, boot with `initcall_blacklist=sysfb_init`, or make another GPU the first display in the firmware setup",
		},
		"the same in a GPU of the node": {
			driver: "amdgpu", gpu: func(f *device.Function) { f.Uses = []device.Use{frame} }, code: rule.Forbidden,
			text: "0000:a0:00.0 (driver amdgpu) must not be taken: the firmware's frame buffer (BOOTFB, simpledrm) is in its BAR 0, which VFIO can't reserve until it is gone",
			fix: "unbind its driver: `echo simple-framebuffer.0 > /sys/bus/platform/drivers/simple-framebuffer/unbind`. If /proc/iomem still lists a frame buffer " +
				"then, boot with `initcall_blacklist=sysfb_init`, or make another GPU the first display in the firmware setup, or claim another device",
		},
	} {
		t.Run(name, func(t *testing.T) {
			gpu, audio := mateOf(nvidia, display, c.driver, 0, 0), mateOf(nvidia, 0x040300, "snd_hda_intel", 0, 1)
			audio.Group = new(61)
			for f, change := range map[*device.Function]func(*device.Function){&gpu: c.gpu, &audio: c.companion} {
				if change != nil {
					change(f)
				}
			}
			s := assemble([]device.Function{gpu, audio})
			s.Host.IOMMUFD = true
			req := asking(s, gpu.Address)
			if c.give {
				req.Devices[0].VFIO.Companions = v1alpha1.CompanionsGive
			}
			_, err := plan.Make(req, node(s))
			checkRefusal(t, err, c.code, c.text, c.fix)
			ruletest.RefusedAt(t, rule.AtPrepare, c.code)
		})
	}
}

// checkRefusal compares the first refusal. Without a fix, any will do.
func checkRefusal(t *testing.T, err error, code rule.Code, text, fix string) {
	t.Helper()
	if code == "" {
		if err != nil {
			t.Errorf("Make = %v; want a plan", err)
		}
		return
	}
	refused, ok := errors.AsType[*rule.RefusedError](err)
	if !ok {
		t.Fatalf("Make = %v; want %s", err, code)
	}
	if r := refused.Verdicts[0]; r.Code != code || r.Text != text || fix != "" && r.Fix != fix {
		t.Errorf("refused with %s: %q; %q\nwant %s: %q; %q", r.Code, r.Text, r.Fix, code, text, fix)
	}
}

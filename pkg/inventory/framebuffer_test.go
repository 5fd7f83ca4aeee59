package inventory_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const frameBuffer = "d0000000-dfffffff : 0000:00:03.0\n  d0000000-d07fffff : BOOTFB\n    d0000000-d07fffff : simpledrm\n"

// TestUseByFrameBuffer: no console and no fb device says that the firmware's frame buffer is in a display's memory.
func TestUseByFrameBuffer(t *testing.T) {
	const (
		gpu      = "sys/devices/pci0000:00/0000:00:03.0"
		inBAR    = "the firmware's frame buffer (BOOTFB, simpledrm) is in its BAR 0, which VFIO can't reserve until it is gone"
		bound    = "the firmware's frame buffer (simple-framebuffer.0) is in its BAR 0, which VFIO can't reserve until it is gone"
		driver   = "sys/bus/platform/drivers/simple-framebuffer"
		resource = "0x00000000d0000000 0x00000000dfffffff 0x0000000000042208\n"
	)
	for name, tt := range map[string]struct {
		class, bootVGA, iomem string
		device                string // the place of simple-framebuffer.0, which has a driver
		want                  []string
	}{
		"boot VGA adapter":                        {class: "0x030000\n", bootVGA: "1\n", iomem: frameBuffer, want: []string{inBAR}},
		"display that is no VGA adapter":          {class: "0x038000\n", iomem: frameBuffer, want: []string{inBAR}},
		"handed over":                             {class: "0x030000\n", bootVGA: "1\n", iomem: "d0000000-dfffffff : 0000:00:03.0\n"},
		"no display":                              {class: "0x020000\n", iomem: frameBuffer},
		"the map is not known, and it is below":   {class: "0x038000\n", device: gpu + "/simple-framebuffer.0", want: []string{bound}},
		"the map is not known, and it is nowhere": {class: "0x030000\n", bootVGA: "1\n", device: "sys/devices/platform/simple-framebuffer.0", want: []string{bound}},
		"the same of another display":             {class: "0x030000\n", bootVGA: "0\n", device: "sys/devices/platform/simple-framebuffer.0"},
		"the map says more than the driver":       {class: "0x030000\n", bootVGA: "1\n", iomem: "d0000000-dfffffff : 0000:00:03.0\n", device: gpu + "/simple-framebuffer.0"},
		"nothing is known":                        {class: "0x030000\n", bootVGA: "1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			attributes := map[string]string{"class": tt.class, "resource": resource}
			if tt.bootVGA != "" {
				attributes["boot_vga"] = tt.bootVGA
			}
			tr.function("pci0000:00/0000:00:03.0", attributes)
			if tt.iomem != "" {
				tr.put("proc/iomem", tt.iomem)
			}
			if tt.device != "" {
				tr.put(tt.device+"/uevent", "DRIVER=simple-framebuffer\n")
				tr.link(driver+"/simple-framebuffer.0", tt.device)
				tr.put(driver+"/unbind", "")
			}
			checkUses(t, function(t, scan(t, tr.open()), addr(t, "0000:00:03.0")), tt.want...)
		})
	}
}

func TestUnassignedBARs(t *testing.T) {
	tr := newTree(t)
	const none = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
	tr.function("pci0000:00/0000:00:03.0", map[string]string{
		"class": "0x020000\n", "sriov_totalvfs": "8\n", "sriov_numvfs": "0\n",
		"resource": "0x00000000f6000000 0x00000000f6ffffff 0x0000000000040200\n" +
			"0x0000000000000000 0x0000000fffffffff 0x000000002014220c\n" + none +
			"0x0000000000000000 0x0000000001ffffff 0x000000000014220c\n" + none + none +
			"0x0000000000000000 0x000000000007ffff 0x0000000020046200\n" + // the ROM
			"0x0000000000000000 0x000000000007ffff 0x000000002014220c\n" + none + none +
			"0x00000000f7000000 0x00000000f707ffff 0x000000000014220c\n" + none + none,
	})
	f := function(t, scan(t, tr.open()), addr(t, "0000:00:03.0"))
	if diff := cmp.Diff([]int{1, 3}, f.UnassignedBARs()); diff != "" {
		t.Errorf("BARs without an address (-want +got):\n%s", diff)
	}
	if f.PF == nil {
		t.Fatal("it is no PF")
	}
	if diff := cmp.Diff([]int{0}, f.PF.UnassignedBARs); diff != "" {
		t.Errorf("VF BARs without an address (-want +got):\n%s", diff)
	}
}

func TestD3cold(t *testing.T) {
	ones := make([]byte, 256)
	for i := range ones {
		ones[i] = 0xff
	}
	for name, tt := range map[string]struct {
		config, state string
		want          bool
	}{
		"no power, no answer": {string(ones), "D3cold\n", true},
		"no answer":           {string(ones), "D0\n", false},
		"asleep, and answers": {"\xde\x10\x84\x26" + string(make([]byte, 252)), "D3cold\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			tr.function("pci0000:00/0000:00:03.0", map[string]string{"class": "0x030200\n", "config": tt.config, "power_state": tt.state})
			if f := function(t, scan(t, tr.open()), addr(t, "0000:00:03.0")); f.D3cold != tt.want {
				t.Errorf("in D3cold: %t, want %t", f.D3cold, tt.want)
			}
		})
	}
}

package device_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// display is a GPU with registers below 4 GiB, I/O ports and 32 GiB of memory at 160 GiB.
func display(driver string) *device.Function {
	return &device.Function{
		Address: pci.Address{Bus: 0xc3}, Class: 0x038000, Driver: driver,
		BARs: []device.BAR{
			{Index: 0, Start: 0x28_0000_0000, Size: 32 << 30, Prefetchable: true, Is64: true},
			{Index: 2, Start: 0x1000, Size: 0x1000, IO: true},
			{Index: 5, Start: 0xd000_0000, Size: 1 << 20},
		},
	}
}

const (
	// held is what Linux 6.18 shows of a GPU whose memory simpledrm has.
	held = `2000000000-2fffffffff : PCI Bus 0000:00
  2800000000-2fffffffff : 0000:c3:00.0
    2800000000-2801fa3fff : BOOTFB
      2800000000-2801fa3fff : simpledrm
`
	// handedOver is the same once a driver for the display has it.
	handedOver = `2000000000-2fffffffff : PCI Bus 0000:00
  2800000000-2fffffffff : 0000:c3:00.0
    2800000000-2fffffffff : vfio-pci
`
)

// hidden is iomem as a reader without CAP_SYS_ADMIN sees it.
func hidden(iomem string) string {
	var b strings.Builder
	for line := range strings.Lines(iomem) {
		ends, name, _ := strings.Cut(line, " : ")
		b.WriteString(ends[:len(ends)-len(strings.TrimLeft(ends, " "))] + "00000000-00000000 : " + name)
	}
	return b.String()
}

// behindSwitches nests deeper than the kernel indents.
const behindSwitches = `2000000000-2fffffffff : PCI Bus 0000:00
  2000000000-2fffffffff : PCI Bus 0000:01
    2000000000-2fffffffff : PCI Bus 0000:02
      2000000000-2fffffffff : PCI Bus 0000:03
        2000000000-2fffffffff : PCI Bus 0000:c3
          2000000000-20ffffffff : 0000:c4:00.0
          2800000000-2fffffffff : 0000:c3:00.0
          2800000000-2801fa3fff : BOOTFB
          2800000000-2801fa3fff : simpledrm
`

func TestFrameBufferUses(t *testing.T) {
	one := func(name, detail string) []device.Use {
		return []device.Use{{Kind: device.UseConsole, Name: name, Detail: detail}}
	}
	of := func(region string) string {
		return "d0000000-d00fffff : 0000:c3:00.0\n  d0000000-d007ffff : " + region + "\n"
	}
	bothBARs := held + "d0000000-d00fffff : 0000:c3:00.0\n  d0000000-d007ffff : efifb\n"
	for name, tt := range map[string]struct {
		iomem string
		want  []device.Use
	}{
		"simpledrm":                          {held, one("BOOTFB, simpledrm", "its BAR 0")},
		"nobody's any more":                  {strings.Join(strings.SplitAfter(held, "\n")[:3], ""), one("BOOTFB", "its BAR 0")},
		"handed over":                        {handedOver, nil},
		"addresses are hidden":               {hidden(held), one("BOOTFB, simpledrm", "one of its BARs")},
		"hidden, handed over":                {hidden(handedOver), nil},
		"hidden, behind switches":            {hidden(behindSwitches), one("BOOTFB, simpledrm", "one of its BARs")},
		"behind switches":                    {behindSwitches, one("BOOTFB, simpledrm", "its BAR 0")},
		"another GPU's":                      {"b0000000-bfffffff : 0000:03:00.0\n  b0000000-b07fffff : efifb\n", nil},
		"hidden, another GPU's":              {hidden("b0000000-bfffffff : 0000:03:00.0\n  b0000000-b07fffff : efifb\nd0000000-d00fffff : 0000:c3:00.0\n"), nil},
		"in no BAR":                          {"7ed00000-7f00ffff : BOOTFB\n", nil},
		"hidden, in no BAR":                  {hidden("d0000000-d00fffff : 0000:c3:00.0\n7ed00000-7f00ffff : BOOTFB\n"), nil},
		"I/O ports are not memory":           {"00001000-00001fff : efifb\n", nil},
		"it begins before the BAR":           {"cff00000-d00000ff : vesafb\n", one("vesafb", "its BAR 5")},
		"it ends where the BAR begins":       {"cff00000-cfffffff : vesafb\n", nil},
		"in two BARs":                        {bothBARs, append(one("BOOTFB, simpledrm", "its BAR 0"), one("efifb", "its BAR 5")...)},
		"efifb":                              {of("efifb"), one("efifb", "its BAR 5")},
		"efidrm":                             {of("efidrm"), one("efidrm", "its BAR 5")},
		"vesadrm":                            {of("vesadrm"), one("vesadrm", "its BAR 5")},
		"simplefb":                           {of("simplefb"), one("simplefb", "its BAR 5")},
		"ofdrm":                              {of("ofdrm"), one("ofdrm", "its BAR 5")},
		"coreboot's":                         {of("Coreboot Framebuffer"), one("Coreboot Framebuffer", "its BAR 5")},
		"a platform device's":                {of("simple-framebuffer.0"), one("simple-framebuffer.0", "its BAR 5")},
		"a driver's registers":               {of("nvidia"), nil},
		"a name that begins in the same way": {of("efifbx"), nil},
		"not a map":                          {"BOOTFB\n-\nzz-yy : BOOTFB\n : \n", nil},
		"empty":                              {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := device.FrameBufferUses(display("vfio-pci"), device.ParseFrameBuffers(tt.iomem))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("uses (-want +got):\n%s", diff)
			}
			excerpt := device.ExcerptFrameBuffers(tt.iomem)
			if diff := cmp.Diff(got, device.FrameBufferUses(display("vfio-pci"), device.ParseFrameBuffers(excerpt))); diff != "" {
				t.Errorf("uses by the excerpt %q (-whole +excerpt):\n%s", excerpt, diff)
			}
		})
	}
}

func TestHiddenFrameBufferIsInTheOnlyBAR(t *testing.T) {
	f := display("")
	f.BARs = f.BARs[:2]
	want := []device.Use{{Kind: device.UseConsole, Name: "BOOTFB, simpledrm", Detail: "its BAR 0"}}
	if diff := cmp.Diff(want, device.FrameBufferUses(f, device.ParseFrameBuffers(hidden(held)))); diff != "" {
		t.Errorf("uses (-want +got):\n%s", diff)
	}
}

func TestExcerptLeavesOutTheKernel(t *testing.T) {
	iomem := "100000-7fffffff : System RAM\n  1000000-1ffffff : Kernel code\n" + held
	want := strings.Join(strings.SplitAfter(held, "\n")[1:], "")
	if diff := cmp.Diff(want, device.ExcerptFrameBuffers(iomem)); diff != "" {
		t.Errorf("excerpt (-want +got):\n%s", diff)
	}
}

func TestFixOfFrameBuffer(t *testing.T) {
	const boot = "boot with `initcall_blacklist=sysfb_init`"
	for names, tt := range map[string]struct{ want, never string }{
		"BOOTFB, simpledrm":    {"`echo simple-framebuffer.0 > /sys/bus/platform/drivers/simple-framebuffer/unbind`", ""},
		"efifb":                {"`echo efi-framebuffer.0 > /sys/bus/platform/drivers/efi-framebuffer/unbind`", ""},
		"vesadrm":              {"`echo vesa-framebuffer.0 > /sys/bus/platform/drivers/vesa-framebuffer/unbind`", ""},
		"simple-framebuffer.0": {"`echo simple-framebuffer.0 > /sys/bus/platform/drivers/simple-framebuffer/unbind`", ""},
		"BOOTFB":               {boot, "unbind"},
	} {
		f := &device.Function{Uses: []device.Use{{Kind: device.UseConsole, Name: "card0"}, {Kind: device.UseConsole, Name: names, Detail: "its BAR 0"}}}
		fix := f.UseFix()
		if !strings.Contains(fix, tt.want) || !strings.Contains(fix, boot) || tt.never != "" && strings.Contains(fix, tt.never) {
			t.Errorf("%s: the fix is %q", names, fix)
		}
	}
	if fix := (&device.Function{Uses: []device.Use{{Kind: device.UseConsole, Name: "card0"}}}).UseFix(); fix != "" {
		t.Errorf("the console's fix is %q", fix)
	}
}

func TestReservedForTheFrameBuffer(t *testing.T) {
	frame := device.Use{Kind: device.UseConsole, Name: "BOOTFB", Detail: "its BAR 0"}
	for name, tt := range map[string]struct {
		driver string
		uses   []device.Use
		want   bool
	}{
		"on vfio-pci":                 {"vfio-pci", []device.Use{frame}, true},
		"on a host driver":            {"amdgpu", []device.Use{frame}, false},
		"without a driver":            {"", []device.Use{frame}, false},
		"unused":                      {"vfio-pci", nil, false},
		"with the console on it, too": {"vfio-pci", []device.Use{{Kind: device.UseConsole, Name: "vga"}, frame}, false},
	} {
		f := display(tt.driver)
		if f.Uses = tt.uses; f.IsReserved() != tt.want {
			t.Errorf("%s: reserved %t, want %t", name, f.IsReserved(), tt.want)
		}
	}
}

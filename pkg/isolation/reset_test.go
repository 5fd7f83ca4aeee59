package isolation_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// gpuPair is a GPU in group 2 and its audio function below one port.
func gpuPair(audioGroup int, edits ...edit) []device.Function {
	return []device.Function{
		port(rp, 1),
		gpu(gpuAt, 2, append(edits, under(rp), acs(0, 0))...),
		audio("0000:21:00.1", audioGroup, under(rp), acs(0, 0)),
	}
}

func TestResets(t *testing.T) {
	cases := []struct {
		name string
		node *device.Snapshot
		of   string
		want []string // method and set
	}{
		{"kernel's order becomes ours", node(plainGPU(resets("pm", "bus", "flr", "device_specific"))...), gpuAt, []string{
			"device_specific 0000:21:00.0", "flr 0000:21:00.0", "bus 0000:21:00.0", "pm 0000:21:00.0",
		}},
		{"acpi, af_flr and cxl_bus", node(plainGPU(resets("cxl_bus", "af_flr", "acpi"))...), gpuAt, []string{
			"acpi 0000:21:00.0", "af_flr 0000:21:00.0", "cxl_bus 0000:21:00.0",
		}},
		{"a word from a newer kernel is left alone", node(plainGPU(resets("warp"))...), gpuAt, nil},
		{"none", node(plainGPU(resets())...), gpuAt, nil},
		{"hot reset of a GPU with its audio function", node(gpuPair(2, resets())...), gpuAt, []string{
			"vfio_hot_reset 0000:21:00.0 0000:21:00.1",
		}},
		{"hot reset across groups of one GPU", node(gpuPair(3, resets("pm"))...), gpuAt, []string{
			"vfio_hot_reset 0000:21:00.0 0000:21:00.1", "pm 0000:21:00.0",
		}},
		{"audio alone does not take its GPU along", node(gpuPair(3)...), "0000:21:00.1", nil},
		{"bus is not to be had with a neighbor", node(gpuPair(2, resets("bus", "flr"))...), gpuAt, []string{
			"flr 0000:21:00.0", "vfio_hot_reset 0000:21:00.0 0000:21:00.1",
		}},
		{"hot reset of a whole conventional bus", node(bridged("")...), "0000:22:01.0", []string{
			"vfio_hot_reset 0000:22:01.0 0000:22:02.0",
		}},
		{"neighbor outside the group", node(
			port(rp, 1), nic("0000:21:00.0", 2, under(rp), resets()), nic("0000:21:00.1", 3, under(rp)),
		), "0000:21:00.0", nil},
		{"a bridge on the bus rules it out", node(
			port(rp, 2, noACS),
			gpu("0000:21:00.0", 2, under(rp), resets()),
			function("0000:21:01.0", 0x060400, 2, under(rp), express(pci.PCIeToPCI)),
			nic("0000:22:00.0", 2, under(rp, "0000:21:01.0")),
		), "0000:21:00.0", nil},
		{"own VFs don't count", node(
			port(rp, 1), nic("0000:21:00.0", 2, under(rp), resets("bus"), pfOf("0000:21:10.0")),
			nic("0000:21:10.0", 3, under(rp), vfOf21),
		), "0000:21:00.0", []string{"bus 0000:21:00.0"}},
		{"a VF never takes its PF along", node(
			port(rp, 1), nic("0000:21:00.0", 2, under(rp), pfOf("0000:21:10.0")),
			nic("0000:21:10.0", 3, under(rp), vfOf21, resets()),
		), "0000:21:10.0", nil},
		{"root complex device", node(function("0000:00:02.0", 0x030000, 1, express(pci.RCEndpoint), resets("flr", "pm"))), "0000:00:02.0", []string{
			"flr 0000:00:02.0", "pm 0000:00:02.0",
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f, ok := c.node.Function(addr(t, c.of))
			if !ok {
				t.Fatalf("the node has no function %s, want it", c.of)
			}
			var got []string
			for _, r := range isolation.Resets(c.node, f) {
				got = append(got, r.Method+" "+addresses(r.Set))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("resets (-want +got):\n%s", diff)
			}
			var best string
			if r := isolation.Judge(c.node, f).Reset; r != nil {
				best = r.Method + " " + addresses(r.Set)
			}
			if len(c.want) > 0 && best != c.want[0] || len(c.want) == 0 && best != "" {
				t.Errorf("verdict's reset = %q, want the first of %q", best, c.want)
			}
		})
	}
}

func addresses(set []pci.Address) string {
	texts := make([]string, len(set))
	for i, a := range set {
		texts[i] = a.String()
	}
	return strings.Join(texts, " ")
}

func TestJudgeResets(t *testing.T) {
	runJudgeCases(t, []judgeCase{
		{name: "no method at all", node: node(plainGPU(resets())...), of: gpuAt, reasons: []string{"NoReset"}},
		{
			name: "only a neighbor's reset", of: "0000:21:00.0",
			node:    node(port(rp, 1), nic("0000:21:00.0", 2, under(rp), resets(), acs(0, 0)), nic("0000:21:00.1", 3, under(rp))),
			reasons: []string{"NoReset 0000:21:00.1"},
		},
		{name: "power management only", node: node(plainGPU(resets("pm"))...), of: gpuAt, notes: []string{"WeakReset"}},
		{name: "power management beside flr", node: node(plainGPU(resets("flr", "pm"))...), of: gpuAt},
	})
}

func TestTaken(t *testing.T) {
	usb := function("0000:21:00.2", 0x0c0330, 4, under(rp))
	ports := []device.Function{port(rp, 1), nic("0000:21:00.0", 2, under(rp)), nic("0000:21:00.1", 3, under(rp))}
	cases := []struct {
		name string
		node *device.Snapshot
		of   string
		want string
	}{
		{"alone", node(plainGPU()...), gpuAt, gpuAt},
		{"without a group", node(gpu(gpuAt, -1)), gpuAt, gpuAt},
		{"group mates but no bridge", node(bridged("pcieport")...), "0000:22:02.0", "0000:22:01.0 0000:22:02.0"},
		{"companions in groups of their own", node(append(gpuPair(3), usb)...), gpuAt, gpuAt + " 0000:21:00.1 0000:21:00.2"},
		{"ports of a NIC are strangers", node(ports...), "0000:21:00.0", "0000:21:00.0"},
		{
			"a companion's mates come too",
			node(append(gpuPair(3), nic("0000:30:00.0", 3))...), gpuAt,
			gpuAt + " 0000:21:00.1 0000:30:00.0",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f, ok := c.node.Function(addr(t, c.of))
			if !ok {
				t.Fatalf("the node has no function %s, want it", c.of)
			}
			var got []pci.Address
			for _, g := range isolation.AssignmentSet(c.node, f) {
				got = append(got, g.Address)
			}
			if diff := cmp.Diff(c.want, addresses(got)); diff != "" {
				t.Errorf("taken (-want +got):\n%s", diff)
			}
		})
	}
}

// space returns a configuration space with MSI at 0x50, MSI-X at 0x60 and PCI
// Express at 0x70.
func space() []byte {
	c := make([]byte, 4096)
	binary.LittleEndian.PutUint32(c, 0x233010de)
	c[0x06] = 0x10 // status: has a capability list
	c[0x34] = 0x50
	copy(c[0x50:], []byte{0x05, 0x60})
	copy(c[0x60:], []byte{0x11, 0x70})
	copy(c[0x70:], []byte{0x10, 0x00})
	binary.LittleEndian.PutUint32(c[0x10:], 0xe0000000)
	return c
}

func fingerprint(t *testing.T, config []byte) isolation.Fingerprint {
	t.Helper()
	fp, err := isolation.NewFingerprint(pci.Address{Bus: 0x3b}, config)
	if err != nil {
		t.Fatal(err)
	}
	return fp
}

func TestCompare(t *testing.T) {
	tests := map[string]struct {
		change func(c []byte)
		want   string // in the reason; empty for proven clean
	}{
		"nothing":              {func([]byte) {}, ""},
		"the interrupt line":   {func(c []byte) { c[0x3c] = 11 }, ""},
		"status and cache":     {func(c []byte) { c[0x07], c[0x0c] = 0x08, 0x10 }, ""},
		"a BAR":                {func(c []byte) { c[0x13] = 0xd0 }, "differs"},
		"the device id":        {func(c []byte) { c[0x02] = 0x31 }, "differs"},
		"the subsystem":        {func(c []byte) { c[0x2c] = 1 }, "differs"},
		"a capability is gone": {func(c []byte) { c[0x51] = 0x70 }, "differs"},
		"a new capability":     {func(c []byte) { c[0x71] = 0x80; copy(c[0x80:], []byte{0x09, 0x00}) }, "differs"},
		"bus mastering":        {func(c []byte) { c[0x04] |= 0x04 }, "bus mastering"},
		"MSI":                  {func(c []byte) { c[0x52] |= 0x01 }, "message interrupts"},
		"MSI-X":                {func(c []byte) { c[0x63] |= 0x80 }, "message interrupts"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			changed := space()
			tt.change(changed)
			got := isolation.Compare(fingerprint(t, space()), fingerprint(t, changed))
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("Compare = %q; want %q in it", got, tt.want)
			}
		})
	}
}

// TestCompareShorterRead checks that a space read with less privilege is not
// taken for another device; the digests are not comparable.
func TestCompareShorterRead(t *testing.T) {
	full := fingerprint(t, space())
	short := fingerprint(t, space()[:64])
	if why := isolation.Compare(full, short); why == "" {
		t.Error("a header alone was taken for proof of the whole space")
	}
}

func TestFingerprintOfDeadFunction(t *testing.T) {
	_, err := isolation.NewFingerprint(pci.Address{Bus: 0x3b}, bytes.Repeat([]byte{0xff}, 4096))
	var dead *isolation.DeadError
	if !errors.As(err, &dead) || !strings.Contains(err.Error(), "0000:3b:00.0") {
		t.Errorf("FingerprintOf = %v; want a DeadError that names the function", err)
	}
}

// TestFingerprintOfVF checks that the ids of a VF, which read ffff by the
// SR-IOV specification, are not taken for death.
func TestFingerprintOfVF(t *testing.T) {
	vf := space()
	copy(vf, []byte{0xff, 0xff, 0xff, 0xff})
	fingerprint(t, vf)
}

func TestFingerprintOfTooLittle(t *testing.T) {
	if _, err := isolation.NewFingerprint(pci.Address{}, make([]byte, 63)); err == nil {
		t.Error("FingerprintOf 63 bytes = nil; want an error")
	}
}

func FuzzFingerprintOf(f *testing.F) {
	f.Add(space())
	f.Add(make([]byte, 64))
	f.Add(bytes.Repeat([]byte{0xff}, 256))
	f.Fuzz(func(t *testing.T, config []byte) {
		fp, err := isolation.NewFingerprint(pci.Address{}, config)
		if err != nil {
			return
		}
		if why := isolation.Compare(fp, fp); why != "" {
			t.Errorf("Compare of a space with itself = %q, want \"\"", why)
		}
	})
}

// TestKernelThatShowsNoResetMethods: its sysfs lacks reset_method, so there is nothing to write to it, and no bus to blame.
func TestKernelThatShowsNoResetMethods(t *testing.T) {
	for release, older := range map[string]bool{
		"5.4.0-216-generic": true, "5.14.0-427.el9.x86_64": true, "4.18.0-553.el8_10.x86_64": true,
		"5.15.0-1": false, "6.8.12-11-pve": false, "10.0.1": false, "": false,
	} {
		s := node(plainGPU(resets())...)
		s.Host.Kernel = release
		f, _ := s.Function(addr(t, gpuAt))
		v := isolation.Judge(s, f)
		for _, r := range v.Reasons {
			if r.Code != rule.NoReset {
				continue
			}
			if said := strings.Contains(r.Text, "Linux "+release+" does not show them") && r.Fix == "use Linux 5.15 or newer"; said != older {
				t.Errorf("Linux %q: text is %q and fix %q, want a newer Linux as the fix: %t", release, r.Text, r.Fix, older)
			}
		}
		if !v.Has(rule.NoReset) {
			t.Errorf("Linux %q: reasons are %+v, want %s", release, v.Reasons, rule.NoReset)
		}
	}
}

// TestWeakResets: a method that nobody vouches for is not shown as one that somebody does.
func TestWeakResets(t *testing.T) {
	pf, amd := &device.VF{PF: addr(t, gpuAt)}, pci.ID(0x1002)
	for name, c := range map[string]struct {
		of     device.Function
		method string
		weak   bool
		word   string
	}{
		"a whole GPU":        {device.Function{Vendor: pci.VendorNVIDIA}, isolation.FLR, false, "flr"},
		"a vGPU":             {device.Function{Vendor: pci.VendorNVIDIA, VF: pf}, isolation.FLR, true, "weak"},
		"a slice of Intel":   {device.Function{Vendor: pci.VendorIntel, VF: pf}, isolation.FLR, false, "flr"},
		"a slice of AMD":     {device.Function{Vendor: amd, VF: pf}, isolation.FLR, false, "flr"},
		"a power cycle":      {device.Function{Vendor: amd}, isolation.PM, true, "pm"},
		"one of a vGPU's VF": {device.Function{Vendor: pci.VendorNVIDIA, VF: pf}, isolation.PM, true, "pm"},
	} {
		r := isolation.Reset{Method: c.method}
		if got := isolation.IsWeak(c.of.Vendor, c.of.VF != nil, c.method); got != c.weak {
			t.Errorf("%s: weak is %t, want %t", name, got, c.weak)
		}
		if got := r.Word(&c.of); got != c.word {
			t.Errorf("%s: the word is %q, want %q", name, got, c.word)
		}
	}
}

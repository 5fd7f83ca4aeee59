package pci_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// space is a configuration space under construction.
type space []byte

// newSpace returns the header of a function of vendor 8086 with an empty
// capability list.
func newSpace(size int) space {
	s := make(space, size)
	s.word(0x00, 0x8086)
	s.word(0x02, 0x10c9)
	s.word(0x06, 0x0010)
	return s
}

func (s space) word(at int, value uint16) { binary.LittleEndian.PutUint16(s[at:], value) }

// list chains conventional capabilities; each is an offset and an id.
func (s space) list(capabilities ...[2]byte) space {
	pointer := 0x34
	for _, c := range capabilities {
		s[pointer] = c[0]
		s[c[0]] = c[1]
		pointer = int(c[0]) + 1
	}
	return s
}

// extended chains extended capabilities, from 0x100 on; each is an offset and an id.
func (s space) extended(capabilities ...[2]uint16) space {
	for i, c := range capabilities {
		next := uint16(0)
		if i+1 < len(capabilities) {
			next = capabilities[i+1][0]
		}
		binary.LittleEndian.PutUint32(s[c[0]:], uint32(next)<<20|1<<16|uint32(c[1]))
	}
	return s
}

// nic is the space of a PF with all that a PF has.
func nic() space {
	s := newSpace(4096).list([2]byte{0x40, 0x01}, [2]byte{0x50, 0x05}, [2]byte{0x70, 0x11}, [2]byte{0xa0, 0x10}, [2]byte{0xe0, 0x13})
	s.word(0x44, 0x0008|0x0003) // no soft reset, D3hot
	s.word(0xa2, 0x0002)        // an endpoint
	s.word(0xa6, 0x1000)        // FLR
	s[0xe3] = 0x03              // transactions pending, FLR
	s.extended([2]uint16{0x100, 0x01}, [2]uint16{0x150, 0x0d}, [2]uint16{0x160, 0x10}, [2]uint16{0x1a0, 0x0f},
		[2]uint16{0x1b0, 0x13}, [2]uint16{0x1c0, 0x1b})
	s.word(0x154, 0x001f)
	s.word(0x156, 0x001d)
	s.word(0x16e, 8)
	s.word(0x170, 4)
	s.word(0x17a, 0x10ca)
	s.word(0x1a6, 0x8000)
	s.word(0x1b4, 0x0001)
	return s
}

func nicCapabilities() pci.Capabilities {
	return pci.Capabilities{
		Header:  pci.HeaderNormal,
		Express: &pci.Express{Type: pci.Endpoint, FLR: true},
		AFFLR:   true,
		Power:   &pci.Power{NoSoftReset: true, State: 3},
		MSI:     true,
		MSIX:    true,
		AER:     true,
		ACS:     &pci.ACS{Capability: 0x1f, Control: 0x1d},
		ATS:     &pci.Switchable{Enabled: true, Control: 0x8000},
		PRI:     &pci.Switchable{Enabled: true, Control: 1},
		PASID:   &pci.Switchable{},
		SRIOV:   &pci.SRIOV{TotalVFs: 8, NumVFs: 4, VFDevice: 0x10ca},
		Switches: []pci.Capability{
			{ID: 0x0d, Extended: true, Offset: 0x150},
			{ID: 0x0f, Extended: true, Offset: 0x1a0},
			{ID: 0x13, Extended: true, Offset: 0x1b0},
			{ID: 0x1b, Extended: true, Offset: 0x1c0},
		},
	}
}

// hotPlug is the space of a port with the capability's flags and DPC's control;
// its slot, if it has one, takes devices while it runs.
func hotPlug(flags, dpc uint16) space {
	s := newSpace(4096).list([2]byte{0x40, 0x10}).extended([2]uint16{0x100, 0x1d})
	s.word(0x42, flags)
	s[0x0e] = 0x01
	s.word(0x54, 0x0040)
	s.word(0x106, dpc)
	return s
}

func TestParseCapabilities(t *testing.T) {
	upstream := newSpace(4096).list([2]byte{0x40, 0x10})
	upstream.word(0x42, 0x0052)
	upstream[0x0e] = 0x81 // of a device with several functions
	cardBus := newSpace(256)
	cardBus[0x0e] = 0x02
	undefined := newSpace(256)
	undefined[0x0e] = 0x7f
	noList := newSpace(256).list([2]byte{0x40, 0x10})
	noList.word(0x06, 0)
	cut := nicCapabilities()
	cut.Truncated, cut.AER, cut.ACS, cut.ATS, cut.PRI, cut.PASID, cut.SRIOV, cut.Switches = true, false, nil, nil, nil, nil, nil, nil
	flrOnly := newSpace(256).list([2]byte{0x40, 0x13})
	flrOnly[0x43] = 0x02
	ones := nic()
	copy(ones[256:], []byte{0xff, 0xff, 0xff, 0xff})
	onesWant := cut
	onesWant.Truncated = false
	tests := []struct {
		name   string
		config []byte
		want   pci.Capabilities
	}{
		{"a PF with everything", nic(), nicCapabilities()},
		{"the same without privilege", nic()[:64], pci.Capabilities{Truncated: true, Header: pci.HeaderNormal}},
		{"the same without extended space", nic()[:256], cut},
		{"extended space that does not answer", ones, onesWant},
		{"upstream port of a switch", upstream, pci.Capabilities{Header: pci.HeaderBridge, Express: &pci.Express{Type: pci.UpstreamPort}}},
		{"hot-plug port with containment", hotPlug(0x0162, 2), pci.Capabilities{
			Header: pci.HeaderBridge, Express: &pci.Express{Type: pci.DownstreamPort, HotPlug: true}, DPC: &pci.Switchable{Enabled: true, Control: 2},
		}},
		{"a port without a slot, containment off", hotPlug(0x0062, 0), pci.Capabilities{
			Header: pci.HeaderBridge, Express: &pci.Express{Type: pci.DownstreamPort}, DPC: &pci.Switchable{},
		}},
		{"conventional function, all of it", newSpace(256), pci.Capabilities{Header: pci.HeaderNormal}},
		{"conventional function, a part", newSpace(128), pci.Capabilities{Truncated: true, Header: pci.HeaderNormal}},
		{"a pointer without a list", noList, pci.Capabilities{Header: pci.HeaderNormal}},
		{"advanced features without transactions pending", flrOnly, pci.Capabilities{Header: pci.HeaderNormal}},
		{"CardBus bridge", cardBus, pci.Capabilities{Header: pci.HeaderCardBus}},
		{"a header that PCI does not define", undefined, pci.Capabilities{}},
		{"all ones", allOnes(256), pci.Capabilities{Truncated: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := pci.ParseCapabilities(tt.config)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("capabilities (-want +got):\n%s", diff)
			}
		})
	}
}

// switches returns a space's capabilities by a light read.
func switches(config []byte, c pci.Capabilities) (registers [][]byte) {
	for _, entry := range c.Switches {
		registers = append(registers, config[entry.Offset:][:pci.SwitchBytes])
	}
	return registers
}

func TestReread(t *testing.T) {
	before := nicCapabilities()
	config := nic()
	config.word(0x156, 0)      // ACS off
	config.word(0x1a6, 0)      // ATS off
	config.word(0x1c6, 0x0001) // PASID on
	got, ok := before.Reread(switches(config, before))
	want, err := pci.ParseCapabilities(config)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("%v (-parsed +read again):\n%s", ok, diff)
	}
	if diff := cmp.Diff(nicCapabilities(), before); diff != "" {
		t.Errorf("what was known before has changed:\n%s", diff)
	}
}

// What is not where it was is another function's, or does not answer.
func TestRereadOfAnother(t *testing.T) {
	before := nicCapabilities()
	other := nic()
	other.word(0x1a0, 0x000e)
	for name, registers := range map[string][][]byte{
		"another capability": switches(other, before),
		"all ones":           switches(allOnes(4096), before),
		"nothing":            nil,
		"too little":         {{0x0d, 0}, {0x0f, 0}, {0x13, 0}, {0x1b, 0}},
	} {
		if _, ok := before.Reread(registers); ok {
			t.Errorf("%s: read again", name)
		}
	}
}

// Of several capabilities of one kind the first counts, as for the kernel: a device can't hide one behind another.
func TestTheFirstCapabilityCounts(t *testing.T) {
	config := newSpace(4096).list([2]byte{0x40, 0x10}).extended([2]uint16{0x100, 0x0d}, [2]uint16{0x150, 0x0d})
	config.word(0x104, 0x1d)
	config.word(0x154, 0x1d)
	config.word(0x156, 0x1d)
	got, err := pci.ParseCapabilities(config)
	if err != nil || got.ACS == nil || got.ACS.Control != 0 || len(got.Switches) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// The device writes the lists. Whatever it writes, the walk ends, and what was
// found before stays.
func TestParseCapabilitiesMalformed(t *testing.T) {
	loop := newSpace(256).list([2]byte{0x40, 0x05}, [2]byte{0x50, 0x11}, [2]byte{0x40, 0x05})
	self := newSpace(256).list([2]byte{0x40, 0x05}, [2]byte{0x40, 0x05})
	header := newSpace(256).list([2]byte{0x40, 0x05})
	header[0x41] = 0x10
	low := nic()
	binary.LittleEndian.PutUint32(low[0x100:], 0x040<<20|1<<16|0x0001)
	extLoop := nic()
	binary.LittleEndian.PutUint32(extLoop[0x150:], 0x100<<20|1<<16|0x000d)
	tests := []struct {
		name   string
		config []byte
		check  func(pci.Capabilities) bool
	}{
		{"nothing", nil, func(pci.Capabilities) bool { return true }},
		{"less than a header", make([]byte, 63), func(pci.Capabilities) bool { return true }},
		{"a loop", loop, func(c pci.Capabilities) bool { return c.MSI && c.MSIX }},
		{"a capability that points at itself", self, func(c pci.Capabilities) bool { return c.MSI }},
		{"a pointer into the header", header, func(c pci.Capabilities) bool { return c.MSI }},
		{"an extended pointer below 0x100", low, func(c pci.Capabilities) bool { return c.AER && c.Express != nil }},
		{"an extended loop", extLoop, func(c pci.Capabilities) bool { return c.AER && c.ACS != nil }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := pci.ParseCapabilities(tt.config)
			if _, ok := errors.AsType[*pci.MalformedError](err); !ok {
				t.Fatalf("error %v, want a MalformedError", err)
			}
			if !got.Truncated || !tt.check(got) {
				t.Errorf("capabilities %+v: want what was found, and Truncated", got)
			}
		})
	}
}

func TestDead(t *testing.T) {
	vf := newSpace(256)
	vf.word(0x00, 0xffff)
	vf.word(0x02, 0xffff)
	tests := []struct {
		name   string
		config []byte
		isVF   bool
		want   bool
	}{
		{"a living PF", nic(), false, false},
		{"a living VF, whose ids read ffff", vf, true, false},
		{"the same ids on a function that is no VF", vf, false, true},
		{"all ones", allOnes(4096), false, true},
		{"a VF that is all ones", allOnes(64), true, true},
		{"nothing to read", nil, false, false},
	}
	for _, tt := range tests {
		if got := pci.Dead(tt.config, tt.isVF); got != tt.want {
			t.Errorf("%s: Dead = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func allOnes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 0xff
	}
	return b
}

func FuzzParseCapabilities(f *testing.F) {
	f.Add([]byte(nic()))
	f.Add([]byte(nic()[:64]))
	f.Add([]byte(newSpace(256)))
	f.Add(allOnes(256))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, config []byte) {
		whole, err := pci.ParseCapabilities(config)
		if err != nil && !whole.Truncated {
			t.Errorf("error %v, but not Truncated", err)
		}
		if len(config) < 256 {
			return
		}
		// Whoever sees less must not find more.
		part, _ := pci.ParseCapabilities(config[:len(config)/2])
		if part.SRIOV != nil && whole.SRIOV == nil || part.ACS != nil && whole.ACS == nil || part.MSI && !whole.MSI {
			t.Errorf("half of the space has %+v, all of it %+v", part, whole)
		}
	})
}

func TestParseFatalErrors(t *testing.T) {
	for text, want := range map[string]uint64{
		"Undefined 0\nDLP 2\nTOTAL_ERR_FATAL 2\n":    2,
		"TOTAL_ERR_FATAL 18446744073709551615":       1<<64 - 1,
		"DLP 3\n":                                    0,
		"TOTAL_ERR_FATAL many\n":                     0,
		"TOTAL_ERR_NONFATAL 4\nTOTAL_ERR_FATAL -1\n": 0,
		"": 0,
	} {
		if got, ok := pci.ParseFatalErrors(text); got != want || ok != (want > 0) {
			t.Errorf("%q: %d, %t; want %d", text, got, ok, want)
		}
	}
}

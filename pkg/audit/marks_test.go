package audit_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// marks gives every function that can be given away to one of three tenants, and
// has every fifth function fail.
func marks(inv *audit.Inventory) *audit.Marks {
	m := &audit.Marks{
		Holders: map[pci.Address][]audit.Holder{}, Failing: map[pci.Address]string{},
		Page: func(a pci.Address) string { return "#d-" + a.Label() },
	}
	for i := range inv.Devices {
		d := &inv.Devices[i]
		if d.Assignable() {
			m.Holders[d.Address] = []audit.Holder{{Letter: string(rune('A' + i%3)), Color: i % 3, Name: "a-tenant-with-a-long-name/and-a-claim-with-one"}}
		}
		if i%5 == 0 {
			m.Failing[d.Address] = "fails ACS-001, ACS-002, ACS-003, ACS-004, ACS-005, ACS-006"
		}
	}
	return m
}

func TestArrangeMarkedIsReadable(t *testing.T) {
	for name, inv := range inventories(t) {
		t.Run(name, func(t *testing.T) {
			m := marks(inv)
			d, left := audit.ArrangeMarked(inv, m)
			if len(d.Cards)+left != len(inv.Devices) {
				t.Errorf("%d cards, and %d functions left out, of %d", len(d.Cards), left, len(inv.Devices))
			}
			page := audit.Rect{W: d.Width, H: d.Height}
			checkCards(t, d, page)
			checkTexts(t, d, page)
			checkOutlines(t, d, page)
			for _, c := range d.Cards {
				if got, want := len(c.Tags), len(m.Holders[c.Device.Address]); got != want {
					t.Errorf("%s has %d tags, want %d", c.Device.Address, got, want)
				}
				for _, tag := range c.Tags {
					if !c.Box.Contains(tag.Box) || !tag.Box.Contains(tag.Text.Box()) {
						t.Errorf("%s: the tag %q sticks out of its card, or of its box", c.Device.Address, tag.Text.Text)
					}
				}
			}
		})
	}
}

// The way between functions is below the last bridge that they share: strangers
// below other bridges are not on it.
func TestTopologyMarksPathBetweenTenantsOnly(t *testing.T) {
	inv := server().inventory()
	gpu := func(text string) pci.Address {
		a, err := pci.ParseAddress(text)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, tt := range []struct {
		name string
		set  []pci.Address
		want int
	}{
		{"two below a switch", []pci.Address{gpu("0000:13:00.0"), gpu("0000:14:00.0")}, 4},
		{"below different roots", []pci.Address{gpu("0000:13:00.0"), gpu("0000:43:00.0")}, 0},
		{"one alone", []pci.Address{gpu("0000:13:00.0")}, 0},
	} {
		m := marks(inv)
		m.Broken = [][]pci.Address{tt.set}
		d, _ := audit.ArrangeMarked(inv, m)
		broken := slices.DeleteFunc(slices.Clone(d.Links), func(l audit.Link) bool { return !l.Broken })
		if len(broken) != tt.want {
			t.Errorf("%s: %d links are marked, want %d", tt.name, len(broken), tt.want)
		}
	}
}

func TestInlineEscapesNames(t *testing.T) {
	inv := desktop().inventory()
	d, _ := audit.ArrangeMarked(inv, marks(inv))
	if text := audit.Inline(d); strings.Contains(text, "<PRO>") || !strings.Contains(text, "&lt;PRO&gt;") {
		t.Error("a model's name is taken for markup")
	}
}

// TestCauseIsRedAsTheLegendSays, also where it is not a bridge: a disk controller
// in a GPU's group that the host needs.
func TestCauseIsRedAsTheLegendSays(t *testing.T) {
	m := newMachine()
	port := m.port("0000:20:01.0", "0000:20", 0, pci.RootPort, on())
	gpu := m.add("0000:21:00.0", "0000:20", 0, 0x030200, "H100", with("nvidia", below(port)))
	disk := m.add("0000:21:00.1", "0000:20", 0, 0x010601, "SATA controller", with("ahci", below(port), func(f *device.Function) {
		f.Uses = []device.Use{{Kind: device.UseMount, Name: "sda1", Detail: "/"}}
	}))
	m.join(gpu, disk)
	inv := m.inventory()
	for i := range inv.Devices {
		if d := &inv.Devices[i]; d.Address == gpu && d.Isolated {
			t.Fatal("the GPU counts as isolated: the test has no culprit")
		}
	}
	for _, c := range audit.Arrange(inv, audit.Folded).Cards {
		if c.Device.Address == disk && (c.Grade != audit.Bad || !c.Culprit) {
			t.Errorf("the card of %s is %v, culprit %v", disk, c.Grade, c.Culprit)
		}
	}
}

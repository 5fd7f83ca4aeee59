package topology_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/topology"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// check holds a drawing to what makes it readable.
func check(t *testing.T, inv *audit.Inventory) {
	t.Helper()
	d := topology.Arrange(inv)
	page := topology.Rect{W: d.Width, H: d.Height}
	if len(d.Cards) != len(inv.Devices) {
		t.Errorf("%d cards for %d functions", len(d.Cards), len(inv.Devices))
	}
	checkCards(t, d, page)
	checkTexts(t, d, page)
	checkOutlines(t, d, page)
}

func checkCards(t *testing.T, d *topology.Drawing, page topology.Rect) {
	t.Helper()
	for i, c := range d.Cards {
		if !page.Contains(c.Rect) {
			t.Errorf("%s lies off the page: %+v", c.Device.Address, c.Rect)
		}
		for _, o := range d.Cards[i+1:] {
			if c.Overlaps(o.Rect) {
				t.Errorf("cards of %s and %s overlap", c.Device.Address, o.Device.Address)
			}
		}
		for _, text := range c.Texts {
			if !c.Contains(text.Box()) {
				t.Errorf("%s: %q sticks out of its card", c.Device.Address, text.Text)
			}
		}
	}
}

// checkTexts looks at all pairs of texts near each other.
func checkTexts(t *testing.T, d *topology.Drawing, page topology.Rect) {
	t.Helper()
	texts := slices.Clone(d.Texts)
	for _, c := range d.Cards {
		texts = append(texts, c.Texts...)
	}
	for _, o := range d.Outlines {
		texts = append(texts, o.Label)
	}
	slices.SortFunc(texts, func(a, b topology.Text) int { return cmp.Compare(a.Y, b.Y) })
	for i, a := range texts {
		if !page.Contains(a.Box()) {
			t.Errorf("%q lies off the page: %+v", a.Text, a.Box())
		}
		for _, b := range texts[i+1:] {
			if b.Y-a.Y > 40 {
				break
			}
			if a.Box().Overlaps(b.Box()) {
				t.Errorf("texts %q and %q overlap", a.Text, b.Text)
			}
		}
	}
}

// checkOutlines holds each outline to its group: it has all of a card or
// nothing, and only cards of the group.
func checkOutlines(t *testing.T, d *topology.Drawing, page topology.Rect) {
	t.Helper()
	for i, o := range d.Outlines {
		if !page.Contains(o.Rect) {
			t.Errorf("outline of group %d lies off the page", o.Group)
		}
		for _, other := range d.Outlines[i+1:] {
			if o.Overlaps(other.Rect) {
				t.Errorf("outlines of groups %d and %d overlap", o.Group, other.Group)
			}
		}
		for _, c := range d.Cards {
			mine := c.Device.Group != nil && *c.Device.Group == o.Group
			switch {
			case o.Overlaps(c.Rect) && !mine:
				t.Errorf("outline of group %d touches %s", o.Group, c.Device.Address)
			case o.Contains(c.Rect) && o.Label.Box().Overlaps(c.Rect):
				t.Errorf("label of group %d lies on %s", o.Group, c.Device.Address)
			}
		}
	}
}

func TestArrangeIsReadable(t *testing.T) {
	for name, inv := range inventories(t) {
		t.Run(name, func(t *testing.T) { check(t, inv) })
	}
}

// Trees that nobody would build must come out readable too.
func TestArrangeRandomTrees(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { check(t, wild(rand.New(rand.NewPCG(seed, 1)))) })
	}
}

// wild builds a random node of up to a few hundred functions, with groups
// that join neighbours and strangers.
func wild(r *rand.Rand) *audit.Inventory {
	m := newSample()
	m.group = r.IntN(20000)
	bus := 0
	for range 1 + r.IntN(5) {
		w := &wilderness{sample: m, r: r, root: fmt.Sprintf("pci0000:%02x", bus), numa: r.IntN(4) - 1, bus: &bus}
		w.fill(bus, 0, nil)
		bus++
	}
	for range r.IntN(6) {
		first := r.IntN(len(m.s.Functions))
		last := min(len(m.s.Functions), first+1+r.IntN(5))
		var addrs []pci.Address
		for _, f := range m.s.Functions[first:last] {
			addrs = append(addrs, f.Address)
		}
		m.join(addrs...)
	}
	return m.inventory()
}

type wilderness struct {
	*sample
	r    *rand.Rand
	root string
	numa int
	bus  *int
}

// fill puts random functions on one bus, and buses below its ports.
func (w *wilderness) fill(bus, depth int, up []pci.Address) {
	classes := []pci.Class{0x030200, 0x020000, 0x010802, 0x088000, 0x060000, 0x0c0330}
	for slot := range 1 + w.r.IntN(6) {
		at := fmt.Sprintf("0000:%02x:%02x.0", bus, slot)
		if depth < 4 && *w.bus < 200 && w.r.IntN(3) == 0 {
			port := w.port(at, w.root, w.numa, pci.RootPort, on(), up...)
			*w.bus++
			w.fill(*w.bus, depth+1, append(slices.Clone(up), port))
			continue
		}
		class := classes[w.r.IntN(len(classes))]
		f := w.add(at, w.root, w.numa, class, []string{"", "short", "a name that is far too long for any card to hold"}[w.r.IntN(3)], with("some_driver_with_a_name", below(up...), func(f *device.Function) {
			if w.r.IntN(3) == 0 {
				f.ResetMethods = nil
			}
		}))
		if class.Base() == pci.BaseNetwork && w.numa >= 0 && w.r.IntN(2) == 0 && *w.bus < 200 {
			*w.bus++
			w.vfs(f, uint8(*w.bus), w.r.IntN(30), "vfio-pci")
		}
	}
}

// TestEverySymbolIsExplained: a symbol that is drawn is in the legend, and the samples have
// every symbol of the legend.
func TestEverySymbolIsExplained(t *testing.T) {
	drawn := map[audit.Grade]bool{}
	for name, inv := range inventories(t) {
		d := topology.Arrange(inv)
		legend := map[audit.Grade]bool{}
		for _, s := range d.Symbols {
			legend[s.Grade] = true
		}
		for i := range d.Cards {
			s := d.Cards[i].Symbol
			if s == nil {
				continue
			}
			drawn[s.Grade] = true
			if !legend[s.Grade] {
				t.Errorf("%s: the legend lacks %q of %s", name, s.Grade.Mark(), d.Cards[i].Device.Address)
			}
		}
	}
	explained := map[audit.Grade]bool{}
	for _, e := range topology.Legend() {
		if !drawn[e.Grade] {
			t.Errorf("the legend explains %q, which no sample has", e.Text)
		}
		if explained[e.Grade] || e.Text == "" {
			t.Errorf("%q: explained twice, or not at all", e.Text)
		}
		explained[e.Grade] = true
	}
}

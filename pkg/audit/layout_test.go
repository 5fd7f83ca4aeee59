package audit_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// check holds a drawing to what makes it readable.
func checkLayout(t *testing.T, inv *audit.Inventory) {
	t.Helper()
	for _, d := range []*audit.Drawing{audit.Arrange(inv, audit.Everything), audit.ArrangeNarrow(inv, unmarked())} {
		checkDrawing(t, inv, d)
	}
}

// unmarked marks nothing.
func unmarked() *audit.Marks {
	return &audit.Marks{Page: func(pci.Address) string { return "" }}
}

func checkDrawing(t *testing.T, inv *audit.Inventory, d *audit.Drawing) {
	t.Helper()
	page := audit.Rect{W: d.Width, H: d.Height}
	if len(d.Cards) != len(inv.Devices) && len(d.Symbols) > 0 { // else it leaves some out
		t.Errorf("%d cards for %d functions", len(d.Cards), len(inv.Devices))
	}
	checkCards(t, d, page)
	checkTexts(t, d, page)
	checkOutlines(t, d, page)
}

func checkCards(t *testing.T, d *audit.Drawing, page audit.Rect) {
	t.Helper()
	for i, c := range d.Cards {
		if !page.Contains(c.Box) {
			t.Errorf("%s lies off the page: %+v", c.Device.Address, c.Box)
		}
		for _, o := range d.Cards[i+1:] {
			if c.Box.Overlaps(o.Box) {
				t.Errorf("cards of %s and %s overlap", c.Device.Address, o.Device.Address)
			}
		}
		for _, text := range c.Texts {
			if !c.Box.Contains(text.Box()) {
				t.Errorf("%s: %q sticks out of its card", c.Device.Address, text.Text)
			}
		}
	}
}

// checkTexts looks at all pairs of texts near each other.
func checkTexts(t *testing.T, d *audit.Drawing, page audit.Rect) {
	t.Helper()
	texts := slices.Clone(d.Texts)
	for _, c := range d.Cards {
		texts = append(texts, c.Texts...)
	}
	for _, o := range d.Outlines {
		texts = append(texts, o.Label)
	}
	slices.SortFunc(texts, func(a, b audit.Text) int { return cmp.Compare(a.Y, b.Y) })
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
func checkOutlines(t *testing.T, d *audit.Drawing, page audit.Rect) {
	t.Helper()
	for i, o := range d.Outlines {
		if !page.Contains(o.Box) {
			t.Errorf("outline of group %d lies off the page", o.Group)
		}
		for _, other := range d.Outlines[i+1:] {
			if o.Box.Overlaps(other.Box) {
				t.Errorf("outlines of groups %d and %d overlap", o.Group, other.Group)
			}
		}
		for _, c := range d.Cards {
			mine := c.Device.Group != nil && *c.Device.Group == o.Group
			switch {
			case o.Box.Overlaps(c.Box) && !mine:
				t.Errorf("outline of group %d touches %s", o.Group, c.Device.Address)
			case o.Box.Contains(c.Box) && o.Label.Box().Overlaps(c.Box):
				t.Errorf("label of group %d lies on %s", o.Group, c.Device.Address)
			}
		}
	}
}

func TestArrangeIsReadable(t *testing.T) {
	for name, inv := range inventories(t) {
		t.Run(name, func(t *testing.T) { checkLayout(t, inv) })
	}
}

// Trees that nobody would build must come out readable too.
func TestArrangeRandomTrees(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { checkLayout(t, wild(rand.New(rand.NewPCG(seed, 1)))) })
	}
}

// wild builds a random node of up to a few hundred functions, with groups
// that join neighbors and strangers.
func wild(r *rand.Rand) *audit.Inventory {
	m := newMachine()
	m.group = r.IntN(20000)
	bus := 0
	for range 1 + r.IntN(5) {
		w := &wilderness{machine: m, r: r, root: fmt.Sprintf("pci0000:%02x", bus), numa: r.IntN(4) - 1, bus: &bus}
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
	*machine
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

// TestLegendExplainsEachSymbol: a symbol that is drawn is in the legend, and the samples have
// every symbol of the legend.
func TestLegendExplainsEachSymbol(t *testing.T) {
	drawn := map[audit.Grade]bool{}
	for name, inv := range inventories(t) {
		d := audit.Arrange(inv, audit.Folded)
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
	for _, e := range audit.Legend() {
		if !drawn[e.Grade] {
			t.Errorf("the legend explains %q, which no sample has", e.Text)
		}
		if explained[e.Grade] || e.Text == "" {
			t.Errorf("%q: explained twice, or not at all", e.Text)
		}
		explained[e.Grade] = true
	}
}

// many is a node of that many root buses with a switch, two GPUs, and a NIC with VFs each; those in open let the GPUs reach
// each other.
func many(roots int, open ...int) *audit.Inventory {
	m := newMachine()
	for i := range roots {
		root, at := fmt.Sprintf("pci%04x:10", i+1), func(bus, slot int) string { return fmt.Sprintf("%04x:%02x:%02x.0", i+1, bus, slot) }
		acs := on
		if slices.Contains(open, i) {
			acs = off
		}
		top := m.port(at(0x10, 1), root, i%2, pci.RootPort, on())
		up := m.port(at(0x11, 0), root, i%2, pci.UpstreamPort, nil, top)
		for g := range 2 {
			down := m.port(at(0x12, g), root, i%2, pci.DownstreamPort, acs(), top, up)
			m.add(at(0x13+g, 0), root, i%2, 0x030200, "GPU", with("vfio-pci", below(top, up, down), func(f *device.Function) { f.Switch = &up }))
		}
		down := m.port(at(0x12, 2), root, i%2, pci.DownstreamPort, on(), top, up)
		pf := m.add(at(0x16, 0), root, i%2, 0x020000, "NIC", with("mlx5_core", below(top, up, down), func(f *device.Function) { f.Children.Net = []string{fmt.Sprintf("ens%d", i)} }))
		m.vfs(pf, 0x17, 16, "vfio-pci")
	}
	return m.inventory()
}

// TestVeryManyFunctionsAreFolded: the height is bounded, nothing is lost, and refused functions are drawn first.
func TestVeryManyFunctionsAreFolded(t *testing.T) {
	for roots, most := range map[int]int{40: 2000, 108: 3000, 400: 3500} {
		inv := many(roots, 7)
		d := audit.Arrange(inv, audit.Folded)
		t.Logf("%d root buses, %d functions: %d x %d", roots, len(inv.Devices), d.Width, d.Height)
		if d.Height > most {
			t.Errorf("%d root buses make it %d pixels tall, want %d at most", roots, d.Height, most)
		}
		if shown := d.Cards[0].Device.Root; len(d.Cards) != 24 || shown != "pci0008:10" {
			t.Errorf("it has %d functions, the first of %s; want the 24 of the bad root bus", len(d.Cards), shown)
		}
		checkFolds(t, d)
		if all := audit.Arrange(inv, audit.Everything); len(all.Cards) != len(inv.Devices) || len(all.Folds) != 0 {
			t.Errorf("everything has %d of %d functions", len(all.Cards), len(inv.Devices))
		}
	}
}

func checkFolds(t *testing.T, d *audit.Drawing) {
	t.Helper()
	page := audit.Rect{W: d.Width, H: d.Height}
	for i, f := range d.Folds {
		if !page.Contains(f.Box) {
			t.Errorf("fold %d lies off the page: %+v", i, f.Box)
		}
		for _, o := range d.Folds[i+1:] {
			if f.Box.Overlaps(o.Box) {
				t.Errorf("%q and %q overlap", f.Texts[0].Text, o.Texts[0].Text)
			}
		}
		for _, c := range d.Cards {
			if f.Box.Overlaps(c.Box) {
				t.Errorf("%q and %s overlap", f.Texts[0].Text, c.Device.Address)
			}
		}
		for _, text := range f.Texts {
			if !f.Box.Contains(text.Box()) {
				t.Errorf("%q sticks out", text.Text)
			}
		}
	}
}

// TestFoldedTexts: graph and tree count the functions that they leave out.
func TestFoldedTexts(t *testing.T) {
	inv := many(40, 7)
	for detail, lines := range map[audit.Detail]int{audit.Folded: 40 + 39 + 24, audit.Everything: 40 + 40*24} {
		var tree, graph bytes.Buffer
		if err := errors.Join(output.WriteTree(&tree, audit.Tree(inv, detail), 0, false), audit.WriteDOT(&graph, inv, detail)); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(tree.String(), "\n"); n != lines {
			t.Errorf("detail %d: the tree has %d lines, want %d", detail, n, lines)
		}
		const counts = "2 GPUs, 1 PF, 16 VFs"
		want := 39 * (1 - int(detail))
		if inTree, inGraph := strings.Count(tree.String(), counts), strings.Count(graph.String(), counts); inTree != want || inGraph != want {
			t.Errorf("detail %d: %d counts in the tree and %d in the graph, want %d", detail, inTree, inGraph, want)
		}
	}
}

// TestPhoneShowsGPUs: at the width of a phone, the drawing's cards are in sight and can be read.
func TestPhoneShowsGPUs(t *testing.T) {
	const screen = 390 - 24
	d := audit.ArrangeNarrow(many(8), unmarked())
	if d.Width > 500 {
		t.Errorf("it is %d pixels wide: texts of 11 pixels shrink to %d on a phone", d.Width, 11*screen/d.Width)
	}
	for _, c := range d.Cards {
		if c.Device.Type == device.GPU && c.Box.Right() > d.Width {
			t.Errorf("%s is out of sight: %+v", c.Device.Address, c.Box)
		}
	}
}

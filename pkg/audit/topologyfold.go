package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Detail is the level of detail for a node with very many functions.
type Detail int

const (
	// Folded draws the counts of most root buses instead of their functions. Root buses with refused functions are drawn with all
	// their functions, until the room is used up.
	Folded Detail = iota
	// Everything draws each function.
	Everything
)

// Limits of a drawing that is folded.
const (
	// crowd is the number of functions above which a drawing folds, and VFs shrink to dots.
	crowd = 512
	// unfolded is the largest number of functions in a folded drawing.
	unfolded = 96
	// maxFolds is the largest number of folded root buses of a NUMA node that get a card of their own.
	maxFolds = 64
)

// newRoots returns the roots, folded if the node has very many functions.
func newRoots(inv *Inventory, detail Detail) []Root {
	roots := Roots(inv)
	if detail == Everything || len(inv.Devices) <= crowd {
		return roots
	}
	faulty, room := culprits(inv), unfolded
	for i := range roots {
		r := &roots[i]
		below := r.functions()
		bad := slices.ContainsFunc(below, func(d *Device) bool { return d.Grade() == Bad || faulty[d.Address] })
		r.Folded = !bad || len(below) > room
		if !r.Folded {
			// Roots with faults are unfolded in their order, until the page is full.
			room -= len(below)
		}
	}
	return roots
}

// functions returns all functions below the root.
func (r *Root) functions() []*Device {
	var all []*Device
	var enter func(nodes []*Node)
	enter = func(nodes []*Node) {
		for _, n := range nodes {
			all = append(append(all, n.Device), n.VFs...)
			enter(n.Children)
		}
	}
	enter(r.Children)
	return all
}

// grades counts functions by type and grade, without bridges.
type grades struct {
	types  map[device.Type]int
	grades map[Grade]int
}

func newGrades(functions []*Device, grade func(*Device) Grade) grades {
	t := grades{map[device.Type]int{}, map[Grade]int{}}
	for _, d := range functions {
		if !d.IsBridge() {
			t.types[d.Type]++
			t.grades[grade(d)]++
		}
	}
	return t
}

func ownGrade(d *Device) Grade { return d.Grade() }

// typeWords counts the functions by type: "2 GPUs, 1 PF, 16 VFs".
func (t grades) typeWords() string {
	var parts []string
	for _, kind := range []struct {
		of        device.Type
		one, more string
	}{
		{device.GPU, "GPU", "GPUs"},
		{device.PFType, "PF", "PFs"},
		{device.VFType, "VF", "VFs"},
		{device.GPUVF, "VF of a GPU", "VFs of GPUs"},
		{device.NVMe, "NVMe drive", "NVMe drives"},
		{device.Accelerator, "accelerator", "accelerators"},
		{device.Other, "other", "others"},
	} {
		switch n := t.types[kind.of]; n {
		case 0:
		case 1:
			parts = append(parts, "1 "+kind.one)
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, kind.more))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "bridges only")
}

// gradeWords counts the functions by verdict: "✓ 17  ✗ 2".
func (t grades) gradeWords() string {
	var parts []string
	for _, g := range []Grade{Good, Concern, Bad} {
		if n := t.grades[g]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", g.Mark(), n))
		}
	}
	return strings.Join(parts, "  ")
}

// worst returns the worst grade with a count.
func (t grades) worst() Grade {
	for _, g := range []Grade{Bad, Concern, Good} {
		if t.grades[g] > 0 {
			return g
		}
	}
	return None
}

// foldedLine describes the functions of a folded root in one line.
func (r *Root) foldedLine() (text string, grade Grade) {
	t := newGrades(r.functions(), ownGrade)
	return strings.TrimRight(t.typeWords()+"  "+t.gradeWords(), " "), t.worst()
}

// unfoldedOnly returns the inventory without the functions below folded roots.
func unfoldedOnly(inv *Inventory, roots []Root) *Inventory {
	hidden := map[pci.Address]bool{}
	for i := range roots {
		if roots[i].Folded {
			for _, d := range roots[i].functions() {
				hidden[d.Address] = true
			}
		}
	}
	shown := &Inventory{Host: inv.Host, ExclusiveDomains: inv.ExclusiveDomains, Fabric: inv.Fabric}
	for i := range inv.Devices {
		if !hidden[inv.Devices[i].Address] {
			shown.Devices = append(shown.Devices, inv.Devices[i])
		}
	}
	return shown
}

// Fold is a root bus drawn as its counts.
type Fold struct {
	Box   Rect
	Grade Grade
	Texts []Text
}

// Measures of folds, in pixels.
const (
	foldWidth   = 236
	foldHeight  = 56
	foldGap     = 10
	foldsPerRow = 4
)

// folds places root buses as cards with counts, in rows.
func (l *layout) folds(roots []Root, x, y int) Rect {
	box := Rect{x, y, 1, 1}
	place := func(lines [3]string, grade Grade) {
		i := len(l.drawing.Folds) - l.foldsBefore
		f := Fold{Box: Rect{x + i%foldsPerRow*(foldWidth+foldGap), y + i/foldsPerRow*(foldHeight+foldGap), foldWidth, foldHeight}, Grade: grade}
		for n, line := range lines {
			face, class := []Face{Strong, Body, Body}[n], ""
			if n == 2 && grade == Bad {
				class = "bad"
			}
			f.Texts = append(f.Texts, Text{f.Box.X + 16, f.Box.Y + 16 + n*lineHeight, face, clip(line, face, foldWidth-24), class})
		}
		l.drawing.Folds = append(l.drawing.Folds, f)
		box = box.Union(f.Box)
	}
	l.foldsBefore = len(l.drawing.Folds)
	for i := range roots[:min(len(roots), maxFolds)] {
		t := newGrades(roots[i].functions(), ownGrade)
		place([3]string{"root bus " + roots[i].Name, t.typeWords(), t.gradeWords()}, t.worst())
	}
	if rest := roots[min(len(roots), maxFolds):]; len(rest) > 0 {
		var all []*Device
		for i := range rest {
			all = append(all, rest[i].functions()...)
		}
		t := newGrades(all, ownGrade)
		place([3]string{fmt.Sprintf("and %d more", len(rest)), t.typeWords(), t.gradeWords()}, t.worst())
	}
	return box
}

// RootDrawing is the drawing of one root bus, for a page that shows each on demand.
type RootDrawing struct {
	Root    Root
	Drawing *Drawing
	// Types and Grades count its functions, and Worst is the worst verdict.
	Types, Grades string
	Worst         Grade
	// Broken is set if tenants reach each other below the root.
	Broken bool
}

// ArrangeRoots lays each root of the node out by itself as [ArrangeNarrow] does, the worst roots first.
func ArrangeRoots(inv *Inventory, marks *Marks) []RootDrawing {
	marked, shown := newMarked(inv, marks)
	var list []RootDrawing
	for _, r := range Roots(shown) {
		// Each root has a drawing of its own, and all share the marks.
		l := *marked
		l.drawing, l.narrow = &Drawing{Name: r.Name}, true
		l.panelNUMA = r.NUMA
		box := l.root(r, narrowMargin, narrowMargin)
		l.drawing.Width, l.drawing.Height = box.Right()+outlinePad+stripWidth+narrowMargin, box.Bottom()+narrowMargin
		l.outline()
		below := r.functions()
		t := newGrades(below, func(d *Device) Grade { return l.grade(d, d.Grade()) })
		one := RootDrawing{Root: r, Drawing: l.drawing, Types: t.typeWords(), Grades: t.gradeWords(), Worst: t.worst()}
		for _, d := range below {
			one.Broken = one.Broken || l.broken[d.Address]
			if l.isCulprit(d) {
				one.Worst = Bad
			}
		}
		l.drawing.Description = one.Types
		list = append(list, one)
	}
	slices.SortStableFunc(list, func(a, b RootDrawing) int { return rank(b) - rank(a) })
	return list
}

// rank is higher for roots that need attention first.
func rank(r RootDrawing) int {
	switch {
	case r.Broken:
		return 3
	case r.Worst == Bad:
		return 2
	case r.Worst == Concern:
		return 1
	}
	return 0
}

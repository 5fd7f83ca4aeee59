package fabric

import (
	"cmp"
	"slices"
)

// sort orders the partitions so that the first free one is the one whose loss costs least, because schedulers take the first device that
// fits. A partition of a half that is already in use comes before a partition that breaks the other half. So partitions are in the order of
// the partitions that contain them: on an H100 board, where 1 and 3 make a pair, single GPUs are in the order 1, 3, 2, 4, 5, 7, 6, 8. Small
// partitions begin at one end of the board, and those of half a board at the other, so that they meet late.
func (b *Board) sort() {
	most := 0
	for i := range b.partitions {
		most = max(most, len(b.partitions[i].GPUs))
	}
	slices.SortFunc(b.partitions, func(p, q Partition) int {
		c := slices.Compare(b.place(&p), b.place(&q))
		if len(p.GPUs) == len(q.GPUs) && 2*len(p.GPUs) == most {
			c = -c
		}
		return cmp.Or(cmp.Compare(len(p.GPUs), len(q.GPUs)), c)
	})
}

// place returns the sort key of p: the lowest modules of the partitions that contain p, the largest partition's first, and then the modules
// of p.
func (b *Board) place(p *Partition) []int {
	around := slices.DeleteFunc(slices.Clone(b.partitions), func(q Partition) bool {
		return len(q.GPUs) <= len(p.GPUs) || slices.ContainsFunc(p.GPUs, func(g GPU) bool { return !q.Has(g.Module) })
	})
	slices.SortFunc(around, func(q, r Partition) int {
		return cmp.Or(cmp.Compare(len(r.GPUs), len(q.GPUs)), slices.Compare(q.Modules(), r.Modules()))
	})
	var at []int
	for i := range around {
		at = append(at, around[i].Modules()[0])
	}
	return append(at, p.Modules()...)
}

// Position returns the place of the single GPU with the module in the order of [Board.Partitions]. GPUs without a partition of their own
// come last.
func (b *Board) Position(module int) int {
	n := 0
	for i := range b.partitions {
		if len(b.partitions[i].GPUs) > 1 {
			continue
		}
		if b.partitions[i].Has(module) {
			return n
		}
		n++
	}
	return n + module
}

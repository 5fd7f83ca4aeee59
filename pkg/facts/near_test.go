package facts_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// crowd is a history with so many tenancies that all overlap, of two functions each.
func crowd(claims int) *facts.History {
	var b book
	for i := range claims {
		c := claimOf(fmt.Sprintf("t%d", i%3), fmt.Sprint(i))
		b.prepare(c, vf(uint8(i%7)), ledger.Device{Address: at(uint8(0x40+i%5), uint8(i%2), 0)})
		if i%4 == 0 {
			b.unprepare(c)
		}
	}
	return &b.h
}

// TestNeighborsOfManyAreThoseOfEach: each other tenancy once, by its nearest relation to any that was asked for, in the same order.
func TestNeighborsOfManyAreThoseOfEach(t *testing.T) {
	h := crowd(60)
	mine := slices.Concat(h.OfClaim("t0/30"), h.OfClaim("t1/4"), h.OfClaim("t2/17"))
	ranks := []facts.Relation{facts.SameFunction, facts.SameGroup, facts.SamePF, facts.SameSlot, facts.SameSwitch, facts.SamePort, facts.SameNode}
	var want []facts.Neighbor
	for _, m := range mine {
		want = append(want, h.Neighbors([]*facts.PastTenancy{m})...)
	}
	// Neighbors of one are already sorted, so they are put back into the order of the history.
	place := func(n facts.Neighbor) int {
		return slices.Index(mine, n.Mine)*len(h.Tenancies) + slices.Index(h.Tenancies, n.Other)
	}
	slices.SortFunc(want, func(a, b facts.Neighbor) int { return place(a) - place(b) })
	slices.SortStableFunc(want, func(a, b facts.Neighbor) int {
		if c := slices.Index(ranks, a.Relation) - slices.Index(ranks, b.Relation); c != 0 {
			return c
		}
		return a.From.Compare(b.From)
	})
	seen := map[*facts.PastTenancy]bool{}
	want = slices.DeleteFunc(want, func(n facts.Neighbor) bool {
		out := seen[n.Other] || slices.Contains(mine, n.Other)
		seen[n.Other] = true
		return out
	})
	if diff := cmp.Diff(want, h.Neighbors(mine)); diff != "" || len(want) < 50 {
		t.Errorf("%d neighbors (-want +got):\n%s", len(want), diff)
	}
	when := minute(20)
	want = slices.DeleteFunc(want, func(n facts.Neighbor) bool { return !n.Other.At(when) })
	if diff := cmp.Diff(want, h.NeighborsAt(mine, when)); diff != "" || len(want) < 10 {
		t.Errorf("%d neighbors at a moment (-want +got):\n%s", len(want), diff)
	}
}

// TestNeighborsOfManyTakeLittleMemory: all tenancies of a tenant, near all others, are not a list of pairs.
func TestNeighborsOfManyTakeLittleMemory(t *testing.T) {
	h := crowd(600)
	mine := slices.DeleteFunc(slices.Clone(h.Tenancies), func(p *facts.PastTenancy) bool { return p.Tenant() != "t0" })
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	near := h.Neighbors(mine)
	runtime.ReadMemStats(&after)
	const most = 4 << 10
	if used := (after.TotalAlloc - before.TotalAlloc) / uint64(len(near)); used > most {
		t.Errorf("%d neighbors of %d took %d bytes each; want at most %d", len(near), len(mine), used, most)
	}
}

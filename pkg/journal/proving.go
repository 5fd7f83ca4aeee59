package journal

import (
	"context"
	"slices"
	"sync"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// If a function can't be told from others of its model, its proof is written into the marks of all of them. When a node
// starts, many such functions are proven at the same time, and each call would write the marks of all functions that are
// not proven yet. So the call that has the lock does the work of all calls that wait for it: it removes their marks,
// which then need not be rewritten. When their turn comes, they find nothing left to do.

// proven is a function that was proven clean or sanitized.
type proven struct {
	at pci.Address
	id device.Identity
}

// proving are the calls of one kind that wait, or work. The zero value has none.
type proving struct {
	mu    sync.Mutex // guards calls
	calls []*proven

	working sync.Mutex // held while one call does the work of all; taken before mu
}

// begin adds the call for a function, and returns what the call does before it returns. If another call just does its
// work, end waits for that, because a tenant may get the function afterwards.
func (p *proving) begin(f proven) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	call := &f
	p.calls = append(p.calls, call)
	return func() {
		p.working.Lock()
		defer p.working.Unlock()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.calls = slices.DeleteFunc(p.calls, func(other *proven) bool { return other == call })
	}
}

// now returns the functions of all calls.
func (p *proving) now() []proven {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]proven, len(p.calls))
	for i, call := range p.calls {
		all[i] = *call
	}
	return all
}

// prove removes the marks of a proven function durably, and enters the function into the lists of marks that may be its
// own. It does the same for the functions of all other calls.
func (k marks[M]) prove(ctx context.Context, calls *proving, f proven, list func(*M) *[]device.Identity) error {
	defer calls.begin(f)()
	return k.alone(ctx, func() error {
		calls.working.Lock()
		defer calls.working.Unlock()
		all := calls.now()
		others, err := k.liftIf(func(f *file[M]) bool {
			return slices.ContainsFunc(all, func(one proven) bool { return concerns(f.mark, one.at, one.id) })
		})
		if err != nil {
			return err
		}
		return k.change(others, func(m *M) bool { return enter(list(m), (*m).markedAs(), all) })
	})
}

// enter adds those of the functions to a mark's list that may be the marked one and are not in the list.
func enter(list *[]device.Identity, marked device.Identity, all []proven) (changed bool) {
	if marked == (device.Identity{}) {
		return false
	}
	for _, f := range all {
		if marked.Match(f.id) == device.Undecided && !isAmong(*list, f.id) {
			*list = append(slices.Clip(*list), f.id)
			changed = true
		}
	}
	return changed
}

// Package fabrictest has a scripted Fabric Manager. It keeps the rules that NVIDIA documents: no GPU is in two active partitions, and after
// a restart nothing is answered before the list of active partitions is set. Faults are added by the test.
package fabrictest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
)

// Manager is a [fabric.Manager] in memory.
type Manager struct {
	mu sync.Mutex // guards what follows
	// list is the answer to Partitions. waits is set after a restart with --restart.
	list   fabric.List
	waits  bool
	faults []*Fault
	calls  []string
}

// New returns a Fabric Manager with the partitions.
func New(l fabric.List) *Manager { return &Manager{list: slices.Clone(l)} }

// Fault changes the answers to calls of one kind.
type Fault struct {
	Call fabric.Call
	// Times is how many calls it changes; 0 for all.
	Times int
	// Code is the answer, and Err one without a code. Without both, the call is made as if nothing were wrong.
	Code fabric.Code
	Err  error
	// Hangs makes the call wait for the end of its context.
	Hangs bool
	// Lost makes the call do nothing and answer success. Late makes it do its work and still answer with the fault.
	Lost, Late bool
	// Then is called after the call, without a lock held.
	Then func()

	made int
}

// Add adds a fault. The first one that applies to a call counts.
func (m *Manager) Add(f Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = append(m.faults, &f)
}

// Repair removes all faults.
func (m *Manager) Repair() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = nil
}

// Set replaces the list.
func (m *Manager) Set(l fabric.List) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = slices.Clone(l)
}

// Restart starts the manager again. All partitions are inactive then. With resume it waits for the list of active partitions.
func (m *Manager) Restart(resume bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list, m.waits = slices.Clone(m.list), resume
	for i := range m.list {
		m.list[i].Active = false
	}
}

// Active returns the numbers of the active partitions, in order.
func (m *Manager) Active() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := []int{}
	for i := range m.list {
		if m.list[i].Active {
			ids = append(ids, m.list[i].ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// Listed returns its list with these partitions active, and no other ones.
func (m *Manager) Listed(active ...int) fabric.List {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := slices.Clone(m.list)
	for i := range l {
		l[i].Active = slices.Contains(active, l[i].ID)
	}
	return l
}

// Changes returns the calls so far that change something: "activate 3".
func (m *Manager) Changes() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls)
}

// call makes one call, with its fault if there is one.
func (m *Manager) call(ctx context.Context, call fabric.Call, does func() fabric.Code) error {
	m.mu.Lock()
	f := m.fault(call)
	var code fabric.Code
	if f == nil || f.Late || f.Code == 0 && f.Err == nil && !f.Hangs && !f.Lost {
		code = does()
	}
	m.mu.Unlock()
	if f == nil {
		return answer(call, code)
	}
	if f.Then != nil {
		f.Then()
	}
	switch {
	case f.Hangs:
		<-ctx.Done()
		return fmt.Errorf("ask Fabric Manager: %w", context.Cause(ctx))
	case f.Err != nil:
		return f.Err
	case f.Code != 0:
		return answer(call, f.Code)
	}
	return answer(call, code)
}

// fault returns the fault of a call, and counts it.
func (m *Manager) fault(call fabric.Call) *Fault {
	for _, f := range m.faults {
		if f.Call == call && (f.Times == 0 || f.made < f.Times) {
			f.made++
			return f
		}
	}
	return nil
}

func answer(call fabric.Call, code fabric.Code) error {
	if code == 0 {
		return nil
	}
	return &fabric.CodeError{Call: call, Code: code}
}

// Partitions implements [fabric.Manager].
func (m *Manager) Partitions(ctx context.Context) (l fabric.List, err error) {
	err = m.call(ctx, fabric.CallList, func() fabric.Code {
		if m.waits {
			return fabric.NotConfigured
		}
		l = slices.Clone(m.list)
		return 0
	})
	if err != nil {
		return nil, err
	}
	return l, l.Check()
}

// Activate implements [fabric.Manager].
func (m *Manager) Activate(ctx context.Context, id int) error {
	return m.call(ctx, fabric.CallActivate, func() fabric.Code {
		p := m.partition(id)
		switch {
		case m.waits:
			return fabric.NotConfigured
		case p == nil:
			return fabric.BadParameter
		case slices.ContainsFunc(m.list, func(q fabric.Partition) bool { return q.Active && q.Overlaps(p) }):
			return fabric.InUse
		}
		p.Active = true
		m.calls = append(m.calls, fmt.Sprintf("activate %d", id))
		return 0
	})
}

// Deactivate implements [fabric.Manager].
func (m *Manager) Deactivate(ctx context.Context, id int) error {
	return m.call(ctx, fabric.CallDeactivate, func() fabric.Code {
		p := m.partition(id)
		switch {
		case m.waits:
			return fabric.NotConfigured
		case p == nil:
			return fabric.BadParameter
		case !p.Active:
			return fabric.Uninitialized
		}
		p.Active = false
		m.calls = append(m.calls, fmt.Sprintf("deactivate %d", id))
		return 0
	})
}

// SetActivated implements [fabric.Manager].
func (m *Manager) SetActivated(ctx context.Context, ids []int) error {
	return m.call(ctx, fabric.CallReplay, func() fabric.Code {
		if !m.waits {
			return fabric.NotSupported
		}
		m.waits = false
		m.calls = append(m.calls, fmt.Sprintf("set %v", ids))
		for i := range m.list {
			m.list[i].Active = slices.Contains(ids, m.list[i].ID)
		}
		return 0
	})
}

// partition returns the partition in the manager's own list, which the caller may change.
func (m *Manager) partition(id int) *fabric.Partition {
	i := slices.IndexFunc(m.list, func(p fabric.Partition) bool { return p.ID == id })
	if i < 0 {
		return nil
	}
	return &m.list[i]
}

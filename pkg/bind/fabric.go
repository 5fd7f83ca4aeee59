package bind

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// Fabric has NVIDIA's Fabric Manager activate partitions, and deactivate them. The value of a GPU is the active partition of the GPUs that
// are wanted together: all of them read the same, and the first one that is set changes it for all.
type Fabric struct {
	manager fabric.Manager
}

// Resolve implements [Provider]. It refuses a partition that Fabric Manager does not list any more, and one that overlaps with
// an active one.
func (f *Fabric) Resolve(ctx context.Context, _ *plan.Function, s *plan.Setting) error {
	l, err := f.manager.Partitions(ctx)
	if err != nil {
		return err
	}
	id, modules, ok := fabric.ParseValue(s.Want)
	p := l.With(modules)
	if !ok || p == nil || p.ID != id {
		return unsettable(
			fmt.Sprintf("Fabric Manager has no partition %s now", s.Want),
			"the plugin reads the list again within a minute; delete the claim, so that a new one is allocated from it",
		)
	}
	if s.Found = inForce(l, p); s.Found != fabric.NoPartition {
		return unsettable(
			fmt.Sprintf("partition %s can't be activated: active already, and no claim's, is %s", p, s.Found),
			"end what uses its GPUs, and deactivate it (kata-vfio-fabric or fmpm -d): no other program may activate partitions on this node",
		)
	}
	return nil
}

// inForce returns the active partitions that have a GPU of p, as one value.
func inForce(l fabric.List, p *fabric.Partition) string {
	var active []string
	for i := range l {
		if l[i].Active && l[i].Overlaps(p) {
			active = append(active, l[i].String())
		}
	}
	if active == nil {
		return fabric.NoPartition
	}
	return strings.Join(active, " and ")
}

// Read implements [Provider].
func (f *Fabric) Read(ctx context.Context, fn *plan.Function, name string) (string, error) {
	p, err := wanted(fn, name)
	if err != nil {
		return "", err
	}
	l, err := f.manager.Partitions(ctx)
	if err != nil {
		return "", err
	}
	return inForce(l, p), nil
}

// wanted returns the partition of the function's setting.
func wanted(fn *plan.Function, name string) (*fabric.Partition, error) {
	i := slices.IndexFunc(fn.Settings, func(s plan.Setting) bool { return s.Provider == plan.ProviderFabric && s.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("%s has no setting %s", fn.Address, name)
	}
	id, modules, ok := fabric.ParseValue(fn.Settings[i].Want)
	if !ok {
		return nil, fmt.Errorf("%q names none of Fabric Manager's partitions", fn.Settings[i].Want)
	}
	p := &fabric.Partition{ID: id}
	for _, m := range modules {
		p.GPUs = append(p.GPUs, fabric.GPU{Module: m})
	}
	return p, nil
}

// Set implements [Provider].
func (f *Fabric) Set(ctx context.Context, fn *plan.Function, name, value string) error {
	p, err := wanted(fn, name)
	switch {
	case err != nil:
		return err
	case value == fabric.NoPartition:
		return f.deactivate(ctx, p)
	case value == p.String():
		return f.activate(ctx, p)
	}
	return fmt.Errorf("partition %s can't become %q", p, value)
}

// activate activates a partition by its number, if the list has its GPUs under it still. Fabric Manager may have done it even if it
// does not say so.
func (f *Fabric) activate(ctx context.Context, p *fabric.Partition) error {
	l, err := f.manager.Partitions(ctx)
	if err != nil {
		return err
	}
	if listed := l.With(p.Modules()); listed == nil || listed.ID != p.ID {
		return fmt.Errorf("Fabric Manager has no partition %s now", p)
	}
	err = f.manager.Activate(ctx, p.ID)
	if err == nil {
		return nil
	}
	remedy := fabric.Repeat // it did not answer
	if e, ok := errors.AsType[*fabric.CodeError](err); ok {
		remedy = e.Code.After(fabric.CallActivate)
	}
	if remedy != fabric.Compare && remedy != fabric.Repeat {
		return err
	}
	l, listErr := f.manager.Partitions(ctx)
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	switch now := inForce(l, p); {
	case now == p.String():
		return nil
	case remedy == fabric.Compare:
		return fmt.Errorf("%w; active is %s", err, now)
	}
	return &ResetFirstError{Err: err}
}

// deactivate ends a partition. That it is inactive already is as good.
func (f *Fabric) deactivate(ctx context.Context, p *fabric.Partition) error {
	err := f.manager.Deactivate(ctx, p.ID)
	if e, ok := errors.AsType[*fabric.CodeError](err); ok && e.Code.After(fabric.CallDeactivate) == fabric.Done {
		return nil
	}
	return err
}

// Accepts implements [Provider].
func (*Fabric) Accepts(_, want, now string) bool { return want == now }

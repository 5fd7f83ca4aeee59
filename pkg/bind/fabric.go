package bind

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Fabric has NVIDIA's Fabric Manager activate and deactivate partitions. The value of a GPU's setting is the active
// partition of the GPUs that the claim wants together. All GPUs of the partition read the same value, and the first one
// that is set changes it for all.
type Fabric struct {
	fs      *sysfs.FS
	manager fabric.Manager
}

// Resolve implements [Provider]. It refuses a partition that Fabric Manager does not list any more, and a partition
// that shares a GPU with an active one.
func (f *Fabric) Resolve(ctx context.Context, _ *plan.Function, s *plan.Setting) error {
	l, err := f.list(ctx)
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
		return &UnsettableError{
			Text:   fmt.Sprintf("partition %s can't be activated: active already, and no claim's, is %s", p, s.Found),
			Fix:    "end what uses its GPUs, and deactivate it (kata-vfio-fabric or fmpm -d): no other program may activate partitions on this node",
			Reason: rule.PartitionNotActivated,
		}
	}
	return nil
}

// list returns the partitions.
func (f *Fabric) list(ctx context.Context) (fabric.List, error) {
	l, err := f.manager.Partitions(ctx)
	return l, away(err, fabric.CallList)
}

// away returns err as an [AwayError] if it says that Fabric Manager is not ready, and unchanged otherwise.
func away(err error, call fabric.Call) error {
	if e, ok := errors.AsType[*fabric.CodeError](err); ok && e.Code.After(call) == fabric.Wait {
		return &AwayError{Err: err, Reason: rule.FabricNotReady}
	}
	return err
}

// inForce returns the active partitions that have a GPU of p, as one value.
func inForce(l fabric.List, p *fabric.Partition) string {
	active := slices.DeleteFunc(l.Active(), func(q fabric.Partition) bool { return !q.Overlaps(p) })
	if len(active) == 0 {
		return fabric.NoPartition
	}
	return active.String()
}

// Read implements [Provider].
func (f *Fabric) Read(ctx context.Context, fn *plan.Function, name string) (string, error) {
	p, err := wanted(fn, name)
	if err != nil {
		return "", err
	}
	l, err := f.list(ctx)
	if away, ok := errors.AsType[*AwayError](err); ok {
		away.Last = f.last(p)
		return "", away
	}
	if err != nil {
		return "", err
	}
	return inForce(l, p), nil
}

// last returns the value that was in force when Fabric Manager last listed its partitions; empty if that is unknown.
func (f *Fabric) last(p *fabric.Partition) string {
	text, err := f.fs.ReadFile(fabric.StateFile)
	if err != nil {
		return ""
	}
	s, err := fabric.Parse[fabric.State](text)
	if err != nil || s.Partitions == nil {
		return ""
	}
	return inForce(s.Partitions, p)
}

// wanted returns the partition of the function's setting.
func wanted(fn *plan.Function, name string) (*fabric.Partition, error) {
	i := slices.IndexFunc(fn.Settings, func(s plan.Setting) bool { return s.Provider == plan.ProviderFabric && s.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("%s has no setting %s", fn.Address, name)
	}
	p, ok := fabric.ParsePartition(fn.Settings[i].Want)
	if !ok {
		return nil, fmt.Errorf("%q names none of Fabric Manager's partitions", fn.Settings[i].Want)
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

// activate activates a partition by its number, if Fabric Manager still lists the partition's GPUs under that number.
// If the call fails, Fabric Manager may have activated the partition nevertheless, so activate looks at the list again.
func (f *Fabric) activate(ctx context.Context, p *fabric.Partition) error {
	l, err := f.list(ctx)
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
		return away(err, fabric.CallActivate)
	}
	l, listErr := f.list(ctx)
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	switch now := inForce(l, p); {
	case now == p.String():
		return nil
	case remedy == fabric.Compare:
		return notActivated("", fmt.Errorf("%w; active is %s", err, now))
	}
	return &ResetFirstError{Err: notActivated("", err)}
}

// deactivate ends a partition. It succeeds if the partition is inactive already. If Fabric Manager does not answer, the
// list shows whether the partition ended.
func (f *Fabric) deactivate(ctx context.Context, p *fabric.Partition) error {
	err := f.manager.Deactivate(ctx, p.ID)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*fabric.CodeError](err); ok {
		if e.Code.After(fabric.CallDeactivate) == fabric.Done {
			return nil
		}
		return away(err, fabric.CallDeactivate)
	}
	l, listErr := f.list(ctx)
	if listErr == nil && inForce(l, p) != p.String() {
		return nil
	}
	return errors.Join(err, listErr)
}

// Accepts implements [Provider].
func (*Fabric) Accepts(_, want, now string) bool { return want == now }

// Lost implements [LossNamer].
func (*Fabric) Lost(device string, err error) error {
	return notActivated(device, err)
}

// notActivated says that a device has no active partition. The caller of Set adds the name of the device.
func notActivated(device string, err error) *NotActivatedError {
	return &NotActivatedError{Device: device, Reason: rule.PartitionNotActivated, Err: err}
}

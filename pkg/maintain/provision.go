package maintain

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// Provisions returns what Provision would do now. It locks and writes nothing.
func (m *Maintainer) Provisions(ctx context.Context) ([]plan.Provision, error) {
	if m.order.Effects.Node == nil || len(m.order.Effects.Node.VirtualFunctions) == 0 {
		return nil, nil
	}
	snap, err := m.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return m.provisions(ctx, snap, m.order.Effects.Node.VirtualFunctions...)
}

// provisions reads the modes of PFs whose rules set one, and decides.
func (m *Maintainer) provisions(ctx context.Context, snap *device.Snapshot, rules ...v1alpha1.VFRule) ([]plan.Provision, error) {
	eswitches := map[pci.Address]plan.Eswitch{}
	for _, rule := range rules {
		if pf := plan.FindPF(snap, rule.PF); pf != nil && rule.EswitchMode != "" {
			mode, err := m.eswitches.Mode(ctx, pf.Address)
			eswitches[pf.Address] = plan.Eswitch{Mode: string(mode), Err: err}
		}
	}
	n := m.order.Planning.WithOwners(snap)
	var err error
	if n.Drained, err = m.order.Planning.Drained(snap); err != nil {
		return nil, err
	}
	return plan.Provisions(rules, n, eswitches), nil
}

// Provision creates the VFs of the PFs in the node config, in the configured mode. It returns the changes, and the PFs
// that it did not change with the reason. Such a refusal is not an error. Call Provision after Recover, because it must
// know which claims have the VFs. It may be repeated: a crash in the middle leaves a PF without VFs, and the next call
// creates them.
func (m *Maintainer) Provision(ctx context.Context) ([]plan.Provision, error) {
	return m.Reprovision(ctx, func(*plan.Provision) (why, fix string) { return "", "" })
}

// Reprovision is Provision, but leaves out the changes that hold refuses. For a change that is due, hold returns the
// reason against it and the fix, or "" to allow the change. PFs are changed concurrently, so hold is called from
// several goroutines.
func (m *Maintainer) Reprovision(ctx context.Context, hold func(*plan.Provision) (why, fix string)) ([]plan.Provision, error) {
	all, err := m.Provisions(ctx)
	if err != nil {
		return nil, err
	}
	var g errgroup.Group
	for i := range all {
		out := &all[i]
		if !out.Due() {
			continue
		}
		if out.Refused, out.Fix = hold(out); out.Refused != "" {
			continue
		}
		g.Go(func() error {
			if err := m.provisionOne(ctx, &m.order.Effects.Node.VirtualFunctions[i], out, hold); err != nil {
				out.Failed, out.Refused = true, err.Error()
				out.Fix = "fix it; the plugin tries again, and so does `kata-vfio-plugin provision`"
			}
			return nil
		})
	}
	_ = g.Wait() // the goroutines return nil; the provisions have their errors
	return all, nil
}

// provisionOne decides again about one PF and changes it. It holds the PF's lock, which claims of the PF's VFs hold
// too.
func (m *Maintainer) provisionOne(ctx context.Context, rule *v1alpha1.VFRule, out *plan.Provision, hold func(*plan.Provision) (why, fix string)) error {
	wait, cancel := m.order.InTime(ctx) // for the lock only, because it takes long to create many VFs
	defer cancel()
	release, err := m.order.Effects.Lock(wait, plan.Ref{}, []effects.Lock{{Name: "pf-" + out.PF.Label()}})
	if err != nil {
		return fmt.Errorf("wait for claims of its VFs: %w", err)
	}
	defer release()
	snap, err := m.refreshPF(ctx, out.PF)
	if err != nil {
		return err
	}
	again, err := m.provisions(ctx, snap, *rule)
	if err != nil {
		return err
	}
	if *out = again[0]; !out.Due() {
		return nil
	}
	if out.Refused, out.Fix = hold(out); out.Refused != "" {
		return nil
	}
	return m.order.Effects.Observe.Timed(plan.Ref{}, effects.PhaseVF, func() error { return m.makeVFs(ctx, out) })
}

// refreshPF returns a snapshot with the present state of a PF and its VFs.
func (m *Maintainer) refreshPF(ctx context.Context, a pci.Address) (*device.Snapshot, error) {
	snap, err := m.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	addrs := []pci.Address{a}
	if pf, ok := snap.Function(a); ok && pf.PF != nil {
		addrs = append(addrs, pf.PF.VFs...)
	}
	return m.order.Effects.Inventory.Refresh(ctx, addrs)
}

// makeVFs sets the mode while the PF has no VFs, and then creates the VFs. If the mode can't be set, the PF gets its
// VFs in the present mode, and makeVFs returns the error.
func (m *Maintainer) makeVFs(ctx context.Context, out *plan.Provision) error {
	var modeErr error
	if out.ChangesMode() {
		if err := m.order.Effects.Executor.SetVFs(ctx, out.PF, 0); err != nil {
			return err
		}
		if modeErr = m.eswitches.SetMode(ctx, out.PF, vf.Mode(out.WantMode)); modeErr != nil {
			modeErr = fmt.Errorf("eswitchMode: %w", modeErr)
		}
	}
	if err := errors.Join(modeErr, m.order.Effects.Executor.SetVFs(ctx, out.PF, out.Want)); err != nil {
		return err
	}
	_, err := m.order.Effects.Inventory.Refresh(ctx, []pci.Address{out.PF}) // the kernel sends no event for sriov_drivers_autoprobe
	return err
}

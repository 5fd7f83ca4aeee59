package prepare

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
)

// Provisions returns what Provision would do now. Nothing is locked or written.
func (p *Preparer) Provisions(ctx context.Context) ([]plan.Provision, error) {
	if p.Node == nil || len(p.Node.VirtualFunctions) == 0 {
		return nil, nil
	}
	snap, err := p.Inventory.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return p.provisions(ctx, snap, p.Node.VirtualFunctions...)
}

// provisions asks the PFs for their modes where rules want one, and decides.
func (p *Preparer) provisions(ctx context.Context, snap *device.Snapshot, rules ...v1alpha1.VFRule) ([]plan.Provision, error) {
	eswitches := map[pci.Address]plan.Eswitch{}
	for _, rule := range rules {
		if pf := plan.FindPF(snap, rule.PF); pf != nil && rule.EswitchMode != "" {
			mode, err := p.Eswitches.Mode(ctx, pf.Address)
			eswitches[pf.Address] = plan.Eswitch{Mode: string(mode), Err: err}
		}
	}
	n := p.node(snap)
	var err error
	if n.Drained, err = p.drained(); err != nil {
		return nil, err
	}
	return plan.Provisions(rules, n, eswitches), nil
}

// Provision gives the PFs that the node's config names their VFs, in the mode
// that it names, and returns what it did and what it left alone, and why. Call it
// after Recover, which knows whose the VFs are; it may be repeated. A crash in the
// middle leaves a PF without VFs, and the next call makes them. What is refused
// is no error.
func (p *Preparer) Provision(ctx context.Context) ([]plan.Provision, error) {
	return p.Reprovision(ctx, func(*plan.Provision) (why, fix string) { return "", "" })
}

// Reprovision is Provision, but for changes that hold refuses: it returns why a
// change that is due is not made, and what to do, or "" to have it made. PFs are
// changed side by side, so hold is called from several goroutines.
func (p *Preparer) Reprovision(ctx context.Context, hold func(*plan.Provision) (why, fix string)) ([]plan.Provision, error) {
	all, err := p.Provisions(ctx)
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
			if err := p.provisionOne(ctx, &p.Node.VirtualFunctions[i], out, hold); err != nil {
				out.Failed, out.Refused = true, err.Error()
				out.Fix = "correct that; the plugin tries again, and so does `kata-vfio-plugin provision`"
			}
			return nil
		})
	}
	_ = g.Wait() // the goroutines return nil; the provisions have their errors
	return all, nil
}

// provisionOne decides again under the PF's lock, which claims of its VFs hold
// too, and acts.
func (p *Preparer) provisionOne(ctx context.Context, rule *v1alpha1.VFRule, out *plan.Provision, hold func(*plan.Provision) (why, fix string)) error {
	wait, cancel := p.inTime(ctx) // for the lock alone: to make many VFs takes its time
	defer cancel()
	release, err := p.lock(wait, plan.Ref{}, []Lock{{Name: "pf-" + out.PF.Label()}})
	if err != nil {
		return fmt.Errorf("wait for claims of its VFs: %w", err)
	}
	defer release()
	snap, err := p.refreshPF(ctx, out.PF)
	if err != nil {
		return err
	}
	again, err := p.provisions(ctx, snap, *rule)
	if err != nil {
		return err
	}
	if *out = again[0]; !out.Due() {
		return nil
	}
	if out.Refused, out.Fix = hold(out); out.Refused != "" {
		return nil
	}
	return p.timed(plan.Ref{}, PhaseVF, func() error { return p.makeVFs(ctx, out) })
}

// refreshPF returns a snapshot in which a PF and its VFs are as they are now.
func (p *Preparer) refreshPF(ctx context.Context, a pci.Address) (*device.Snapshot, error) {
	snap, err := p.Inventory.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	addrs := []pci.Address{a}
	if pf, ok := snap.Function(a); ok && pf.PF != nil {
		addrs = append(addrs, pf.PF.VFs...)
	}
	return p.Inventory.Refresh(ctx, addrs)
}

// makeVFs sets the mode while the PF has no VFs, and makes them. Where the mode
// is refused the PF has its VFs all the same, in the mode that it has.
func (p *Preparer) makeVFs(ctx context.Context, out *plan.Provision) error {
	var modeErr error
	if out.ChangesMode() {
		if err := p.Executor.SetVFs(ctx, out.PF, 0); err != nil {
			return err
		}
		if modeErr = p.VFs.SetMode(ctx, out.PF, vf.Mode(out.WantMode)); modeErr != nil {
			modeErr = fmt.Errorf("eswitchMode: %w", modeErr)
		}
	}
	if err := errors.Join(modeErr, p.Executor.SetVFs(ctx, out.PF, out.Want)); err != nil {
		return err
	}
	_, err := p.Inventory.Refresh(ctx, []pci.Address{out.PF}) // the kernel tells nobody of sriov_drivers_autoprobe
	return err
}

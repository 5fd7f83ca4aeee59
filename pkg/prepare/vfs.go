package prepare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// resolveVFs completes a plan's changes of VFs before the first effect: the
// settings as they are now, which are to be restored, the bounds of rates that
// nobody said, and the addresses that are to be generated. What a PF can't do is refused here.
func (p *Preparer) resolveVFs(ctx context.Context, rec *journal.Record) error {
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		if rec.Kind == journal.Bound {
			fn.VF = nil // no tenant, no policy
		}
		if fn.VF == nil {
			continue
		}
		change := *fn.VF
		fn.VF = &change
		err := p.timed(rec.Plan.Claim, PhaseVF, func() error { return p.resolveVF(ctx, rec, fn) })
		if err != nil {
			return p.refusedVF(rec, fn, err)
		}
	}
	rec.Plan.Steps = rec.Plan.StepsOf(plan.AtOriginal, plan.Preparation()...)
	return nil
}

func (p *Preparer) resolveVF(ctx context.Context, rec *journal.Record, fn *plan.Function) error {
	state, others, err := p.VFs.Read(ctx, *fn.PF, fn.VF.Index)
	if err != nil {
		return err
	}
	if err := fn.VF.SettleRate(state.Settings.Rate); err != nil {
		return err
	}
	want := &fn.VF.Want
	// Without such a switch in the PF there is nothing to switch off.
	for _, s := range []device.VFSetting{device.VFSpoofCheck, device.VFRSSQuery, device.VFTrust} {
		if want.Value(s) == "off" && state.Settings.Value(s) == "" {
			want.Take(s, &device.VFSettings{})
		}
	}
	if err := p.chooseAddresses(rec, fn, others); err != nil {
		return err
	}
	fn.VF.Representor = state.Representor()
	fn.VF.Original = restorable(state.Settings.Only(want))
	return p.VFs.Supported(ctx, *fn.PF, fn.VF.Index, want)
}

// allOnes is the GUID that takes a VF's own away: devices refuse the zero that
// they report of a VF which was given none.
const allOnes = "ff:ff:ff:ff:ff:ff:ff:ff"

// restorable are settings in the form in which they can be set again.
func restorable(found device.VFSettings) device.VFSettings {
	for _, guid := range []*string{&found.NodeGUID, &found.PortGUID} {
		if *guid == vf.NoGUID {
			*guid = allOnes
		}
	}
	return found
}

const bringLinkUp = "bring the PF's link up (ip link set <interface> up, and its cable)"

// refusedVF turns what a PF can't do into the claim's refusal. Other errors
// stay as they are: a later try may come through.
func (p *Preparer) refusedVF(rec *journal.Record, fn *plan.Function, err error) error {
	refusal := plan.Refusal{Code: plan.Unsupported, Address: fn.Address, Culprit: fn.PF, Device: deviceName(&rec.Plan, fn), Text: err.Error()}
	setting, isSetting := errors.AsType[*vf.SettingError](err)
	_, noInterface := errors.AsType[*vf.NoInterfaceError](err)
	_, atOdds := errors.AsType[*plan.RateError](err)
	taken, isTaken := errors.AsType[*takenAddressError](err)
	switch {
	case isSetting && setting.NeedsLink():
		refusal.Fix = bringLinkUp + ", or leave the setting out"
	case isSetting && setting.Unsupported() && setting.Switchdev && setting.Setting == device.VFSpoofCheck:
		refusal.Fix = "have the representor's bridge or rules see who sends, and let a DeviceClass say `spoofCheck: false`"
	case isSetting && setting.Unsupported() && setting.Switchdev:
		refusal.Fix = "leave the setting out of the DeviceClass or claim and see to it there, or claim a VF of another PF"
	case isSetting && setting.Unsupported() && setting.Setting == device.VFSpoofCheck:
		refusal.Fix = "let a DeviceClass say `spoofCheck: false` where whoever is on that network may be taken for anybody, or claim a VF of another PF"
	case isSetting && setting.Unsupported():
		refusal.Fix = "leave the setting out of the DeviceClass or claim, or claim a VF of another PF"
	case noInterface:
		refusal.Fix = "then try again"
	case atOdds:
		refusal.Fix = "say both minTxRate and maxTxRate in a DeviceClass, or have the PF impose none (ip link set PF vf N min_tx_rate 0 max_tx_rate 0)"
	case isTaken:
		refusal.Fix = fmt.Sprintf("leave the %s out, so that one is generated, or give another", taken.setting)
	default:
		return fmt.Errorf("claim %s: %w", rec.Plan.Claim, err)
	}
	return &plan.RefusedError{Claim: rec.Plan.Claim, Refusals: []plan.Refusal{refusal}}
}

// deviceName returns the name of the device that a function is.
func deviceName(pl *plan.Plan, fn *plan.Function) string {
	for i := range pl.Devices {
		if pl.Devices[i].Address == fn.Address {
			return pl.Devices[i].Name
		}
	}
	return fn.Address.String()
}

// applyVFs has the PFs impose what the record's VFs are to have, and verifies
// it. It may be repeated, whoever uses the VFs.
func (p *Preparer) applyVFs(ctx context.Context, rec *journal.Record) error {
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		if fn.VF == nil {
			continue
		}
		if err := p.configureVF(ctx, rec.Plan.Claim, fn, &fn.VF.Want); err != nil {
			return p.refusedVF(rec, fn, err)
		}
	}
	return nil
}

// configureVFs is applyVFs for a new tenant, which it reports to the ledger.
func (p *Preparer) configureVFs(ctx context.Context, rec *journal.Record) error {
	if err := p.applyVFs(ctx, rec); err != nil {
		return err
	}
	e, ok := policyEvent(rec)
	if !ok {
		return nil
	}
	return p.record(ctx, rec.Plan.Claim, e)
}

// configureVF brings one VF to settings. The observer hears of it as of a step.
func (p *Preparer) configureVF(ctx context.Context, claim plan.Ref, fn *plan.Function, want *device.VFSettings) error {
	step, start := fn.ConfigureStep(want), time.Now()
	err := p.VFs.Apply(ctx, *fn.PF, fn.VF.Index, want)
	p.Observe(Event{Claim: claim, Phase: PhaseVF, Step: &step, Took: time.Since(start), Err: err})
	if err != nil {
		return fmt.Errorf("VF %s: %w", fn.Address, err)
	}
	return nil
}

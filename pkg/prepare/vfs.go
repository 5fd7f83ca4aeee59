package prepare

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/vf"
)

// settleVFs completes a plan's changes of VFs before the first effect: the
// settings as they are now, which are to be restored, and the addresses that
// are to be generated. What a PF can't do is refused here.
func (p *Preparer) settleVFs(ctx context.Context, rec *journal.Record) error {
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		if rec.Kind == journal.Standing {
			fn.VF = nil // no tenant, no policy
		}
		if fn.VF == nil {
			continue
		}
		change := *fn.VF
		fn.VF = &change
		err := p.timed(rec.Plan.Claim, PhaseVF, func() error { return p.settleVF(ctx, rec, fn) })
		if err != nil {
			return p.refusedVF(rec, fn, err)
		}
	}
	rec.Plan.Steps = rec.Plan.Sequence()
	return nil
}

func (p *Preparer) settleVF(ctx context.Context, rec *journal.Record, fn *plan.Function) error {
	state, others, err := p.VFs.Read(ctx, *fn.PF, fn.VF.Index)
	if err != nil {
		return err
	}
	want := &fn.VF.Want
	// Without such a switch in the PF there is nothing to switch off.
	if state.Settings.SpoofCheck == nil && want.SpoofCheck != nil && !*want.SpoofCheck {
		want.SpoofCheck = nil
	}
	if state.Settings.Trust == nil && want.Trust != nil && !*want.Trust {
		want.Trust = nil
	}
	if want.MAC != "" {
		if err := p.chooseMAC(rec, fn, others); err != nil {
			return err
		}
	}
	fn.VF.Original = state.Settings.Only(want)
	return p.VFs.Supported(ctx, *fn.PF, fn.VF.Index, want)
}

// takenMACError says that an address is another's on this node.
type takenMACError struct{ mac, owner string }

func (e *takenMACError) Error() string {
	return fmt.Sprintf("the address %s is that of %s", e.mac, e.owner)
}

// macTries is how many addresses are generated: a second one is as unlikely to
// be needed as to meet a given stranger among 2^46.
const macTries = 8

// chooseMAC generates the VF's address or checks the one that was given.
func (p *Preparer) chooseMAC(rec *journal.Record, fn *plan.Function, others []string) error {
	owners, err := p.macOwners(rec, fn, others)
	if err != nil {
		return err
	}
	given := fn.VF.Want.MAC
	for try := range macTries {
		mac := given
		if given == plan.ChooseMAC {
			mac = plan.GenerateMAC(rec.ID(), fn.Address.String(), try)
		}
		owner, taken := owners[mac]
		if !taken {
			fn.VF.Want.MAC = mac
			return nil
		}
		if mac == given {
			return &takenMACError{mac: mac, owner: owner}
		}
	}
	return errors.New("no free MAC address was found")
}

// macOwners returns who has which address on the node: its own interfaces, the
// other VFs of the PF, the claim's other VFs, and the VFs of other claims, whose
// interfaces are out of sight.
func (p *Preparer) macOwners(rec *journal.Record, fn *plan.Function, others []string) (map[string]string, error) {
	owners := map[string]string{}
	records, _ := p.Journal.List() // what can't be read has kept its devices from everybody
	for _, o := range records {
		for i := range o.Plan.Functions {
			if fn := &o.Plan.Functions[i]; fn.VF != nil && o.ID() != rec.ID() && o.BootID == rec.BootID {
				owners[fn.VF.Want.MAC] = "another claim's VF"
			}
		}
	}
	for i := range rec.Plan.Functions {
		if o := &rec.Plan.Functions[i]; o.VF != nil && o.Address != fn.Address {
			owners[o.VF.Want.MAC] = "another VF of this claim"
		}
	}
	for _, mac := range others {
		owners[mac] = "another VF of the PF"
	}
	const interfaces = "sys/class/net"
	names, err := p.FS.ReadDir(interfaces)
	if err != nil {
		return nil, fmt.Errorf("list the node's interfaces: %w", err)
	}
	for _, name := range names {
		mac, err := p.FS.ReadString(path.Join(interfaces, name, "address"))
		if err == nil && !p.isOwn(rec, name) {
			owners[mac] = "the node's interface " + name
		}
	}
	delete(owners, "00:00:00:00:00:00")
	delete(owners, "")
	return owners, nil
}

// isOwn reports whether an interface is that of one of the record's functions,
// which loses it.
func (p *Preparer) isOwn(rec *journal.Record, name string) bool {
	link, err := p.FS.ReadLink(path.Join("sys/class/net", name)) // .../0000:21:00.0/net/ens1f0
	owner := path.Base(path.Dir(path.Dir(link)))
	return err == nil && slices.ContainsFunc(rec.Plan.Functions, func(fn plan.Function) bool { return fn.Address.String() == owner })
}

const bringLinkUp = "bring the PF's link up (ip link set <interface> up, and its cable)"

// refusedVF turns what a PF can't do into the claim's refusal. Other errors
// stay as they are: a later try may come through.
func (p *Preparer) refusedVF(rec *journal.Record, fn *plan.Function, err error) error {
	refusal := plan.Refusal{Code: plan.Unsupported, Address: fn.Address, Culprit: fn.PF, Device: deviceName(&rec.Plan, fn), Text: err.Error()}
	setting, isSetting := errors.AsType[*vf.SettingError](err)
	_, noInterface := errors.AsType[*vf.NoInterfaceError](err)
	_, taken := errors.AsType[*takenMACError](err)
	switch {
	case isSetting && setting.NeedsLink():
		refusal.Fix = bringLinkUp + ", or leave the setting out"
	case isSetting && setting.Unsupported() && setting.Setting == device.VFSpoofCheck:
		refusal.Fix = "let a DeviceClass say `spoofCheck: false` where whoever is on that network may be taken for anybody, or claim a VF of another PF"
	case isSetting && setting.Unsupported():
		refusal.Fix = "leave the setting out of the DeviceClass or claim, or claim a VF of another PF"
	case noInterface:
		refusal.Fix = "then try again"
	case taken:
		refusal.Fix = "leave the MAC out, so that one is generated, or give another"
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

// imposeAll has the PFs impose what the record's VFs are to have, and verifies
// it. It may be repeated, whoever uses the VFs.
func (p *Preparer) imposeAll(ctx context.Context, rec *journal.Record) error {
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		if fn.VF == nil {
			continue
		}
		if err := p.impose(ctx, rec.Plan.Claim, fn, &fn.VF.Want); err != nil {
			return p.refusedVF(rec, fn, err)
		}
	}
	return nil
}

// impose brings one VF to settings. The observer hears of it as of a step.
func (p *Preparer) impose(ctx context.Context, claim plan.Ref, fn *plan.Function, want *device.VFSettings) error {
	step, start := fn.ImposeStep(want), time.Now()
	err := p.VFs.Apply(ctx, *fn.PF, fn.VF.Index, want)
	p.Observe(Event{Claim: claim, Phase: PhaseVF, Step: &step, Took: time.Since(start), Err: err})
	if err != nil {
		return fmt.Errorf("VF %s: %w", fn.Address, err)
	}
	return nil
}

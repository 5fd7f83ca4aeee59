package effects

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// ResolveVFs completes a plan's changes of VFs before the first effect: it adds the present settings, which are
// restored later, the bounds of rates that are not set, and generated addresses. It refuses the claim if the PF does
// not support a setting.
func (set *Set) ResolveVFs(ctx context.Context, rec *journal.Record) error {
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
		err := set.Observe.Timed(rec.Plan.Claim, PhaseVF, func() error { return set.resolveVF(ctx, rec, fn) })
		if err != nil {
			return set.refusedVF(rec, fn, err)
		}
	}
	rec.Plan.Steps = rec.Plan.StepsFor(plan.AtOriginal, plan.Preparation()...)
	return nil
}

func (set *Set) resolveVF(ctx context.Context, rec *journal.Record, fn *plan.Function) error {
	seen, err := set.VFs.Look(ctx, *fn.PF, fn.VF.Index)
	if err != nil {
		return err
	}
	state := seen.State
	if err := fn.VF.SettleRate(state.Settings.Rate); err != nil {
		return err
	}
	want := &fn.VF.Want
	// A setting that the PF does not have is off.
	for _, s := range []device.VFSetting{device.VFSpoofCheck, device.VFRSSQuery, device.VFTrust} {
		if want.Value(s) == "off" && state.Settings.Value(s) == "" {
			want.Take(s, &device.VFSettings{})
		}
	}
	if err := set.chooseAddresses(rec, fn, seen.Others); err != nil {
		return err
	}
	fn.VF.Representor = state.Representor()
	// Only the settings that the claim changes are restored later. If an operator changes other settings meanwhile,
	// they stay.
	fn.VF.Original = restorable(state.Settings.Only(want))
	return seen.Supported(ctx, want)
}

// allOnes is the GUID that removes a VF's own GUID. Devices report zeros for a VF without one, but refuse to set zeros.
const allOnes = "ff:ff:ff:ff:ff:ff:ff:ff"

// restorable returns settings in a form in which they can be set again.
func restorable(found device.VFSettings) device.VFSettings {
	for _, guid := range []*string{&found.NodeGUID, &found.PortGUID} {
		if *guid == vf.NoGUID {
			*guid = allOnes
		}
	}
	return found
}

const bringLinkUp = "bring the PF's link up (ip link set <interface> up, and its cable)"

// refusedVF returns a refusal for a setting that the PF can't apply. Other errors stay as they are, because a later try
// may succeed.
func (set *Set) refusedVF(rec *journal.Record, fn *plan.Function, err error) error {
	refusal := rule.Verdict{Code: rule.UnsupportedSetting, Address: fn.Address, Culprit: fn.PF, Device: plannedDevice(&rec.Plan, fn).Name, Text: err.Error()}
	setting, isSetting := errors.AsType[*vf.SettingError](err)
	_, noInterface := errors.AsType[*vf.NoInterfaceError](err)
	_, atOdds := errors.AsType[*plan.RateError](err)
	taken, isTaken := errors.AsType[*takenAddressError](err)
	switch {
	case isSetting && setting.NeedsLink():
		refusal.Fix = bringLinkUp + ", or leave the setting out"
	case isSetting && setting.Unsupported() && setting.Switchdev && setting.Setting == device.VFSpoofCheck:
		refusal.Fix = "configure the representor's bridge or rules to check the sender, and set `spoofCheck: false` in a DeviceClass"
	case isSetting && setting.Unsupported() && setting.Switchdev:
		refusal.Fix = "leave the setting out of the DeviceClass or claim and configure it on the representor, or claim a VF of another PF"
	case isSetting && setting.Unsupported() && setting.Setting == device.VFSpoofCheck:
		refusal.Fix = "set `spoofCheck: false` in a DeviceClass if VFs on that network may use each other's addresses, or claim a VF of another PF"
	case isSetting && setting.Unsupported():
		refusal.Fix = "leave the setting out of the DeviceClass or claim, or claim a VF of another PF"
	case noInterface:
		refusal.Fix = "fix the cause, then try again"
	case atOdds:
		refusal.Fix = "set both minTxRate and maxTxRate in a DeviceClass, or clear the PF's limits (ip link set PF vf N min_tx_rate 0 max_tx_rate 0)"
	case isTaken:
		refusal.Fix = fmt.Sprintf("leave the %s out, so that the plugin generates an address, or set another address", taken.setting)
	default:
		return fmt.Errorf("claim %s: %w", rec.Plan.Claim, err)
	}
	return plan.RefuseClaim(rec.Plan.Claim, refusal)
}

// plannedDevice returns the device of a function. If the function has none, as a group mate, the returned device has
// the function's address as its name.
func plannedDevice(pl *plan.Plan, fn *plan.Function) *plan.Device {
	for i := range pl.Devices {
		if pl.Devices[i].Address == fn.Address {
			return &pl.Devices[i]
		}
	}
	return &plan.Device{Name: fn.Address.String(), Address: fn.Address}
}

// ApplyVFs makes the PFs apply the settings of the record's VFs, and verifies them. It may be repeated while the VFs
// are in use.
func (set *Set) ApplyVFs(ctx context.Context, rec *journal.Record) error {
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		if fn.VF == nil {
			continue
		}
		if err := set.configureVF(ctx, rec.Plan.Claim, fn, &fn.VF.Want); err != nil {
			return set.refusedVF(rec, fn, err)
		}
	}
	return nil
}

// ConfigureVFs is [Set.ApplyVFs] for a new tenant: it also writes the event to the ledger.
func (set *Set) ConfigureVFs(ctx context.Context, rec *journal.Record) error {
	if err := set.ApplyVFs(ctx, rec); err != nil {
		return err
	}
	e, ok := policyEvent(rec)
	if !ok {
		return nil
	}
	return set.RecordSoon(ctx, rec.Plan.Claim, e)
}

// configureVF applies settings to one VF, and reports that to the observer as a step. If the VF is gone, it returns an
// error, because another VF may have the index then.
func (set *Set) configureVF(ctx context.Context, claim plan.Ref, fn *plan.Function, want *device.VFSettings) error {
	if err := set.CheckFunction(fn); err != nil {
		return fmt.Errorf("VF %s: %w", fn.Address, err)
	}
	step, start := fn.ConfigureStep(want), time.Now()
	err := set.VFs.Apply(ctx, *fn.PF, fn.VF.Index, want)
	set.Observe(Event{Claim: claim, Phase: PhaseVF, Step: &step, Took: time.Since(start), Err: err})
	if err != nil {
		return fmt.Errorf("VF %s: %w", fn.Address, err)
	}
	return nil
}

// takenAddressError says that this node already uses a MAC address or a GUID.
type takenAddressError struct {
	setting        device.VFSetting
	address, owner string
}

func (e *takenAddressError) Error() string {
	return fmt.Sprintf("the %s %s is that of %s", e.setting, e.address, e.owner)
}

// addressTries is how many addresses are generated before choose gives up. A second one is needed only if the first is
// in use by chance, which has a probability of about one in 2^46.
const addressTries = 8

// chooseAddresses generates the VF's MAC address or GUIDs, or checks the ones that the claim sets.
func (set *Set) chooseAddresses(rec *journal.Record, fn *plan.Function, others []string) error {
	var owners map[string]string
	for _, s := range device.VFAddresses() {
		given := fn.VF.Want.Value(s)
		if given == "" {
			continue
		}
		if owners == nil {
			var err error
			if owners, err = set.addressOwners(rec, fn, others); err != nil {
				return err
			}
		}
		if err := choose(rec, fn, s, owners); err != nil {
			return err
		}
	}
	return nil
}

// choose decides one address, which must be unique on the node.
func choose(rec *journal.Record, fn *plan.Function, s device.VFSetting, owners map[string]string) error {
	given := fn.VF.Want.Value(s)
	for try := range addressTries {
		address := given
		if given == plan.Choose {
			address = generate(rec.ID(), fn, s, try)
		}
		owner, taken := owners[address]
		if !taken {
			fn.VF.Want.Take(s, &device.VFSettings{MAC: address, NodeGUID: address, PortGUID: address})
			return nil
		}
		if address == given {
			return &takenAddressError{setting: s, address: address, owner: owner}
		}
	}
	return fmt.Errorf("found no free %s", s)
}

func generate(uid string, fn *plan.Function, s device.VFSetting, try int) string {
	if s == device.VFMAC {
		return plan.GenerateMAC(uid, fn.Address.String(), try)
	}
	return plan.GenerateGUID(uid, fn.Address.String(), try)
}

// addressOwners returns the owners of the addresses that are in use on the node: the node's own interfaces and RDMA
// devices, the other VFs of the PF, the claim's other VFs, and the VFs of other claims, whose interfaces are not
// visible on the node.
func (set *Set) addressOwners(rec *journal.Record, fn *plan.Function, others []string) (map[string]string, error) {
	owners := map[string]string{}
	// The addresses in a record that can't be read are unknown. Its VFs count only if their PF or the node shows them.
	records, _ := set.Journal.List()
	for _, o := range records {
		if o.ID() != rec.ID() && o.BootID == rec.BootID {
			enter(owners, o, fn, "another claim's VF")
		}
	}
	enter(owners, rec, fn, "another VF of this claim")
	for _, address := range others {
		owners[address] = "another VF of the PF"
	}
	if err := errors.Join(
		set.enterHost(owners, rec, "net", "address", "the node's interface"),
		set.enterHost(owners, rec, "infiniband", "node_guid", "the node's RDMA device"),
	); err != nil {
		return nil, err
	}
	for _, none := range []string{"", plan.Choose, "00:00:00:00:00:00", vf.NoGUID, allOnes} {
		delete(owners, none)
	}
	return owners, nil
}

// enter adds the addresses of a record's VFs other than fn.
func enter(owners map[string]string, rec *journal.Record, fn *plan.Function, owner string) {
	for i := range rec.Plan.Functions {
		o := &rec.Plan.Functions[i]
		if o.VF == nil || o.Address == fn.Address {
			continue
		}
		for _, s := range device.VFAddresses() {
			owners[o.VF.Want.Value(s)] = owner
		}
	}
}

// enterHost adds the addresses of the node's own interfaces or RDMA devices, from a class of sysfs.
func (set *Set) enterHost(owners map[string]string, rec *journal.Record, class, file, owner string) error {
	dir := path.Join("sys/class", class)
	there, err := set.FS.Exists(dir)
	var names []string
	if err == nil && there {
		names, err = set.FS.ReadDir(dir)
	}
	if err != nil {
		return fmt.Errorf("look for addresses of the node: %w", err)
	}
	for _, name := range names {
		// An interface that has gone since the list was read has no address any more.
		text, err := set.FS.ReadString(path.Join(dir, name, file))
		if err == nil && !set.isOwn(rec, path.Join(dir, name)) {
			owners[parseAddress(text)] = owner + " " + name
		}
	}
	return nil
}

// parseAddress returns the address in a file of sysfs: a MAC address; the port GUID
// at the end of an IPoIB interface's 20 bytes; or a node GUID, which is written
// "0002:c903:0010:2030".
func parseAddress(text string) string {
	const guid, ipoib = len(vf.NoGUID), 20*3 - 1
	digits := strings.ReplaceAll(text, ":", "")
	switch {
	case len(text) == ipoib:
		return text[ipoib-guid:]
	case len(digits) == 16 && len(text) != guid:
		var pairs []string
		for pair := range slices.Chunk([]byte(digits), 2) {
			pairs = append(pairs, string(pair))
		}
		return strings.Join(pairs, ":")
	}
	return text
}

// isOwn reports whether an entry of sys/class belongs to one of the record's functions, which loses it when it leaves
// its driver.
func (set *Set) isOwn(rec *journal.Record, name string) bool {
	link, err := set.FS.ReadLink(name) // .../0000:21:00.0/net/ens1f0
	owner := path.Base(path.Dir(path.Dir(link)))
	return err == nil && slices.ContainsFunc(rec.Plan.Functions, func(fn plan.Function) bool { return fn.Address.String() == owner })
}

package prepare_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// fifth is a provider that the product does not have: what it sets is text in memory, which a reboot clears. The scenes of the tests that
// cut the power at every point have a device of it; see [scenes].
type fifth struct {
	now map[string]string
	log []string
	// broken says why no device can have what the provider sets.
	broken string
}

func newFifth() *fifth { return &fifth{now: map[string]string{}} }

// addTo registers the provider, as bind.Providers and package plan do with those of the product.
func (f *fifth) addTo(c *prepare.Config, p *power) {
	if f == nil {
		return
	}
	c.Provides = f.decide
	c.Parts.Providers = maps.Clone(c.Parts.Providers)
	c.Parts.Providers["fifth"] = cutFifth{f, p}
}

// decide gives each GPU a quota, and a link that must be up while a VM has it.
func (f *fifth) decide(fn *device.Function) ([]plan.Setting, *rule.Verdict) {
	switch {
	case fn.Type != device.GPU:
		return nil, nil
	case f.broken != "":
		return nil, &rule.Verdict{Code: rule.UnsupportedSetting, Text: f.broken, Fix: "repair it"}
	}
	return []plan.Setting{
		{Provider: "fifth", Name: "quota", Want: "half"},
		{Provider: "fifth", Name: "link", Want: "up", Replaces: new(""), Activation: true},
	}, nil
}

func (f *fifth) Resolve(_ context.Context, fn *plan.Function, s *plan.Setting) error {
	s.Found = f.now[fn.Address.String()+" "+s.Name]
	return nil
}

func (f *fifth) Read(_ context.Context, fn *plan.Function, name string) (string, error) {
	return f.now[fn.Address.String()+" "+name], nil
}

func (f *fifth) Set(_ context.Context, fn *plan.Function, name, value string) error {
	f.now[fn.Address.String()+" "+name] = value
	f.log = append(f.log, name+"="+value)
	return nil
}

func (*fifth) Accepts(_, want, now string) bool { return want == now }

// changed returns the values that are not those of a fresh boot.
func (f *fifth) changed() (all []string) {
	if f == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(f.now)) {
		if f.now[name] != "" {
			all = append(all, name+" is "+f.now[name])
		}
	}
	return all
}

func (f *fifth) reboot() {
	if f != nil {
		clear(f.now)
	}
}

// cutFifth is the provider with its changes as effects.
type cutFifth struct {
	*fifth
	p *power
}

func (c cutFifth) Set(ctx context.Context, fn *plan.Function, name, value string) error {
	return c.p.effect(func() error { return c.fifth.Set(ctx, fn, name, value) })
}

// withFifth is a node with a GPU of the fifth provider.
func withFifth(t *testing.T) (w *world, gpu pci.Address) {
	t.Helper()
	w = newWorld(t)
	w.fifth = newFifth()
	return w, w.k.AddGPU(0x3b)
}

// TestFifthProvider has its settings planned, made, kept over a restart, renewed between two sandboxes and taken back, by its name alone:
// neither this package nor publish knows it.
func TestFifthProvider(t *testing.T) {
	w, gpu := withFifth(t)
	dry, err := w.plugin(nil).Plan(t.Context(), w.request(uid, gpu))
	if err != nil || !slices.ContainsFunc(dry.Steps, func(s plan.Step) bool { return s.Provider == "fifth" && s.Setting == "link" && s.Value == "up" }) {
		t.Errorf("a dry run has the steps %v, %v; want that of the link", dry, err)
	}
	w.mustPrepare(w.request(uid, gpu))
	if e := w.lastEvent(ledger.Policy); e == nil || !slices.Contains(e.Devices[0].Provided, ledger.Provided{By: "fifth", Name: "link", Value: "up"}) {
		t.Errorf("the ledger has %+v, want the link", e)
	}
	if r, err := w.plugin(nil).Recover(t.Context()); err != nil || len(r.Kept) != 1 {
		t.Errorf("Recover = %+v, %v; want one claim kept", r, err)
	}
	w.mustHandOver("first")
	w.mustHandOver("second")
	provider := w.fifth
	w.fifth = nil
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err == nil || !strings.Contains(err.Error(), `no provider "fifth"`) {
		t.Errorf("Unprepare by a version without the provider = %v, want its name", err)
	}
	w.fifth = provider
	w.mustUnprepare(uid)
	want := []string{"quota=half", "link=up", "link=", "link=up", "link=", "quota="}
	if diff := cmp.Diff(want, provider.log); diff != "" {
		t.Errorf("set (-want +got):\n%s", diff)
	}
}

// TestFifthProviderIsUndone when a Prepare fails after its last setting.
func TestFifthProviderIsUndone(t *testing.T) {
	w, gpu := withFifth(t)
	full := func(c *prepare.Config) { c.Parts.Specs = (&power{at: 1, fail: unix.ENOSPC}).specs(w.specs) }
	if _, err := w.plugin(nil, full).Prepare(t.Context(), w.request(uid, gpu)); err == nil {
		t.Error("Prepare = nil, want the error of the CDI spec")
	}
	want := []string{"quota=half", "link=up", "link=", "quota="}
	if diff := cmp.Diff(want, w.fifth.log); diff != "" || w.record(uid) != nil {
		t.Errorf("record %+v, want none; set (-want +got):\n%s", w.record(uid), diff)
	}
}

// TestFifthProviderRefuses: the claim and the scheduler get its reason.
func TestFifthProviderRefuses(t *testing.T) {
	w, gpu := withFifth(t)
	w.fifth.broken = "the link is broken"
	p := w.plugin(nil)
	_, err := p.Prepare(t.Context(), w.request(uid, gpu))
	if refused := wantRefused(t, err); refused == nil || !refused.Has(rule.UnsupportedSetting) {
		t.Errorf("Prepare = %v, want %s", err, rule.UnsupportedSetting)
	}
	says(t, err, "the link is broken", "repair it")
	snap, err := inventory.Scan(t.Context(), w.fs)
	if err != nil {
		t.Fatal(err)
	}
	known, err := p.PlanNode(t.Context(), snap)
	if err != nil {
		t.Fatal(err)
	}
	f, _ := snap.Function(gpu)
	n := &publish.Node{
		Name: "node-1", Snapshot: snap, Selection: known.Selection,
		Assessments: map[pci.Address]plan.Assessment{gpu: plan.NewAssessor(known).Assess(f)},
	}
	var taints []string
	for _, pool := range publish.Pools(n) {
		for _, slice := range pool.Slices {
			for i := range slice.Devices {
				for _, taint := range slice.Devices[i].Taints {
					taints = append(taints, taint.Value)
				}
			}
		}
	}
	if want := []string{string(rule.UnsupportedSetting)}; !slices.Equal(taints, want) {
		t.Errorf("published with the taints %v, want %v", taints, want)
	}
}

package prepare_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const tenantA, tenantB = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"

// exclusive gives the domains around the node's GPUs to one tenant at a time.
func (w *world) exclusive(domains ...v1alpha1.ExclusiveDomain) {
	if w.node == nil {
		w.node = &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}}}}
		w.node.Default()
	}
	w.node.Devices[0].Exclusive = domains
}

// of is a request of a tenant.
func (w *world) of(tenant, uid string, addrs ...pci.Address) *claim.Request {
	req := w.request(uid, addrs...)
	req.Namespace, req.Tenant = "of-"+tenant, tenant
	return req
}

// TestExclusiveDomainBelongsToItsTenant from the first claim of the tenant to the end of the last, over restarts of the plugin.
func TestExclusiveDomainBelongsToItsTenant(t *testing.T) {
	w := newWorld(t)
	one, two, three := w.k.AddGPU(0x3b), w.k.AddGPU(0x5e), w.k.AddGPU(0x7d)
	w.exclusive(v1alpha1.ExclusiveNode)
	if rec := w.mustPrepare(w.of(tenantA, "a1", one)); rec.Plan.Claim.Tenant != tenantA {
		t.Errorf("the record's tenant: got %q, want %q", rec.Plan.Claim.Tenant, tenantA)
	}
	w.wantRefusal("another tenant", w.of(tenantB, "b1", two), rule.DomainOfOtherTenant)
	w.wantRefusal("a claim without a tenant", w.of("", "b2", two), rule.DomainOfOtherTenant)
	w.mustPrepare(w.of(tenantA, "a2", two))
	w.mustPrepare(w.of(tenantA, "a1", one)) // the kubelet asks again
	w.mustUnprepare("a1")
	w.mustRecover()
	w.wantRefusal("while the tenant has one left", w.of(tenantB, "b1", three), rule.DomainOfOtherTenant)
	w.mustUnprepare("a2")
	w.mustPrepare(w.of(tenantB, "b1", three))
	w.wantRefusal("the former tenant", w.of(tenantA, "a3", one), rule.DomainOfOtherTenant)
	w.mustUnprepare("b1")
}

// TestExclusiveCardKeepsSlicesWithOneTenant, until the last slice of the card is released; slices of another card are free meanwhile.
func TestExclusiveCardKeepsSlicesWithOneTenant(t *testing.T) {
	w := newWorld(t)
	_, one := w.k.AddXeHost(0x3b, 3)
	_, two := w.k.AddXeHost(0x5e, 3)
	w.slices(v1alpha1.GPUSliceRule{})
	w.exclusive(v1alpha1.ExclusiveCard)
	w.mustPrepare(w.of(tenantA, "a1", one[0]))
	w.wantRefusal("a slice of the same card", w.of(tenantB, "b1", one[1]), rule.DomainOfOtherTenant)
	w.mustPrepare(w.of(tenantB, "b2", two[0]))
	w.mustPrepare(w.of(tenantA, "a2", one[1]))
	w.mustUnprepare("a1")
	w.mustRecover()
	w.wantRefusal("while the tenant has one left", w.of(tenantB, "b1", one[0]), rule.DomainOfOtherTenant)
	w.mustUnprepare("a2")
	w.mustPrepare(w.of(tenantB, "b1", one[0]))
	w.wantRefusal("the former tenant", w.of(tenantA, "a3", one[2]), rule.DomainOfOtherTenant)
}

// TestExclusiveDomainWaitsForItsStages: the last tenant's data is in the domain until each device was sanitized.
func TestExclusiveDomainWaitsForItsStages(t *testing.T) {
	w := newWorld(t)
	one, two := w.k.AddGPU(0x3b), w.k.AddGPU(0x5e)
	w.sanitizes(v1alpha1.SanitizeRelease)
	w.exclusive(v1alpha1.ExclusiveNode)
	w.mustPrepare(w.of(tenantA, "a1", one))
	w.mustUnprepare("a1")
	w.wantRefusal("before the stage", w.of(tenantB, "b1", two), rule.DomainOfOtherTenant)
	w.mustPrepare(w.of(tenantA, "a2", two)) // its own tenant's data is there
	w.mustPrepare(w.stageRequest(one))
	w.wantRefusal("in the stage", w.of(tenantB, "b1", one), rule.Held)
	w.mustUnprepare(stageUID)
	w.conclude(nil, clean())
	w.wantRefusal("one is clean, and the tenant has the other", w.of(tenantB, "b1", one), rule.DomainOfOtherTenant)
	w.mustUnprepare("a2")
	w.k.Reboot()
	w.mustRecover()
	w.wantRefusal("a reboot sanitizes nothing", w.of(tenantB, "b1", one), rule.DomainOfOtherTenant)
	w.runStage(two, clean())
	w.mustPrepare(w.of(tenantB, "b1", one))
	w.mustUnprepare("b1")
}

// TestStageOfNobodysDeviceKeepsNoDomain: a device that is sanitized before its first tenant belongs to nobody, even if its stage fails.
func TestStageOfNobodysDeviceKeepsNoDomain(t *testing.T) {
	w := newWorld(t)
	fresh, other := w.k.AddGPU(0x3b), w.k.AddGPU(0x5e)
	w.sanitizes(v1alpha1.SanitizeBeforeClaim)
	w.node.Devices[0].Match = v1alpha1.DeviceMatch{Addresses: []pci.Address{fresh}}
	w.node.Devices = append(w.node.Devices, v1alpha1.DeviceRule{
		Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}, Exclusive: []v1alpha1.ExclusiveDomain{v1alpha1.ExclusiveNode},
	})
	use := func() {
		t.Helper()
		w.mustPrepare(w.of(tenantA, "a1", other))
		w.mustUnprepare("a1")
	}
	w.mustPrepare(w.stageRequest(fresh))
	use()
	w.mustUnprepare(stageUID)
	w.conclude(nil, dirty())
	use()
	if err := w.plugin(nil).ClearStage(t.Context(), fresh, maintain.Clearance{Reason: "ticket"}); err != nil {
		t.Fatal(err)
	}
	w.runStage(fresh, clean())
	w.mustPrepare(w.of(tenantA, "a2", fresh))
	w.mustUnprepare("a2")
	w.wantRefusal("after its first tenant", w.of(tenantB, "b1", other), rule.DomainOfOtherTenant)
}

// TestQuarantineKeepsExclusiveDomain: what could not be proven clean is still that of its tenant.
func TestQuarantineKeepsExclusiveDomain(t *testing.T) {
	w := newWorld(t)
	w.exclusive(v1alpha1.ExclusiveNode)
	gpu := w.k.AddGPU(0x3b)
	other := w.k.AddGPU(0x5e)
	w.mustPrepare(w.of(tenantA, "a1", gpu))
	rec := w.record("a1")
	rec.State, rec.Reason = journal.Quarantined, "the reset timed out"
	if err := w.records.Save(rec); err != nil {
		t.Fatal(err)
	}
	w.wantRefusal("quarantined", w.of(tenantB, "b1", other), rule.DomainOfOtherTenant)
}

// TestTenantsRaceForExclusiveDomain: two plugin instances prepare claims of two tenants for different devices of a domain at the same
// time. One of them gets its device.
func TestTenantsRaceForExclusiveDomain(t *testing.T) {
	for range 20 {
		w := newWorld(t)
		gpus := map[string]pci.Address{tenantA: w.k.AddGPU(0x3b), tenantB: w.k.AddGPU(0x5e)}
		w.exclusive(v1alpha1.ExclusiveNode)
		var (
			wait    sync.WaitGroup
			mu      sync.Mutex // guards results
			results = map[string]error{}
		)
		for tenant, gpu := range gpus {
			req, instance := w.of(tenant, "of-"+tenant, gpu), w.plugin(nil)
			wait.Go(func() {
				_, err := instance.Prepare(t.Context(), req)
				mu.Lock()
				defer mu.Unlock()
				results[tenant] = err
			})
		}
		wait.Wait()
		got := 0
		for tenant, err := range results {
			refused, ok := errors.AsType[*rule.RefusedError](err)
			switch {
			case err == nil:
				got++
			case !ok || !refused.Has(rule.DomainOfOtherTenant):
				t.Fatalf("%s: got %v, want its device or %s", tenant, err, rule.DomainOfOtherTenant)
			}
		}
		if got != 1 {
			t.Fatalf("got %d tenants with devices of one domain, want 1", got)
		}
	}
}

// TestExclusiveDomainSchedules: whatever tenants, crashes and reboots do in whatever order, no domain has two tenants, and in the end
// every tenant can get every device. KATA_VFIO_SCHEDULES says how many schedules there are, up to 2,000; the seed of a failure is the
// name of its subtest.
func TestExclusiveDomainSchedules(t *testing.T) {
	const steps = 25
	schedules, first := 30, rand.Uint64N(1_000_000)
	if text := os.Getenv("KATA_VFIO_SCHEDULES"); text != "" {
		asked, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("KATA_VFIO_SCHEDULES: %v, want nil", err)
		}
		schedules = min(asked, 2000)
	}
	for i := range schedules {
		seed := first + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := newExclusiveSchedule(t, seed)
			for range steps {
				s.step()
				s.check()
			}
			s.drain()
		})
	}
}

// exclusiveSchedule is one random order of events on a node with three GPUs.
type exclusiveSchedule struct {
	w      *world
	random *rand.Rand
	gpus   []pci.Address
	// claims are those that the kubelet knows, and their tenants.
	claims map[string]string
	next   int
}

func newExclusiveSchedule(t *testing.T, seed uint64) *exclusiveSchedule {
	w := newWorld(t)
	s := &exclusiveSchedule{w: w, random: rand.New(rand.NewPCG(seed, 1)), claims: map[string]string{}}
	for _, bus := range []uint8{0x3b, 0x5e, 0x7d} {
		s.gpus = append(s.gpus, w.k.AddGPU(bus))
	}
	w.exclusive(v1alpha1.ExclusiveNode)
	return s
}

// step does one thing. An error, such as a crash or a refusal, is part of the schedule.
func (s *exclusiveSchedule) step() {
	p := &power{}
	if s.random.IntN(3) == 0 {
		p.at, p.after = 1+s.random.IntN(12), s.random.IntN(2) == 0
	}
	plugin := s.w.plugin(p)
	switch s.random.IntN(8) {
	case 0, 1, 2, 3:
		tenant := []string{tenantA, tenantB}[s.random.IntN(2)]
		s.next++
		uid := fmt.Sprintf("claim-%d", s.next)
		s.claims[uid] = tenant
		_, _ = plugin.Prepare(s.w.t.Context(), s.w.of(tenant, uid, s.gpus[s.random.IntN(len(s.gpus))]))
	case 4, 5:
		if uids := slices.Sorted(maps.Keys(s.claims)); len(uids) > 0 {
			_, _ = plugin.Unprepare(s.w.t.Context(), uids[s.random.IntN(len(uids))])
		}
	case 6:
		_, _ = plugin.Recover(s.w.t.Context())
	default:
		s.w.k.Reboot()
		_, _ = plugin.Recover(s.w.t.Context())
	}
}

// check fails if claims of two tenants have devices. A claim has one from when it is prepared until its record is gone.
func (s *exclusiveSchedule) check() {
	s.w.t.Helper()
	records, errs := s.w.records.List()
	if len(errs) > 0 {
		s.w.t.Fatal(errs)
	}
	snap, err := (&scanner{fs: s.w.fs}).Snapshot(s.w.t.Context())
	if err != nil {
		s.w.t.Fatal(err)
	}
	var tenants, have []string
	for _, rec := range records {
		if rec.State != journal.Prepared || rec.BootID != snap.Host.BootID {
			continue
		}
		have = append(have, rec.ID()+" of "+rec.Plan.Claim.Tenant)
		if !slices.Contains(tenants, rec.Plan.Claim.Tenant) {
			tenants = append(tenants, rec.Plan.Claim.Tenant)
		}
	}
	if len(tenants) > 1 {
		s.w.t.Fatalf("the domain has claims of two tenants: got %v, want one tenant", have)
	}
}

// drain ends all claims, after which every tenant can get every device.
func (s *exclusiveSchedule) drain() {
	s.w.t.Helper()
	s.w.mustRecover()
	for uid := range s.claims {
		s.w.mustUnprepare(uid)
	}
	for i, tenant := range []string{tenantA, tenantB} {
		for _, gpu := range s.gpus {
			uid := fmt.Sprintf("last-%d-%s", i, gpu.Label())
			s.w.mustPrepare(s.w.of(tenant, uid, gpu))
			s.w.mustUnprepare(uid)
		}
	}
}

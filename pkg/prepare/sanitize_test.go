package prepare_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
)

const (
	stageNamespace = "kata-vfio-sanitizing"
	stageClass     = "sanitize.kata-vfio.dev"
	stageUID       = "57a6e"
	stageImage     = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// sanitizes has the node's GPUs sanitized.
func (w *world) sanitizes(when v1alpha1.SanitizeWhen) {
	w.node = &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{
		Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}, Sanitize: &v1alpha1.SanitizeRule{Profile: "memory", When: when},
	}}}
	w.node.Default()
	w.stages = &v1alpha1.Sanitizers{
		Namespace: stageNamespace, DeviceClass: stageClass,
		Profiles: []v1alpha1.Sanitizer{{Name: "memory", Image: "registry.example/s@" + stageImage}},
	}
	w.stages.Default()
}

// stageRequest is the request of a stage's claim.
func (w *world) stageRequest(a pci.Address) *claim.Request {
	req := w.request(stageUID, a)
	req.Namespace, req.Pods = stageNamespace, []claim.Pod{{UID: "pod-1", Name: "sanitize-1"}}
	for i := range req.Devices {
		req.Devices[i].Class = stageClass
	}
	return req
}

// tenancy is the life of a tenant's claim.
func (w *world) tenancy(uid string, a pci.Address) {
	w.t.Helper()
	w.mustPrepare(w.request(uid, a))
	w.mustUnprepare(uid)
}

// runStage runs a stage that ends as said, and decides it.
func (w *world) runStage(a pci.Address, outcome sanitize.Outcome) {
	w.t.Helper()
	w.mustPrepare(w.stageRequest(a))
	w.mustUnprepare(stageUID)
	w.conclude(nil, outcome)
}

// conclude decides the only ended stage.
func (w *world) conclude(p *power, outcome sanitize.Outcome) {
	w.t.Helper()
	plugin := w.plugin(p)
	ended, err := plugin.EndedStages()
	if err != nil || len(ended) != 1 {
		w.t.Fatalf("ended stages: got %+v, %v, want one", ended, err)
	}
	if err := plugin.ConcludeStage(w.t.Context(), &ended[0], outcome, stageImage); err != nil && p == nil {
		w.t.Fatal(err)
	}
}

// wantRefusal checks that a claim of another tenant is refused with the code.
func (w *world) wantRefusal(when string, req *claim.Request, code rule.Code) {
	w.t.Helper()
	_, err := w.plugin(nil).Prepare(w.t.Context(), req)
	if refused, ok := errors.AsType[*rule.RefusedError](err); !ok || !rule.HasCode(refused.Verdicts, code) {
		w.t.Errorf("%s: got error %v, want a refusal with %s", when, err, code)
	}
}

// wantFree checks that a tenant gets the device, and returns it.
func (w *world) wantFree(when string, a pci.Address) {
	w.t.Helper()
	if _, err := w.plugin(nil).Prepare(w.t.Context(), w.request("next", a)); err != nil {
		w.t.Errorf("%s: got error %v, want the device", when, err)
		return
	}
	w.mustUnprepare("next")
}

func clean(firmware ...sanitize.Measurement) sanitize.Outcome {
	return sanitize.Outcome{Verdict: sanitize.Clean, Result: &sanitize.Result{
		Verdict: sanitize.Clean, Firmware: firmware,
		Checks: []sanitize.Check{{Name: "bar0", Method: "FillVerifyZeroVerify", Verdict: sanitize.Clean, Bytes: 16 << 20, Seconds: 1}},
	}}
}

func dirty() sanitize.Outcome {
	return sanitize.Outcome{Verdict: sanitize.Dirty, Reason: "bar0 at 0x10: read 0x5a5a after it was zeroed"}
}

func interrupted() sanitize.Outcome {
	return sanitize.Outcome{Verdict: sanitize.Interrupted, Reason: "the pod was deleted"}
}

// TestDeviceWaitsForItsStage follows a device from one tenant to the next.
func TestDeviceWaitsForItsStage(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.sanitizes(v1alpha1.SanitizeRelease)
	w.tenancy("first", gpu)
	w.wantRefusal("after a tenant", w.request("next", gpu), rule.NotSanitized)

	w.mustPrepare(w.stageRequest(gpu))
	w.wantRefusal("in the stage", w.request("next", gpu), rule.Held)
	if ended, err := w.plugin(nil).EndedStages(); err != nil || len(ended) > 0 {
		t.Errorf("ended stages while the stage runs: got %+v, %v, want none", ended, err)
	}
	w.mustUnprepare(stageUID)
	w.wantRefusal("before the decision", w.request("next", gpu), rule.NotSanitized)

	w.conclude(nil, clean())
	events := w.told(stageUID)
	last := events[len(events)-1]
	w.wantRefusal("a stage without need", w.stageRequest(gpu), rule.NothingToSanitize)
	if last.Type != ledger.Sanitize || last.Result != ledger.OK || last.Sanitize.Image != stageImage || last.Sanitize.After.UID != "first" || len(last.Sanitize.Checks) != 1 {
		t.Errorf("the ledger's last event of the stage: got %+v with %+v, want the result", last, last.Sanitize)
	}
	rec := w.mustPrepare(w.request("next", gpu))
	if got := rec.Plan.Devices[0].Sanitized; got == nil || got.Profile != "memory" || got.Image != stageImage || len(got.Methods) != 1 {
		t.Errorf("sanitized before the next tenant: got %+v, want the stage", got)
	}
	w.mustUnprepare("next")
	w.wantRefusal("after the next tenant", w.request("third", gpu), rule.NotSanitized)
}

// TestSliceWaitsForItsStage: a slice is sanitized as a whole device is, with the settings that a tenant's slice has, and its neighbors on
// the GPU do not wait for it.
func TestSliceWaitsForItsStage(t *testing.T) {
	for name, c := range map[string]struct {
		add     func(*world) []pci.Address
		setting func(*world, pci.Address) string
		want    string // the setting in the stage
	}{
		"Intel": {
			add: func(w *world) []pci.Address {
				_, vfs := w.k.AddXeHost(0x3b, 3)
				w.slices(v1alpha1.GPUSliceRule{})
				return vfs
			},
			setting: func(w *world, _ pci.Address) string { return w.xe(w.gpu(), 1, plan.XeExecQuantum) },
			want:    "20",
		},
		"vGPU": {
			add:     func(w *world) []pci.Address { w.k.WithIOMMUFD(); return w.vgpus() },
			setting: func(w *world, vf pci.Address) string { return w.k.ReadFile(vf, vgpuFile) },
			want:    "1428",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.sanitizes(v1alpha1.SanitizeRelease)
			sanitizes := w.node.Devices[0].Sanitize
			vfs := c.add(w)
			w.node.Devices[0].Sanitize = sanitizes
			w.tenancy("first", vfs[0])
			w.wantRefusal("after a tenant", w.request("next", vfs[0]), rule.NotSanitized)
			w.wantFree("its neighbor", vfs[1])
			w.mustPrepare(w.stageRequest(vfs[0]))
			if got := c.setting(w, vfs[0]); got != c.want {
				t.Errorf("the setting in the stage is %q, want %q", got, c.want)
			}
			w.mustUnprepare(stageUID)
			w.conclude(nil, clean())
			w.wantNoSettings("after the stage")
			w.wantFree("after the stage", vfs[0])
			w.runStage(vfs[0], dirty())
			w.wantRefusal("after a dirty stage", w.request("next", vfs[0]), rule.SanitizeFailed)
		})
	}
}

// TestFailedStageQuarantines also follows what an operator can do about it.
func TestFailedStageQuarantines(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.sanitizes(v1alpha1.SanitizeRelease)
	w.tenancy("first", gpu)
	w.runStage(gpu, dirty())
	w.wantRefusal("after a dirty stage", w.request("next", gpu), rule.SanitizeFailed)
	w.wantRefusal("another stage", w.stageRequest(gpu), rule.SanitizeFailed)
	w.wantRefusal("the same tenant", w.request("first", gpu), rule.SanitizeFailed)

	p := w.plugin(nil)
	if err := p.AcceptFirmware(t.Context(), gpu, "ticket", ledger.Operator{}); !errors.Is(err, maintain.ErrNotOnlyFirmware) {
		t.Errorf("accept firmware of dirty memory: got %v, want ErrNotOnlyFirmware", err)
	}
	if err := p.ClearStage(t.Context(), gpu, maintain.Clearance{Reason: "ticket"}); err != nil {
		t.Fatal(err)
	}
	w.wantRefusal("cleared by an operator", w.request("next", gpu), rule.NotSanitized)
	w.runStage(gpu, dirty())
	if err := p.ClearStage(t.Context(), gpu, maintain.Clearance{Reason: "ticket", WithoutProof: true}); err != nil {
		t.Fatal(err)
	}
	w.wantFree("cleared without proof", gpu)
	if err := p.ClearStage(t.Context(), gpu, maintain.Clearance{}); !errors.Is(err, maintain.ErrNoFailedStage) {
		t.Errorf("clear twice: got %v, want ErrNoFailedStage", err)
	}
}

// TestInterruptedStageIsRepeated: whoever can delete pods holds a device back three times at most before it shows.
func TestInterruptedStageIsRepeated(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.sanitizes(v1alpha1.SanitizeRelease)
	w.tenancy("first", gpu)
	for range 2 {
		w.runStage(gpu, interrupted())
		w.wantRefusal("after an interrupted stage", w.request("next", gpu), rule.NotSanitized)
	}
	w.runStage(gpu, interrupted())
	w.wantRefusal("after three", w.request("next", gpu), rule.SanitizeFailed)
}

// TestChangedFirmwareWaitsForOperator has a stage that found nothing but other firmware, with the policy Require.
func TestChangedFirmwareWaitsForOperator(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.sanitizes(v1alpha1.SanitizeRelease)
	w.tenancy("first", gpu)
	old := sanitize.Measurement{Name: "vbios", Algorithm: sanitize.Version, Value: "1.0"}
	now := sanitize.Measurement{Name: "vbios", Algorithm: sanitize.Version, Value: "6.6"}
	w.runStage(gpu, clean(old))
	w.tenancy("second", gpu)

	changed := clean(now)
	changed.Verdict, changed.Reason, changed.Changes = sanitize.Dirty, "vbios changed", []sanitize.Change{{Name: "vbios", Was: &old, Is: &now}}
	w.runStage(gpu, changed)
	w.wantRefusal("after other firmware", w.request("next", gpu), rule.FirmwareChanged)
	mark, failed, err := w.plugin(nil).FailedStage(t.Context(), gpu)
	if err != nil || !failed {
		t.Fatalf("failed stage: got %v, %v; want true", failed, err)
	}
	if accepted, _, err := w.plugin(nil).Accepted(&mark); err != nil || len(accepted) != 1 || accepted[0] != old {
		t.Errorf("accepted before the operator: got %v, %v, want the first measurement", accepted, err)
	}
	if err := w.plugin(nil).AcceptFirmware(t.Context(), gpu, "vendor update", ledger.Operator{}); err != nil {
		t.Fatal(err)
	}
	if accepted, _, err := w.plugin(nil).Accepted(&mark); err != nil || len(accepted) != 1 || accepted[0] != now {
		t.Errorf("accepted by the operator: got %v, %v, want the new measurement", accepted, err)
	}
	w.wantFree("accepted", gpu)
}

// TestRecordedFirmwareChangesAreKept until an operator accepts them: with the policy Record, tenants go on getting the device. A change that
// is undone is none.
func TestRecordedFirmwareChangesAreKept(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.sanitizes(v1alpha1.SanitizeRelease)
	version := func(v string) sanitize.Measurement {
		return sanitize.Measurement{Name: "vbios", Algorithm: sanitize.Version, Value: v}
	}
	first, second, third := version("1.0"), version("2.0"), version("3.0")
	stage := func(was, is sanitize.Measurement) {
		t.Helper()
		outcome := clean(is)
		if was != is {
			outcome.Changes = []sanitize.Change{{Name: "vbios", Was: &was, Is: &is}}
		}
		w.tenancy("tenant", gpu)
		w.runStage(gpu, outcome)
	}
	want := func(when string, changes ...string) {
		t.Helper()
		proofs, err := w.records.Sanitized()
		if err != nil || len(proofs) != 1 {
			t.Fatalf("%s: proofs: got %+v, %v, want one", when, proofs, err)
		}
		var got []string
		for _, c := range proofs[0].Changed {
			got = append(got, c.String())
		}
		if !slices.Equal(got, changes) {
			t.Errorf("%s: got the changes %q, want %q", when, got, changes)
		}
	}
	stage(first, first)
	want("first measured")
	stage(first, second)
	want("changed", "vbios: version 2.0, was version 1.0")
	stage(second, third)
	want("changed again", "vbios: version 3.0, was version 1.0")
	w.wantFree("the policy lets tenants have it", gpu)
	w.runStage(gpu, clean(third))
	want("after another tenant", "vbios: version 3.0, was version 1.0")
	stage(third, first)
	want("as it was")
	stage(first, second)
	w.tenancy("tenant", gpu)
	if err := w.plugin(nil).AcceptFirmware(t.Context(), gpu, "vendor update", ledger.Operator{}); err != nil {
		t.Fatal(err)
	}
	want("accepted")
	w.wantRefusal("accepted while a stage is due", w.request("next", gpu), rule.NotSanitized)
	if err := w.plugin(nil).AcceptFirmware(t.Context(), gpu, "again", ledger.Operator{}); !errors.Is(err, maintain.ErrNoFailedStage) {
		t.Errorf("accepted twice: got %v, want ErrNoFailedStage", err)
	}
}

// TestFirmwareOutlivesResultsWithoutIt: a sanitizer that leaves a measurement out must not make the next one the first.
func TestFirmwareOutlivesResultsWithoutIt(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.sanitizes(v1alpha1.SanitizeRelease)
	vbios := sanitize.Measurement{Name: "vbios", Algorithm: sanitize.Version, Value: "1.0"}
	rom := sanitize.Measurement{Name: "rom", Algorithm: sanitize.Version, Value: "2.0"}
	for _, measured := range [][]sanitize.Measurement{{vbios}, {}, {rom}} {
		w.tenancy("first", gpu)
		w.runStage(gpu, clean(measured...))
	}
	proofs, err := w.records.Sanitized()
	if err != nil || len(proofs) != 1 {
		t.Fatalf("proofs: got %+v, %v, want one", proofs, err)
	}
	if got, want := proofs[0].Firmware, []sanitize.Measurement{rom, vbios}; !slices.Equal(got, want) {
		t.Errorf("accepted: got %v, want %v", got, want)
	}
}

// decided is the outcome of a stage on the node's only GPU that measured the versions, by piece of firmware.
func (w *world) decided(policy sanitize.FirmwarePolicy, versions map[string]string) sanitize.Outcome {
	w.t.Helper()
	result := clean().Result
	result.APIVersion, result.Kind = sanitize.APIVersion, sanitize.Kind
	for name, version := range versions {
		result.Firmware = append(result.Firmware, sanitize.Measurement{Name: name, Algorithm: sanitize.Version, Value: version})
	}
	ended, err := w.plugin(nil).EndedStages()
	if err != nil || len(ended) != 1 {
		w.t.Fatalf("%d ended stages, %v; want one", len(ended), err)
	}
	result.Device = new(sanitize.NewDevice(ended[0].Identity.Vendor, ended[0].Identity.Device))
	message, err := json.Marshal(result)
	if err != nil {
		w.t.Fatal(err)
	}
	accepted, missing, err := w.plugin(nil).Accepted(&ended[0])
	if err != nil {
		w.t.Fatal(err)
	}
	return sanitize.Decide(sanitize.Expected{Digest: stageImage, Device: *result.Device, Firmware: policy, Accepted: accepted, Missing: missing},
		sanitize.Observed{ImageID: "sanitizer@" + stageImage, Terminated: true, Reason: "Completed", Message: string(message)})
}

// TestAcceptedAbsenceOfAMeasurement: stages need not measure a piece again whose absence an operator accepted, and one that does is
// compared with what was accepted before.
func TestAcceptedAbsenceOfAMeasurement(t *testing.T) {
	both, changed := map[string]string{"vbios": "1", "inforom": "1"}, map[string]string{"vbios": "1", "inforom": "6"}
	alone, again := map[string]string{"vbios": "1"}, map[string]string{"vbios": "1", "inforom": "1"}
	for _, policy := range []sanitize.FirmwarePolicy{sanitize.Require, sanitize.Record} {
		w := newWorld(t)
		gpu := w.k.AddGPU(0x3b)
		w.sanitizes(v1alpha1.SanitizeRelease)
		w.tenancy("first", gpu)
		for i, stage := range []struct {
			measures map[string]string
			change   string // the change that the operator must look at; empty if there is none
		}{
			{both, ""},
			{alone, "inforom: not measured, was version 1"},
			{alone, ""},
			{changed, "inforom: version 6, was version 1"},
			{again, "inforom: version 1, was version 6"},
			{again, ""},
			{alone, "inforom: not measured, was version 1"},
		} {
			w.mustPrepare(w.stageRequest(gpu))
			w.mustUnprepare(stageUID)
			outcome, what := w.decided(policy, stage.measures), fmt.Sprintf("%s, stage %d", policy, i)
			changes := ""
			for _, c := range outcome.Changes {
				changes += c.String()
			}
			if changes != stage.change || outcome.OnlyFirmware() != (policy == sanitize.Require && stage.change != "") {
				t.Fatalf("%s: %s with the changes %q, want %q", what, outcome.Verdict, changes, stage.change)
			}
			w.conclude(nil, outcome)
			if stage.change == "" {
				w.wantFree(what, gpu)
				continue
			}
			if err := w.plugin(nil).AcceptFirmware(t.Context(), gpu, "ticket", ledger.Operator{}); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			w.wantFree(what+", accepted", gpu)
		}
	}
}

// TestMarkDoesNotDependOnTheEnd: however a tenancy ends, the device waits for its stage, and only its own claim gets it again.
func TestMarkDoesNotDependOnTheEnd(t *testing.T) {
	for name, end := range map[string]func(*world){
		"released":               func(w *world) { w.mustUnprepare("first") },
		"the node rebooted":      func(w *world) { w.k.Reboot(); w.mustRecover() },
		"the plugin was killed":  func(w *world) { w.mustRecover(); w.mustUnprepare("first") },
		"the record was deleted": func(w *world) { w.mustUnprepare("first"); _ = w.records.Delete("first") },
		"rebooted after it":      func(w *world) { w.mustUnprepare("first"); w.k.Reboot(); w.mustRecover() },
		"rebooted in the stage":  func(w *world) { w.mustUnprepare("first"); w.stageThenReboot() },
		"the stage did not come up": func(w *world) {
			w.mustUnprepare("first")
			w.mustPrepare(w.stageRequest(w.gpu()))
			w.mustUnprepare(stageUID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gpu := w.k.AddGPU(0x3b)
			w.sanitizes(v1alpha1.SanitizeRelease)
			w.mustPrepare(w.request("first", gpu))
			end(w)
			w.wantRefusal(name, w.request("next", gpu), rule.NotSanitized)
		})
	}
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.sanitizes(v1alpha1.SanitizeRelease)
	w.mustPrepare(w.request("first", gpu))
	w.k.Reboot()
	w.mustRecover()
	w.mustPrepare(w.request("first", gpu)) // the pod stays bound to the node, with its claim
}

// gpu is the node's only GPU.
func (w *world) gpu() pci.Address { return pci.Address{Bus: 0x3b} }

func (w *world) stageThenReboot() {
	w.mustPrepare(w.stageRequest(w.gpu()))
	w.k.Reboot()
	w.mustRecover()
	ended, err := w.plugin(nil).EndedStages()
	if err != nil || len(ended) != 1 {
		w.t.Errorf("ended stages after a reboot: got %+v, %v, want the one that the reboot cut off", ended, err)
	}
}

// TestRuleDecidesWhatIsSanitized has config changes beside claims.
func TestRuleDecidesWhatIsSanitized(t *testing.T) {
	t.Run("a rule of today counts for a claim of yesterday", func(t *testing.T) {
		w := newWorld(t)
		gpu := w.k.AddGPU(0x3b)
		w.mustPrepare(w.request("first", gpu))
		w.sanitizes(v1alpha1.SanitizeRelease)
		w.mustUnprepare("first")
		w.wantRefusal("released", w.request("next", gpu), rule.NotSanitized)
	})
	t.Run("a rule without a stage frees the device", func(t *testing.T) {
		w := newWorld(t)
		gpu := w.k.AddGPU(0x3b)
		w.sanitizes(v1alpha1.SanitizeRelease)
		w.tenancy("first", gpu)
		w.node = nil
		w.wantFree("without the rule", gpu)
		w.sanitizes(v1alpha1.SanitizeRelease)
		w.wantRefusal("with the rule again", w.request("third", gpu), rule.NotSanitized)
	})
	t.Run("a profile that does not exist", func(t *testing.T) {
		w := newWorld(t)
		gpu := w.k.AddGPU(0x3b)
		w.sanitizes(v1alpha1.SanitizeRelease)
		w.stages.Profiles[0].Name = "other"
		w.wantRefusal("before any tenant", w.request("next", gpu), rule.SanitizerUnknown)
		w.stages = nil
		w.wantRefusal("without any profile", w.request("next", gpu), rule.SanitizerUnknown)
	})
	t.Run("before each claim", func(t *testing.T) {
		w := newWorld(t)
		gpu := w.k.AddGPU(0x3b)
		w.sanitizes(v1alpha1.SanitizeBeforeClaim)
		w.wantRefusal("a new device", w.request("next", gpu), rule.NotSanitized)
		w.runStage(gpu, clean())
		w.wantFree("sanitized", gpu)
		w.runStage(gpu, clean())
		w.k.Reboot()
		w.mustRecover()
		w.wantRefusal("after a reboot", w.request("next", gpu), rule.NotSanitized)
	})
	t.Run("the claim requires it", func(t *testing.T) {
		w := newWorld(t)
		gpu := w.k.AddGPU(0x3b)
		w.sanitizes(v1alpha1.SanitizeRelease)
		required := func(uid string) *claim.Request {
			req := w.request(uid, gpu)
			req.Devices[0].VFIO.Sanitized = v1alpha1.SanitizedRequired
			return req
		}
		w.wantRefusal("a new device", required("next"), rule.NotSanitized)
		w.tenancy("first", gpu)
		w.runStage(gpu, clean())
		w.mustPrepare(required("next"))
		w.k.Reboot()
		w.mustRecover()
		w.mustPrepare(required("next")) // its own data
	})
	t.Run("a tenant without the rule takes the mark over", func(t *testing.T) {
		w := newWorld(t)
		gpu := w.k.AddGPU(0x3b)
		w.sanitizes(v1alpha1.SanitizeRelease)
		w.tenancy("first", gpu)
		w.node = nil
		w.tenancy("second", gpu)
		w.sanitizes(v1alpha1.SanitizeRelease)
		w.wantRefusal("the claim that had it before the last tenant", w.request("first", gpu), rule.NotSanitized)
		w.mustPrepare(w.request("second", gpu)) // its own data
	})
	t.Run("a tenant between two rules spoils the proof", func(t *testing.T) {
		w := newWorld(t)
		gpu := w.k.AddGPU(0x3b)
		w.sanitizes(v1alpha1.SanitizeBeforeClaim)
		w.runStage(gpu, clean())
		w.node = nil
		w.tenancy("first", gpu)
		w.sanitizes(v1alpha1.SanitizeBeforeClaim)
		w.wantRefusal("with the rule again", w.request("next", gpu), rule.NotSanitized)
	})
}

// TestTenantCanNotBeAStage has claims that name the stage's class or namespace.
func TestTenantCanNotBeAStage(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.sanitizes(v1alpha1.SanitizeRelease)
	w.tenancy("first", gpu)
	stolen := w.stageRequest(gpu)
	stolen.Namespace = "tenant-b"
	w.wantRefusal("the class in another namespace", stolen, rule.NotAStage)
	other := w.stageRequest(gpu)
	other.Devices[0].Class = "gpu.kata-vfio.dev"
	w.wantRefusal("another class in the namespace", other, rule.NotSanitized)
}

// TestStageOfPairHasBoth: of a pair's two functions one may wait and the other not, and its stage gets both.
func TestStageOfPairHasBoth(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	_, vfs := w.k.AddNIC(0x21, 2)
	w.sanitizes(v1alpha1.SanitizeRelease)
	w.node.Devices = append(w.node.Devices, v1alpha1.DeviceRule{Match: v1alpha1.DeviceMatch{Types: []string{"vf"}}, Policy: v1alpha1.PolicyOnDemand})
	w.tenancy("first", gpu)
	stage := w.request(stageUID, vfs[0], gpu)
	stage.Namespace, stage.Pods = stageNamespace, []claim.Pod{{UID: "pod-1", Name: "sanitize-1"}}
	for i := range stage.Devices {
		stage.Devices[i].Class, stage.Devices[i].Pair = stageClass, "pair"
	}
	w.mustPrepare(stage)
	w.mustUnprepare(stageUID)
	w.conclude(nil, clean())
	w.wantFree("after the pair's stage", gpu)
}

// TestMarkIsOnDiskBeforeTheTenant cuts the power at each effect of a Prepare: if the claim is prepared in the end, its
// device is marked.
func TestMarkIsOnDiskBeforeTheTenant(t *testing.T) {
	points := 0
	for at := 1; ; at++ {
		for _, after := range []bool{false, true} {
			w := newWorld(t)
			gpu := w.k.AddGPU(0x3b)
			w.sanitizes(v1alpha1.SanitizeRelease)
			power := &power{at: at, after: after}
			_, err := w.plugin(power).Prepare(t.Context(), w.request("first", gpu))
			power.lose()
			if err == nil {
				if points < 20 {
					t.Errorf("%d points, want more than 20: the test cuts nothing", points)
				}
				return
			}
			points++
			marks, err := w.records.Unsanitized()
			if err != nil {
				t.Fatal(err)
			}
			if rec := w.record("first"); rec != nil && rec.State == journal.Prepared && len(marks) == 0 {
				t.Errorf("effect %d, after %v: the claim is prepared without a mark of its device, want one", at, after)
			}
		}
	}
}

// TestDecisionSurvivesCrashes cuts the power at each effect of a decision: the next plugin decides the same.
func TestDecisionSurvivesCrashes(t *testing.T) {
	for name, c := range map[string]struct {
		outcome sanitize.Outcome
		want    rule.Code
	}{"clean": {clean(), ""}, "dirty": {dirty(), rule.SanitizeFailed}, "interrupted": {interrupted(), rule.NotSanitized}} {
		for _, at := range []int{1, 2} {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, effect %d, after %v", name, at, after), func(t *testing.T) {
					w := newWorld(t)
					gpu := w.k.AddGPU(0x3b)
					w.sanitizes(v1alpha1.SanitizeRelease)
					w.tenancy("first", gpu)
					w.mustPrepare(w.stageRequest(gpu))
					w.mustUnprepare(stageUID)
					power := &power{at: at, after: after}
					w.conclude(power, c.outcome)
					if power.count < at {
						t.Fatalf("the decision has %d effects, want %d or more", power.count, at)
					}
					if ended, err := w.plugin(nil).EndedStages(); err != nil {
						t.Fatal(err)
					} else if len(ended) == 1 {
						w.wantRefusal("undecided", w.request("next", gpu), rule.NotSanitized)
						w.conclude(nil, c.outcome)
					}
					if c.want == "" {
						w.wantFree(name, gpu)
					} else {
						w.wantRefusal(name, w.request("next", gpu), c.want)
					}
				})
			}
		}
	}
}

// TestUnreadableMarkNeedsAnOperator: a damaged file must neither free a device nor lose it.
func TestUnreadableMarkNeedsAnOperator(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.sanitizes(v1alpha1.SanitizeRelease)
	w.k.PutFile("var/lib/kata-vfio/journal/unsanitized/"+gpu.String()+".json", "{")
	w.wantRefusal("unreadable", w.request("next", gpu), rule.SanitizeFailed)
	if err := w.plugin(nil).ClearStage(t.Context(), gpu, maintain.Clearance{Reason: "ticket"}); err != nil {
		t.Fatal(err)
	}
	w.wantRefusal("cleared", w.request("next", gpu), rule.NotSanitized)
	w.runStage(gpu, clean())
	w.wantFree("sanitized", gpu)
}

// TestProofsAreOfTheirTime holds that a proof has the time of its decision.
func TestProofsAreOfTheirTime(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.sanitizes(v1alpha1.SanitizeRelease)
	w.tenancy("first", gpu)
	w.runStage(gpu, clean())
	proofs, err := w.records.Sanitized()
	if err != nil || len(proofs) != 1 {
		t.Fatalf("proofs: got %+v, %v, want one", proofs, err)
	}
	at, err := time.Parse(time.RFC3339, proofs[0].Time)
	if err != nil || time.Since(at) > time.Minute || proofs[0].Image != stageImage || proofs[0].Profile != "memory" {
		t.Errorf("got proof %+v, want one of now, by the image", proofs[0])
	}
}

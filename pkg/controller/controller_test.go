package controller

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// soon is longer than the controller needs for what needs no wait, and shorter than the grace.
const soon = time.Second

// running is a controller that leads.
type running struct {
	*Controller
	recorder *events.FakeRecorder
	stop     context.CancelFunc
}

// lead starts a controller that leads until the test ends or stops it.
func lead(t *testing.T, s *apiServer, before func(clienttesting.Action) error) *running {
	t.Helper()
	return leadWith(t, s, Config{Drivers: []string{otherDriver}}, before)
}

// leadWith is the same with the drivers and the sanitizers of a Config.
func leadWith(t *testing.T, s *apiServer, config Config, before func(clienttesting.Action) error) *running {
	t.Helper()
	r := &running{recorder: events.NewFakeRecorder(1000)}
	var err error
	config.Client, config.Recorder, config.Metrics, config.Log, config.Now = s.client(before), r.recorder, NewMetrics(), slog.New(slog.DiscardHandler), time.Now
	r.Controller, err = New(config)
	if err != nil {
		t.Fatal(err)
	}
	r.config.Metrics.watch(r.Controller)
	ctx, cancel := context.WithCancel(t.Context())
	watching, leading := make(chan struct{}), make(chan struct{})
	go func() { defer close(watching); r.Watch(ctx) }()
	go func() { defer close(leading); r.Lead(ctx) }()
	r.stop = func() { cancel(); <-watching; <-leading }
	t.Cleanup(r.stop)
	return r
}

// after lets time pass, and all that is done meanwhile.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// shared is an API server with a GPU that both drivers publish.
func shared(t *testing.T) *apiServer {
	s := newAPIServer(t)
	s.oursOn("nvidia")
	s.twins("gpu-0")
	return s
}

func wantRules(t *testing.T, s *apiServer, when string, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, s.rules()); diff != "" {
		t.Errorf("%s, the rules differ (-want +got):\n%s", when, diff)
	}
}

func wantAnswer(t *testing.T, s *apiServer, when, claim, want string) {
	t.Helper()
	if got := s.answerTo(claim); got != want {
		t.Errorf("%s, claim %s has the answer %q, want %q", when, claim, got, want)
	}
}

func TestClaimIsReservedOnceTheTwinIsOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared(t)
		c := lead(t, s, nil)
		after(soon)
		s.allocateOurs("vm")
		after(soon)
		wantRules(t, s, "at once", map[string]string{"gpu-0": "Ours"})
		wantAnswer(t, s, "before the grace", "vm", "")
		after(3 * time.Second)
		wantAnswer(t, s, "after the grace", "vm", "TwinReserved=True")
		if e := <-c.recorder.Events; !strings.HasPrefix(e, "Normal TwinFree ") {
			t.Errorf("the event is %q", e)
		}
		s.oursOn("vfio-pci")
		s.deallocate("vm")
		after(soon)
		wantRules(t, s, "while the function is on VFIO", map[string]string{"gpu-0": "Ours"})
		s.oursOn("nvidia", publish.TaintQuarantined)
		after(soon)
		wantRules(t, s, "while it is quarantined", map[string]string{"gpu-0": "Ours"})
		s.oursOn("nvidia")
		after(soon)
		wantRules(t, s, "at the end", map[string]string{})
	})
}

// TestSchedulerThatIgnoresRulesIsReported: a twin of a reserved GPU is allocated. Both claims are told once, the metric counts the GPU as
// long as both have it, and the answer stays.
func TestSchedulerThatIgnoresRulesIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared(t)
		c := lead(t, s, nil)
		s.allocateOurs("vm")
		after(soon + 3*time.Second)
		wantAnswer(t, s, "after the grace", "vm", "TwinReserved=True")
		<-c.recorder.Events
		const metric = "kata_vfio_twin_allocated_twice"
		if got := metricsOf(t, c)[metric]; got != 0 {
			t.Errorf("before, %s is %v", metric, got)
		}
		s.allocateTwin("container", "gpu-0")
		after(time.Minute)
		for range 2 {
			select {
			case e := <-c.recorder.Events:
				if !strings.HasPrefix(e, "Warning TwinAllocatedTwice GPU ") || !strings.Contains(e, "claim team-a/vm, and claim team-a/container has it through driver "+otherDriver) {
					t.Errorf("the event is %q", e)
				}
			default:
				t.Error("a claim is not told")
			}
		}
		wantAnswer(t, s, "while both have it", "vm", "TwinReserved=True")
		if got := metricsOf(t, c)[metric]; got != 1 {
			t.Errorf("while both have it, %s is %v, want 1", metric, got)
		}
		s.deallocate("container")
		after(time.Minute)
		if got := metricsOf(t, c)[metric]; got != 0 {
			t.Errorf("at the end, %s is %v", metric, got)
		}
		if len(c.recorder.Events) > 0 {
			t.Errorf("one more event: %s", <-c.recorder.Events)
		}
	})
}

func TestClaimOfAGPUInUseGoesElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared(t)
		c := lead(t, s, nil)
		s.allocateTwin("container", "gpu-0")
		s.allocateOurs("vm")
		after(soon)
		wantRules(t, s, "while both have it", map[string]string{"gpu-0": "Ours", oursName: "Theirs"})
		wantAnswer(t, s, "while both have it", "vm", "TwinInUse=True")
		if e := <-c.recorder.Events; !strings.HasPrefix(e, "Warning TwinAllocated ") {
			t.Errorf("the event is %q", e)
		}
		s.deallocate("vm")
		after(soon)
		wantRules(t, s, "after the scheduler took ours back", map[string]string{oursName: "Theirs"})
		s.deallocate("container")
		after(soon)
		wantRules(t, s, "at the end", map[string]string{})
	})
}

func TestClaimWaitsForADriverThatPublishesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.oursOn("nvidia")
		lead(t, s, nil)
		s.allocateOurs("vm")
		after(30 * time.Second)
		wantAnswer(t, s, "meanwhile", "vm", "TwinReserved=False")
		after(40 * time.Second)
		wantAnswer(t, s, "after a minute", "vm", "TwinInUse=True")
		wantRules(t, s, "after a minute", map[string]string{oursName: "Theirs"})
		s.deallocate("vm")
		s.twins("gpu-0", "mig-1")
		after(soon)
		wantRules(t, s, "with twins", map[string]string{})
		s.allocateOurs("vm")
		after(5 * time.Second)
		wantRules(t, s, "reserved", map[string]string{"gpu-0": "Ours", "mig-1": "Ours"})
		wantAnswer(t, s, "with twins", "vm", "TwinReserved=True")
	})
}

func TestRulesAreRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared(t)
		lead(t, s, nil)
		s.allocateOurs("vm")
		after(soon)
		s.damage("gpu-0")
		after(soon)
		wantRules(t, s, "after somebody changed the taint", map[string]string{"gpu-0": "Ours"})
		after(soon)
		wantAnswer(t, s, "before the grace of the repaired rule", "vm", "")
		after(3 * time.Second)
		wantAnswer(t, s, "at the end", "vm", "TwinReserved=True")
	})
}

// While lists fail nothing is handed over, and failed writes are tried again.
func TestFailuresDelayAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, down := shared(t), &atomic.Bool{}
		down.Store(true)
		c := lead(t, s, func(a clienttesting.Action) error {
			if down.Load() && a.GetVerb() != "watch" && (a.GetVerb() != "list" || a.GetResource().Resource == "resourceclaims" && s.isChanged()) {
				return errors.New("down")
			}
			return nil
		})
		after(soon)
		s.allocateOurs("vm")
		after(20 * time.Second)
		wantRules(t, s, "while writes fail", map[string]string{})
		if got := metricsOf(t, c)["kata_vfio_twin_failures_total create rule"]; got < 5 {
			t.Errorf("%v failures are counted", got)
		}
		down.Store(false)
		after(40 * time.Second)
		wantAnswer(t, s, "at the end", "vm", "TwinReserved=True")
	})
}

// A claim that can't be answered delays no other GPU of its node, also not an answer that needs a fresh list.
func TestClaimThatCannotBeAnsweredDelaysNoOtherGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pool, otherName = nodeA + "/kata-vfio.dev/shared", "gpu-0000-3c-00-0"
		s := newAPIServer(t)
		ours := []resourceapi.Device{deviceAt(oursName, "0000:3b:00.0"), deviceAt(otherName, "0000:3c:00.0")}
		for _, d := range ours {
			d.Attributes["sharedWith"], d.Attributes["driver"] = stringAttribute(otherDriver), stringAttribute("nvidia")
		}
		s.put("resourceslices", sliceOf("ours", v1alpha1.DriverName, pool, ours...))
		s.put("resourceslices", sliceOf("theirs", otherDriver, nodeA, deviceAt("gpu-0", "0000:3b:00.0"), deviceAt("gpu-1", "0000:3c:00.0")))
		c := lead(t, s, func(a clienttesting.Action) error {
			if p, ok := a.(clienttesting.PatchAction); ok && p.GetName() == "stuck" {
				return errors.New("field cannot be modified once set")
			}
			return nil
		})
		s.allocateTwin("container", "gpu-0")
		s.allocateOurs("stuck")
		after(2 * soon)
		s.allocate("vm", v1alpha1.DriverName, pool, otherName)
		after(time.Minute)
		wantAnswer(t, s, "with an error", "stuck", "")
		wantAnswer(t, s, "beside it", "vm", "TwinReserved=True")
		if got := metricsOf(t, c)["kata_vfio_twin_failures_total set condition"]; got < 5 || got > 20 {
			t.Errorf("%v failures are counted in a minute, want 5 to 20: with pauses in between", got)
		}
	})
}

// A controller that lost its lease may be anywhere in its work, for as long as it likes. For each write: it is held back just
// before the API server gets it, another controller leads, the world goes on, and only then the write comes.
func TestLateWriteOfAnotherLeaderHasNoEffect(t *testing.T) {
	for name, tt := range map[string]struct {
		verb, resource string
		before         func(*apiServer) // what the late controller decides on
		meanwhile      func(*apiServer)
		rules          map[string]string
		answer         string // to claim vm
	}{
		"a deletion, before another claim was reserved": {
			verb: "delete", resource: "devicetaintrules", before: func(s *apiServer) { s.allocateOurs("vm"); time.Sleep(5 * time.Second); s.deallocate("vm") },
			meanwhile: func(s *apiServer) { s.allocateOurs("vm"); after(10 * time.Second) },
			rules:     map[string]string{"gpu-0": "Ours"}, answer: "TwinReserved=True",
		},
		"a reservation, before the claim was allocated again": {
			verb: "patch", resource: "resourceclaims", before: func(s *apiServer) { s.allocateOurs("vm") },
			meanwhile: func(s *apiServer) {
				s.deallocate("vm")
				after(soon)
				s.allocateTwin("container", "gpu-0")
				s.allocateOurs("vm")
				after(10 * time.Second)
			},
			rules: map[string]string{"gpu-0": "Ours", oursName: "Theirs"}, answer: "TwinInUse=True",
		},
		"a touch, before the rule was made again": {
			verb: "patch", resource: "devicetaintrules",
			before: func(s *apiServer) {
				s.allocateOurs("vm")
				time.Sleep(5 * time.Second)
				s.deallocate("vm")
				s.allocateOurs("vm")
			},
			meanwhile: func(s *apiServer) {
				s.deallocate("vm")
				after(5 * time.Second)
				s.allocateOurs("vm")
				after(10 * time.Second)
			},
			rules: map[string]string{"gpu-0": "Ours"}, answer: "TwinReserved=True",
		},
		"a creation, before the claim went": {
			verb: "create", resource: "devicetaintrules", before: func(s *apiServer) { s.allocateOurs("vm") },
			meanwhile: func(s *apiServer) { after(5 * time.Second); s.deallocate("vm"); after(5 * time.Second) },
			rules:     map[string]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, held, release := shared(t), make(chan struct{}), make(chan struct{})
				var once atomic.Bool
				lead(t, s, func(a clienttesting.Action) error {
					if a.Matches(tt.verb, tt.resource) && once.CompareAndSwap(false, true) {
						close(held)
						<-release
					}
					return nil
				})
				after(soon)
				go tt.before(s)
				<-held
				synctest.Wait()
				lead(t, s, nil)
				tt.meanwhile(s)
				close(release)
				after(20 * time.Second)
				wantRules(t, s, "at the end", tt.rules)
				wantAnswer(t, s, "at the end", "vm", tt.answer)
				if tt.verb != "create" && len(s.refused) == 0 {
					t.Error("the late write was not refused")
				}
			})
		})
	}
}

// metricsOf are a controller's own metrics by names and values of labels; of a histogram the count.
func metricsOf(t *testing.T, c *running) map[string]float64 {
	t.Helper()
	families, err := c.config.Metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			key := f.GetName()
			for _, l := range m.Label {
				key += " " + l.GetValue()
			}
			got[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	maps.DeleteFunc(got, func(key string, _ float64) bool { return !strings.HasPrefix(key, "kata_vfio_") })
	return got
}

func TestMetricsShowWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared(t)
		c := lead(t, s, nil)
		s.allocateOurs("vm")
		after(2 * time.Second)
		want := map[string]float64{
			"kata_vfio_twin_allocated_twice": 0, "kata_vfio_twin_gpus": 1, "kata_vfio_twin_leader": 0, "kata_vfio_twin_reserve_seconds": 0, "kata_vfio_twin_rule_writes_total Ours create": 1,
			"kata_vfio_twin_rules Ours": 1, "kata_vfio_twin_rules Theirs": 0, "kata_vfio_twin_waiting_seconds": 2,
		}
		if diff := cmp.Diff(want, metricsOf(t, c)); diff != "" {
			t.Errorf("while a claim waits, the metrics differ (-want +got):\n%s", diff)
		}
		after(2 * time.Second)
		want["kata_vfio_twin_answers_total TwinFree True kata-vfio.dev/TwinReserved"], want["kata_vfio_twin_reserve_seconds"], want["kata_vfio_twin_waiting_seconds"] = 1, 1, 0
		got := metricsOf(t, c)
		delete(got, "kata_vfio_twin_rule_writes_total Ours touch")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after the answer, the metrics differ (-want +got):\n%s", diff)
		}
	})
}

func TestItIsReadyOnceItHasReadAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared(t)
		c, blind := lead(t, s, nil), lead(t, s, func(a clienttesting.Action) error {
			if a.GetResource().Resource == "devicetaintrules" {
				return errors.New("down")
			}
			return nil
		})
		after(soon)
		if got := c.NotReady(); got != "" {
			t.Errorf("not ready: %q", got)
		}
		if got := blind.NotReady(); got != "the DeviceTaintRules of the API server are not read yet" {
			t.Errorf("without rules, not ready: %q", got)
		}
	})
}

package nri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// script answers each call by its text, in order, and remembers the calls.
type script struct {
	start time.Time
	mu    sync.Mutex // guards below
	calls []string
	errs  map[string][]error
	block map[string]bool // these last until their deadline
}

func (s *script) call(ctx context.Context, what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf("%s at %s", what, time.Since(s.start)))
	if s.block[what] {
		s.mu.Unlock()
		<-ctx.Done()
		s.mu.Lock()
		delete(s.block, what)
		return ctx.Err()
	}
	errs := s.errs[what]
	if len(errs) == 0 {
		return nil
	}
	s.errs[what] = errs[1:]
	return errs[0]
}

func (s *script) HandOver(ctx context.Context, uid string, to journal.Sandbox) error {
	return s.call(ctx, "HandOver "+uid+" "+to.ID)
}

func (s *script) Renew(ctx context.Context, uid, sandbox string) ([]isolation.Proof, error) {
	return nil, s.call(ctx, "Renew "+uid+" "+sandbox)
}

func renew(claim, sandbox string) job {
	return job{claim: claim, sandbox: journal.Sandbox{ID: sandbox}, renew: true}
}

func handOver(claim, sandbox string) job {
	return job{claim: claim, sandbox: journal.Sandbox{ID: sandbox}}
}

func TestWorker(t *testing.T) {
	inUse := &effects.InUseError{}
	for name, tt := range map[string]struct {
		errs  map[string][]error
		block map[string]bool
		jobs  []job
		later []job // ten seconds after
		want  []string
	}{
		"does the jobs of a claim in order": {
			jobs: []job{handOver("c1", "s1"), renew("c1", "s1"), handOver("c1", "s2")},
			want: []string{"HandOver c1 s1 at 0s", "Renew c1 s1 at 0s", "HandOver c1 s2 at 0s"},
		},
		"does the same job once": {
			jobs: []job{handOver("c1", "s1"), renew("c1", "s1"), renew("c1", "s1")},
			want: []string{"HandOver c1 s1 at 0s", "Renew c1 s1 at 0s"},
		},
		"tries again until a VM has ended": {
			errs: map[string][]error{"Renew c1 s1": {inUse, inUse, errors.New("disk full")}},
			jobs: []job{renew("c1", "s1")},
			want: []string{"Renew c1 s1 at 0s", "Renew c1 s1 at 1s", "Renew c1 s1 at 3s", "Renew c1 s1 at 7s"},
		},
		"keeps the order while it tries again": {
			errs: map[string][]error{"Renew c1 s1": {inUse, inUse, inUse, inUse, inUse}},
			jobs: []job{renew("c1", "s1")}, later: []job{handOver("c1", "s2")},
			want: []string{
				"Renew c1 s1 at 0s", "Renew c1 s1 at 1s", "Renew c1 s1 at 3s", "Renew c1 s1 at 7s",
				"Renew c1 s1 at 10s", "Renew c1 s1 at 26s", "HandOver c1 s2 at 26s",
			},
		},
		"holds up nobody else": {
			errs: map[string][]error{"Renew c1 s1": {inUse}}, block: map[string]bool{"Renew c1 s1": true},
			jobs: []job{renew("c1", "s1")}, later: []job{renew("c2", "s2")},
			want: []string{"Renew c1 s1 at 0s", "Renew c2 s2 at 10s", "Renew c1 s1 at 2m1s", "Renew c1 s1 at 2m3s"},
		},
		"gives up a claim that is gone": {
			errs: map[string][]error{"Renew c1 s1": {fmt.Errorf("renew: %w", &prepare.NotPreparedError{})}},
			jobs: []job{renew("c1", "s1")},
			want: []string{"Renew c1 s1 at 0s"},
		},
		"gives up what is in quarantine": {
			errs: map[string][]error{"HandOver c1 s1": {&prepare.QuarantinedError{Record: &journal.Record{}}}},
			jobs: []job{handOver("c1", "s1")},
			want: []string{"HandOver c1 s1 at 0s"},
		},
		"waits with what may be booting": {
			jobs: []job{delayed(renew("c1", "s1"), true)}, want: []string{"Renew c1 s1 at 1m0s"},
		},
		"waits also behind another job": {
			jobs: []job{handOver("c1", "s1"), delayed(renew("c1", "s1"), true)},
			want: []string{"HandOver c1 s1 at 0s", "Renew c1 s1 at 1m0s"},
		},
		"drops what has booted meanwhile": {jobs: []job{delayed(renew("c1", "s1"), false)}},
		"ends the delay for a later job": {
			jobs: []job{delayed(renew("c1", "s1"), true)}, later: []job{handOver("c1", "s2")},
			want: []string{"Renew c1 s1 at 10s", "HandOver c1 s2 at 10s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{start: time.Now(), errs: tt.errs, block: tt.block}
				w := newTestWorker(t.Context(), s)
				for _, j := range tt.jobs {
					if j.wanted != nil {
						j.notBefore = journal.Ticks() + journal.TicksIn(time.Minute)
					}
					w.add(j)
				}
				time.Sleep(10 * time.Second)
				for _, j := range tt.later {
					w.add(j)
				}
				time.Sleep(time.Hour)
				w.wait()
				if diff := cmp.Diff(tt.want, s.calls); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// hookErrors is an observer that remembers the errors of jobs.
type hookErrors []error

func (h *hookErrors) HookEnded(_ string, _ time.Duration, err error) { *h = append(*h, err) }

func (*hookErrors) Refused(Refusal) {}

// TestJobOfAClaimThatIsGone: a pod may end while its job waits. The log has that as information, and no failure is counted.
func TestJobOfAClaimThatIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		level string
		fails bool
	}{
		"unprepared":     {&prepare.NotPreparedError{}, "INFO", false},
		"being released": {&prepare.NotPreparedError{State: journal.Releasing}, "INFO", false},
		"another pod's":  {fmt.Errorf("hand over: %w", &prepare.NotPreparedError{State: journal.Prepared, PodUID: "first"}), "INFO", false},
		"in quarantine":  {&prepare.QuarantinedError{Record: &journal.Record{}}, "ERROR", true},
	} {
		for _, j := range []job{handOver("c1", "s1"), renew("c1", "s1")} {
			synctest.Test(t, func(t *testing.T) {
				s := &script{start: time.Now(), errs: map[string][]error{j.name() + " c1 s1": {c.err}}}
				var log bytes.Buffer
				seen := &hookErrors{}
				w := newWorker(t.Context(), &Config{Claims: s, Log: slog.New(slog.NewTextHandler(&log, nil)), Observer: seen})
				w.add(j)
				time.Sleep(time.Hour)
				w.wait()
				if !strings.Contains(log.String(), "level="+c.level) || strings.Count(log.String(), "\n") != 1 {
					t.Errorf("%s, %s: the log has %q, want one line with level %s", j.name(), name, log.String(), c.level)
				}
				if len(*seen) != 1 || ((*seen)[0] != nil) != c.fails {
					t.Errorf("%s, %s: the observer got %v, want one call, failed: %t", j.name(), name, *seen, c.fails)
				}
			})
		}
	}
}

func newTestWorker(ctx context.Context, s *script) *worker {
	return newWorker(ctx, &Config{Claims: s, Log: slog.New(slog.DiscardHandler)})
}

func delayed(j job, wanted bool) job {
	j.wanted = func() bool { return wanted }
	return j
}

func TestWorkerEndsAtOnceAndDropsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{start: time.Now(), block: map[string]bool{"Renew c1 s1": true}}
		w := newTestWorker(t.Context(), s)
		w.add(renew("c1", "s1"))
		w.add(renew("c1", "s2"))
		synctest.Wait()
		w.wait()
		w.add(renew("c2", "s3"))
		synctest.Wait()
		if diff := cmp.Diff([]string{"Renew c1 s1 at 0s"}, s.calls); diff != "" || time.Since(s.start) != 0 {
			t.Errorf("calls until %s (-want +got):\n%s", time.Since(s.start), diff)
		}
	})
}

func TestWorkerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{start: time.Now(), block: map[string]bool{"Renew c1 s0": true}}
		w := newTestWorker(t.Context(), s)
		for i := range 10 * maxJobs {
			w.add(renew("c1", fmt.Sprintf("s%d", i)))
		}
		time.Sleep(time.Hour)
		w.wait()
		calls := slices.DeleteFunc(s.calls, func(c string) bool {
			return len(c) > len("Renew c1 s0 at 0s") && c[:len("Renew c1 s0 ")] == "Renew c1 s0 "
		})
		if len(calls) != maxJobs {
			t.Errorf("%d jobs were done, want %d", len(calls), maxJobs)
		}
	})
}

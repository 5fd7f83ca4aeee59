package nri

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

const (
	// jobLimit bounds one try: a reset and the wait for a VM that is ending.
	jobLimit = 2 * time.Minute
	// maxJobs bounds the jobs of one claim. A claim has few: one of each kind for
	// each sandbox that its pod has had in a row.
	maxJobs = 16
	// What is tried again waits this long, and twice as long each time.
	firstRetry, lastRetry = time.Second, time.Minute
)

// job is work on one claim that the hooks must not wait for.
type job struct {
	claim   string // UID
	sandbox journal.Sandbox
	// renew tells resetting the devices after the sandbox from handing them over
	// to it.
	renew bool
	// notBefore delays the job; wanted, unless nil, is asked before each try.
	notBefore time.Time
	wanted    func() bool
}

// worker does jobs in the background: those of one claim one after the other
// in the order they came, those of different claims side by side, so that one
// VM that does not end holds up nobody else.
//
// What is left when it stops is dropped, which is no danger: the record keeps
// the sandbox until a reset has succeeded, so the next Synchronize, the next
// sandbox's hand-over or Unprepare does it.
type worker struct {
	claims  Claims
	log     *slog.Logger
	observe func(hook string, took time.Duration, err error)

	ctx  context.Context // of all jobs
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu    sync.Mutex        // guards below
	lines map[string]*queue // by claim; there while a goroutine is at the first job
}

// queue is the jobs of one claim.
type queue struct {
	jobs []job
	more chan struct{} // a job has come behind the one under way
}

func newWorker(ctx context.Context, cfg *Config) *worker {
	w := &worker{claims: cfg.Claims, log: cfg.Log, observe: cfg.observe, lines: map[string]*queue{}}
	w.ctx, w.stop = context.WithCancel(ctx)
	return w
}

// add puts a job behind the others of its claim. One that is there already as
// the last is not added again.
func (w *worker) add(j job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return
	}
	l := w.lines[j.claim]
	switch {
	case l == nil:
		l = &queue{jobs: []job{j}, more: make(chan struct{}, 1)}
		w.lines[j.claim] = l
		w.wg.Go(func() { w.work(j, l) })
	case l.jobs[len(l.jobs)-1].same(j):
	case len(l.jobs) >= maxJobs:
		w.log.Error("too many sandboxes wait for one claim's devices; the next hand-over resets them",
			slog.String("claim", j.claim), slog.String("sandbox", j.sandbox.ID))
	default:
		l.jobs = append(l.jobs, j)
		select {
		case l.more <- struct{}{}:
		default:
		}
	}
}

// same reports whether doing both is as good as doing one.
func (j *job) same(as job) bool {
	return j.renew == as.renew && j.sandbox == as.sandbox && j.notBefore.Equal(as.notBefore)
}

// wait ends the worker and returns once no job is under way. What is added
// after it is dropped.
func (w *worker) wait() {
	w.mu.Lock() // for a job that is being added, which then counts
	w.stop()
	w.mu.Unlock()
	w.wg.Wait()
}

// work does the first job of a line and those behind it until there are none.
func (w *worker) work(j job, l *queue) {
	for ok := true; ok; j, ok = w.next(j.claim, l) {
		w.do(j, l.more)
	}
}

// next takes the first job off a line and returns the one behind it. A line
// without jobs is removed.
func (w *worker) next(claim string, l *queue) (job, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.jobs = l.jobs[1:]
	if len(l.jobs) == 0 || w.ctx.Err() != nil {
		delete(w.lines, claim)
		return job{}, false
	}
	if len(l.jobs) == 1 {
		select { // what came behind the job before is this one
		case <-l.more:
		default:
		}
	}
	return l.jobs[0], true
}

// do tries a job until it is done, need not be done any more, or can't be. A
// job that comes behind it ends a delay, which would hold it up: the runtime
// knows the claim's sandbox then.
func (w *worker) do(j job, more <-chan struct{}) {
	delay := time.Until(j.notBefore)
	for retry := firstRetry; sleep(w.ctx, delay, more); retry = min(2*retry, lastRetry) {
		if j.wanted != nil && !j.wanted() {
			return
		}
		err := w.try(j)
		log := w.log.With(slog.String("claim", j.claim), slog.String("sandbox", j.sandbox.ID), slog.String("job", j.name()))
		switch {
		case err == nil:
			log.Info("done")
			return
		case w.ctx.Err() != nil:
			return
		case final(err):
			log.Error("given up", slog.Any("err", err))
			return
		}
		log.Warn("will be tried again", slog.Any("err", err), slog.Duration("after", retry))
		delay = retry
	}
}

// try does a job once.
func (w *worker) try(j job) error {
	ctx, cancel := context.WithTimeout(w.ctx, jobLimit)
	defer cancel()
	start := time.Now()
	var err error
	if j.renew {
		_, err = w.claims.Renew(ctx, j.claim, j.sandbox.ID)
	} else {
		err = w.claims.HandOver(ctx, j.claim, j.sandbox)
	}
	w.observe(j.name(), time.Since(start), err)
	return err
}

func (j *job) name() string {
	if j.renew {
		return "Renew"
	}
	return "HandOver"
}

// final reports whether an error stays: the claim is gone, or its devices are
// in quarantine, which the operator ends.
func final(err error) bool {
	_, gone := errors.AsType[*prepare.NotPreparedError](err)
	_, quarantined := errors.AsType[*prepare.QuarantinedError](err)
	return gone || quarantined
}

// sleep reports false when ctx ends meanwhile. A value from wake, which may be
// nil, ends it early.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

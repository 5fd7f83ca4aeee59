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
	// jobLimit bounds one attempt: a reset, and the wait for a VM that is ending.
	jobLimit = 2 * time.Minute
	// maxJobs bounds the jobs of one claim. A claim has one job of each kind for each sandbox in a row.
	maxJobs = 16
	// The pause before another attempt doubles each time.
	firstRetry, lastRetry = time.Second, time.Minute
)

// job is work on one claim for which a hook must not wait.
type job struct {
	claim   string // UID
	sandbox journal.Sandbox
	// renew resets the devices after the sandbox; otherwise the job hands them over to it.
	renew bool
	// notBefore delays the job until that time, in clock ticks since boot. Before each attempt, wanted reports whether the job is still
	// needed; nil means always.
	notBefore uint64
	wanted    func() bool
}

// worker does jobs in the background: the jobs of one claim in order, the jobs of different claims
// in parallel, so that a VM that does not end delays only its own claim.
//
// client-go's workqueue doesn't fit: it has no order of several jobs for one key, and a later job can't end the delay of
// the one before.
//
// The worker drops the remaining jobs when it stops. That is safe: a record names its sandbox until
// a reset has succeeded, so the next Synchronize, the next hand-over or Unprepare resets the device.
type worker struct {
	cfg *Config

	ctx  context.Context // of all jobs
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex        // guards below
	queues map[string]*queue // by claim, while a goroutine does the first job
}

// queue is the jobs of one claim.
type queue struct {
	jobs []job
	more chan struct{} // a job was added behind the first
}

func newWorker(ctx context.Context, cfg *Config) *worker {
	w := &worker{cfg: cfg, queues: map[string]*queue{}}
	w.ctx, w.stop = context.WithCancel(ctx)
	return w
}

// add appends a job to the others of its claim, unless the last one is equal.
func (w *worker) add(j job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return
	}
	q := w.queues[j.claim]
	switch {
	case q == nil:
		q = &queue{jobs: []job{j}, more: make(chan struct{}, 1)}
		w.queues[j.claim] = q
		w.wg.Go(func() { w.work(j, q) })
	// StopPodSandbox and RemovePodSandbox both queue the reset of one sandbox.
	case q.jobs[len(q.jobs)-1].same(j):
	case len(q.jobs) >= maxJobs:
		w.cfg.Log.Error("too many sandboxes wait for the devices of one claim; the next hand-over resets them",
			slog.String("claim", j.claim), slog.String("sandbox", j.sandbox.ID))
	default:
		q.jobs = append(q.jobs, j)
		// The channel has room for one signal, so the send never blocks under the lock.
		select {
		case q.more <- struct{}{}:
		default:
		}
	}
}

// same reports whether doing both jobs has the effect of one.
func (j *job) same(as job) bool {
	return j.renew == as.renew && j.sandbox == as.sandbox && j.notBefore == as.notBefore
}

// background starts work that belongs to no claim. Its context ends when the worker stops.
func (w *worker) background(do func(context.Context)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() == nil {
		w.wg.Go(func() { do(w.ctx) })
	}
}

// wait stops the worker and returns when no job is in progress. Jobs that are added later are
// dropped.
func (w *worker) wait() {
	w.mu.Lock() // a job that is being added counts
	w.stop()
	w.mu.Unlock()
	w.wg.Wait()
}

// work does the jobs of a queue until it is empty.
func (w *worker) work(j job, q *queue) {
	for ok := true; ok; j, ok = w.next(j.claim, q) {
		w.do(j, q.more)
	}
}

// next removes the first job of a queue and returns the next one. It deletes an empty queue.
func (w *worker) next(claim string, q *queue) (job, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q.jobs = q.jobs[1:]
	if len(q.jobs) == 0 || w.ctx.Err() != nil {
		delete(w.queues, claim)
		return job{}, false
	}
	if len(q.jobs) == 1 {
		select { // the signal was for this job
		case <-q.more:
		default:
		}
	}
	return q.jobs[0], true
}

// do tries a job until it succeeds, is no longer wanted, or can't succeed any more. A further job of the claim ends the delay early,
// because the runtime knows the claim's sandbox by then.
func (w *worker) do(j job, more <-chan struct{}) {
	delay := journal.TicksFor(j.notBefore - min(j.notBefore, journal.Ticks()))
	for retry := firstRetry; sleep(w.ctx, delay, more); retry = min(2*retry, lastRetry) {
		if j.wanted != nil && !j.wanted() {
			return
		}
		err := w.try(j)
		log := w.cfg.Log.With(slog.String("claim", j.claim), slog.String("sandbox", j.sandbox.ID), slog.String("job", j.name()))
		switch {
		case err == nil:
			log.Info("done")
			return
		case w.ctx.Err() != nil:
			return
		case isOver(err): // as for each pod that ends while its job waits
			log.Info("not needed any more", slog.String("why", err.Error()))
			return
		case isQuarantined(err):
			log.Error("given up", slog.Any("err", err))
			return
		}
		log.Warn("will be tried again", slog.Any("err", err), slog.Duration("after", retry))
		delay = retry
	}
}

// try attempts a job once.
func (w *worker) try(j job) error {
	ctx, cancel := context.WithTimeout(w.ctx, jobLimit)
	defer cancel()
	start := time.Now()
	var err error
	if j.renew {
		_, err = w.cfg.Claims.Renew(ctx, j.claim, j.sandbox.ID)
	} else {
		err = w.cfg.Claims.HandOver(ctx, j.claim, j.sandbox)
	}
	failed := err
	if isOver(err) {
		failed = nil
	}
	w.cfg.observe(j.name(), time.Since(start), failed)
	return err
}

func (j *job) name() string {
	if j.renew {
		return "Renew"
	}
	return "HandOver"
}

// isOver reports whether the claim no longer exists on the node, or belongs to another pod. It was unprepared, which reset its devices.
func isOver(err error) bool {
	_, gone := errors.AsType[*prepare.NotPreparedError](err)
	return gone
}

// isQuarantined reports whether a retry is useless because the claim's devices are in quarantine, which only the operator ends.
func isQuarantined(err error) bool {
	_, quarantined := errors.AsType[*prepare.QuarantinedError](err)
	return quarantined
}

// sleep returns false if ctx ends first. A value from wake, which may be nil, ends it early.
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

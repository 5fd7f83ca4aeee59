package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/kata-vfio/kata-vfio/pkg/controller/stage"
)

// stages runs the sanitizing stages. One decision covers all of them, because maxParallel is a limit for the whole cluster.
type stages struct {
	controller *Controller
	queue      workqueue.TypedRateLimitingInterface[string]
	// memory and listed are used only by the one goroutine that decides. listed is the node that was listed last, for [stages.next].
	memory stage.Memory
	listed string
}

// allStages is the one item of the queue.
const allStages = "stages"

func newStages(c *Controller) *stages {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 30*time.Second)
	return &stages{controller: c, queue: workqueue.NewTypedRateLimitingQueue(limiter)}
}

// settling is how long a decision waits after a change, so that it covers further changes. The caches show the claim and the
// pod of a new stage one after the other, and in between the stage looks incomplete.
const settling = 200 * time.Millisecond

// wake asks for a decision.
func (s *stages) wake() { s.queue.AddAfter(allStages, settling) }

// run decides and acts until the queue is shut down.
func (s *stages) run(ctx context.Context) {
	s.wake()
	for {
		item, down := s.queue.Get()
		if down {
			return
		}
		if s.round(ctx) {
			s.queue.Forget(item)
		} else {
			s.queue.AddRateLimited(item)
		}
		s.queue.Done(item)
	}
}

// round decides by the caches. If there is something to do, it lists the objects of the nodes concerned from the API server, of at most
// listedAtOnce nodes, and decides again. It reports whether all was done.
func (s *stages) round(ctx context.Context) bool {
	decision := stage.Decide(s.view(&listing{}), &s.memory, s.now())
	if len(decision.Unsure) > 0 {
		now, err := s.list(ctx, s.next(decision.Unsure))
		if err != nil {
			s.controller.config.Metrics.stageFailures.WithLabelValues("list").Inc()
			s.controller.config.Log.WarnContext(ctx, "can't read the cluster: no stage starts or ends", slog.Any("err", err))
			return false
		}
		decision = stage.Decide(s.view(now), &s.memory, s.now())
	}
	if decision.RequeueAfter > 0 {
		s.queue.AddAfter(allStages, time.Duration(decision.RequeueAfter)*time.Millisecond)
	}
	done := true
	for _, a := range decision.Actions {
		done = s.execute(ctx, a) && done
	}
	// Nodes that were not listed are left: those of other turns, and those that only the list showed to have something to do. Another
	// round lists them.
	return done && len(decision.Unsure) == 0
}

// listedAtOnce is how many nodes one round lists, one after the other. At 50 requests per second (Daemon.Run) that takes two seconds,
// far below listLimit: a list of all nodes of a large cluster would reach the limit, in each round again, and no stage would start or end.
const listedAtOnce = 100

// next returns the nodes to list in this round. The nodes, which are sorted, have their turn one after the other: without turns, nodes
// that a list shows to have nothing to do would keep their places while the caches are behind.
func (s *stages) next(nodes []string) []string {
	first := max(0, slices.IndexFunc(nodes, func(node string) bool { return node > s.listed }))
	turn := slices.Concat(nodes[first:], nodes[:first])
	turn = turn[:min(len(turn), listedAtOnce)]
	s.listed = turn[len(turn)-1]
	return turn
}

func (s *stages) now() stage.Millis { return stage.Millis(s.controller.config.Now().UnixMilli()) }

// execute executes an action, and reports whether it was done.
func (s *stages) execute(ctx context.Context, a stage.Action) bool {
	if ctx.Err() != nil {
		return false
	}
	limited, cancel := context.WithTimeoutCause(ctx, writeLimit, errors.New("no answer in time"))
	defer cancel()
	err := s.do(limited, a)
	if c, ok := a.(stage.Create); ok {
		s.memory.Created(c.Profile, err == nil, s.now())
	}
	s.report(ctx, a, err)
	return err == nil
}

func (s *stages) do(ctx context.Context, a stage.Action) error {
	switch a := a.(type) {
	case stage.Create:
		return s.create(ctx, &a)
	case stage.Delete:
		return s.delete(ctx, &a)
	}
	return fmt.Errorf("execute %T: unknown action", a)
}

// create creates a stage's claim and then its pod. After a failure in between, the next decision deletes the claim.
func (s *stages) create(ctx context.Context, a *stage.Create) error {
	client, sanitizers := s.controller.config.Client, s.controller.config.Sanitizers
	pod, err := stage.Pod(sanitizers, &a.Waiting)
	if err != nil {
		return err
	}
	claim := stage.Claim(sanitizers, &a.Waiting)
	options := metav1.CreateOptions{FieldManager: Name}
	if _, err := client.ResourceV1().ResourceClaims(sanitizers.Namespace).Create(ctx, claim, options); err != nil {
		return fmt.Errorf("create claim %s of the stage of %s: %w", claim.Name, a.ID, err)
	}
	if _, err := client.CoreV1().Pods(sanitizers.Namespace).Create(ctx, pod, options); err != nil {
		return fmt.Errorf("create pod %s of the stage of %s: %w", pod.Name, a.ID, err)
	}
	return nil
}

// delete deletes a stage's pod and claim, unless they have changed since the decision.
func (s *stages) delete(ctx context.Context, a *stage.Delete) error {
	client, namespace := s.controller.config.Client, s.controller.config.Sanitizers.Namespace
	pod, claim := a.Objects()
	// The pod comes first: a claim that a pod uses has a finalizer, and would stay until the pod has ended.
	if pod != nil {
		if err := client.CoreV1().Pods(namespace).Delete(ctx, pod.Name, deleteOptions(pod)); err != nil {
			return fmt.Errorf("delete pod %s of the stage of %s: %w", pod.Name, a.Device, err)
		}
	}
	if claim != nil {
		if err := client.ResourceV1().ResourceClaims(namespace).Delete(ctx, claim.Name, deleteOptions(claim)); err != nil {
			return fmt.Errorf("delete claim %s of the stage of %s: %w", claim.Name, a.Device, err)
		}
	}
	return nil
}

func deleteOptions(p *stage.Preconditions) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID, ResourceVersion: &p.ResourceVersion}}
}

// report logs and counts the result of an action.
func (s *stages) report(ctx context.Context, a stage.Action, err error) {
	metrics, log := s.controller.config.Metrics, s.controller.config.Log
	name, about := describeStage(a)
	switch {
	case err == nil:
		if d, ok := a.(stage.Delete); ok && d.HasTime {
			metrics.stageTime.WithLabelValues(d.Profile).Observe(float64(d.Took) / 1000)
		}
		log.LogAttrs(ctx, slog.LevelInfo, "action done", about...)
	case isConflict(err):
		metrics.stageConflicts.WithLabelValues(name).Inc()
		log.LogAttrs(ctx, slog.LevelDebug, "object changed: decide again", append(about, slog.Any("err", err))...)
	case ctx.Err() == nil:
		metrics.stageFailures.WithLabelValues(name).Inc()
		log.LogAttrs(ctx, slog.LevelWarn, "action failed", append(about, slog.Any("err", err))...)
	}
}

// describeStage returns an action's name and what it is about, for the log.
func describeStage(a stage.Action) (string, []slog.Attr) {
	switch a := a.(type) {
	case stage.Create:
		return "create stage", []slog.Attr{slog.String("action", "create stage"), slog.String("device", a.ID.String()), slog.String("profile", a.Profile)}
	case stage.Delete:
		return "delete stage", []slog.Attr{
			slog.String("action", "delete stage"), slog.String("device", a.Device.String()), slog.String("profile", a.Profile), slog.String("why", string(a.Why)),
		}
	}
	return "unknown action", nil
}

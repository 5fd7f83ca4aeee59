package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// test tests one node after the other. With an error, the report has the nodes that were tested before.
func (s *session) test(cmd *cobra.Command, t *podTest) (*testReport, error) {
	client, namespace, err := s.connect()
	if err != nil {
		return nil, err
	}
	texts, err := rule.Texts()
	if err != nil {
		return nil, err
	}
	found, err := t.targets(cmd, s, client)
	if err != nil || t.dry {
		return found.report(), err
	}
	progress := output.NewSteps(cmd.ErrOrStderr())
	defer progress.End()
	for i := range found.nodes {
		n := &found.nodes[i]
		r := &testRun{
			client: client, texts: texts, ids: found.ids, result: n, progress: progress,
			// rand.Text is base32: in lower case it is a valid part of a name (RFC 1123).
			objects: testObjects{base: "kata-vfio-test-" + strings.ToLower(rand.Text()[:6]), namespace: namespace, test: t, node: n.Node},
		}
		begin := s.now()
		err := r.run(cmd.Context())
		n.Seconds = s.now().Sub(begin).Seconds()
		if err != nil {
			found.nodes = found.nodes[:i+1]
			return found.report(), err
		}
	}
	return found.report(), nil
}

func (f *targets) report() *testReport {
	if f == nil {
		return nil
	}
	return &testReport{Tests: f.nodes}
}

// testRun tests one node.
type testRun struct {
	client   changer
	texts    []rule.Text
	ids      map[cluster.ID][2]string
	objects  testObjects
	result   *nodeTest
	progress *output.Progress
	pods     []string
}

// Names of checks.
const (
	boots       = "boots"
	seesDevice  = "sees its device"
	refusesPod  = "refuses a second pod"
	refusesNode = "refuses device nodes"
	keepsDevice = "keeps its device"
	givesBack   = "gives it back"
)

// cleanLimit is for the deletion of what a test made: a kubelet has 45 seconds to release a claim, and tries again after 90.
const cleanLimit = 4 * time.Minute

// run runs the checks, and deletes what they made. An error ends the whole command: the API server does not answer, refuses the
// user, or the user interrupts. A failure of only this node is in the result.
func (r *testRun) run(parent context.Context) error {
	ctx, cancel := context.WithTimeout(parent, r.objects.test.limit)
	defer cancel()
	r.result.Result = passed
	err := r.checks(ctx)
	if _, none := errors.AsType[*rightsError](err); none && len(r.pods) == 0 {
		r.result.Result = failed
		return err // not even the claim was made
	}
	// An interrupt and the test's own limit end the checks, and not the deletion.
	clean, cancelClean := context.WithTimeout(context.WithoutCancel(parent), cleanLimit)
	defer cancelClean()
	cleanErr := r.clean(clean)
	if cleanErr != nil {
		r.result.add(givesBack, failed, cleanErr.Error())
	}
	if parent.Err() != nil {
		r.result.Result = failed
		if cleanErr != nil {
			return fmt.Errorf("test of node %s: %w; %w", r.objects.node, context.Cause(parent), cleanErr)
		}
		return fmt.Errorf("test of node %s: %w; what it made is deleted", r.objects.node, context.Cause(parent))
	}
	return err
}

// checks runs the checks in their order. Without a VM there is nothing more to check.
func (r *testRun) checks(ctx context.Context) error {
	o := &r.objects
	r.say("creates claim %s/%s", o.namespace, o.base)
	if text, err := r.create(ctx, o.claim()); text != "" || err != nil {
		r.refused(boots, text)
		return err
	}
	holder := o.base
	r.pods = append(r.pods, holder)
	if text, err := r.create(ctx, o.claimant(holder)); text != "" || err != nil {
		r.refused(boots, text)
		return err
	}
	begin := time.Now()
	if why, err := r.await(ctx, holder, "boots its VM", isUp); why != "" || err != nil {
		r.refused(boots, why)
		return err
	}
	r.result.add(boots, passed, fmt.Sprintf("the pod runs after %.0f s", time.Since(begin).Seconds()))
	return errors.Join(r.sees(ctx, holder), r.refuses(ctx, refusesPod, o.claimant(o.base+"-second")),
		r.refuses(ctx, refusesNode, o.thief(o.base+"-nodes")), r.keeps(ctx, holder))
}

// refused adds that a check fails, unless an error ends the command.
func (r *testRun) refused(check, why string) {
	if why != "" {
		r.result.add(check, failed, why)
	}
}

func (r *testRun) say(format string, args ...any) {
	r.progress.Say("%s: %s", r.objects.node, fmt.Sprintf(format, args...))
}

// create makes an object, or returns why the API server refuses it. That the user may not create any is an error.
func (r *testRun) create(ctx context.Context, object runtime.Object) (refusal string, err error) {
	switch err := r.client.Create(ctx, r.objects.namespace, object, metav1.CreateOptions{FieldManager: testManager}); {
	case err == nil:
		return "", nil
	case isPolicy(err):
		return "the API server refuses it: " + err.Error(), nil
	case apierrors.IsForbidden(err):
		return "", &rightsError{err}
	default:
		return "", fmt.Errorf("create what tests node %s: %w", r.objects.node, err)
	}
}

// isPolicy reports whether an admission policy, Pod Security or a quota refuses an object. The same reason, Forbidden, says that the user lacks
// the right: that answer names the verb.
func isPolicy(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) && !strings.Contains(err.Error(), " cannot create resource ")
}

// rightsError says that the user lacks rights to test or drain.
type rightsError struct{ err error }

func (e *rightsError) Error() string {
	return e.err.Error() + "; kubectl-kata_vfio/README.md has the roles"
}

// Unwrap returns the API server's error.
func (e *rightsError) Unwrap() error { return e.err }

// isUp reports whether a pod runs.
func isUp(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning && hasRun(p) }

// hasRun reports whether a container of the pod runs or has run.
func hasRun(p *corev1.Pod) bool {
	for i := range p.Status.ContainerStatuses {
		c := &p.Status.ContainerStatuses[i]
		if c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil {
			return true
		}
	}
	return false
}

// await waits until done is true for a pod, or returns the reason why it will not be.
func (r *testRun) await(ctx context.Context, pod, what string, done func(*corev1.Pod) bool) (why string, err error) {
	for {
		var p corev1.Pod
		if err := r.client.Get(ctx, r.objects.namespace, pod, &p); err != nil && ctx.Err() == nil {
			return "", fmt.Errorf("read pod %s: %w", pod, err)
		}
		if done(&p) {
			return "", nil
		}
		if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
			return fmt.Sprintf("the pod is %s: %s", p.Status.Phase, orDash(p.Status.Message)), nil
		}
		r.say("%s (pod %s)", what, pod)
		if !r.rest(ctx) {
			return fmt.Sprintf("not within %s: %s", r.objects.test.limit, r.lastEvent(ctx, pod)), nil
		}
	}
}

// rest waits before the next look; false at the end of ctx.
func (r *testRun) rest(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(r.objects.test.pause):
		return true
	}
}

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// containers adds the reasons why containers of a pod do not run, and how failed containers ended.
func (e *explaining) containers(of string, p *corev1.Pod) {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && !isStarting(w.Reason) {
			e.add(e.trouble(Moment{Of: of, What: "container " + s.Name + " waits: " + w.Reason, Text: w.Message}, w.Reason))
		}
		for _, t := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
			if t != nil && (t.ExitCode != 0 || t.Reason == reasonOOM) {
				e.ended(of, s.Name, t)
				break
			}
		}
	}
}

// isStarting reports whether the reason is normal: each container waits for it while its pod starts.
func isStarting(reason string) bool {
	return reason == "" || reason == "ContainerCreating" || reason == "PodInitializing"
}

// reasonOOM is the reason of a container that the kernel killed because its memory limit was reached.
const reasonOOM = "OOMKilled"

// ended adds how a container failed.
func (e *explaining) ended(of, container string, t *corev1.ContainerStateTerminated) {
	fix := fmt.Sprintf("read what it wrote: `kubectl logs POD -c %s --previous`", container)
	if t.Reason == reasonOOM {
		fix = "raise the container's memory limit: the container used all of it"
	}
	m := Moment{Of: of, What: fmt.Sprintf("container %s ended: %s, exit code %d", container, cmp.Or(t.Reason, "Error"), t.ExitCode), Text: t.Message, Trouble: true, Fix: fix}
	if !t.FinishedAt.IsZero() {
		m.At = t.FinishedAt.UTC()
	}
	e.add(m)
}

// unusedClaims adds the claims of the pod that no container names. Kubernetes prepares them, but gives their devices to no container.
func (e *explaining) unusedClaims(of string, p *corev1.Pod) {
	for _, ref := range p.Spec.ResourceClaims {
		if cluster.NamesClaim(&p.Spec, ref.Name) {
			continue
		}
		e.add(Moment{
			Of: of, What: "claim " + ref.Name + " has no container", Text: "no container of the pod names the claim, so none gets its devices", Trouble: true,
			Fix: fmt.Sprintf("create the pod again, with `resources: {claims: [{name: %s}]}` in the container that is to have the devices", ref.Name),
		})
	}
}

// scheduled adds the reason why the scheduler finds no node for a pod.
func (e *explaining) scheduled(of string, p *corev1.Pod) {
	for _, c := range p.Status.Conditions {
		if c.Type != corev1.PodScheduled || c.Status == corev1.ConditionTrue {
			continue
		}
		m := e.trouble(Moment{At: c.LastTransitionTime.UTC(), Of: of, What: "condition PodScheduled=" + string(c.Status), Text: c.Reason + ": " + c.Message}, unscheduled(c.Reason))
		if short := lacking(c.Message); short != "" {
			m.Fix = requestFix(short, p)
		}
		e.add(m)
	}
}

// unscheduled returns the reason of the scheduler's Event for a condition: it looked for no device yet if the pod is gated.
func unscheduled(reason string) string {
	if reason == corev1.PodReasonSchedulingGated {
		return reason
	}
	return "FailedScheduling"
}

// lacking returns the resource of which no node has enough: "memory", "cpu". It is empty if the message has another reason.
func lacking(message string) string {
	_, after, found := strings.Cut(message, "Insufficient ")
	if !found {
		return ""
	}
	return strings.TrimRight(strings.Fields(after + " .")[0], ".,")
}

// requestFix returns the fix for a pod that requests more of a resource than any node has. The overhead of its VM is part of the request.
func requestFix(resource string, p *corev1.Pod) string {
	text := "lower the containers' requests of " + resource
	if over, ok := p.Spec.Overhead[corev1.ResourceName(resource)]; ok {
		text += fmt.Sprintf("; RuntimeClass %s adds %s for the VM (its overhead), which an admin can lower", deref(p.Spec.RuntimeClassName), over.String())
	}
	return text + ". `kubectl describe node` shows what nodes have left"
}

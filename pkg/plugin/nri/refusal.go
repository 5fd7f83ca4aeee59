package nri

import (
	"log/slog"

	"github.com/containerd/nri/pkg/api"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Pod names a pod.
type Pod struct{ Namespace, Name, UID string }

// String returns "namespace/name".
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

func newPod(p *api.PodSandbox) Pod {
	return Pod{Namespace: p.GetNamespace(), Name: p.GetName(), UID: p.GetUid()}
}

// Refusal is a sandbox or a container that must not run.
type Refusal struct {
	Pod Pod
	// Container is empty for a sandbox.
	Container string
	Verdict   rule.Verdict
}

// Err returns the error for the runtime, which puts the error's text into an Event of the pod. The tenant can read that Event.
func (r *Refusal) Err() *rule.RefusedError {
	subject := "pod " + r.Pod.String()
	if r.Container != "" {
		subject = "container " + r.Container + " of " + subject
	}
	return &rule.RefusedError{Subject: subject, Verdicts: []rule.Verdict{r.Verdict}}
}

// attributes returns a refusal for the log, in one group. The group's err may contain what the tenant must not see.
func (r *Refusal) attributes() slog.Attr {
	return slog.Group("refusal",
		slog.String("code", string(r.Verdict.Code)), slog.String("pod", r.Pod.String()), slog.String("container", r.Container),
		slog.String("subject", r.Verdict.Object), slog.String("reason", r.Err().Error()), slog.Any("err", r.Verdict.Err))
}

package controller

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// overlaps remembers which two claims an Event named, by the GPU that both have. Only the goroutine that decides uses it.
type overlaps map[string]string

// report records an Event on both claims of a GPU that both sides have, once for each two allocations. It leaves the conditions
// as they are: the pods are bound, the plugin refuses a VM that has not started, and a VM that runs keeps the GPU.
func (o overlaps) report(ctx context.Context, c *Controller, view *twin.View, g *twin.GPU) {
	ours, theirs, overlaps := g.Overlap()
	if !overlaps {
		delete(o, g.PCI)
		return
	}
	// The key leaves out the resource version, which changes with each write to a status.
	both := fmt.Sprint(ours.UID, ours.AllocatedAt, theirs.UID, theirs.AllocatedAt)
	if o[g.PCI] == both {
		return
	}
	o[g.PCI] = both
	message := fmt.Sprintf("GPU %s was reserved for claim %s/%s, and claim %s/%s has it through driver %s: the scheduler of the latter ignores DeviceTaintRules. Delete that "+
		"claim's pod, and let kube-scheduler schedule all pods with shared GPUs", g.PCI, ours.Namespace, ours.Name, theirs.Namespace, theirs.Name, g.SharedWith)
	c.config.Log.WarnContext(ctx, "a shared GPU is allocated twice", slog.String("gpu", g.PCI),
		slog.String("claim", ours.Namespace+"/"+ours.Name), slog.String("other", theirs.Namespace+"/"+theirs.Name))
	for _, claim := range []*twin.Claim{ours, theirs} {
		if listed := view.Cluster.Claim(claim.Namespace, claim.Name); listed != nil {
			c.config.Recorder.Eventf(listed.Object, nil, corev1.EventTypeWarning, string(rule.TwinAllocatedTwice), "Report", "%s", message)
		}
	}
}

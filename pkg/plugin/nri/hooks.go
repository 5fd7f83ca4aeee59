package nri

import (
	"context"
	"log/slog"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/assignment"
)

// hooks are the calls of the runtime. NRI makes one at a time for the whole
// node and takes a plugin off that does not answer within two seconds, so they
// only look things up; what takes time is the worker's.
type hooks struct {
	cfg  *Config
	work *worker
	live *sandboxes
	// synchronized is called when the runtime has synchronized.
	synchronized func()
}

// RunPodSandbox refuses a sandbox that is not fit for its pod's claims, and
// enters the ones it lets pass into the records. The VM runs already: the
// runtime ends it when it is refused.
func (h *hooks) RunPodSandbox(_ context.Context, pod *api.PodSandbox) (err error) {
	defer h.observe("RunPodSandbox", time.Now(), &err)
	own, refused := h.cfg.Rules.Sandbox(h.cfg.Assignments, pod)
	if refused != nil {
		return h.refuse(refused)
	}
	h.live.add(pod.GetId())
	h.handOver(own, pod) //nolint:contextcheck // the work outlives the call
	return nil
}

// CreateContainer refuses a container with devices that it must not have. It
// leaves the others as they are: the plugin knows the host's addresses of their
// functions, and Kata's agent (4.1.0) rewrites none to the guest's, not even those
// in PCIDEVICE_* variables, before a container starts (see package guestnet).
func (h *hooks) CreateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) (_ *api.ContainerAdjustment, _ []*api.ContainerUpdate, err error) {
	defer h.observe("CreateContainer", time.Now(), &err)
	return nil, nil, h.check(pod, c, nil)
}

// ValidateContainerAdjustment checks the container again as it was before any
// plugin touched it, with what all plugins want of it, also those that come
// after this one. Removing a node of CDI has no effect in the runtime, so it
// must not hide the node either.
func (h *hooks) ValidateContainerAdjustment(_ context.Context, req *api.ValidateContainerAdjustmentRequest) (err error) {
	defer h.observe("ValidateContainerAdjustment", time.Now(), &err)
	return h.check(req.GetPod(), req.GetContainer(), req.GetAdjust())
}

// StopPodSandbox has the devices of the sandbox reset.
func (h *hooks) StopPodSandbox(_ context.Context, pod *api.PodSandbox) (err error) {
	defer h.observe("StopPodSandbox", time.Now(), &err)
	h.ended(pod) //nolint:contextcheck // the work outlives the call
	return nil
}

// RemovePodSandbox does as StopPodSandbox does, for one whose stop was lost.
func (h *hooks) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) (err error) {
	defer h.observe("RemovePodSandbox", time.Now(), &err)
	h.ended(pod) //nolint:contextcheck // the work outlives the call
	return nil
}

func (h *hooks) check(pod *api.PodSandbox, c *api.Container, adjust *api.ContainerAdjustment) error {
	if refused := h.cfg.Rules.Container(h.cfg.Assignments, h.cfg.Host, pod, c, adjust); refused != nil {
		return h.refuse(refused)
	}
	return nil
}

// handOver has the sandbox entered into the records of its pod's claims. With
// cold plug the pod-resources server has done so before the VM booted, and only
// the process of the VM is missing; a sandbox that it did not give the devices
// to must not be entered as having them.
func (h *hooks) handOver(own []*assignment.Assignment, pod *api.PodSandbox) {
	if len(own) == 0 {
		return
	}
	to := sandboxOf(h.cfg.Host, pod)
	for _, a := range own {
		has := a.Sandbox != nil && a.Sandbox.ID == to.ID
		switch {
		case !a.Usable(), !a.CleanFor(to.ID), !has && h.cfg.Rules.ColdPlug:
		case has && (to.VMM == journal.Process{} || to.VMM == a.Sandbox.VMM):
		default:
			h.work.add(job{claim: a.Claim.UID, sandbox: to})
		}
	}
}

// ended has the devices reset that the sandbox had. What the pod's other claims
// have is left alone by Renew; they are asked too, since the hand-over may be
// in the queue still.
func (h *hooks) ended(pod *api.PodSandbox) {
	h.live.remove(pod.GetId())
	view, err := h.cfg.Assignments.View()
	if err != nil {
		h.cfg.Log.Error("can't tell which devices to reset after a sandbox; the next hand-over or Unprepare does it",
			slog.String("sandbox", pod.GetId()), slog.Any("err", err))
		return
	}
	for _, a := range view.All() {
		_, consumer := a.Pod(pod.GetUid())
		if had := a.Sandbox != nil && a.Sandbox.ID == pod.GetId() || a.Sandbox == nil && consumer; had && renewable(a) {
			h.work.add(job{claim: a.Claim.UID, sandbox: journal.Sandbox{ID: pod.GetId()}, renew: true})
		}
	}
}

// renewable reports whether a claim's devices are reset between two sandboxes:
// those of one that is not prepared (any more) are on their way back, and clean
// after it.
func renewable(a *assignment.Assignment) bool { return a.State == journal.Prepared && !a.Stale }

// refuse logs and reports a refusal, with the claim that its text leaves out.
func (h *hooks) refuse(r *Refusal) error {
	h.cfg.Log.Warn("refused", r.attributes())
	h.cfg.report(r)
	return r
}

// observe counts a call of the runtime.
func (h *hooks) observe(hook string, start time.Time, err *error) {
	h.cfg.observe(hook, time.Since(start), *err)
}

// observe calls Observe if there is one.
func (c *Config) observe(hook string, took time.Duration, err error) {
	if c.Observe != nil {
		c.Observe(hook, took, err)
	}
}

// report calls Report if there is one.
func (c *Config) report(r *Refusal) {
	if c.Report != nil {
		c.Report(*r)
	}
}

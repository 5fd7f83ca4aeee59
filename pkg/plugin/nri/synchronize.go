package nri

import (
	"context"
	"log/slog"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/assignment"
)

// bootLimit is how long a sandbox that was handed devices may be unknown to the
// runtime before it counts as lost: it gets them while it is being created, and
// the runtime lists it once its VM has booted.
const bootLimit = 10 * time.Minute

// Configure logs whom the plugin serves; NRI's version comes with the stub's log.
func (h *hooks) Configure(_ context.Context, _, runtime, version string) (api.EventMask, error) {
	h.cfg.Log.Info("connected to the runtime", slog.String("runtime", runtime), slog.String("version", version))
	return 0, nil
}

// Synchronize takes up what happened while the plugin was not connected, and
// what the runtime forgets when it starts anew: it never tells the end of a
// sandbox from before. Devices of sandboxes that are gone are reset, what
// started meanwhile is entered into the records, and running containers are
// checked, though it is too late to refuse them.
func (h *hooks) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) (_ []*api.ContainerUpdate, err error) {
	defer h.observe("Synchronize", time.Now(), &err)
	running := h.running(pods)
	ids := make(map[string]struct{}, len(running))
	for id := range running {
		ids[id] = struct{}{}
	}
	h.live.set(ids)
	view, unread := h.cfg.Assignments.View()
	if unread != nil {
		h.cfg.Log.Error("can't compare sandboxes and containers with claims; the next hand-over or Unprepare resets the devices of lost sandboxes", slog.Any("err", unread))
	} else {
		h.takeUp(view, running) //nolint:contextcheck // the work outlives the call
		h.inspect(pods, containers)
	}
	h.synchronized()
	return nil, nil
}

// running returns the sandboxes that run, by id: the runtime lists ended ones
// too, with the process 0, until the kubelet removes them.
func (h *hooks) running(pods []*api.PodSandbox) map[string]*api.PodSandbox {
	running := map[string]*api.PodSandbox{}
	for _, p := range pods {
		if _, err := h.cfg.Host.StartTime(int(p.GetPid())); err == nil {
			running[p.GetId()] = p
		}
	}
	return running
}

// takeUp brings the records up to the sandboxes that run.
func (h *hooks) takeUp(view *assignment.View, running map[string]*api.PodSandbox) {
	for _, pod := range running {
		if h.cfg.Rules.allowed(pod) {
			h.handOver(assignmentsOf(view, pod), pod)
		}
	}
	for _, a := range view.All() {
		if a.Sandbox == nil || running[a.Sandbox.ID] != nil || !renewable(a) {
			continue
		}
		id := a.Sandbox.ID
		h.work.add(job{
			claim: a.Claim.UID, sandbox: journal.Sandbox{ID: id}, renew: true,
			notBefore: since(a.Sandbox).Add(bootLimit), wanted: func() bool { return !h.live.has(id) },
		})
	}
}

// since returns when the sandbox got its devices; the zero time, which is long
// ago, if that can't be told.
func since(s *journal.Sandbox) time.Time {
	t, err := time.Parse(time.RFC3339, s.Since)
	if err != nil {
		return time.Time{}
	}
	return t
}

// inspect reports the running containers that would be refused today.
func (h *hooks) inspect(pods []*api.PodSandbox, containers []*api.Container) {
	byID := make(map[string]*api.PodSandbox, len(pods))
	for _, p := range pods {
		byID[p.GetId()] = p
	}
	for _, c := range containers {
		pod := byID[c.GetPodSandboxId()]
		start := time.Now()
		refused := h.cfg.Rules.Container(h.cfg.Assignments, h.cfg.Host, pod, c, nil)
		if refused == nil {
			continue
		}
		h.cfg.Log.Error("a running container has devices that it would be refused today; delete its pod unless you know why", refused.attributes())
		h.cfg.observe("RunningContainer", time.Since(start), refused)
		h.cfg.report(refused)
	}
}

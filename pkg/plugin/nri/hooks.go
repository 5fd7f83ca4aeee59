package nri

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/podres"
)

// hooks implements the calls of the runtime. The runtime makes one call at a time for the whole node, and disconnects a plugin that does
// not answer within two seconds. So hooks only look things up, and the worker does the work that takes time.
type hooks struct {
	cfg  *Config
	work *worker
	live *sandboxes
	// conn is the connection that the hooks answer.
	conn *connection
}

// RunPodSandbox refuses a sandbox that does not match its pod's claims, and records each sandbox
// that it accepts. The VM already runs; the runtime ends it after a refusal.
func (h *hooks) RunPodSandbox(_ context.Context, pod *api.PodSandbox) (err error) {
	defer h.observe("RunPodSandbox", time.Now(), &err)
	own, refused := h.cfg.Rules.Sandbox(h.cfg.Assignments, pod)
	if refused != nil {
		return h.refuse(&Refusal{Pod: newPod(pod), Verdict: *refused})
	}
	// This ends a delayed reset that Synchronize has queued for the sandbox because the runtime did not list it yet.
	h.live.add(pod.GetId())
	h.handOver(own, pod) //nolint:contextcheck // the work outlives the call
	return nil
}

// CreateContainer refuses a container with devices that it must not have, and adjusts none. The
// plugin knows only the functions' addresses on the host, and Kata's agent (4.1.0) does not
// translate them to the guest's, not even in PCIDEVICE_* variables (see package guestnet).
func (h *hooks) CreateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) (_ *api.ContainerAdjustment, _ []*api.ContainerUpdate, err error) {
	defer h.observe("CreateContainer", time.Now(), &err)
	return nil, nil, h.check(pod, c, nil)
}

// ValidateContainerAdjustment checks the original container with the adjustments of all plugins,
// including those that the runtime calls after this one. The runtime does not remove a device node
// of CDI, so the check ignores removals.
func (h *hooks) ValidateContainerAdjustment(_ context.Context, req *api.ValidateContainerAdjustmentRequest) (err error) {
	defer h.observe("ValidateContainerAdjustment", time.Now(), &err)
	return h.check(req.GetPod(), req.GetContainer(), req.GetAdjust())
}

// StopPodSandbox starts the reset of the sandbox's devices.
func (h *hooks) StopPodSandbox(_ context.Context, pod *api.PodSandbox) (err error) {
	defer h.observe("StopPodSandbox", time.Now(), &err)
	h.ended(pod) //nolint:contextcheck // the work outlives the call
	return nil
}

// RemovePodSandbox does the same as StopPodSandbox, for a sandbox whose StopPodSandbox was lost.
func (h *hooks) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) (err error) {
	defer h.observe("RemovePodSandbox", time.Now(), &err)
	h.ended(pod) //nolint:contextcheck // the work outlives the call
	return nil
}

func (h *hooks) check(pod *api.PodSandbox, c *api.Container, adjust *api.ContainerAdjustment) error {
	if refused := h.cfg.Rules.Container(h.cfg.Assignments, h.cfg.Host, pod, c, adjust); refused != nil {
		return h.refuse(&Refusal{Pod: newPod(pod), Container: c.GetName(), Verdict: *refused})
	}
	return nil
}

// handOver records the sandbox in the records of its pod's claims. With cold plug, the pod-resources server has already done so before the
// VM booted, and only the VM's process is missing in the record. A sandbox to which that server gave no devices must not be recorded.
func (h *hooks) handOver(own []*podres.Assignment, pod *api.PodSandbox) {
	if len(own) == 0 {
		return
	}
	to := newSandbox(h.cfg.Host, pod)
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

// ended starts the reset of the devices that the sandbox had. It includes the pod's other claims,
// whose hand-over may still be queued. Renew does nothing for a claim that another sandbox has.
func (h *hooks) ended(pod *api.PodSandbox) {
	h.live.remove(pod.GetId())
	view, err := h.cfg.Assignments.View()
	if err != nil {
		h.cfg.Log.Error("the devices to reset after a sandbox are unknown; the next hand-over or Unprepare resets them",
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

// renewable reports whether a claim's devices are reset between two sandboxes. Unprepare resets the devices of a claim
// that is no longer prepared.
func renewable(a *podres.Assignment) bool { return a.State == journal.Prepared && !a.Stale }

// refuse logs and reports a refusal, and returns its error.
func (h *hooks) refuse(r *Refusal) error {
	h.cfg.Log.Warn("refused", r.attributes())
	h.cfg.report(r)
	return r.Err()
}

// observe counts a call of the runtime.
func (h *hooks) observe(hook string, start time.Time, err *error) {
	h.cfg.observe(hook, time.Since(start), *err)
}

// observe calls the observer, if there is one.
func (c *Config) observe(hook string, took time.Duration, err error) {
	if c.Observer != nil {
		c.Observer.HookEnded(hook, took, err)
	}
}

// report reports a refusal to the observer, if there is one.
func (c *Config) report(r *Refusal) {
	if c.Observer != nil {
		c.Observer.Refused(*r)
	}
}

// bootLimit is the time after which a sandbox counts as lost that has devices and that the runtime does not list. A sandbox gets its
// devices while it is created, and the runtime lists it only after its VM has booted.
const bootLimit = 10 * time.Minute

// Configure logs the runtime's name and version.
func (h *hooks) Configure(_ context.Context, _, runtime, version string) (api.EventMask, error) {
	h.cfg.Log.Info("connected to the runtime", slog.String("runtime", runtime), slog.String("version", version))
	return 0, nil
}

// Synchronize catches up after the plugin was not connected: it resets the devices of ended sandboxes, records new ones,
// and checks running containers, which it can no longer refuse. A restarted runtime does not report the end of earlier
// sandboxes.
func (h *hooks) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) (_ []*api.ContainerUpdate, err error) {
	defer h.observe("Synchronize", time.Now(), &err)
	running := h.running(pods)
	ids := make(map[string]struct{}, len(running))
	for id := range running {
		ids[id] = struct{}{}
	}
	// The jobs of catchUp look here before they reset a device, so the running sandboxes come first.
	h.live.set(ids)
	view, unread := h.cfg.Assignments.View()
	if unread != nil {
		h.cfg.Log.Error("can't compare sandboxes and containers with claims; the next hand-over or Unprepare resets the devices of lost sandboxes", slog.Any("err", unread))
	} else {
		h.catchUp(view, running) //nolint:contextcheck // the work outlives the call
		// This does not run in the call, for which the runtime gives two seconds for all containers: volumes can hang.
		h.work.background(func(ctx context.Context) { h.inspect(ctx, pods, containers) })
	}
	h.conn.synchronized.Store(true)
	return nil, nil
}

// running returns the sandboxes that run, by ID. The runtime also lists ended sandboxes, with process
// 0, until the kubelet removes them.
func (h *hooks) running(pods []*api.PodSandbox) map[string]*api.PodSandbox {
	running := map[string]*api.PodSandbox{}
	for _, p := range pods {
		if _, err := h.cfg.Host.StartTime(int(p.GetPid())); err == nil {
			running[p.GetId()] = p
		}
	}
	return running
}

// catchUp updates the records for the sandboxes that run.
func (h *hooks) catchUp(view *podres.View, running map[string]*api.PodSandbox) {
	for _, pod := range running {
		if h.cfg.Rules.allowed(pod) {
			h.handOver(listAssignments(view, pod), pod)
		}
	}
	for _, a := range view.All() {
		if a.Sandbox == nil || running[a.Sandbox.ID] != nil || !renewable(a) {
			continue
		}
		// With cold plug a sandbox is recorded before its VM boots, and the runtime lists it after that. So the reset
		// waits, and looks again before it starts.
		id := a.Sandbox.ID
		h.work.add(job{
			claim: a.Claim.UID, sandbox: journal.Sandbox{ID: id}, renew: true,
			notBefore: lostAt(a.Sandbox), wanted: func() bool { return !h.live.has(id) },
		})
	}
}

// lostAt returns when a sandbox that the runtime does not list counts as lost, in clock ticks since boot.
func lostAt(s *journal.Sandbox) uint64 { return s.Begin() + journal.TicksIn(bootLimit) }

// inspect reports the running containers that the rules would refuse now, until ctx ends. It leaves out a container that they would refuse
// because the source of a mount does not exist: the source was deleted since, or the container has ended.
func (h *hooks) inspect(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) {
	byID := make(map[string]*api.PodSandbox, len(pods))
	for _, p := range pods {
		byID[p.GetId()] = p
	}
	for _, c := range containers {
		if ctx.Err() != nil {
			return
		}
		pod := byID[c.GetPodSandboxId()]
		start := time.Now()
		verdict := h.cfg.Rules.Container(h.cfg.Assignments, h.cfg.Host, pod, c, nil)
		if verdict == nil || sourceGone(verdict) {
			continue
		}
		refused := &Refusal{Pod: newPod(pod), Container: c.GetName(), Verdict: *verdict}
		h.cfg.Log.Error("a running container has devices that the plugin would refuse now; delete its pod unless this is intended", refused.attributes())
		h.cfg.observe("RunningContainer", time.Since(start), refused.Err())
		h.cfg.report(refused)
	}
}

// sandboxes are the IDs of running sandboxes, as the runtime reported them.
type sandboxes struct {
	mu  sync.Mutex // guards ids
	ids map[string]struct{}
}

func (s *sandboxes) set(ids map[string]struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = ids
}

func (s *sandboxes) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = map[string]struct{}{}
	}
	s.ids[id] = struct{}{}
}

func (s *sandboxes) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ids, id)
}

func (s *sandboxes) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.ids[id]
	return ok
}

// newSandbox returns the pod's sandbox for the journal. The runtime names the VMM's process. Without
// its start time the process is left out, because its PID can be reused.
func newSandbox(host Host, pod *api.PodSandbox) journal.Sandbox {
	s := journal.Sandbox{ID: pod.GetId(), PodUID: pod.GetUid()}
	if pid := int(pod.GetPid()); pid != 0 {
		if start, err := host.StartTime(pid); err == nil {
			s.VMM = journal.Process{PID: pid, StartTime: start}
		}
	}
	return s
}

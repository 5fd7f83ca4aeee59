// Package podres serves the PodResources API on a socket of its own, for the
// Kata shim: at sandbox creation the shim asks there which devices to
// cold-plug, and reads device-plugin entries only, not those of DRA
// (kata-containers issue 13322). The server adds the pod's prepared claims to
// the kubelet's answer in the form that the shim reads.
//
// A [Server.Get] is the last moment before a VM has its devices. It answers
// with all of a pod's devices or with an error, never with some of them: an
// empty list would boot a VM without its device, and another pod's list would
// give a device away.
package podres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/assignment"
)

const (
	defaultKubeletLimit = 5 * time.Second  // a kubelet that starts, or is at its rate limit
	defaultStopLimit    = 10 * time.Second // what Kata's Rust shim waits for an answer
	// passLimit bounds the calls that only pass through: List walks all pods of
	// the node.
	passLimit = 5 * time.Second
)

// Assignments tell which claim belongs to which pod; [assignment.Table] is the
// real one.
type Assignments interface {
	View() (*assignment.View, error)
}

// Claims hand a claim's devices over to a sandbox. After an error the sandbox
// must not get them. It may be repeated for the same sandbox.
type Claims interface {
	HandOver(ctx context.Context, claimUID string, to journal.Sandbox) error
}

// Peers tell which sandbox a shim is starting; [Bundles] is the real one.
type Peers interface {
	Sandbox(pid int) (PeerSandbox, error)
}

// Resolver tells which CDI names the node's specs resolve; [HostSpecs] is the
// real one.
type Resolver interface {
	Resolve(names []string) map[string]bool
}

// Config is what a server works with. All but the limits, Owner and Observe
// are required.
type Config struct {
	Assignments Assignments
	Claims      Claims
	// Kubelet is the kubelet's own server; [DialKubelet] returns a client.
	Kubelet  podresourcesv1.PodResourcesListerClient
	Peers    Peers
	Resolver Resolver
	Log      *slog.Logger
	// Owner is a user that may ask besides root.
	Owner uint32
	// KubeletLimit is how long a Get waits for the kubelet; 5 s when zero.
	KubeletLimit time.Duration
	// StopLimit is how long calls in progress may go on once the server is told
	// to stop; 10 s when zero.
	StopLimit time.Duration
	// Reserve, if set, prepares a claim again for the pod that it is reserved for
	// now, or says why not. The kubelet does not ask for that when a pod that was
	// deleted by force is followed by another on the same claim.
	Reserve func(ctx context.Context, c plan.Ref) error
	// Confirm, if set, asks the cluster whether a claim's allocation is still of what is
	// prepared, and returns an error where it is not. It must answer within seconds.
	Confirm func(ctx context.Context, claimUID string) error
	// Observe, if set, is called at the end of each Get, from several goroutines.
	Observe func(took time.Duration, err error)
}

// Server answers the PodResources API. Its methods may be called from several
// goroutines; it keeps nothing between calls.
type Server struct {
	podresourcesv1.UnimplementedPodResourcesListerServer

	cfg Config
}

// New returns a server; [Server.Serve] serves it.
func New(cfg Config) *Server {
	if cfg.KubeletLimit == 0 {
		cfg.KubeletLimit = defaultKubeletLimit
	}
	if cfg.StopLimit == 0 {
		cfg.StopLimit = defaultStopLimit
	}
	return &Server{cfg: cfg}
}

// List is the kubelet's answer, unchanged.
func (s *Server) List(
	ctx context.Context, req *podresourcesv1.ListPodResourcesRequest,
) (*podresourcesv1.ListPodResourcesResponse, error) {
	if _, err := s.caller(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, passLimit)
	defer cancel()
	return s.cfg.Kubelet.List(ctx, req)
}

// GetAllocatableResources is the kubelet's answer, unchanged.
func (s *Server) GetAllocatableResources(
	ctx context.Context, req *podresourcesv1.AllocatableResourcesRequest,
) (*podresourcesv1.AllocatableResourcesResponse, error) {
	if _, err := s.caller(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, passLimit)
	defer cancel()
	return s.cfg.Kubelet.GetAllocatableResources(ctx, req)
}

// Get returns what to plug into the VM of a pod: its prepared devices, each
// once, then what the kubelet lists and the node's CDI specs resolve. Physical
// endpoints are not among them: they are put into the pod's network namespace,
// at which Kata looks next. The
// devices are handed over to the asking sandbox first, which resets those that
// another sandbox of the pod has had. It blocks as long as that takes, or until
// the caller gives up.
//
// It may be repeated. Any error means that the VM must not start: the codes are
// PermissionDenied for a caller who may not ask or asks for another's pod,
// Unavailable for what may pass by itself, FailedPrecondition otherwise. A
// crash in the middle leaves devices that count as had by the sandbox, and are
// reset before the next.
func (s *Server) Get(
	ctx context.Context, req *podresourcesv1.GetPodResourcesRequest,
) (*podresourcesv1.GetPodResourcesResponse, error) {
	began := time.Now()
	pod := podName{req.GetPodNamespace(), req.GetPodName()}
	log := s.cfg.Log.With(slog.String("pod", pod.String()))
	answer, err := s.get(ctx, pod, log)
	if s.cfg.Observe != nil {
		s.cfg.Observe(time.Since(began), err)
	}
	if err != nil {
		log.ErrorContext(ctx, "devices refused", slog.Any("err", err))
		return nil, err
	}
	return &podresourcesv1.GetPodResourcesResponse{PodResources: answer}, nil
}

func (s *Server) get(ctx context.Context, pod podName, log *slog.Logger) (*podresourcesv1.PodResources, error) {
	shim, err := s.shim(ctx)
	if err != nil {
		return nil, err
	}
	// First the kubelet, then the journal: a claim that the kubelet names is
	// in the journal already.
	kubelet, silent := s.askKubelet(ctx, pod)
	own, err := s.decide(ctx, &question{pod: pod, shim: shim, kubelet: kubelet, silent: silent})
	if err != nil {
		return nil, err
	}
	if len(own) > 0 && shim.ID == "" {
		// The NRI plugin would not know it again, and could not tell it from the next.
		return nil, refused(codes.FailedPrecondition, "pod %s: which sandbox would get its devices is not known: %v; "+
			"the plugin must see the shims' processes and bundles (hostPID, root, a containerd or CRI-O whose shims run in their bundle)", pod, shim.Unknown)
	}
	if i := slices.IndexFunc(own, (*assignment.Assignment).HasEndpoint); i >= 0 && shim.NetNS == "" {
		return nil, refused(codes.FailedPrecondition, "pod %s: a VF of claim %s is to be a physical endpoint, and the sandbox has no network "+
			"namespace of its own: leave hostNetwork out of the pod, or `attachment: PhysicalEndpoint` out of the VFConfig", pod, own[i].Claim)
	}
	if err := s.confirm(ctx, own); err != nil {
		return nil, refused(codes.FailedPrecondition, "pod %s: %v", pod, err)
	}
	if err := s.handOver(ctx, own, shim.forJournal()); err != nil {
		return nil, refused(codes.FailedPrecondition, "pod %s: hand its devices to sandbox %s: %v", pod, shim.ID, err)
	}
	if len(own) > 0 {
		log.InfoContext(ctx, "devices given", slog.String("sandbox", shim.ID), slog.Any("claims", claimNames(own)))
	}
	return s.merge(pod, own, kubelet), nil
}

// decide answers the question by the journal as it is now, and once more after
// the claim in its way was prepared again for the pod.
func (s *Server) decide(ctx context.Context, q *question) ([]*assignment.Assignment, error) {
	own, err := s.decideNow(q)
	if err == nil || q.others == nil || s.cfg.Reserve == nil {
		return own, err
	}
	if why := s.cfg.Reserve(ctx, q.others.Claim); why != nil {
		return nil, refused(codes.FailedPrecondition, "%s (it can't go over to this pod: %v)", status.Convert(err).Message(), why)
	}
	return s.decideNow(q)
}

func (s *Server) decideNow(q *question) ([]*assignment.Assignment, error) {
	var err error
	if q.view, err = s.cfg.Assignments.View(); err != nil {
		return nil, refused(codes.Unavailable, "pod %s: %v", q.pod, err)
	}
	return q.decide()
}

// shim returns what the calling process is starting.
func (s *Server) shim(ctx context.Context) (PeerSandbox, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return PeerSandbox{}, err
	}
	shim, err := s.cfg.Peers.Sandbox(caller.PID)
	if err != nil {
		return PeerSandbox{}, refused(codes.PermissionDenied, "find out which sandbox the process asks for: %v", err)
	}
	return shim, nil
}

// confirm returns what keeps claims from their devices by the cluster's word.
func (s *Server) confirm(ctx context.Context, own []*assignment.Assignment) error {
	if s.cfg.Confirm == nil {
		return nil
	}
	return sideBySide(own, func(a *assignment.Assignment) error { return s.cfg.Confirm(ctx, a.Claim.UID) })
}

// handOver hands over all claims side by side and returns all that went wrong.
// One claim's failure does not cut off another's reset: the sandbox gets none
// of them, and the next one finds clean what is clean.
func (s *Server) handOver(ctx context.Context, own []*assignment.Assignment, to journal.Sandbox) error {
	return sideBySide(own, func(a *assignment.Assignment) error { return s.cfg.Claims.HandOver(ctx, a.Claim.UID, to) })
}

// sideBySide does something for all claims at once, and returns all that went wrong.
func sideBySide(own []*assignment.Assignment, do func(*assignment.Assignment) error) error {
	errs := make([]error, len(own))
	var wg sync.WaitGroup
	for i, a := range own {
		wg.Go(func() { errs[i] = do(a) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func claimNames(own []*assignment.Assignment) []string {
	names := make([]string, len(own))
	for i, a := range own {
		names[i] = a.Claim.String()
	}
	return names
}

// refused returns a gRPC error of one line; joined errors come on several.
func refused(code codes.Code, format string, args ...any) error {
	return status.Error(code, strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; "))
}

// HostSpecs resolve CDI names by the specs of the node, as Kata will.
type HostSpecs struct{ cache *cdi.Cache }

// NewHostSpecs returns the specs in the directories, of which later ones win
// and missing ones are empty. Kata reads /etc/cdi and /var/run/cdi.
func NewHostSpecs(dirs ...string) (*HostSpecs, error) {
	// Without auto-refresh, which looks again some time after a change only.
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, fmt.Errorf("read CDI specs: %w", err)
	}
	return &HostSpecs{cache: cache}, nil
}

// Resolve returns those of the names that are devices now. All specs are read
// once for it; a spec that can't be read has no devices, for Kata neither.
func (h *HostSpecs) Resolve(names []string) map[string]bool {
	_ = h.cache.Refresh() // what is wrong with a spec is its writer's to hear
	known := map[string]bool{}
	for _, name := range names {
		if h.cache.GetDevice(name) != nil {
			known[name] = true
		}
	}
	return known
}

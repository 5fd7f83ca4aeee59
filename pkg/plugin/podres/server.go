// Package podres answers which of the node's devices belong to which pod, from the journal's records and their CDI specs:
// the NRI plugin decides by it, too ([Table]). It serves the PodResources API on its own socket, for the Kata shim. At sandbox creation
// the shim asks which devices to cold-plug, and reads only device-plugin entries, not those of DRA
// (kata-containers issue 13322). The server adds the pod's prepared claims to the kubelet's answer, in
// the form that the shim reads.
//
// [Server.Get] is the last step before a VM has its devices. It answers with all of a pod's devices or
// with an error, never with some of them: with an empty list a VM boots without its device, and with
// another pod's list it gets another tenant's device.
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

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

const (
	defaultKubeletLimit = 5 * time.Second  // a kubelet that starts, or is at its rate limit
	defaultStopLimit    = 10 * time.Second // what Kata's Rust shim waits for an answer
	// passLimit bounds the calls that are passed through. List walks all pods of the node.
	passLimit = 5 * time.Second
)

// Assignments returns which claim belongs to which pod; [Table] implements it.
type Assignments interface {
	View() (*View, error)
}

// Claims hands a claim's devices over to a sandbox. After an error the sandbox must not get them. A call
// can be repeated for the same sandbox.
type Claims interface {
	HandOver(ctx context.Context, claimUID string, to journal.Sandbox) error
}

// Renewer resets a claim's devices in the background after a sandbox that had them; [nri.Plugin] implements it. A call only queues the
// reset. Calls may be repeated and concurrent. After a crash before the reset, the claim's record still names the sandbox, so the next
// hand-over resets the devices.
type Renewer interface {
	RenewLater(claimUID, sandboxID string)
}

// Cluster asks the API server about prepared claims.
type Cluster interface {
	// Reserve prepares a claim again for the pod that has it reserved now, or returns why not. The kubelet does not do so
	// when a pod replaces one that was deleted by force, with the same claim.
	Reserve(ctx context.Context, c plan.Ref) error
	// Confirm returns an error if the prepared devices are no longer allocated to the claim. It must answer within
	// seconds.
	Confirm(ctx context.Context, claimUID string) error
}

// Requests counts requests by name; [metrics.Metrics] implements it. It must be safe for concurrent use.
type Requests interface {
	ObserveRequest(name string, took time.Duration, err error)
}

// Peers returns which sandbox a shim is starting; [Bundles] implements it.
type Peers interface {
	Sandbox(pid int) (PeerSandbox, error)
}

// Resolver returns which CDI names the node's specs resolve; [HostSpecs] implements it.
type Resolver interface {
	Resolve(names []string) map[string]bool
}

// Config holds what a server works with. All fields are required, except those that say otherwise.
type Config struct {
	Assignments Assignments
	Claims      Claims
	// Kubelet is the kubelet's server; [DialKubelet] returns a client.
	Kubelet  podresourcesv1.PodResourcesListerClient
	Peers    Peers
	Resolver Resolver
	Log      *slog.Logger
	// Owner is the user that may ask besides root.
	Owner uint32
	// KubeletLimit bounds how long a Get waits for the kubelet; 0 means 5 s.
	KubeletLimit time.Duration
	// StopLimit bounds the calls in progress when the server stops; 0 means 10 s.
	StopLimit time.Duration
	// Cluster, which may be nil, is asked about claims whose devices a VM gets.
	Cluster Cluster
	// Renewer, which may be nil, continues a reset after its caller has given up.
	Renewer Renewer
	// Requests, which may be nil, counts each Get.
	Requests Requests
	// Intercept, which may be nil, wraps each call.
	Intercept grpc.UnaryServerInterceptor
}

// Server answers the PodResources API. It is safe for concurrent use and keeps nothing between calls.
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

// List returns the kubelet's answer, unchanged.
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

// GetAllocatableResources returns the kubelet's answer, unchanged.
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

// Get returns what to plug into a pod's VM: first its prepared devices, each once, then the entries of the kubelet's answer that the node's
// CDI specs resolve. Physical endpoints are not included, because Kata finds them in the pod's network namespace. Get first hands the
// devices over to the sandbox, which resets devices that another sandbox of the pod had. It blocks until that is done or the caller
// cancels. After a cancellation the reset continues, and the pod's next sandbox finds the devices clean.
//
// Get can be repeated. After any error the VM must not start. The code is PermissionDenied for a caller that may not ask, or that asks for
// another pod; Unavailable if another try can succeed; FailedPrecondition otherwise. After a crash the devices count as the sandbox's, and
// are reset before the next sandbox.
func (s *Server) Get(
	ctx context.Context, req *podresourcesv1.GetPodResourcesRequest,
) (*podresourcesv1.GetPodResourcesResponse, error) {
	began := time.Now()
	pod := podName{req.GetPodNamespace(), req.GetPodName()}
	log := s.cfg.Log.With(slog.String("pod", pod.String()))
	answer, err := s.get(ctx, pod, log)
	if s.cfg.Requests != nil {
		s.cfg.Requests.ObserveRequest("pod-resources/Get", time.Since(began), err)
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	early := s.askEarly(ctx, shim.PodUID)
	// The kubelet comes before the journal: a claim that the kubelet names is already in the journal.
	kubelet, silent := s.askKubelet(ctx, pod)
	own, err := s.decide(ctx, &question{pod: pod, shim: shim, kubelet: kubelet, silent: silent})
	if err != nil {
		return nil, err
	}
	if len(own) > 0 && shim.ID == "" {
		// The NRI plugin could not recognize the sandbox, or distinguish it from the next one.
		return nil, refused(codes.FailedPrecondition, "pod %s: the sandbox that would get its devices is unknown: %v; "+
			"the plugin must see the shims' processes and bundles (hostPID, root, a containerd or CRI-O whose shims run in their bundle)", pod, shim.Unknown)
	}
	if i := slices.IndexFunc(own, (*Assignment).HasEndpoint); i >= 0 && shim.NetNS == "" {
		return nil, refused(codes.FailedPrecondition, "pod %s: claim %s attaches a VF as a physical endpoint, and the sandbox has no network "+
			"namespace of its own: remove hostNetwork from the pod, or `attachment: PhysicalEndpoint` from the VFConfig", pod, own[i].Claim)
	}
	if err := s.confirm(ctx, own, early); err != nil {
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

// decide answers the question from the journal. If another pod's claim is in the way, it prepares that
// claim again for this pod, and answers once more.
func (s *Server) decide(ctx context.Context, q *question) ([]*Assignment, error) {
	own, err := s.decideNow(q)
	if err == nil || q.others == nil || s.cfg.Cluster == nil {
		return own, err
	}
	if why := s.cfg.Cluster.Reserve(ctx, q.others.Claim); why != nil {
		return nil, refused(codes.FailedPrecondition, "%s (it can't be prepared again for this pod: %v)", status.Convert(err).Message(), why)
	}
	return s.decideNow(q)
}

func (s *Server) decideNow(q *question) ([]*Assignment, error) {
	var err error
	if q.view, err = s.cfg.Assignments.View(); err != nil {
		return nil, refused(codes.Unavailable, "pod %s: %v", q.pod, err)
	}
	return q.decide()
}

// shim returns the sandbox that the calling process is starting.
func (s *Server) shim(ctx context.Context) (PeerSandbox, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return PeerSandbox{}, err
	}
	shim, err := s.cfg.Peers.Sandbox(caller.PID)
	if err != nil {
		return PeerSandbox{}, refused(codes.PermissionDenied, "find the sandbox of the calling process: %v", err)
	}
	return shim, nil
}

// handOver hands over all claims in parallel and returns all errors. The failure of one claim does not
// interrupt the reset of another.
func (s *Server) handOver(ctx context.Context, own []*Assignment, to journal.Sandbox) error {
	return inParallel(own, func(a *Assignment) error {
		err := s.cfg.Claims.HandOver(ctx, a.Claim.UID, to)
		if err != nil && ctx.Err() != nil {
			// The shim gave up. The reset goes on without it, so that the pod's next sandbox finds the devices clean.
			s.renewLater(a, to.ID)
		}
		return err
	})
}

// renewLater queues the reset of devices that a former sandbox of the pod had, after the shim of the new sandbox has given up. Kata's Rust
// runtime waits ten seconds, and on a busy node a reset with its proof takes longer. If each further sandbox of the pod had to begin the
// reset again, none would get the devices.
func (s *Server) renewLater(a *Assignment, sandboxID string) {
	if s.cfg.Renewer != nil && a.Sandbox != nil && a.Sandbox.ID != sandboxID {
		s.cfg.Renewer.RenewLater(a.Claim.UID, a.Sandbox.ID)
	}
}

// inParallel calls do for all claims in parallel and returns all errors.
func inParallel(own []*Assignment, do func(*Assignment) error) error {
	errs := make([]error, len(own))
	var wg sync.WaitGroup
	for i, a := range own {
		wg.Go(func() { errs[i] = do(a) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func claimNames(own []*Assignment) []string {
	names := make([]string, len(own))
	for i, a := range own {
		names[i] = a.Claim.String()
	}
	return names
}

// refused returns a gRPC error on one line, also for joined errors.
func refused(code codes.Code, format string, args ...any) error {
	return status.Error(code, strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; "))
}

// HostSpecs resolves CDI names by the node's specs, as Kata does.
type HostSpecs struct{ cache *cdi.Cache }

// NewHostSpecs returns the specs in the directories. Later directories take precedence, and missing
// ones are empty. Kata reads /etc/cdi and /var/run/cdi.
func NewHostSpecs(dirs ...string) (*HostSpecs, error) {
	// Auto-refresh notices a change only after some time.
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, fmt.Errorf("read CDI specs: %w", err)
	}
	return &HostSpecs{cache: cache}, nil
}

// Resolve returns the names that are devices now. It reads all specs once. A spec that can't be read
// has no devices, as for Kata.
func (h *HostSpecs) Resolve(names []string) map[string]bool {
	_ = h.cache.Refresh() // an invalid spec has no devices
	known := map[string]bool{}
	for _, name := range names {
		if h.cache.GetDevice(name) != nil {
			known[name] = true
		}
	}
	return known
}

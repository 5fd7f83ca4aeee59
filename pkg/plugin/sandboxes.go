package plugin

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/nri"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/podres"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

// sandboxes is the part of the service that serves the runtimes: Kata asks it for devices at sandbox creation, and the
// container runtime calls it through NRI.
type sandboxes struct {
	table    *podres.Table
	podres   *podres.Server
	listener net.Listener
	// pods asks the kubelet, and kubelet closes the connection.
	pods    podresourcesv1.PodResourcesListerClient
	kubelet io.Closer
	nri     *nri.Plugin
}

// openSandboxes takes over the pod-resources socket. Call it before the registration with the kubelet, so that the socket is served when
// the first claim is prepared.
func (s *service) openSandboxes(ctx context.Context, client kubernetes.Interface) error {
	table, err := s.assignments(ctx)
	if err != nil {
		return err
	}
	s.sandboxes.table = table
	kubelet, closer, err := podres.DialKubelet(s.config.KubeletPodResources)
	if err != nil {
		return err
	}
	s.sandboxes.pods, s.sandboxes.kubelet = kubelet, closer
	// These are the directories that Kata reads on the node.
	specs, err := podres.NewHostSpecs(filepath.Join(s.config.Node.Root, "etc/cdi"), s.cdiDir())
	if err != nil {
		return err
	}
	allocations := &dra.Allocations{Client: client, Node: s.config.Node.Name, Journal: s.node.Parts.Journal}
	claims := &HandOvers{Claims: s.node.Preparer, Reporter: s.reporter, Changes: s.changes}
	s.sandboxes.nri = nri.New(nri.Config{
		Assignments: table, Claims: claims, Socket: s.config.NRI, Log: s.log,
		Host: nri.Kernel{FS: s.node.Parts.FS, Files: nri.NewFinder(s.config.Node.Root)},
		Rules: nri.Rules{
			AllowedHandlers: s.node.Node.AllowedHandlers, ExemptNamespaces: s.config.ExemptNamespaces, ColdPlug: !s.config.Node.HotPlug,
		},
		Observer: runtimeCalls{s},
	})
	s.sandboxes.podres = podres.New(podres.Config{
		Assignments: table, Claims: claims, Kubelet: kubelet, Peers: podres.Bundles{}, Resolver: specs, Log: s.log,
		Cluster: &sandboxClaims{service: s, allocations: allocations}, Renewer: s.sandboxes.nri, Requests: s.metrics, Intercept: s.tracer.Unary,
	})
	s.metrics.WatchNRI(s.sandboxes.nri.Connected)
	// Listen last: all parts of an answer must exist when the first shim asks.
	s.sandboxes.listener, err = podres.Listen(ctx, s.config.PodResources)
	return err
}

// sandboxClaims are the claims at the API server whose devices sandboxes get. It implements [podres.Cluster].
type sandboxClaims struct {
	service     *service
	allocations *dra.Allocations
}

// Reserve implements [podres.Cluster].
func (c *sandboxClaims) Reserve(ctx context.Context, ref plan.Ref) error {
	return c.service.plugin.Reserve(ctx, ref)
}

// Confirm is [dra.Allocations.Confirm]. It also notes a loss, so that no new claim gets the devices.
func (c *sandboxClaims) Confirm(ctx context.Context, uid string) error {
	err := c.allocations.Confirm(ctx, uid)
	if lost, ok := errors.AsType[*dra.WithdrawnError](err); ok {
		c.service.losses().Note(uid, lost.Why)
	}
	return err
}

// runtimeCalls counts and reports what the runtime asks through NRI. It implements [nri.Observer].
type runtimeCalls struct{ service *service }

// HookEnded counts a call of the runtime. The work that NRI starts has its own spans.
func (c runtimeCalls) HookEnded(hook string, took time.Duration, err error) {
	c.service.metrics.ObserveRequest("nri/"+hook, took, err)
	if hook != "HandOver" && hook != "Renew" {
		c.service.tracer.Hook(hook, took, err)
	}
}

// Refused reports a refusal in an Event of the pod.
func (c runtimeCalls) Refused(r nri.Refusal) {
	c.service.reporter.PodRefused(r.Pod.Namespace, claim.Pod{UID: r.Pod.UID, Name: r.Pod.Name}, r.Verdict.Code, r.Err().Error())
}

// assignments returns the table of the devices' claims in this boot of the node.
func (s *service) assignments(ctx context.Context) (*podres.Table, error) {
	snap, err := s.watcher.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	specs, err := cdi.Open(s.cdiDir())
	if err != nil {
		return nil, err
	}
	return podres.NewTable(podres.TableConfig{
		Journal: s.node.Parts.Journal, Specs: specs, BootID: snap.Host.BootID, Node: s.config.Node.Name,
		JournalDir: s.config.Node.JournalDir(), SpecsDir: s.cdiDir(),
	}), nil
}

func (s *service) cdiDir() string { return filepath.Join(s.config.Node.Root, s.config.Node.CDIDir) }

// runSandboxes serves both until ctx ends.
func (s *service) runSandboxes(ctx context.Context, g *errgroup.Group) {
	g.Go(func() error { return s.sandboxes.podres.Keep(ctx, s.sandboxes.listener, s.config.PodResources) })
	g.Go(func() error {
		s.sandboxes.nri.Run(ctx)
		return nil
	})
}

// close closes the sockets. The file of the pod-resources socket stays: see [podres.Listen].
func (b *sandboxes) close() error {
	var errs []error
	if b.listener != nil {
		// The server may have closed it already.
		if err := b.listener.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if b.kubelet != nil {
		errs = append(errs, b.kubelet.Close())
	}
	return errors.Join(errs...)
}

// HandedClaims hands claims over between sandboxes; [prepare.Preparer] implements it.
type HandedClaims interface {
	HandOver(ctx context.Context, uid string, to journal.Sandbox) error
	Renew(ctx context.Context, uid, sandboxID string) ([]isolation.Proof, error)
}

// HandOvers hands claims over between the sandboxes of a pod, and reports devices that were quarantined in between. The kubelet does not
// report them, because it takes no part in a hand-over.
type HandOvers struct {
	Claims   HandedClaims
	Reporter *dra.Reporter
	// Changes is woken when devices must be published again.
	Changes dra.Waker
}

// HandOver implements [HandedClaims].
func (s *HandOvers) HandOver(ctx context.Context, uid string, to journal.Sandbox) error {
	err := s.Claims.HandOver(ctx, uid, to)
	s.observe(err)
	return err
}

// Renew implements [HandedClaims].
func (s *HandOvers) Renew(ctx context.Context, uid, sandboxID string) ([]isolation.Proof, error) {
	proofs, err := s.Claims.Renew(ctx, uid, sandboxID)
	s.observe(err)
	return proofs, err
}

// observe reports a new quarantine. An earlier one was already reported.
func (s *HandOvers) observe(err error) {
	q, ok := errors.AsType[*prepare.QuarantinedError](err)
	if !ok || q.Err == nil {
		return
	}
	s.Reporter.Lost(q)
	s.Changes.Wake()
}

package dra

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

const (
	// staleTime is how long a scheduler may act on slices in which a device had no taint yet. The scheduler chooses a device, and writes
	// the allocation after a Permit plugin, which may wait for 15 minutes (the scheduler's limit for them), and after volumes are bound,
	// which may take 10 (bindTimeoutSeconds by default). One more minute is for the scheduler's watch. A scheduler with other limits, or
	// for a claim that tolerates the taint, may still allocate a device that has left its slice: Prepare refuses that device.
	staleTime = 26 * time.Minute
	// staleSpread is the most that is added at random. Each list of claims costs the API server time in proportion to the number of claims,
	// and all nodes of a cluster get a new config together.
	staleSpread = 4 * time.Minute
	// listAgain is the pause after a failed list.
	listAgain = 5 * time.Minute
)

const (
	// listLimit bounds the request for the node's slices.
	listLimit = 10 * time.Second
	// claimsLimit bounds the requests for all claims together, and claimsPage is how many claims one request returns.
	claimsLimit = time.Minute
	claimsPage  = 500
)

// withdrawals are the [publish.Withdrawals] of a publisher, with its clock. They are safe for concurrent use.
type withdrawals struct {
	begin time.Time

	mu  sync.Mutex // guards all
	all publish.Withdrawals
}

func newWithdrawals() *withdrawals { return &withdrawals{begin: time.Now()} }

// in returns the moment that lies a pause after now.
func (w *withdrawals) in(pause time.Duration) int64 {
	return int64((time.Since(w.begin) + pause) / time.Second)
}

// locked calls f with the lock held.
func (w *withdrawals) locked(f func(*publish.Withdrawals)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.all)
}

// seed reads the devices that an earlier instance published. It does so until it has succeeded once.
func (p *Publisher) seed(ctx context.Context) error {
	if p.seeded || p.config.Cluster == nil {
		return nil
	}
	before, err := p.config.Cluster.Published(ctx)
	if err != nil {
		return err
	}
	if publish.HaveFormerNames(before) {
		may, err := p.config.Cluster.MayListClaims(ctx)
		if err != nil {
			return err
		}
		p.formerNames = !may
	}
	p.withdrawals.locked(func(w *publish.Withdrawals) { w.Seed(before) })
	p.seeded = true
	return nil
}

// Settle finds out which devices that are no longer offered no claim has. It returns these devices, which the next Publish leaves out.
// Without devices that are no longer offered it makes no request. It reads the node's slices until they have the taint, and lists the
// claims of the cluster once after [staleTime]. After an error, for example without the right to list claims, the devices stay. Call it
// repeatedly, from one goroutine. It may run concurrently with Publish.
func (p *Publisher) Settle(ctx context.Context) ([]publish.Allocated, error) {
	var open, due publish.Question
	p.withdrawals.locked(func(w *publish.Withdrawals) { open = w.Open(p.withdrawals.in(0)) })
	if len(open) == 0 || p.config.Cluster == nil || p.config.Health.Withdrawn() != nil {
		return nil, nil
	}
	// The lock is not held during requests. A Publish in between may end a withdrawal; the withdrawal's number in the question then no
	// longer matches.
	listed, err := p.config.Cluster.Published(ctx)
	if err != nil {
		return nil, unsettled(open, err)
	}
	p.withdrawals.locked(func(w *publish.Withdrawals) {
		w.Seen(open, listed, p.withdrawals.in(staleTime+rand.N(staleSpread)))
		due = w.Due(p.withdrawals.in(0))
	})
	if len(due) == 0 {
		return nil, nil
	}
	claimed, err := p.config.Cluster.Claimed(ctx)
	if err != nil {
		p.withdrawals.locked(func(w *publish.Withdrawals) { w.Postpone(due, p.withdrawals.in(listAgain)) })
		return nil, unsettled(due, err)
	}
	var released []publish.Allocated
	p.withdrawals.locked(func(w *publish.Withdrawals) {
		released = w.Answer(due, claimed, p.withdrawals.in(staleTime+rand.N(staleSpread)))
	})
	return released, nil
}

// unsettled names the devices that stay because of an error.
func unsettled(q publish.Question, err error) error {
	var names []string
	for a := range q {
		names = append(names, a.Name)
	}
	slices.Sort(names)
	fix := ""
	if apierrors.IsForbidden(err) {
		fix = " (the chart's plugin.listClaims permits it)"
	}
	return fmt.Errorf("%s: can't find out whether a claim has it, so it stays in its ResourceSlice: %w%s", strings.Join(names, ", "), err, fix)
}

// ClusterDevices asks the API server for a node's devices.
type ClusterDevices struct {
	Client kubernetes.Interface
	// Node is the node's name.
	Node string
}

// Published implements [Cluster].
func (d ClusterDevices) Published(ctx context.Context) (map[publish.Allocated]publish.Listed, error) {
	ours := fields.Set{
		resourceapi.ResourceSliceSelectorDriver: v1alpha1.DriverName, resourceapi.ResourceSliceSelectorNodeName: d.Node,
	}
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	list, err := d.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: ours.String()})
	if err != nil {
		return nil, fmt.Errorf("read the node's ResourceSlices: %w", err)
	}
	all := map[publish.Allocated]publish.Listed{}
	for i := range list.Items {
		publish.AddListed(all, list.Items[i].Spec.Pool.Name, list.Items[i].Spec.Devices, list.Items[i].ResourceVersion)
	}
	return all, nil
}

// Claimed implements [Cluster]: it lists the claims of the cluster. All pages show one moment after the call. The plugin caches no claims
// and watches none: each watch would send all tenants' claims to every node.
func (d ClusterDevices) Claimed(ctx context.Context) (map[publish.Allocated]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, claimsLimit)
	defer cancel()
	all := map[publish.Allocated]bool{}
	// Without a resourceVersion the first page is not from an old cache. The other pages have the version of the first.
	for page := (metav1.ListOptions{Limit: claimsPage}); ; {
		list, err := d.Client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, page)
		if err != nil {
			return nil, fmt.Errorf("list claims: %w", err)
		}
		for i := range list.Items {
			addDevices(all, &list.Items[i], d.Node)
		}
		if page.Continue = list.Continue; page.Continue == "" {
			return all, nil
		}
	}
}

// MayListClaims implements [Cluster]. It tries to list one claim.
func (d ClusterDevices) MayListClaims(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	switch _, err := d.Client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1}); {
	case apierrors.IsForbidden(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("find out whether the plugin may list claims: %w", err)
	}
	return true, nil
}

// addDevices adds the node's devices of a claim's allocation.
func addDevices(all map[publish.Allocated]bool, c *resourceapi.ResourceClaim, node string) {
	if c.Status.Allocation == nil {
		return
	}
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver == v1alpha1.DriverName && device.IsNodesPool(node, r.Pool) {
			all[publish.Allocated{Pool: r.Pool, Name: r.Device}] = true
		}
	}
}

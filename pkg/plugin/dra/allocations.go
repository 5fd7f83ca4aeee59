package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// Journal has the records of claims; [journal.Store] implements it.
type Journal interface {
	// Load returns a claim's record, nil if there is none.
	Load(uid string) (*journal.Record, error)
}

// Allocations compares prepared devices with the claim's allocation at the API server.
type Allocations struct {
	Client kubernetes.Interface
	// Node is the node's name.
	Node string
	// Journal is for [Allocations.Confirm] alone.
	Journal Journal
}

// confirmLimit bounds [Allocations.Confirm]: Kata's Rust shim waits 10 s for its devices.
const confirmLimit = 2 * time.Second

// RequestLimit bounds one request to the API server. Without a limit, an API server that accepts connections and never answers would keep
// the caller forever, and the claim's lock with it if the caller holds it.
const RequestLimit = 10 * time.Second

// WithdrawnError says that the prepared devices are not allocated to their claim.
type WithdrawnError struct {
	Claim string // "namespace/name (uid)"
	Why   string
}

func (e *WithdrawnError) Error() string {
	return fmt.Sprintf("claim %s: %s, and its former device is prepared on this node: delete the pod and create it again", e.Claim, e.Why)
}

// FromCache is the resourceVersion of a read that the API server answers from its watch cache, without etcd. The answer
// can be old.
const FromCache = "0"

// SeenLost is like [Allocations.Lost], for looks that are repeated. As long as the API server's watch cache has the claim with its devices,
// it does not read etcd, so it may miss a loss of the last seconds.
func (a *Allocations) SeenLost(ctx context.Context, rec *journal.Record) (why string, err error) {
	if why, err = a.lost(ctx, rec, FromCache); err != nil || why != "" {
		// The watch cache can lag behind etcd. Taking a device from a claim needs a consistent read.
		return a.Lost(ctx, rec)
	}
	return "", nil
}

// Lost returns why a record's claim no longer has its devices; empty if it still has them. It returns an error if that is unknown, for
// example after the 404 of a server that does not serve resource.k8s.io/v1.
func (a *Allocations) Lost(ctx context.Context, rec *journal.Record) (why string, err error) {
	return a.lost(ctx, rec, "")
}

// lost is [Allocations.Lost] with the resourceVersion of the read.
func (a *Allocations) lost(ctx context.Context, rec *journal.Record, version string) (why string, err error) {
	ctx, cancel := context.WithTimeout(ctx, RequestLimit)
	defer cancel()
	ref := rec.Plan.Claim
	c, err := a.Client.ResourceV1().ResourceClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{ResourceVersion: version})
	switch {
	case isGone(err):
		return claimGone, nil
	case err != nil:
		return "", err
	// A claim with the same name and another UID is a new object: its allocation says nothing about the prepared
	// devices.
	case string(c.UID) != ref.UID:
		return claimGone, nil
	}
	devices, err := claim.Allocated(c, v1alpha1.DriverName)
	switch {
	case errors.Is(err, claim.ErrNotAllocated), errors.Is(err, claim.ErrNotOurs):
		return "its allocation was withdrawn", nil
	case err != nil:
		return "", err
	case !rec.Plan.Gives(devices) || slices.ContainsFunc(devices, a.isElsewhere):
		return "it is allocated " + inPools(devices) + " now", nil
	}
	return "", nil
}

// isElsewhere reports whether a device is in a pool of another node. Earlier versions did not compare pools, and their records may have
// such devices.
func (a *Allocations) isElsewhere(d claim.Device) bool { return !device.IsNodesPool(a.Node, d.Pool) }

const claimGone = "its ResourceClaim no longer exists"

// inPools names devices with their pools.
func inPools(devices []claim.Device) string {
	words := make([]string, len(devices))
	for i := range devices {
		words[i] = devices[i].Name + " of pool " + devices[i].Pool
	}
	return strings.Join(words, ", ")
}

// Confirm returns a [WithdrawnError] if the claim no longer has its devices at the API server. Without an answer in time
// it returns nil: only the API server changes an allocation, and a VM must be able to restart while it is unreachable.
func (a *Allocations) Confirm(ctx context.Context, uid string) error {
	ctx, cancel := context.WithTimeout(ctx, confirmLimit)
	defer cancel()
	rec, err := a.Journal.Load(uid)
	// A claim without pods was prepared by hand, and the API server need not have it.
	if err != nil || rec == nil || len(rec.Plan.Claim.Pods) == 0 {
		return err
	}
	why, err := a.Lost(ctx, rec)
	if err != nil || why == "" {
		return nil
	}
	return &WithdrawnError{Claim: rec.Plan.Claim.String(), Why: why}
}

// ErrAllocatedAgain says that the prepared devices are allocated to a claim again.
var ErrAllocatedAgain = errors.New("it is allocated to these devices again")

// isGone reports whether the API server says that the object does not exist. The 404 of a server that does not serve resource.k8s.io/v1
// does not say that.
func isGone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

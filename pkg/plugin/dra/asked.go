package dra

import (
	"context"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// Asked remembers the claims that the kubelet could not get prepared. They are allocated all
// the same, and the node knows that by nothing else: it may not list claims. The kubelet asks
// again every two minutes or so while it runs. It is in memory: after a restart the kubelet's
// next call counts. It is safe for concurrent use.
type Asked struct {
	Client kubernetes.Interface

	mu     sync.Mutex // guards claims
	claims map[types.UID]asked
}

// asked is a claim as the kubelet asked for it last.
type asked struct {
	claim   types.NamespacedName
	devices []publish.Allocated
	latest  time.Time
}

// Note enters a claim that is not prepared, and forgets those that the kubelet has not asked
// for again.
func (a *Asked) Note(c *resourceapi.ResourceClaim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid, was := range a.claims {
		if time.Since(was.latest) > lingerTime {
			delete(a.claims, uid)
		}
	}
	if a.claims == nil {
		a.claims = map[types.UID]asked{}
	}
	a.claims[c.UID] = asked{types.NamespacedName{Namespace: c.Namespace, Name: c.Name}, ourDevices(c), time.Now()}
}

// Forget drops a claim that is prepared now, or that the kubelet gave up.
func (a *Asked) Forget(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.claims, uid)
}

// Allocated reports whether one of the claims has the device allocated. Where the API server
// does not say, it has.
func (a *Asked) Allocated(ctx context.Context, d publish.Allocated) bool {
	for uid, claim := range a.of(d) {
		c, err := a.Client.ResourceV1().ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil && !isGone(err) {
			return true
		}
		if err == nil && c.UID == uid && slices.Contains(ourDevices(c), d) {
			return true
		}
		a.Forget(uid)
	}
	return false
}

// of returns the claims that asked for a device.
func (a *Asked) of(d publish.Allocated) map[types.UID]types.NamespacedName {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[types.UID]types.NamespacedName{}
	for uid, was := range a.claims {
		if slices.Contains(was.devices, d) {
			all[uid] = was.claim
		}
	}
	return all
}

// isGone reports whether the API server says that there is no such object: the 404 of one that
// does not serve resource.k8s.io/v1 at all does not.
func isGone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// ourDevices returns our devices of a claim's allocation, none where it has none.
func ourDevices(c *resourceapi.ResourceClaim) []publish.Allocated {
	if c.Status.Allocation == nil {
		return nil
	}
	var all []publish.Allocated
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver == v1alpha1.DriverName {
			all = append(all, publish.Allocated{Pool: r.Pool, Name: r.Device})
		}
	}
	return all
}

package podnet_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/network/podnet"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/test/e2e/binaries"
)

// hostLocal is the CNI project's own plugin, with a pool of its own.
type hostLocal struct {
	*podnet.Plugins
	t       *testing.T
	dataDir string
	config  json.RawMessage
}

// newHostLocal makes a pool of the ranges, such as `[{"subnet":"192.0.2.0/24"}]`.
func newHostLocal(t *testing.T, version, ranges, routes string) *hostLocal {
	t.Helper()
	set, err := binaries.Ensure(t.Context(), binaries.Config{Modules: []binaries.Module{binaries.CNI}, Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	h := &hostLocal{
		t: t, dataDir: t.TempDir(),
		Plugins: &podnet.Plugins{Dirs: []string{t.TempDir(), filepath.Dir(set.Path("host-local"))}, Limit: time.Minute},
	}
	pool := v1alpha1.AddressPool{
		Name: "tenants", CNIVersion: version,
		IPAM: json.RawMessage(`{"type":"host-local","dataDir":"` + h.dataDir + `","ranges":[` + ranges + `],"routes":[` + routes + `]}`),
	}
	if h.config, err = pool.NetworkConfig(); err != nil {
		t.Fatal(err)
	}
	return h
}

// lease is that of a claim's device.
func (h *hostLocal) lease(device string) *plan.Lease {
	return &plan.Lease{
		Pool: "tenants", Plugin: "host-local", Config: h.config, Container: "0f8fad5b-" + device, Interface: "net1",
		Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=team-a;K8S_POD_NAME=train",
	}
}

// taken returns the addresses that the plugin has down as taken.
func (h *hostLocal) taken() []string {
	h.t.Helper()
	entries, err := os.ReadDir(filepath.Join(h.dataDir, "kata-vfio-tenants"))
	if err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "last_") && e.Name() != "lock" {
			all = append(all, e.Name())
		}
	}
	return all
}

func (h *hostLocal) add(device string) *podnet.Result {
	h.t.Helper()
	r, err := h.Add(h.t.Context(), h.lease(device))
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

// TestHostLocalGivesAddresses in each version of CNI: they are down under the
// lease's name, and free again after.
func TestHostLocalGivesAddresses(t *testing.T) {
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) {
			h := newHostLocal(t, version, `[{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.10","gateway":"192.0.2.1"}],[{"subnet":"2001:db8::/64","rangeStart":"2001:db8::10"}]`,
				`{"dst":"0.0.0.0/0"},{"dst":"198.51.100.0/24","gw":"192.0.2.2"},{"dst":"2001:db8:1::/48"}`)
			if err := h.Find(h.lease("a")); err != nil {
				t.Fatal(err)
			}
			want := &podnet.Result{
				Addresses: []string{"192.0.2.10/24", "2001:db8::10/64"},
				Routes: []v1alpha1.GuestRoute{
					{To: "default", Via: "192.0.2.1"}, {To: "198.51.100.0/24", Via: "192.0.2.2"}, {To: "2001:db8:1::/48", Via: "2001:db8::1"},
				},
			}
			if diff := cmp.Diff(want, h.add("a")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for range 2 {
				if err := h.Delete(t.Context(), h.lease("a")); err != nil {
					t.Fatal(err)
				}
				if left := h.taken(); len(left) > 0 {
					t.Errorf("taken after Delete: %v", left)
				}
			}
		})
	}
}

// TestHostLocalGivesALeaseOnce: a second ADD is refused, and takes nothing.
func TestHostLocalGivesALeaseOnce(t *testing.T) {
	h := newHostLocal(t, "1.0.0", `[{"subnet":"192.0.2.0/24"}]`, "")
	h.add("a")
	_, err := h.Add(t.Context(), h.lease("a"))
	wantFailed(t, err, true, "CNI plugin host-local ADD", "duplicate allocation is not allowed")
	if got := h.taken(); len(got) != 1 {
		t.Errorf("taken: %v", got)
	}
}

// TestExhaustedPool says so, and what is returned is to be had.
func TestExhaustedPool(t *testing.T) {
	h := newHostLocal(t, "1.0.0", `[{"subnet":"192.0.2.0/30"}]`, "") // the network, its router, one more, the broadcast
	h.add("a")
	_, err := h.Add(t.Context(), h.lease("b"))
	wantFailed(t, err, true, "no IP addresses available in range set")
	if err := h.Delete(t.Context(), h.lease("a")); err != nil {
		t.Fatal(err)
	}
	if got := h.add("b"); !slices.Equal(got.Addresses, []string{"192.0.2.2/30"}) || len(got.Routes) > 0 {
		t.Errorf("the result is %+v; a router alone is not a route", got)
	}
}

// TestConfigThatHostLocalDoesNotTake fails by the plugin's own word.
func TestConfigThatHostLocalDoesNotTake(t *testing.T) {
	h := newHostLocal(t, "1.0.0", `[{"subnet":"192.0.2.0/33"}]`, "")
	_, err := h.Add(t.Context(), h.lease("a"))
	wantFailed(t, err, true, "192.0.2.0/33")
	wantFailed(t, h.Delete(t.Context(), h.lease("a")), true, "CNI plugin host-local DEL", "192.0.2.0/33")
}

// TestManyLeasesAtOnce have an address each.
func TestManyLeasesAtOnce(t *testing.T) {
	h := newHostLocal(t, "1.0.0", `[{"subnet":"192.0.2.0/24"}]`, "")
	const many = 8
	got := make([]*podnet.Result, many)
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() { got[i] = h.add(string(rune('a' + i))) })
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, r := range got {
		seen[r.Addresses[0]] = true
	}
	if len(seen) != many || len(h.taken()) != many {
		t.Errorf("%d addresses for %d leases, taken: %v", len(seen), many, h.taken())
	}
}

// TestCallIsNotCutOff right at the end of its context: what it takes, a Delete
// gives back.
func TestCallIsNotCutOff(t *testing.T) {
	h := newHostLocal(t, "1.0.0", `[{"subnet":"192.0.2.0/24"}]`, "")
	for after := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(after)*time.Millisecond)
		_, err := h.Add(ctx, h.lease("a"))
		cancel()
		if err != nil && after > 0 { // one that is over before gets no call
			t.Errorf("cut after %d ms: %v", after, err)
		}
		if err := h.Delete(t.Context(), h.lease("a")); err != nil {
			t.Fatal(err)
		}
		if left := h.taken(); len(left) > 0 {
			t.Fatalf("context ended after %d ms: taken after Delete: %v", after, left)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.Add(over, h.lease("a"))
	wantFailed(t, err, true, "ADD", "canceled")
	if err := h.Delete(over, h.lease("a")); !errors.Is(err, context.Canceled) {
		t.Errorf("Delete says %v", err)
	}
}

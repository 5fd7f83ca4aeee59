package controller

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

const (
	tenantA, tenantB = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"
	gpuPool          = nodeA + "/kata-vfio.dev/gpus"
)

// moment is when the first claim of a test was allocated.
var moment = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// domainDevice is a device of node-a, "01", in exclusive domains.
func domainDevice(slot string, domains ...string) resourceapi.Device {
	d := deviceAt("gpu-0000-"+slot+"-00-0", "0000:"+slot+":00.0")
	if len(domains) > 0 {
		d.Attributes["exclusiveDomains"] = stringAttribute(strings.Join(domains, ","))
	}
	return d
}

func kept(d resourceapi.Device, id string) resourceapi.Device {
	d.Taints = append(d.Taints, resourceapi.DeviceTaint{Key: v1alpha1.TaintTenant, Value: id, Effect: resourceapi.DeviceTaintEffectNoSchedule})
	return d
}

// domainClaim is "NAMESPACE/NAME SLOT...", allocated after seconds. Its pod waits for its domains.
func domainClaim(text string, seconds int) *resourceapi.ResourceClaim {
	fields := strings.Fields(text)
	namespace, name, _ := strings.Cut(fields[0], "/")
	at := metav1.NewTime(moment.Add(time.Duration(seconds) * time.Second))
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)}}
	c.Status.Allocation = &resourceapi.AllocationResult{AllocationTimestamp: &at, NodeSelector: onNode(nodeA)}
	for _, slot := range fields[1:] {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Request: "gpu", Driver: v1alpha1.DriverName, Pool: gpuPool, Device: "gpu-0000-" + slot + "-00-0",
			BindingConditions: []string{v1alpha1.ConditionDomainReserved}, BindingFailureConditions: []string{v1alpha1.ConditionDomainTaken},
		})
	}
	return c
}

// unconditional is a claim whose devices had no conditions when they were allocated.
func unconditional(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	for i := range c.Status.Allocation.Devices.Results {
		c.Status.Allocation.Devices.Results[i].BindingConditions = nil
	}
	return c
}

// answered is a claim with a condition that was set some seconds after its allocation.
func answered(c *resourceapi.ResourceClaim, kind string, status metav1.ConditionStatus, reason string, seconds int) *resourceapi.ResourceClaim {
	at := metav1.NewTime(c.Status.Allocation.AllocationTimestamp.Add(time.Duration(seconds) * time.Second))
	for _, d := range c.Status.Allocation.Devices.Results {
		c.Status.Devices = append(c.Status.Devices, resourceapi.AllocatedDeviceStatus{
			Driver: d.Driver, Pool: d.Pool, Device: d.Device, Conditions: []metav1.Condition{{Type: kind, Status: status, Reason: reason, LastTransitionTime: at}},
		})
	}
	return c
}

func reserved(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	return answered(c, v1alpha1.ConditionDomainReserved, metav1.ConditionTrue, "DomainFree", 1)
}

func viewOfDomains(devices []resourceapi.Device, claims ...*resourceapi.ResourceClaim) *domainsView {
	v := &domainsView{cluster: &cluster.Cluster{}, node: nodeA, stages: "stages", tenants: map[string]string{
		v1alpha1.TenantKey("a"): tenantA, v1alpha1.TenantKey("a2"): tenantA, v1alpha1.TenantKey("b"): tenantB,
	}}
	v.cluster.Add(sliceOf("gpus", v1alpha1.DriverName, gpuPool, devices...))
	for _, c := range claims {
		v.cluster.Add(c)
	}
	return v
}

// TestReservations: slots 01 and 02 are below one switch, 03 below another.
func TestReservations(t *testing.T) {
	const left, right = "Switch/0000:10:00.0", "Switch/0000:20:00.0"
	devices := []resourceapi.Device{domainDevice("01", left), domainDevice("02", left), domainDevice("03", right), domainDevice("04")}
	stale := answered(domainClaim("b/of-b 02", 5), v1alpha1.ConditionDomainReserved, metav1.ConditionTrue, "DomainFree", -3)
	for name, tt := range map[string]struct {
		devices []resourceapi.Device
		claims  []*resourceapi.ResourceClaim
		want    map[string]string
	}{
		"nobody else is there": {devices, []*resourceapi.ResourceClaim{domainClaim("a/of-a 01", 0)}, map[string]string{"a/of-a": "DomainReserved=true DomainFree"}},
		"the first of two":     {devices, []*resourceapi.ResourceClaim{domainClaim("b/of-b 02", 1), domainClaim("a/of-a 01", 0)}, map[string]string{"a/of-a": "DomainReserved=true DomainFree", "b/of-b": "DomainTaken=true DomainTaken"}},
		"at the same second":   {devices, []*resourceapi.ResourceClaim{domainClaim("b/2 02", 0), domainClaim("a/1 01", 0)}, map[string]string{"a/1": "DomainReserved=true DomainFree", "b/2": "DomainTaken=true DomainTaken"}},
		"two switches":         {devices, []*resourceapi.ResourceClaim{domainClaim("a/of-a 01", 0), domainClaim("b/of-b 03", 1)}, map[string]string{"a/of-a": "DomainReserved=true DomainFree", "b/of-b": "DomainReserved=true DomainFree"}},
		"two of one tenant":    {devices, []*resourceapi.ResourceClaim{domainClaim("a/1 01", 0), domainClaim("a2/2 02", 1)}, map[string]string{"a/1": "DomainReserved=true DomainFree", "a2/2": "DomainReserved=true DomainFree"}},
		"after a reservation":  {devices, []*resourceapi.ResourceClaim{domainClaim("b/of-b 02", 0), reserved(domainClaim("a/of-a 01", 1))}, map[string]string{"b/of-b": "DomainTaken=true DomainTaken"}},
		"beside a refused one": {devices, []*resourceapi.ResourceClaim{domainClaim("b/of-b 02", 1), answered(domainClaim("a/of-a 01", 0), v1alpha1.ConditionDomainTaken, metav1.ConditionTrue, "DomainTaken", 1)}, map[string]string{"b/of-b": "DomainReserved=true DomainFree"}},
		"after a claim without conditions": {
			devices, []*resourceapi.ResourceClaim{domainClaim("b/of-b 02", 0), unconditional(domainClaim("a/of-a 01", 1))}, map[string]string{"b/of-b": "DomainTaken=true DomainTaken"},
		},
		"of an earlier allocation":   {devices, []*resourceapi.ResourceClaim{stale, domainClaim("a/of-a 01", 0)}, map[string]string{"a/of-a": "DomainReserved=true DomainFree", "b/of-b": "DomainTaken=true DomainTaken"}},
		"all devices of a claim":     {devices, []*resourceapi.ResourceClaim{domainClaim("b/of-b 03 02", 1), reserved(domainClaim("a/of-a 01", 0))}, map[string]string{"b/of-b": "DomainTaken=true DomainTaken"}},
		"a refused claim holds none": {devices, []*resourceapi.ResourceClaim{reserved(domainClaim("a/of-a 01", 0)), domainClaim("b/1 03 02", 1), domainClaim("a/2 03", 2)}, map[string]string{"b/1": "DomainTaken=true DomainTaken", "a/2": "DomainReserved=true DomainFree"}},
		"not clean yet":              {[]resourceapi.Device{kept(domainDevice("01", left), tenantB)}, []*resourceapi.ResourceClaim{domainClaim("a/of-a 01", 0)}, map[string]string{"a/of-a": "DomainTaken=true DomainTaken"}},
		"kept for the own tenant":    {[]resourceapi.Device{kept(domainDevice("01", left), tenantA)}, []*resourceapi.ResourceClaim{domainClaim("a/of-a 01", 0)}, map[string]string{"a/of-a": "DomainReserved=true DomainFree"}},
		"kept for several":           {[]resourceapi.Device{kept(domainDevice("01", left), "several")}, []*resourceapi.ResourceClaim{domainClaim("a/of-a 01", 0)}, map[string]string{"a/of-a": "DomainTaken=true DomainTaken"}},
		"not published any more":     {devices, []*resourceapi.ResourceClaim{unconditional(domainClaim("a/of-a 09", 0)), domainClaim("b/of-b 03", 1)}, map[string]string{"b/of-b": "DomainTaken=true DomainTaken"}},
		"a list that was too long":   {[]resourceapi.Device{domainDevice("01", "Node"), domainDevice("02", left)}, []*resourceapi.ResourceClaim{domainClaim("a/of-a 01", 0), domainClaim("b/of-b 02", 1)}, map[string]string{"a/of-a": "DomainReserved=true DomainFree", "b/of-b": "DomainTaken=true DomainTaken"}},
		"a list that is too long":    {[]resourceapi.Device{domainDevice("01", "Node"), domainDevice("02", left)}, []*resourceapi.ResourceClaim{reserved(domainClaim("a/of-a 02", 0)), domainClaim("b/of-b 01", 1)}, map[string]string{"b/of-b": "DomainTaken=true DomainTaken"}},
		"a device in no domain":      {devices, []*resourceapi.ResourceClaim{reserved(domainClaim("a/of-a 01", 0)), domainClaim("b/of-b 04", 1)}, map[string]string{"b/of-b": "DomainReserved=true DomainFree"}},
		"no tenant yet":              {devices, []*resourceapi.ResourceClaim{domainClaim("new/n 01", 0), domainClaim("a/of-a 02", 1)}, map[string]string{"new/n": "DomainReserved=false TenantUnknown", "a/of-a": "DomainReserved=true DomainFree"}},
		"no tenant yet, said before": {devices, []*resourceapi.ResourceClaim{answered(domainClaim("new/n 01", 0), v1alpha1.ConditionDomainReserved, metav1.ConditionFalse, "TenantUnknown", 1)}, map[string]string{}},
		"a stage":                    {[]resourceapi.Device{kept(domainDevice("01", left), tenantA)}, []*resourceapi.ResourceClaim{domainClaim("stages/s 01", 0)}, map[string]string{"stages/s": "DomainReserved=true DomainFree"}},
		"beside a stage":             {devices, []*resourceapi.ResourceClaim{domainClaim("stages/s 01", 0), domainClaim("a/of-a 02", 1)}, map[string]string{"stages/s": "DomainReserved=true DomainFree", "a/of-a": "DomainReserved=true DomainFree"}},
	} {
		got := map[string]string{}
		for _, r := range viewOfDomains(tt.devices, tt.claims...).reserve() {
			got[r.claim.Name()] = fmt.Sprintf("%s=%t %s", strings.TrimPrefix(r.kind, v1alpha1.DriverName+"/"), r.isTrue, r.reason)
			if r.message == "" {
				t.Errorf("%s: the answer to %s has no message", name, r.claim.Name())
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: the answers differ (-want +got):\n%s", name, diff)
		}
	}
}

// TestReservationsKeepTenantsApart: whatever claims come and go, and however many are answered at a time, no two tenants have one domain, and a
// claim that is alone in its domains is never refused.
func TestReservationsKeepTenantsApart(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 36))
		devices, claims := randomDomains(random), map[string]*resourceapi.ResourceClaim{}
		for step := range 12 {
			if name := fmt.Sprintf("c%d", random.IntN(6)); claims[name] != nil && random.IntN(2) == 0 {
				delete(claims, name)
			} else if claims[name] == nil {
				ns, slot := []string{"a", "a2", "b"}[random.IntN(3)], 1+random.IntN(len(devices))
				claims[name] = domainClaim(fmt.Sprintf("%s/%s %02d", ns, name, slot), step)
			}
			view := viewOfDomains(devices, slices.Collect(maps.Values(claims))...)
			answers := view.reserve()
			for _, r := range answers[:random.IntN(len(answers)+1)] { // the controller ends between two writes
				answered(r.claim.Object, r.kind, metav1.ConditionTrue, string(r.reason), 1)
				if r.kind == v1alpha1.ConditionDomainTaken && len(claims) == 1 {
					t.Fatalf("seed %d: the only claim was refused: %s", seed, r.message)
				}
			}
			wantApart(t, seed, viewOfDomains(devices, slices.Collect(maps.Values(claims))...))
			for name, c := range claims { // the scheduler takes back what was refused
				if answerTo(cluster.DecodeClaim(c)) == refusedDomains {
					delete(claims, name)
				}
			}
		}
	}
}

// randomDomains returns devices in domains that are nested and overlap.
func randomDomains(random *rand.Rand) []resourceapi.Device {
	var devices []resourceapi.Device
	for i := range 4 {
		var domains []string
		for _, d := range []string{fmt.Sprint("PF/", i/2), fmt.Sprint("NUMA/", random.IntN(2)), "Switch/x"} {
			if random.IntN(2) == 0 {
				domains = append(domains, d)
			}
		}
		devices = append(devices, domainDevice(fmt.Sprintf("%02d", i+1), domains...))
	}
	return devices
}

// wantApart checks that the claims whose pods may be bound are of one tenant in each domain.
func wantApart(t *testing.T, seed uint64, v *domainsView) {
	t.Helper()
	tenants := map[string]string{}
	for _, c := range v.contenders() {
		if answerTo(c.claim) != reservedDomains {
			continue
		}
		for _, d := range c.domains {
			if had := tenants[d]; had != "" && had != c.tenant {
				t.Fatalf("seed %d: domain %s has tenants %s and %s", seed, d, had, c.tenant)
			}
			tenants[d] = c.tenant
		}
	}
}

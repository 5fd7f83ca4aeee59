package cluster_test

import (
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

const (
	redTenant  = "0123456789abcdef"
	blueTenant = "fedcba9876543210"
	below      = "Switch/0000:3a:00.0"
)

// exclusive makes the GPU one of an exclusive domain, which its claim has for an hour, with a free neighbor that is kept for the tenant.
func exclusive(s *world) {
	s.Now = time.Date(2026, 3, 4, 5, 0, 0, 0, time.UTC)
	gpus := &s.Slices[0].Spec
	gpus.Devices = append(gpus.Devices, slice("", driver, "", "gpu-0000-3c-00-0", "0000:3c:00.0").Spec.Devices...)
	for i := range gpus.Devices {
		gpus.Devices[i].Attributes["exclusiveDomains"] = resourceapi.DeviceAttribute{StringValue: new(below)}
	}
	gpus.Devices[1].Taints = []resourceapi.DeviceTaint{{Key: v1alpha1.TaintTenant, Value: redTenant, Effect: "NoSchedule"}}
	prepared(&s.Claims[0], redTenant, s.Now.Add(-time.Hour))
}

// prepared makes a claim one of a tenant, whose device is ready since then.
func prepared(c *resourceapi.ResourceClaim, tenant string, since time.Time) {
	c.Spec.Devices.Requests[0].Exactly.Tolerations = []resourceapi.DeviceToleration{ofTenant(tenant)}
	c.Status.Devices[0].Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)}}
}

// joined is another tenant's claim that has the neighbor.
func joined(s *world, namespace, tenant string) {
	c := claim(namespace, "late")
	c.Status.Allocation.Devices.Results[0].Device = "gpu-0000-3c-00-0"
	c.Status.Devices[0].Device = "gpu-0000-3c-00-0"
	prepared(&c, tenant, s.Now.Add(-time.Minute))
	s.Claims = append(s.Claims, c)
}

// TestExclusiveDomainHasOneTenant: slices' domains and taints agree with the claims that are prepared there.
func TestExclusiveDomainHasOneTenant(t *testing.T) {
	tests := map[string]struct {
		plant func(s *world)
		want  finding.State
		says  string
	}{
		"one tenant":                       {func(*world) {}, finding.Pass, "1 prepared device"},
		"no domains":                       {func(s *world) { s.Slices[0].Spec.Devices[0].Attributes = nil }, finding.NotApplicable, "no claim"},
		"two namespaces of one tenant":     {func(s *world) { joined(s, "t2", redTenant) }, finding.Pass, "2 prepared devices"},
		"two tenants":                      {func(s *world) { joined(s, "t2", blueTenant) }, finding.Fail, "claim t2/late has a device in exclusive domain " + below + " of node n1, and claim t1/gpu"},
		"a claim of no tenant":             {func(s *world) { joined(s, "t2", "") }, finding.Fail, "claim t2/late"},
		"allocated, and not prepared":      {func(s *world) { joined(s, "t2", blueTenant); s.Claims[1].Status.Devices[0].Conditions = nil }, finding.Pass, "1 prepared device"},
		"a whole node, and a switch there": {wholeNode, finding.Fail, "exclusive domain " + below},
		"a stage after the tenant": {func(s *world) {
			joined(s, "t2", blueTenant)
			s.Claims[1].Spec.Devices.Requests[0].Exactly.Tolerations = []resourceapi.DeviceToleration{{Key: v1alpha1.TaintSanitizing, Operator: "Exists"}}
		}, finding.Pass, "1 prepared device"},
		"a free device without taint":     {func(s *world) { s.Slices[0].Spec.Devices[1].Taints = nil }, finding.Fail, "node n1 offers free device gpu-0000-3c-00-0"},
		"a free device of another tenant": {func(s *world) { s.Slices[0].Spec.Devices[1].Taints[0].Value = blueTenant }, finding.Fail, "node n1 offers free device"},
		"a free device in two domains":    {func(s *world) { s.Slices[0].Spec.Devices[1].Taints[0].Value = "several" }, finding.Pass, "1 prepared device"},
		"a free device that only says so": {func(s *world) { s.Slices[0].Spec.Devices[1].Taints[0].Effect = "None" }, finding.Fail, "node n1 offers free device"},
		"a free device in quarantine":     {func(s *world) { s.Slices[0].Spec.Devices[1].Taints[0].Key = "kata-vfio.dev/quarantined" }, finding.Pass, "1 prepared device"},
		"a tenant who came just now": {func(s *world) {
			s.Slices[0].Spec.Devices[1].Taints = nil
			prepared(&s.Claims[0], redTenant, s.Now.Add(-time.Second))
		}, finding.Pass, "1 prepared device"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := good()
			exclusive(s)
			tt.plant(s)
			for _, f := range judge(s).Findings {
				if f.ID == "K8S-033" && (f.State != tt.want || !strings.Contains(f.Text, tt.says)) {
					t.Errorf("got %s: %s; want %s with %q", f.State, f.Text, tt.want, tt.says)
				}
			}
		})
	}
}

// wholeNode has the neighbor in the domain of the whole node, which another tenant has.
func wholeNode(s *world) {
	joined(s, "t2", blueTenant)
	s.Slices[0].Spec.Devices[1].Attributes["exclusiveDomains"] = resourceapi.DeviceAttribute{StringValue: new("Node")}
}

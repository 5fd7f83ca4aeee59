package cluster_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	audit "github.com/kata-vfio/kata-vfio/pkg/audit/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// claimsOnNode is how many claims with a GPU and a pod a node has.
const claimsOnNode = 10

// large is a cluster with so many nodes, all of whose GPUs are claimed, and what its nodes report.
type large struct {
	objects []any
	reports []*finding.Report
}

func newLarge(nodes int) *large {
	l := &large{objects: []any{&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu.kata-vfio.dev"}}}}
	for i := range nodes {
		node := fmt.Sprintf("node-%04d", i)
		pool := node + "/kata-vfio.dev/shared"
		s := slice(ours, node, pool, 1)
		r := &finding.Report{Subject: finding.Subject{Kind: "node", Name: node, Time: "2026-11-22T10:00:00Z"}, NodeRecords: &finding.NodeRecords{}}
		for j := range claimsOnNode {
			address := fmt.Sprintf("0000:%02x:00.0", 0x10+j)
			id := cluster.ID{Driver: ours, Pool: pool, Name: fmt.Sprintf("gpu-0000-%02x-00-0", 0x10+j)}
			d := published(id.Name, "resource.kubernetes.io/pciBusID", address)
			d.Attributes["type"] = resourceapi.DeviceAttribute{StringValue: new("gpu")}
			d.Attributes[publish.AttrSharedWith] = resourceapi.DeviceAttribute{StringValue: new(theirs)}
			s.Spec.Devices = append(s.Spec.Devices, d)
			claim, pod := l.user(i*claimsOnNode+j, node, address, id)
			l.objects = append(l.objects, claim, pod)
			r.NodeRecords.Claims = append(r.NodeRecords.Claims, finding.ClaimRecord{UID: string(claim.UID), Namespace: claim.Namespace, Name: claim.Name, State: "prepared", Since: "2026-11-22T08:00:00Z"})
		}
		r.Finish()
		l.objects, l.reports = append(l.objects, s), append(l.reports, r)
	}
	return l
}

// user is a claim that has a device, prepared, and its pod.
func (l *large) user(n int, node, address string, id cluster.ID) (*resourceapi.ResourceClaim, *corev1.Pod) {
	name := fmt.Sprintf("c-%05d", n)
	claim := allocated(name, id)
	claim.UID = types.UID("uid-" + name)
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name}}
	claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
		Driver: id.Driver, Pool: id.Pool, Device: id.Name, Data: &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"address":%q}`, address)},
		Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC))}},
	}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "t1", Name: name},
		Spec:       corev1.PodSpec{NodeName: node, RuntimeClassName: new("kata-gpu"), ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	return claim, pod
}

func (l *large) cluster() *cluster.Cluster {
	c := &cluster.Cluster{}
	for _, o := range l.objects {
		c.Add(o)
	}
	return c
}

func (l *large) fleet(c *cluster.Cluster) *fleet.State {
	return &fleet.State{Cluster: c, Now: now(), Reports: l.reports}
}

func now() time.Time { return time.Date(2026, 11, 22, 11, 0, 0, 0, time.UTC) }

// functions are those over a whole cluster. They return how many results they have, and how many that is for each node.
func functions(t *testing.T) map[string]func(l *large, c *cluster.Cluster) (got, perNode int) {
	t.Helper()
	rules, err := rule.ReadCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	checks, err := audit.Catalogue(rules)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]func(*large, *cluster.Cluster) (int, int){
		"devices":      func(l *large, c *cluster.Cluster) (int, int) { return len(l.fleet(c).Devices()), claimsOnNode },
		"claims":       func(l *large, c *cluster.Cluster) (int, int) { return len(l.fleet(c).ClaimRows()), claimsOnNode },
		"nodes' audit": func(l *large, c *cluster.Cluster) (int, int) { return len(l.fleet(c).Audit(l.reports, nil)), 1 },
		"conformance": func(l *large, c *cluster.Cluster) (int, int) {
			state := &fleet.ConformanceState{Kubernetes: "v1.37.0", Fleet: l.fleet(c)}
			for _, e := range l.objects {
				if p, ok := e.(*corev1.Pod); ok {
					state.Fleet.Events = append(state.Fleet.Events, corev1.Event{Reason: "TriggeredScaleUp", InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name}})
				}
			}
			_ = fleet.JudgeConformance(state, fleet.Profiles()[0])
			return len(state.Fleet.Events), claimsOnNode
		},
		"audit of the cluster": func(l *large, c *cluster.Cluster) (int, int) {
			nodes := map[string]bool{}
			for _, r := range l.reports {
				nodes[r.Subject.Name] = true
			}
			state := &audit.State{Version: "v1.37.1", Cluster: c, Nodes: nodes, Reports: l.reports, Now: now(), Options: audit.Options{RuntimeClasses: []string{"kata-gpu"}}}
			profile, _ := finding.ProfileNamed(finding.MultiTenant)
			return audit.Run(state, checks, finding.Options{Profile: profile, Today: "2026-11-22"}).Summary.Devices, claimsOnNode
		},
		"controller": func(_ *large, c *cluster.Cluster) (int, int) {
			v := &twin.View{Drivers: []string{theirs}, Cluster: c}
			return len(v.GPUs(v.Nodes()...)), claimsOnNode
		},
	}
}

// TestFunctionsTakeAFewPasses: how often a function asks for all claims, devices, pods or pools does not depend on the size of the cluster.
func TestFunctionsTakeAFewPasses(t *testing.T) {
	for name, run := range functions(t) {
		small, big := newLarge(10), newLarge(20)
		few, many := small.cluster(), big.cluster()
		run(small, few)
		run(big, many)
		if few.Passes() != many.Passes() {
			t.Errorf("%s: got %d passes for 10 nodes and %d for 20, want as many", name, few.Passes(), many.Passes())
		}
	}
}

// TestWorkIsLinear: for twice the nodes and claims, each function makes no more than about twice as much, decoding included. What makes
// all rows for each pod makes four times as much.
func TestWorkIsLinear(t *testing.T) {
	const nodes = 50
	half, whole := newLarge(nodes), newLarge(2*nodes)
	for name, run := range functions(t) {
		one := testing.AllocsPerRun(1, func() { run(half, half.cluster()) })
		two := testing.AllocsPerRun(1, func() { run(whole, whole.cluster()) })
		if two > 2.4*one {
			t.Errorf("%s: got %.0f allocations for %d nodes and %.0f for %d, want about twice as many", name, one, nodes, two, 2*nodes)
		}
	}
}

// TestThousandNodes with ten thousand claims are all among the results.
func TestThousandNodes(t *testing.T) {
	l := newLarge(1000)
	c := l.cluster()
	for name, run := range functions(t) {
		if got, perNode := run(l, c); got != 1000*perNode {
			t.Errorf("%s: got %d results, want %d", name, got, 1000*perNode)
		}
	}
}

// BenchmarkCluster decodes 1,000 nodes and 10,000 claims with their pods. With -short they are 10 nodes.
func BenchmarkCluster(b *testing.B) {
	nodes := 1000
	if testing.Short() {
		nodes = 10
	}
	l := newLarge(nodes)
	for b.Loop() {
		l.cluster()
	}
}

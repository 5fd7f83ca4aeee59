//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/controller"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// TestExclusiveDomains: claims of two tenants come and go on two nodes, each of which belongs to one tenant at a time. The real scheduler
// goes by taints that are published late, so that claims of both tenants are allocated on one node. No node ever has devices of both, and
// every claim gets its device in the end. KATA_VFIO_SCHEDULES says how many claims there are, up to 3,000 and 300, KATA_VFIO_SEED repeats an order.
func TestExclusiveDomains(t *testing.T) {
	p := cluster(t)
	apply(t, p, "default", movingClass)
	t.Cleanup(func() {
		// The test's own context is over by now.
		if _, err := p.Kubectl(context.Background(), "delete", "deviceclass/moving.e2e.example.com", "runtimeclass/e2e-moving"); err != nil {
			t.Error(err)
		}
	})
	seed := fromEnvironment(t, "KATA_VFIO_SEED", time.Now().UnixNano()%1_000_000)
	t.Run("ThePluginRefusesTheSecondTenant", func(t *testing.T) {
		n := min(3000, fromEnvironment(t, "KATA_VFIO_SCHEDULES", 40))
		c := newDomainContest(t, p, uint64(seed), false)
		c.run(n, time.Second)
		t.Logf("seed %d: %d claims had a device, %d attempts were refused because the node was another tenant's", seed, n, c.refused)
	})
	// Where domains are reserved, no pod is bound to a node on which the plugin would refuse it. The scheduler looks at a reservation
	// every 5 seconds, so that the claims are fewer.
	t.Run("TheSchedulerWaitsForTheDomain", func(t *testing.T) {
		n := min(300, fromEnvironment(t, "KATA_VFIO_SCHEDULES", 10))
		systemNamespace(t, p)
		applyController(t, p, reserving, mutating("v1")...)
		t.Cleanup(func() {
			if _, err := p.Kubectl(context.Background(), "delete", "--namespace", system, "configmap/"+v1alpha1.TenantsConfigMap); err != nil {
				t.Error(err)
			}
		})
		c := newDomainContest(t, p, uint64(seed), true)
		c.run(n, 10*time.Second)
		taken := c.takenEvents()
		t.Logf("seed %d: %d claims had a device, %d allocations were taken back because another tenant was first", seed, n, taken)
		if c.refused > 0 || taken == 0 {
			t.Errorf("the plugin refused %d attempts, and %d allocations were taken back; want none and some", c.refused, taken)
		}
	})
}

// domainContest is two tenants and two nodes.
type domainContest struct {
	t       *testing.T
	p       *controlplane.ControlPlane
	random  *rand.Rand
	nodes   []*scripted
	tenants []string            // their namespaces
	ids     map[string]string   // by namespace
	has     []map[string]string // by node: the tenants of prepared claims, by UID
	open    int                 // claims that did not have a device yet, or have it
	refused int
}

// newDomainContest starts two nodes. With reserve, the controller registers tenants and reserves their domains, with the account that the
// chart gives it.
func newDomainContest(t *testing.T, p *controlplane.ControlPlane, seed uint64, reserve bool) *domainContest {
	t.Helper()
	c := &domainContest{t: t, p: p, random: rand.New(rand.NewPCG(seed, 1)), ids: map[string]string{}}
	admin, in := client(t, p, controlplane.Admin()), system
	for range 2 {
		c.tenants = append(c.tenants, namespace(t, p))
	}
	if reserve {
		runsDaemon(t, &controller.Daemon{Cluster: asController(t, p), Tenants: true, ReserveDomains: true, Identity: "domains"})
	} else {
		in = namespace(t, p)
		c.register(admin.CoreV1().ConfigMaps(in))
	}
	maps := admin.CoreV1().ConfigMaps(in)
	until(t, "the tenants are registered", func(ctx context.Context) error { return c.registered(ctx, maps) })
	config := &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{
		Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}, Exclusive: []v1alpha1.ExclusiveDomain{v1alpha1.ExclusiveNode}, ReserveDomains: reserve,
	}}}
	config.Default()
	for _, name := range []string{"e2e-exclusive-a", "e2e-exclusive-b"} {
		n := &scripted{name: fmt.Sprint(name, "-", reserve), config: config, tenants: &dra.Tenants{ConfigMaps: maps}}
		c.nodes, c.has = append(c.nodes, addConfigured(t, p, n, 0x3b, 0x5e, 0x7d)), append(c.has, map[string]string{})
	}
	return c
}

// register gives the tenants IDs, as the controller does.
func (c *domainContest) register(maps typedcorev1.ConfigMapInterface) {
	c.t.Helper()
	data := map[string]string{}
	for i, ns := range c.tenants {
		data[v1alpha1.TenantKey(ns)] = strings.Repeat(fmt.Sprint(i), 16)
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantsConfigMap}, Data: data}
	if _, err := maps.Create(c.t.Context(), object, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// registered reads the tenants' IDs.
func (c *domainContest) registered(ctx context.Context, maps typedcorev1.ConfigMapInterface) error {
	known, err := maps.Get(ctx, v1alpha1.TenantsConfigMap, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, ns := range c.tenants {
		c.ids[ns] = known.Data[v1alpha1.TenantKey(ns)]
		if !v1alpha1.IsTenantID(c.ids[ns]) {
			return fmt.Errorf("namespace %s has the ID %q", ns, c.ids[ns])
		}
	}
	return nil
}

// run makes n claims, and has each prepared and released. limit is how long one takes at most, in the mean.
func (c *domainContest) run(n int64, limit time.Duration) {
	c.t.Helper()
	end := time.Now().Add(time.Minute + time.Duration(n)*limit)
	for made := int64(0); c.open > 0 || made < n; {
		if time.Now().After(end) {
			c.t.Fatalf("%d of %d claims did not get a device: %s", c.open, made,
				waiting(c.t.Context(), c.nodes[0].client, c.tenants[0])+waiting(c.t.Context(), c.nodes[0].client, c.tenants[1]))
		}
		if made < n && c.open < 10 {
			c.ask(fmt.Sprint("claim-", made))
			made++
		}
		for i := range c.nodes {
			c.sync(i)
		}
		time.Sleep(20 * time.Millisecond) // the scheduler has these processors, too
	}
	c.end()
}

// takenEvents counts the answers that another tenant was first.
func (c *domainContest) takenEvents() int {
	c.t.Helper()
	taken := 0
	for _, ns := range c.tenants {
		list, err := c.nodes[0].client.EventsV1().Events(ns).List(c.t.Context(), metav1.ListOptions{FieldSelector: "reason=" + string(rule.DomainTaken)})
		if err != nil {
			c.t.Fatal(err)
		}
		for _, e := range list.Items {
			if e.ReportingController == controller.Name {
				taken++
			}
		}
	}
	return taken
}

// ask makes a claim of a random tenant, with the toleration that admission gives it, and its pod.
func (c *domainContest) ask(name string) {
	c.t.Helper()
	ns := c.tenants[c.random.IntN(len(c.tenants))]
	tolerations := fmt.Sprintf("tolerations: [{key: %s, operator: Equal, value: %q, effect: NoSchedule}], deviceClassName:", v1alpha1.TaintTenant, c.ids[ns])
	claim, pod := &resourcev1.ResourceClaim{}, &corev1.Pod{}
	decode(c.t, strings.Replace(movingClaim(name), "deviceClassName:", tolerations, 1), claim)
	decode(c.t, movingPod(name, name, scheduledOnAny(c.nodes)), pod)
	if _, err := c.nodes[0].client.ResourceV1().ResourceClaims(ns).Create(c.t.Context(), claim, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.nodes[0].client.CoreV1().Pods(ns).Create(c.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.open++
}

// decode reads the only object of a text.
func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(strings.TrimSuffix(text, "---\n")), into); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}

// scheduledOnAny leaves the scheduler the nodes: one of the terms must hold, and each names one node.
func scheduledOnAny(nodes []*scripted) string {
	terms := make([]string, len(nodes))
	for i, n := range nodes {
		terms[i] = `{matchFields: [{key: metadata.name, operator: In, values: [` + n.name + `]}]}`
	}
	return `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [` + strings.Join(terms, ", ") + `]}}}`
}

// sync is what a kubelet does for its pods: it prepares claims, again if they were refused, and ends pods after a while.
func (c *domainContest) sync(node int) {
	c.t.Helper()
	n := c.nodes[node]
	for _, ns := range c.tenants {
		pods, err := n.client.CoreV1().Pods(ns).List(c.t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.name})
		if err != nil {
			c.t.Fatal(err)
		}
		for i := range pods.Items {
			c.syncPod(node, &pods.Items[i])
		}
	}
	if c.random.IntN(3) == 0 { // the taints are late
		n.publish()
	}
}

// syncPod prepares the claim of a pod, or ends the pod.
func (c *domainContest) syncPod(node int, pod *corev1.Pod) {
	c.t.Helper()
	n := c.nodes[node]
	claim, err := n.client.ResourceV1().ResourceClaims(pod.Namespace).Get(c.t.Context(), pod.Name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	uid := string(claim.UID)
	if _, prepared := c.has[node][uid]; prepared {
		if c.random.IntN(4) == 0 {
			c.finish(node, claim)
		}
		return
	}
	devices, problem := n.prepare(claim)
	switch {
	case len(devices) > 0:
		c.has[node][uid] = pod.Namespace
		for _, other := range c.has[node] {
			if other != pod.Namespace {
				c.t.Fatalf("node %s has devices of two tenants: got %v, want one tenant", n.name, c.has[node])
			}
		}
	case strings.Contains(problem, string(rule.DomainOfOtherTenant)):
		c.refused++
	default:
		c.t.Fatalf("claim %s was not prepared: %s", claim.Name, problem)
	}
}

// finish ends a pod that has had its device.
func (c *domainContest) finish(node int, claim *resourcev1.ResourceClaim) {
	c.t.Helper()
	n, uid := c.nodes[node], string(claim.UID)
	answer, err := n.kubelet.NodeUnprepareResources(c.t.Context(), &drapb.NodeUnprepareResourcesRequest{
		Claims: []*drapb.Claim{{Namespace: claim.Namespace, Name: claim.Name, Uid: uid}},
	})
	if err != nil || answer.Claims[uid].GetError() != "" {
		c.t.Fatalf("unprepare claim %s: %v, %s", claim.Name, err, answer.GetClaims()[uid].GetError())
	}
	delete(c.has[node], uid)
	if err := n.client.CoreV1().Pods(claim.Namespace).Delete(c.t.Context(), claim.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		c.t.Fatal(err)
	}
	if err := n.client.ResourceV1().ResourceClaims(claim.Namespace).Delete(c.t.Context(), claim.Name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.open--
}

// end waits until no device is kept for a tenant that has left.
func (c *domainContest) end() {
	c.t.Helper()
	for _, n := range c.nodes {
		n.publish()
		until(c.t, n.name+" offers all its devices to everybody", func(ctx context.Context) error {
			list, err := n.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.name})
			if err != nil {
				return err
			}
			var free, tainted []string
			for _, slice := range list.Items {
				for _, d := range slice.Spec.Devices {
					if len(d.Taints) > 0 {
						tainted = append(tainted, d.Name+" "+d.Taints[0].Key)
						continue
					}
					free = append(free, d.Name)
				}
			}
			if len(free) != 3 || len(tainted) > 0 {
				return fmt.Errorf("got %v without taints, and %v, want three without", free, tainted)
			}
			return nil
		})
	}
}

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	model "github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/controller"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/serving"
	"github.com/kata-vfio/kata-vfio/test/contend"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// TestSharedGPUs runs the controller with the account and the permissions that the chart gives it.
func TestSharedGPUs(t *testing.T) {
	if refusedOnOlder(t, sharing) {
		return
	}
	p := cluster(t)
	systemNamespace(t, p)
	applyController(t, p, sharing)
	t.Run("TheControllerMayDoNothingElse", func(t *testing.T) { checkControllersRules(t, p) })
	t.Run("TheSchedulerWaitsForTheController", func(t *testing.T) { checkScheduler(t, p) })
	t.Run("RandomSchedules", func(t *testing.T) { checkSchedules(t, p) })
}

// applyController applies what the chart has for the controller with some values, except for its pods: with the view of DeviceClasses,
// if the values have it on.
func applyController(t *testing.T, p *controlplane.ControlPlane, values string, args ...string) {
	t.Helper()
	var texts []string
	for _, o := range render(t, values, args...).objects {
		if o.GetName() == controller.Name && slices.Contains([]string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}, o.GetKind()) ||
			o.GetKind() == "DeviceClass" && o.GetName() == "shared-gpu."+driver || o.GetName() == model.ClassesConfigMap {
			text, err := o.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(text))
		}
	}
	all := strings.Join(texts, "\n---\n")
	if _, err := p.KubectlInput(t.Context(), strings.NewReader(all), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context is over by now.
		if _, err := p.KubectlInput(context.Background(), strings.NewReader(all), "delete", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
}

// asController is how the controller reaches the API server from its pod.
func asController(t *testing.T, p *controlplane.ControlPlane) *rest.Config {
	t.Helper()
	admin := client(t, p, controlplane.Admin())
	got, err := admin.CoreV1().ServiceAccounts(system).CreateToken(t.Context(), controller.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := p.RESTConfig(controlplane.Admin())
	if err != nil {
		t.Fatal(err)
	}
	return &rest.Config{Host: config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData}, BearerToken: got.Status.Token}
}

// A rule that is added here needs a reason: it is for all claims and devices of the cluster.
func checkControllersRules(t *testing.T, p *controlplane.ControlPlane) {
	anybody := rulesOf(t, client(t, p, controlplane.User{Name: "anybody", Groups: []string{"system:serviceaccounts"}}))
	own, err := kubernetes.NewForConfig(asController(t, p))
	if err != nil {
		t.Fatal(err)
	}
	got := slices.DeleteFunc(rulesOf(t, own), func(rule string) bool { return slices.Contains(anybody, rule) })
	want := []string{
		"[create patch] [events.k8s.io] [events] []",
		"[create] [authentication.k8s.io] [tokenreviews] []",
		"[create] [authorization.k8s.io] [subjectaccessreviews] []",
		"[create] [coordination.k8s.io] [leases] []",
		"[get update] [coordination.k8s.io] [leases] [kata-vfio-controller]",
		"[list watch] [resource.k8s.io] [resourceslices] []",
		"[list watch] [resource.k8s.io] [resourceclaims] []",
		"[patch] [resource.k8s.io] [resourceclaims/status] []",
		"[arbitrary-node:patch] [resource.k8s.io] [resourceclaims/driver] [kata-vfio.dev]",
		"[list watch create patch delete] [resource.k8s.io] [devicetaintrules] []",
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the rules differ (-want +got):\n%s", diff)
	}
}

// runsController runs the controller as its program does, until it is stopped.
func runsController(t *testing.T, p *controlplane.ControlPlane, identity string) (stop func()) {
	t.Helper()
	return runsDaemon(t, &controller.Daemon{Cluster: asController(t, p), Drivers: []string{contend.Driver}, Identity: identity})
}

// runsDaemon runs a controller in the chart's namespace, until it is stopped or the test ends.
func runsDaemon(t *testing.T, d *controller.Daemon) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	d.Log, d.Namespace, d.Metrics = slog.New(slog.DiscardHandler), system, serving.Scraping{Listen: "127.0.0.1:0"}
	go func() { done <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the controller ended: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// shares publishes a GPU of a node by both drivers.
func shares(t *testing.T, p *controlplane.ControlPlane, node string) {
	t.Helper()
	attributes := func(more map[resourcev1.QualifiedName]string) map[resourcev1.QualifiedName]resourcev1.DeviceAttribute {
		more["resource.kubernetes.io/pciBusID"] = "0000:3b:00.0"
		all := map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}
		for name, value := range more {
			all[name] = resourcev1.DeviceAttribute{StringValue: &value}
		}
		return all
	}
	ours := resourcev1.Device{
		Name: "gpu-0000-3b-00-0", BindsToNode: new(true), BindingConditions: []string{v1alpha1.ConditionTwinReserved}, BindingFailureConditions: []string{v1alpha1.ConditionTwinInUse},
		Attributes: attributes(map[resourcev1.QualifiedName]string{"type": "gpu", "sharedWith": contend.Driver, "driver": "nvidia"}),
	}
	theirs := resourcev1.Device{Name: "gpu-0", Attributes: attributes(map[resourcev1.QualifiedName]string{})}
	resourceSlices := client(t, p, controlplane.Admin()).ResourceV1().ResourceSlices()
	published(t, p, resourceSlices, slice(contend.Driver, node, node, theirs))
	published(t, p, resourceSlices, slice(driver, node, node+"/kata-vfio.dev/shared", ours))
}

// claimant is a pod with a claim of a class, both by one name.
const claimant = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: NAME}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: CLASS}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  resourceClaims: [{name: gpu, resourceClaimName: NAME}]
  containers: [{name: main, image: example.com/none:1, resources: {claims: [{name: gpu}]}}]
`

// checkScheduler has a container's pod and a VM's pod get one GPU while no controller runs. Then the controller sends the VM's
// elsewhere, and the scheduler binds it there once the GPU is reserved.
func checkScheduler(t *testing.T, p *controlplane.ControlPlane) {
	const first, second, class = "e2e-twin-a", "e2e-twin-b", "containers.example.com"
	admin, ns := client(t, p, controlplane.Admin()), namespace(t, p)
	addNode(t, p, first)
	shares(t, p, first)
	apply(t, p, ns, "{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: "+class+"}, spec: {selectors: [{cel: {expression: \"device.driver == '"+contend.Driver+"'\"}}]}}")
	t.Cleanup(func() {
		// The test's own context is over by now.
		if _, err := p.Kubectl(context.Background(), "delete", "deviceclass/"+class); err != nil {
			t.Error(err)
		}
	})
	for name, of := range map[string]string{"container": class, "vm": "shared-gpu." + driver} {
		apply(t, p, ns, strings.NewReplacer("NAME", name, "CLASS", of).Replace(claimant))
		until(t, "claim "+name+" is allocated on the only node", func(ctx context.Context) error {
			got, err := admin.ResourceV1().ResourceClaims(ns).Get(ctx, name, metav1.GetOptions{})
			if err == nil && got.Status.Allocation == nil {
				err = errors.New("it is not: " + waiting(ctx, admin, ns))
			}
			return err
		})
	}
	wantNode(t, admin, ns, "container", first)
	addNode(t, p, second)
	shares(t, p, second)
	stop := runsController(t, p, "one")
	defer stop()
	wantNode(t, admin, ns, "vm", second)
	got, err := admin.ResourceV1().ResourceClaims(ns).Get(t.Context(), "vm", metav1.GetOptions{})
	if err != nil || len(got.Status.Devices) != 1 || len(got.Status.Devices[0].Conditions) != 1 || got.Status.Devices[0].Conditions[0].Type != v1alpha1.ConditionTwinReserved {
		t.Errorf("the claim's status is %+v, %v", got.Status, err)
	}
	rules := map[string]string{}
	list, err := admin.ResourceV1().DeviceTaintRules().List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelManagedBy + "=" + v1alpha1.ManagedByController})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list.Items {
		rules[*r.Spec.DeviceSelector.Pool] = r.Spec.Taint.Value
	}
	if diff := cmp.Diff(map[string]string{first + "/kata-vfio.dev/shared": "Theirs", second: "Ours"}, rules); diff != "" {
		t.Errorf("the rules differ (-want +got):\n%s", diff)
	}
	for _, kind := range []string{"pods", "resourceclaims"} {
		if _, err := p.Kubectl(t.Context(), "delete", kind, "--all", "--namespace", ns, "--force", "--grace-period=0"); err != nil {
			t.Error(err)
		}
	}
	until(t, "no rule is left", func(ctx context.Context) error { return noRules(ctx, admin) })
}

// wantNode waits until a pod is bound to a node.
func wantNode(t *testing.T, admin *kubernetes.Clientset, ns, pod, node string) {
	t.Helper()
	until(t, "pod "+pod+" is bound to "+node, func(ctx context.Context) error {
		got, err := admin.CoreV1().Pods(ns).Get(ctx, pod, metav1.GetOptions{})
		if err == nil && got.Spec.NodeName != node {
			err = fmt.Errorf("its node is %q: %s", got.Spec.NodeName, waiting(ctx, admin, ns))
		}
		return err
	})
}

func noRules(ctx context.Context, admin *kubernetes.Clientset) error {
	list, err := admin.ResourceV1().DeviceTaintRules().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelManagedBy + "=" + v1alpha1.ManagedByController})
	if err == nil && len(list.Items) > 0 {
		err = fmt.Errorf("there are %d", len(list.Items))
	}
	return err
}

// schedulesAtOnce is how many schedules run side by side, on a GPU each, with the same controllers.
const schedulesAtOnce = 200

// checkSchedules runs random schedules with controllers that restart, and with one that lost its lease without knowing and
// writes late. KATA_VFIO_SCHEDULES says how many, KATA_VFIO_SEED from which seed on.
func checkSchedules(t *testing.T, p *controlplane.ControlPlane) {
	n, seed := fromEnvironment(t, "KATA_VFIO_SCHEDULES", schedulesAtOnce), fromEnvironment(t, "KATA_VFIO_SEED", time.Now().UnixNano()%1_000_000)
	t.Logf("%d schedules from seed %d on", n, seed)
	for first := int64(0); first < n; first += schedulesAtOnce {
		runSchedules(t, p, seed+first, min(schedulesAtOnce, n-first))
	}
}

func runSchedules(t *testing.T, p *controlplane.ControlPlane, seed, n int64) {
	t.Helper()
	const contended = 15 * time.Second
	ns, over := namespace(t, p), time.Now().Add(contended)
	config, err := p.RESTConfig(controlplane.Admin())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	admin, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	endLate := lateLeader(t, p, over)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; time.Now().Before(over); i++ {
			stop := runsController(t, p, fmt.Sprint("restarted-", i))
			time.Sleep(5 * time.Second)
			stop()
		}
	})
	for i := range n {
		wg.Go(func() {
			err := contend.Run(t.Context(), contend.Config{
				Client: admin, Namespace: ns, Node: fmt.Sprintf("e2e-contend-%d", seed+i), Seed: uint64(seed + i), For: time.Until(over),
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(time.Until(over))
	endLate()
	stop := runsController(t, p, "last")
	wg.Wait()
	stop() // it would lead the next schedules, without a restart
	for i := range n {
		for _, side := range []string{"ours", "theirs"} {
			if err := admin.ResourceV1().ResourceSlices().Delete(t.Context(), fmt.Sprintf("e2e-contend-%d-%s", seed+i, side), metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	}
}

// lateLeader runs a controller that leads without the lease, and whose writes arrive late.
func lateLeader(t *testing.T, p *controlplane.ControlPlane, until time.Time) (stop func()) {
	t.Helper()
	config := asController(t, p)
	config.QPS = -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &lateWrites{next: next, until: until} })
	own, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := controller.New(controller.Config{
		Client: own, Drivers: []string{contend.Driver}, Recorder: events.NewFakeRecorder(100_000), Metrics: controller.NewMetrics(),
		Log: slog.New(slog.DiscardHandler), Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.Watch(ctx) })
	wg.Go(func() { c.Lead(ctx) })
	return func() { cancel(); wg.Wait() }
}

// lateWrites holds writes back for up to a second.
type lateWrites struct {
	next  http.RoundTripper
	until time.Time
}

func (l *lateWrites) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && time.Now().Before(l.until) {
		time.Sleep(time.Duration(rand.Int64N(int64(time.Second))))
	}
	return l.next.RoundTrip(r)
}

func fromEnvironment(t *testing.T, variable string, otherwise int64) int64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/test/bench/fleet"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
	"github.com/kata-vfio/kata-vfio/test/e2e/queue"
)

const (
	queueExamples = "../../deploy/examples/queue/"
	queueNode     = "e2e-queue"
	// queueVFs is how many VFs each of the node's eight PFs has. One of each is its pair's.
	queueVFs = 4
	gpuQuota = "kata-vfio.dev/gpus"
	vfQuota  = "kata-vfio.dev/vfs"
	// memoryQuota is that of kueue-configuration-memory.yaml.
	memoryQuota = "kata-vfio.dev/gpu-memory"
)

// queued is a tenant's namespace whose Jobs wait in a queue of Kueue.
type queued struct {
	t     *testing.T
	plane *controlplane.ControlPlane
	admin *kubernetes.Clientset
	ns    string
}

// TestKueue has Kueue's own controller admit Jobs against the quota of deploy/examples/queue, and the scheduler allocate
// our devices to their pods. `make cluster` leaves it out: compiling Kueue takes longer than all other tests of the control plane.
func TestKueue(t *testing.T) {
	p := installed(t)
	k := startKueue(t, p, "kueue-configuration.yaml")
	addQueueNode(t, p)
	q := &queued{t: t, plane: p, admin: client(t, p, controlplane.Admin()), ns: tenantNamespace(t, p)}
	q.apply(queueExample(t, "cluster-queue.yaml"))
	t.Cleanup(func() {
		// The test's own context is over by now.
		if _, err := p.Kubectl(context.Background(), "delete", "--wait=false", "clusterqueue/vms", "resourceflavor/kata"); err != nil {
			t.Error(err)
		}
	})
	t.Run("JobOfExampleRuns", q.testExample)
	t.Run("JobsAreCharged", q.testCharges)
	t.Run("JobWaitsForQuota", q.testQuota)
	t.Run("JobForQuarantinedDeviceWaits", q.testQuarantined)
	t.Run("RequestsThatKueueRefuses", q.testRefused)
	if err := k.Lost(); err != nil {
		t.Error(err)
	}
	k.Stop()
	t.Run("JobsAreChargedByMemory", q.testMemory)
}

// startKueue starts Kueue with the mappings of an example.
func startKueue(t *testing.T, p *controlplane.ControlPlane, example string) *queue.Kueue {
	t.Helper()
	var configuration struct {
		Resources map[string]any `json:"resources"`
	}
	if err := yaml.Unmarshal([]byte(queueExample(t, example)), &configuration); err != nil {
		t.Fatal(err)
	}
	k, err := queue.Start(t.Context(), p, queue.Config{Resources: configuration.Resources, Dir: t.TempDir(), Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	return k
}

func queueExample(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(queueExamples, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// addQueueNode adds a node with eight GPUs, eight PFs and pairs, whose plugin has quarantined its last GPU.
func addQueueNode(t *testing.T, p *controlplane.ControlPlane) {
	t.Helper()
	addFitNode(t, p, queueNode)
	keepReady(t, p, queueNode)
	node := fleet.Node(queueNode, queueVFs, &v1alpha1.NodeConfig{Pairing: v1alpha1.PairingSwitch, QuotaCounters: true})
	for _, s := range fleet.Slices(publish.Pools(node), queueNode, queueNode) {
		quarantine(s, quarantinedGPU)
		published(t, p, pluginOn(t, p, queueNode).ResourceV1().ResourceSlices(), s)
	}
}

// quarantinedGPU is the address of the node's last GPU.
const quarantinedGPU = "0000:82:00.0"

func quarantine(s *resourcev1.ResourceSlice, address string) {
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		if at := d.Attributes["resource.kubernetes.io/pciBusID"].StringValue; at != nil && *at == address {
			d.Taints = append(d.Taints, resourcev1.DeviceTaint{Key: driver + "/quarantined", Effect: resourcev1.DeviceTaintEffectNoSchedule})
		}
	}
}

// keepReady renews a node's lease, as its kubelet would, until the test ends.
func keepReady(t *testing.T, p *controlplane.ControlPlane, node string) {
	t.Helper()
	leases := client(t, p, controlplane.Admin()).CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &node, LeaseDurationSeconds: new(int32(40)), RenewTime: &metav1.MicroTime{Time: time.Now()}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Second):
				lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
				if renewed, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err == nil {
					lease = renewed
				}
			}
		}
	}()
	t.Cleanup(func() { stop(); <-done })
}

func (q *queued) apply(text string) {
	q.t.Helper()
	apply(q.t, q.plane, q.ns, text)
}

// job is a Job of pods that each have a claim of a template with the requests, or extended resources.
type job struct {
	name     string
	pods     int
	requests string // of the template, as YAML in one line
	matching string // an attribute that all devices must share; none if empty
	byName   bool   // the pods name one claim, and no template
	limits   string // more limits of the container, as YAML in one line
	queue    string // the queue's name; that of the example if empty
	asked    string // more requests of it: Kueue does not take those of an extended resource from the limits
}

func (j job) yaml() string {
	if j.queue == "" {
		j.queue = "vms"
	}
	devices := "{devices: {requests: [" + j.requests + "]}}"
	if j.matching != "" {
		devices = "{devices: {requests: [" + j.requests + "], constraints: [{matchAttribute: " + j.matching + "}]}}"
	}
	kind, spec, reference := "ResourceClaimTemplate", "{spec: "+devices+"}", "resourceClaimTemplateName"
	if j.byName {
		kind, spec, reference = "ResourceClaim", devices, "resourceClaimName"
	}
	claim := fmt.Sprintf("apiVersion: resource.k8s.io/v1\nkind: %s\nmetadata: {name: %s}\nspec: %s\n---\n", kind, j.name, spec)
	claims, named := fmt.Sprintf("[{name: devices, %s: %s}]", reference, j.name), "[{name: devices}]"
	if j.requests == "" {
		claim, claims, named = "", "[]", "[]"
	}
	return claim + fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: %s, labels: {kueue.x-k8s.io/queue-name: %[7]s}}
spec:
  parallelism: %[2]d
  completions: %[2]d
  template:
    spec:
      restartPolicy: Never
      runtimeClassName: kata-gpu
      resourceClaims: %[3]s
      containers:
      - {name: main, image: example.com/none:1, resources: {requests: {cpu: "1"%[6]s}, limits: {cpu: "1", memory: 1Gi%[4]s}, claims: %[5]s}}
`, j.name, j.pods, claims, j.limits, named, j.asked, j.queue)
}

func exactly(class string, count int, more string) string {
	return fmt.Sprintf("{name: devices, exactly: {deviceClassName: %s, count: %d%s}}", class, count, more)
}

// remove deletes a Job, and its pods by force: no kubelet ends them.
func (q *queued) remove(t *testing.T, name string) {
	t.Helper()
	for _, args := range [][]string{
		{"job/" + name, "--cascade=background", "--wait=false"},
		{"pods", "--selector=batch.kubernetes.io/job-name=" + name, "--force", "--grace-period=0", "--wait=false"},
	} {
		if _, err := q.plane.Kubectl(t.Context(), append([]string{"delete", "--namespace", q.ns}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the pods of "+name+" are gone", func(ctx context.Context) error {
		pods, err := q.podsOf(ctx, name)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%d are left", len(pods))
		}
		return err
	})
}

func (q *queued) podsOf(ctx context.Context, job string) ([]corev1.Pod, error) {
	list, err := q.admin.CoreV1().Pods(q.ns).List(ctx, metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=" + job})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// kueueWorkload is what a test reads of Kueue's Workload.
type kueueWorkload struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   struct {
		Conditions []metav1.Condition `json:"conditions"`
		Admission  *struct {
			PodSetAssignments []struct {
				ResourceUsage map[string]resource.Quantity `json:"resourceUsage"`
			} `json:"podSetAssignments"`
		} `json:"admission"`
	} `json:"status"`
}

// charged returns the devices that the Workload is charged for.
func (w *kueueWorkload) charged() map[string]int64 {
	charged := map[string]int64{}
	for _, set := range w.Status.Admission.PodSetAssignments {
		for _, name := range []string{gpuQuota, vfQuota, memoryQuota} {
			if amount := set.ResourceUsage[name]; !amount.IsZero() {
				charged[name] += amount.Value()
			}
		}
	}
	return charged
}

// told returns all that the Workload's conditions say.
func (w *kueueWorkload) told() string {
	var all []string
	for _, c := range w.Status.Conditions {
		all = append(all, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return strings.Join(all, "\n")
}

// workloadOf returns the Workload of a Job.
func (q *queued) workloadOf(ctx context.Context, job string) (*kueueWorkload, error) {
	out, err := q.admin.RESTClient().Get().AbsPath("/apis/kueue.x-k8s.io/v1beta2/namespaces/" + q.ns + "/workloads").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []kueueWorkload `json:"items"`
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, err
	}
	for _, w := range list.Items {
		if slices.ContainsFunc(w.Metadata.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Name == job }) {
			return &w, nil
		}
	}
	return nil, fmt.Errorf("job %s has no Workload", job)
}

// admitted waits until Kueue has admitted a Job and the scheduler its pods, and returns what it is charged for.
func (q *queued) admitted(t *testing.T, name string, pods int) map[string]int64 {
	t.Helper()
	var charged map[string]int64
	until(t, "job "+name+" is admitted", func(ctx context.Context) error {
		w, err := q.workloadOf(ctx, name)
		if err == nil && w.Status.Admission == nil {
			err = errors.New(w.told())
		}
		if err == nil {
			charged = w.charged()
		}
		return err
	})
	until(t, "the pods of job "+name+" have a node", func(ctx context.Context) error {
		all, err := q.podsOf(ctx, name)
		if err != nil {
			return err
		}
		bound := slices.DeleteFunc(all, func(p corev1.Pod) bool { return p.Spec.NodeName != queueNode })
		if len(bound) != pods {
			return fmt.Errorf("%d of %d have: %s", len(bound), pods, waiting(ctx, q.admin, q.ns))
		}
		return nil
	})
	return charged
}

// held waits until a Workload's conditions say why it waits.
func (q *queued) held(t *testing.T, name, why string) {
	t.Helper()
	until(t, "job "+name+" waits", func(ctx context.Context) error {
		w, err := q.workloadOf(ctx, name)
		if err == nil && (w.Status.Admission != nil || !strings.Contains(w.told(), why)) {
			err = fmt.Errorf("want %q in:\n%s", why, w.told())
		}
		return err
	})
}

func (q *queued) testExample(t *testing.T) {
	q.apply(queueExample(t, "job.yaml"))
	want := map[string]int64{gpuQuota: 2}
	if diff := cmp.Diff(want, q.admitted(t, "two-gpus", 1)); diff != "" {
		t.Errorf("the charge differs (-want +got):\n%s", diff)
	}
	q.remove(t, "two-gpus")
}

func (q *queued) testCharges(t *testing.T) {
	q.nameExtendedResource(t, "example.com/gpu")
	const extended = ", example.com/gpu: 1"
	for _, test := range []struct {
		job
		want map[string]int64
	}{
		{job{name: "one", pods: 1, requests: exactly("gpu."+driver, 1, "")}, map[string]int64{gpuQuota: 1}},
		{job{name: "eight-vfs", pods: 2, requests: exactly("vf."+driver, 4, "")}, map[string]int64{vfQuota: 8}},
		{job{name: "near", pods: 1, matching: "resource.kubernetes.io/pcieRoot", requests: "{name: gpu, exactly: {deviceClassName: gpu.kata-vfio.dev}}, " +
			"{name: vf, exactly: {deviceClassName: vf.kata-vfio.dev}}"}, map[string]int64{gpuQuota: 1, vfQuota: 1}},
		{job{name: "pair", pods: 1, requests: exactly("gpu-vf."+driver, 1, "")}, map[string]int64{gpuQuota: 1}},
		{job{name: "selected", pods: 1, requests: exactly("gpu."+driver, 3,
			`, selectors: [{cel: {expression: 'device.attributes["kata-vfio.dev"].?vendor.orValue("") == "10de"'}}]`)}, map[string]int64{gpuQuota: 3}},
		{job{name: "extended", pods: 1, limits: extended, asked: extended}, map[string]int64{gpuQuota: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			q.apply(test.yaml())
			if diff := cmp.Diff(test.want, q.admitted(t, test.name, test.pods)); diff != "" {
				t.Errorf("the charge differs (-want +got):\n%s", diff)
			}
			q.remove(t, test.name)
		})
	}
}

// nameExtendedResource gives the GPUs' class a name for resources.limits, as the chart's deviceClasses.gpu.extendedResourceName
// does, for the time of the test.
func (q *queued) nameExtendedResource(t *testing.T, name string) {
	t.Helper()
	set := func(ctx context.Context, to string) error {
		_, err := q.plane.Kubectl(ctx, "patch", "deviceclass/gpu."+driver, "--type=merge", "--patch", `{"spec": {"extendedResourceName": `+to+`}}`)
		return err
	}
	if err := set(t.Context(), `"`+name+`"`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context is over by now.
		if err := set(context.Background(), "null"); err != nil {
			t.Error(err)
		}
	})
}

func (q *queued) testQuota(t *testing.T) {
	first := job{name: "first", pods: 1, requests: exactly("gpu."+driver, 2, "")}
	second := job{name: "second", pods: 1, requests: exactly("gpu."+driver, 2, "")}
	q.apply(first.yaml())
	q.admitted(t, first.name, 1)
	q.apply(second.yaml())
	q.held(t, second.name, "insufficient unused quota for "+gpuQuota)
	q.remove(t, first.name)
	q.admitted(t, second.name, 1)
	q.remove(t, second.name)
}

// testQuarantined: Kueue does not look at taints, so the Job has its quota while its pod waits.
func (q *queued) testQuarantined(t *testing.T) {
	j := job{name: "quarantined", pods: 1, requests: exactly("gpu."+driver, 1,
		`, selectors: [{cel: {expression: 'device.attributes["resource.kubernetes.io"].?pciBusID.orValue("") == "`+quarantinedGPU+`"'}}]`)}
	q.apply(j.yaml())
	until(t, "its pod waits for a device", func(ctx context.Context) error {
		w, err := q.workloadOf(ctx, j.name)
		if err != nil {
			return err
		}
		if why := waiting(ctx, q.admin, q.ns); w.Status.Admission == nil || !strings.Contains(why, "cannot allocate") {
			return fmt.Errorf("%s\npods: %s", w.told(), why)
		}
		return nil
	})
	q.remove(t, j.name)
}

func (q *queued) testRefused(t *testing.T) {
	const class, allowAll = "gpu." + driver, "kata-vfio.dev/allow-all"
	if _, err := q.plane.Kubectl(t.Context(), "annotate", "--overwrite", "deviceclass", class, allowAll+"=true"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context is over by now.
		if _, err := q.plane.Kubectl(context.Background(), "annotate", "deviceclass", class, allowAll+"-"); err != nil {
			t.Error(err)
		}
	})
	grantWholeFunctions(t, q.plane, q.ns) // the policies know of the annotation when they know of this grant
	awaitWholeFunctions(t, q.plane, q.ns)
	const implicit = ", deviceclass.resource.kubernetes.io/gpu.kata-vfio.dev: 1"
	refused := map[string]struct {
		job
		why string
	}{
		"alternatives": {job{requests: "{name: devices, firstAvailable: [{name: a, deviceClassName: gpu.kata-vfio.dev}]}"}, "not supported"},
		"all":          {job{requests: "{name: devices, exactly: {deviceClassName: gpu.kata-vfio.dev, allocationMode: All}}"}, "not supported"},
		"by-name":      {job{requests: exactly("gpu."+driver, 1, ""), byName: true}, "resource claims not supported"},
		"implicit":     {job{limits: implicit, asked: implicit}, "unavailable in ClusterQueue"},
		"too-many":     {job{requests: exactly("gpu."+driver, 9, "")}, "insufficient"},
		"unmapped":     {job{requests: exactly("pf."+driver, 1, "")}, "is not mapped"},
	}
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		t.Run(name, func(t *testing.T) {
			j := refused[name].job
			j.name, j.pods = name, 1
			q.apply(j.yaml())
			q.held(t, name, refused[name].why)
			q.remove(t, name)
		})
	}
}

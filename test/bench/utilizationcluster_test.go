//go:build e2e

package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/kata-vfio/kata-vfio/test/bench/fleet"
	"github.com/kata-vfio/kata-vfio/test/bench/utilization"
	"github.com/kata-vfio/kata-vfio/test/e2e/binaries"
)

const (
	// clusterHour is an hour of the trace.
	clusterHour = 5 * time.Second
	// clusterWindow is how long jobs arrive in the trace, and are looked at.
	clusterWindow = 40 * time.Hour
	// fewNodes is the size of each of the clusters.
	fewNodes = 8
	// variantLabel and kindLabel are on nodes: the cluster, and in split ones the kind of jobs.
	variantLabel, kindLabel = "bench.kata-vfio.dev/cluster", "bench.kata-vfio.dev/jobs"
)

// schedulerConfig has a profile for each order.
const schedulerConfig = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %s, qps: 1000, burst: 2000}
leaderElection: {leaderElect: false}
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
profiles:
- schedulerName: packing
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}]}
- schedulerName: spreading
`

// variant is a cluster in the API server: some of its nodes.
type variant struct {
	name     string
	policy   utilization.Policy
	first    int // of its nodes
	mu       sync.Mutex
	outcomes []utilization.Outcome
}

func variants() []*variant {
	all := []*variant{{name: "one-pool-packing"}, {name: "split-packing"}, {name: "one-pool-spreading"}, {name: "split-spreading"}}
	for i, v := range all {
		v.first, v.policy = i*fewNodes, onePool()
		v.policy.Nodes = fewNodes
		if i%2 == 1 {
			v.policy.VMNodes = 3
		}
		if i > 1 {
			v.policy.Order = utilization.Spread
		}
	}
	return all
}

func (v *variant) scheduler() string {
	if v.policy.Order == utilization.Spread {
		return "spreading"
	}
	return "packing"
}

// labels are those of nodes for a kind of jobs.
func (v *variant) labels(vm bool) map[string]string {
	labels := map[string]string{variantLabel: v.name}
	if v.policy.VMNodes != utilization.OnePool {
		labels[kindLabel] = map[bool]string{true: "vms", false: "containers"}[vm]
	}
	return labels
}

// scaled is a time of the trace on the clock.
func scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * float64(clusterHour) / float64(time.Hour))
}

// BenchmarkUtilizationScheduler runs traces with the real control plane and kube-scheduler, an hour in five seconds, and compares
// with virtual time. Nodes are objects only: the benchmark ends a pod when its job's time is over.
func BenchmarkUtilizationScheduler(b *testing.B) {
	for first := true; b.Loop(); first = false {
		if first {
			compareWithScheduler(b)
		}
	}
	b.ReportMetric(0, "ns/op")
}

func compareWithScheduler(b *testing.B) {
	b.Helper()
	c := newCluster(b)
	c.startScheduler(b)
	jobs, all := jobsOfOneNode(), variants()
	for _, v := range all {
		c.addVariant(b, v)
	}
	runAll(b, c, all, jobs)
	a, err := utilization.NewAllocator(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	span := utilization.Span{To: clusterWindow}
	w := figuresTable(fmt.Sprintf("%d jobs, %d nodes", len(jobs), fewNodes))
	defer w.Flush()
	for _, v := range all {
		var real utilization.Sample
		real.Add(v.policy, jobs, v.outcomes, span)
		virtual, alikes := virtualRuns(a, v, jobs, span)
		used, few, many := real.Figures(), virtual[virtualSeeds/20], virtual[virtualSeeds-virtualSeeds/20]
		figuresRow(w, v.name+", scheduler", used)
		figuresRow(w, v.name+", virtual, p5 of GPU-hours", few)
		figuresRow(w, v.name+", virtual, median", virtual[virtualSeeds/2])
		figuresRow(w, v.name+", virtual, p95", many)
		b.ReportMetric(used.Used/virtual[virtualSeeds/2].Used, "GPU-hours-"+v.name+"/virtual")
		b.ReportMetric(100*alikes, "%-alike-"+v.name)
	}
}

// virtualSeeds is in how many ways nodes of equal score are chosen in virtual time.
const virtualSeeds = 200

// virtualRuns returns the figures by GPU-hours, and the largest share of jobs that had the same outcome as in the cluster.
func virtualRuns(a *utilization.Allocator, v *variant, jobs []utilization.Job, span utilization.Span) ([]utilization.Figures, float64) {
	var all []utilization.Figures
	most := 0.0
	for seed := range uint64(virtualSeeds) {
		p := v.policy
		p.Ties = seed
		outcomes := seenInWindow(utilization.Run(a, p, jobs))
		var s utilization.Sample
		s.Add(p, jobs, outcomes, span)
		all = append(all, s.Figures())
		most = max(most, alike(outcomes, v.outcomes))
	}
	slices.SortFunc(all, func(a, b utilization.Figures) int { return cmp.Compare(a.Used, b.Used) })
	return all, most
}

// waits is the outcome of a job that still waits at the end.
func waits() utilization.Outcome {
	return utilization.Outcome{Granted: clusterWindow, Running: clusterWindow, Done: clusterWindow, Gone: clusterWindow}
}

// seenInWindow forgets what comes after the end.
func seenInWindow(all []utilization.Outcome) []utilization.Outcome {
	for i := range all {
		if o := &all[i]; o.Granted > clusterWindow || o.Refused && o.Gone > clusterWindow {
			*o = waits()
		}
	}
	return all
}

// alike is the share of jobs that are refused in both, or granted within an hour.
func alike(a, b []utilization.Outcome) float64 {
	n := 0
	for i := range a {
		if a[i].Refused == b[i].Refused && (a[i].Granted-b[i].Granted).Abs() < time.Hour {
			n++
		}
	}
	return float64(n) / float64(len(a))
}

// jobsOfOneNode is a trace without the jobs that need several nodes: nothing here starts pods together.
func jobsOfOneNode() []utilization.Job {
	all := utilization.Generate(utilization.Workload{
		Seed: firstSeed, Window: clusterWindow, GPUs: fewNodes * utilization.PerNode, Load: 2.5, VMShare: usualShare, Swing: 1,
	})
	var jobs []utilization.Job
	for _, j := range all {
		if j.GPUs <= utilization.PerNode {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// startScheduler starts a kube-scheduler with both orders, beside the control plane's.
func (c *cluster) startScheduler(b *testing.B) {
	b.Helper()
	set, err := binaries.Ensure(b.Context(), binaries.Config{Modules: []binaries.Module{binaries.Kube}})
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	config := filepath.Join(dir, "scheduler.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, schedulerConfig, c.kubeconfig(b)), 0o600); err != nil {
		b.Fatal(err)
	}
	start(b, exec.CommandContext(b.Context(), set.Path("kube-scheduler"), "--config="+config, "--secure-port=0"), filepath.Join(dir, "scheduler.log"))
}

// addVariant makes the nodes of a cluster and what the plugin publishes there.
func (c *cluster) addVariant(b *testing.B, v *variant) {
	b.Helper()
	if v.first == 0 {
		if _, err := c.admin.ResourceV1().DeviceClasses().Create(b.Context(), utilization.Class(), metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	for i := range v.policy.Nodes {
		has := corev1.ResourceList{
			"cpu": resource.MustParse("80"), "memory": resource.MustParse("80Gi"), "pods": resource.MustParse("110"),
		}
		_, err := c.admin.CoreV1().Nodes().Create(b.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fleet.Name(v.first + i), Labels: v.labels(i < v.policy.VMNodes)},
			Status:     corev1.NodeStatus{Capacity: has, Allocatable: has},
		}, metav1.CreateOptions{})
		if err != nil {
			b.Fatal(err)
		}
		for _, s := range utilization.Slices(v.first + i) {
			if _, err := c.admin.ResourceV1().ResourceSlices().Create(b.Context(), s, metav1.CreateOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// jobPod is the pod of a job, by name.
func (v *variant) jobPod(name string, j *utilization.Job) *corev1.Pod {
	pod := podOf(name)
	pod.Spec.NodeName, pod.Spec.RuntimeClassName = "", nil
	pod.Spec.SchedulerName, pod.Spec.NodeSelector = v.scheduler(), v.labels(j.VM)
	pod.Spec.TerminationGracePeriodSeconds = new(int64(0))
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		"cpu": *resource.NewQuantity(10*int64(j.GPUs), resource.DecimalSI), "memory": *resource.NewQuantity(10*int64(j.GPUs)<<30, resource.BinarySI),
	}
	return pod
}

// bound tells which pods are on a node.
type bound struct {
	mu   sync.Mutex
	pods map[string]chan struct{}
}

// of is closed when the pod is on a node.
func (w *bound) of(pod string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pods[pod] == nil {
		w.pods[pod] = make(chan struct{})
	}
	return w.pods[pod]
}

func (w *bound) see(object any) {
	pod, is := object.(*corev1.Pod)
	if !is || pod.Spec.NodeName == "" {
		return
	}
	c := w.of(pod.Name)
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-c:
	default:
		close(c)
	}
}

// watchPods watches until the benchmark ends.
func (c *cluster) watchPods(b *testing.B) *bound {
	b.Helper()
	w := &bound{pods: map[string]chan struct{}{}}
	pods := cache.NewListWatchFromClient(c.admin.CoreV1().RESTClient(), "pods", namespace, fields.Everything())
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: pods, ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: w.see, UpdateFunc: func(_, now any) { w.see(now) }},
	})
	go informer.RunWithContext(b.Context())
	if !cache.WaitForCacheSync(b.Context().Done(), informer.HasSynced) {
		b.Fatal("the pods are not listed")
	}
	return w
}

// runAll runs the trace on all clusters at once, until the window is over.
func runAll(b *testing.B, c *cluster, all []*variant, jobs []utilization.Job) {
	b.Helper()
	seen := c.watchPods(b)
	begin := time.Now()
	ctx, cancel := context.WithDeadline(b.Context(), begin.Add(scaled(clusterWindow)))
	defer cancel()
	var running wait.Group
	for _, v := range all {
		v.outcomes = make([]utilization.Outcome, len(jobs))
		for i := range jobs {
			r := &jobRun{cluster: c, variant: v, job: &jobs[i], number: i, begin: begin, seen: seen}
			running.Start(func() {
				if err := r.run(ctx); err != nil && ctx.Err() == nil {
					b.Errorf("job %d of %s: %v", i, v.name, err)
				}
			})
		}
	}
	running.Wait()
}

// jobRun is one job of a cluster.
type jobRun struct {
	*cluster
	variant *variant
	job     *utilization.Job
	number  int
	begin   time.Time
	seen    *bound
}

// now is the trace's time.
func (r *jobRun) now() time.Duration {
	return time.Duration(float64(time.Since(r.begin)) * float64(time.Hour) / float64(clusterHour))
}

// sleep waits until a time of the trace, or until the end.
func (r *jobRun) sleep(ctx context.Context, until time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(r.begin.Add(scaled(until)))):
		return nil
	}
}

func (r *jobRun) run(ctx context.Context) error {
	name := strings.ToLower(fmt.Sprintf("%s-%d", r.variant.name, r.number))
	r.record(waits())
	if err := r.sleep(ctx, r.job.Arrival); err != nil {
		return err
	}
	if err := r.submit(ctx, name); err != nil {
		return err
	}
	patient, cancel := context.WithDeadline(ctx, r.begin.Add(scaled(r.job.Arrival+r.variant.policy.Patience)))
	defer cancel()
	select {
	case <-r.seen.of(name):
	case <-patient.Done():
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.record(utilization.Outcome{Refused: true, Gone: r.now()})
		return r.remove(ctx, name)
	}
	before, after := r.variant.policy.Around(r.job)
	o := utilization.Outcome{Granted: r.now()}
	o.Running = o.Granted + before
	o.Done = o.Running + r.job.Duration
	o.Gone = o.Done + after
	r.record(o)
	if err := r.sleep(ctx, o.Gone); err != nil {
		return err
	}
	return r.remove(ctx, name)
}

func (r *jobRun) record(o utilization.Outcome) {
	r.variant.mu.Lock()
	defer r.variant.mu.Unlock()
	r.variant.outcomes[r.number] = o
}

// submit makes the job's claim and pod.
func (r *jobRun) submit(ctx context.Context, name string) error {
	claim := utilization.Claim(r.job.GPUs)
	claim.ObjectMeta = metav1.ObjectMeta{Name: name}
	if _, err := r.admin.ResourceV1().ResourceClaims(namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := r.admin.CoreV1().Pods(namespace).Create(ctx, r.variant.jobPod(name, r.job), metav1.CreateOptions{})
	return err
}

// remove removes them. The claim is free when the controller has seen that its pod is gone.
func (r *jobRun) remove(ctx context.Context, name string) error {
	err := r.admin.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	if err != nil {
		return err
	}
	return r.admin.ResourceV1().ResourceClaims(namespace).Delete(ctx, name, metav1.DeleteOptions{})
}

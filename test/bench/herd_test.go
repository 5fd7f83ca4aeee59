//go:build e2e

package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/test/bench/fleet"
	"github.com/kata-vfio/kata-vfio/test/bench/standin"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

const (
	// herdSize is the number of plugins, and herdClaims how many prepared claims each has.
	herdSize, herdClaims = 1000, 2
	// apiServer is the component that is restarted.
	apiServer = "kube-apiserver"
	// outage is how long nobody listens on its port, and is what a restart of a static pod takes.
	outage = 10 * time.Second
	// Requests are counted for herdStart after each start of the plugins and for herdReturn after the restart of the API
	// server. The minute until herdEnd after the second start is the steady state: plugins that keep together look for orphans
	// in the middle of it.
	herdStart, herdReturn, herdEnd = 70 * time.Second, 45 * time.Second, 330 * time.Second
)

// BenchmarkThousandPlugins runs a thousand plugins' sides of one real API server: all start at once with nothing
// published, they start again, the API server is killed and comes back, and then nothing happens. Plugins that keep
// together, without what spreads their requests, are the comparison. The third herd is spread, and has the priority
// level that the chart makes with flowControl.enabled.
func BenchmarkThousandPlugins(b *testing.B) {
	for _, way := range []herdWay{{name: "together", together: true}, {name: "spread"}, {name: "level", level: true}} {
		b.Run(way.name, func(b *testing.B) {
			for done := false; b.Loop(); done = true {
				if !done { // one round takes minutes
					runHerd(b, way)
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// herdWay is how the plugins of a herd ask the API server.
type herdWay struct {
	name string
	// together leaves out what spreads the requests; level adds a priority level for them.
	together, level bool
}

// runHerd runs the phases of one herd.
func runHerd(b *testing.B, way herdWay) {
	h := newHerd(b, way)
	first, stop := h.start(b, "first start")
	published := h.publishedAll(b, first)
	h.counted(b, "first start", first.Add(herdStart))
	stop()
	begin, _ := h.start(b, "start")
	h.counted(b, "start", begin.Add(herdStart))
	h.restartServer(b)
	pause(b, begin.Add(herdEnd-time.Minute))
	h.phase(b, "steady", time.Now())
	h.counted(b, "steady", begin.Add(herdEnd))
	b.ReportMetric(published.Seconds(), "published-s")
	if err := h.traffic.draw(b.Name(), h.first); err != nil {
		b.Fatal(err)
	}
}

// restartServer kills the API server, and counts from when it is ready again.
func (h *herd) restartServer(b *testing.B) {
	b.Helper()
	killed := time.Now()
	if err := h.Restart(b.Context(), apiServer, outage); err != nil {
		b.Fatal(err)
	}
	ready := time.Now()
	h.phase(b, "server restart", ready)
	watching := h.watching(b, ready)
	fmt.Printf("ready %.1f s after the kill; all watch %.1f s later\n", ready.Sub(killed).Seconds(), watching.Seconds())
	b.ReportMetric(watching.Seconds(), "watching-s")
	h.counted(b, "server restart", ready.Add(herdReturn))
}

// start starts the plugins and begins a phase with it.
func (h *herd) start(b *testing.B, phase string) (time.Time, func()) {
	b.Helper()
	all := h.plugins(b)
	h.phase(b, phase, time.Now())
	return time.Now(), h.run(b, all)
}

// phase begins to count.
func (h *herd) phase(b *testing.B, name string, begin time.Time) {
	b.Helper()
	h.traffic.restart()
	h.begin, h.used = begin, h.processorTime(b)
	if h.first.IsZero() {
		h.first = begin
	}
	fmt.Printf("%s: from second %.0f of the plot\n", name, begin.Sub(h.first).Seconds())
}

// counted waits for the end of a phase, and states the figures that tell a herd.
func (h *herd) counted(b *testing.B, name string, end time.Time) {
	b.Helper()
	pause(b, end)
	c := h.traffic.since(h.begin)
	fmt.Printf("%s: %s; %.1f s of the API server's processor time\n", name, c, (h.processorTime(b) - h.used).Seconds())
	h.printServer(b)
	unit := strings.ReplaceAll(name, " ", "-")
	b.ReportMetric(float64(c.peak), unit+"-peak/s")
	b.ReportMetric(float64(c.total)/herdSize, unit+"-requests/plugin")
	b.ReportMetric(float64(c.codes[429]), unit+"-refused")
	if c.connections > 0 {
		b.ReportMetric(float64(c.connections)/herdSize, unit+"-connections/plugin")
	}
}

// herd is a control plane with the plugins of many nodes.
type herd struct {
	*controlplane.ControlPlane
	herdWay
	admin   *kubernetes.Clientset
	traffic *traffic
	first   time.Time     // begin of the first phase
	begin   time.Time     // of the phase
	used    time.Duration // by the API server before it
	records map[string][]*journal.Record
}

// newHerd makes a control plane, the nodes and their claims.
func newHerd(b *testing.B, way herdWay) *herd {
	b.Helper()
	plane, err := controlplane.Start(b.Context(), controlplane.Config{Progress: os.Stderr})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(plane.Stop)
	config, err := plane.RESTConfig(controlplane.Admin())
	if err != nil {
		b.Fatal(err)
	}
	h := &herd{ControlPlane: plane, herdWay: way, traffic: &traffic{}, records: map[string][]*journal.Record{}}
	if h.admin, err = kubernetes.NewForConfig(config); err != nil {
		b.Fatal(err)
	}
	// What the chart's role allows is tested elsewhere.
	_, err = h.admin.RbacV1().ClusterRoleBindings().Create(b.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "herd"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: account().Name}},
	}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	if h.level {
		h.addLevel(b)
	}
	h.fill(b)
	return h
}

// account is the DaemonSet's service account, to which all plugins belong: the API server queues them together.
func account() controlplane.User {
	return controlplane.User{
		Name:   "system:serviceaccount:kata-vfio-system:kata-vfio-plugin",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kata-vfio-system", "system:authenticated"},
	}
}

// fill creates the nodes, and the claims that are prepared on them.
func (h *herd) fill(b *testing.B) {
	b.Helper()
	all := make([][]*journal.Record, herdSize)
	g, ctx := errgroup.WithContext(b.Context())
	g.SetLimit(16)
	for i := range all {
		g.Go(func() (err error) {
			all[i], err = h.fillNode(ctx, fleet.Name(i))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	for i, records := range all {
		h.records[fleet.Name(i)] = records
	}
}

func (h *herd) fillNode(ctx context.Context, node string) ([]*journal.Record, error) {
	if _, err := h.admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	var records []*journal.Record
	claims := h.admin.ResourceV1().ResourceClaims(namespace)
	for i := range herdClaims {
		c, err := claims.Create(ctx, claimOf(fmt.Sprint(node, "-", i)), metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		pool, vf := standin.VF(node, i)
		// Without a pod: the controller manager withdraws an allocation whose pod does not exist.
		c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
			Results: []resourcev1.DeviceRequestAllocationResult{{Request: "device", Driver: v1alpha1.DriverName, Pool: pool, Device: vf}},
		}}
		c.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: v1alpha1.DriverName, Pool: pool, Device: vf, Conditions: []metav1.Condition{
			{Type: dra.ConditionReady, Status: metav1.ConditionTrue, Reason: "Prepared", LastTransitionTime: metav1.Now()},
		}}}
		if c, err = claims.UpdateStatus(ctx, c, metav1.UpdateOptions{}); err != nil {
			return nil, err
		}
		records = append(records, standin.Record(node, i, c.Namespace, c.Name, string(c.UID)))
	}
	return records, nil
}

// processorTime returns what the API server has used.
func (h *herd) processorTime(b *testing.B) time.Duration {
	b.Helper()
	return processorTime(b, h.Process(apiServer))
}

// run starts all plugins at once, and returns what stops them. They end with the benchmark.
func (h *herd) run(b *testing.B, all []standin.Config) func() {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	g, ctx := errgroup.WithContext(ctx)
	stop := sync.OnceFunc(func() {
		cancel()
		if err := g.Wait(); err != nil {
			b.Error(err)
		}
	})
	b.Cleanup(stop)
	for _, c := range all {
		g.Go(func() error { return standin.Run(ctx, c) })
	}
	return stop
}

// plugins makes what the plugins start from.
func (h *herd) plugins(b *testing.B) []standin.Config {
	b.Helper()
	dir := socketDir(b)
	var all []standin.Config
	for i := range herdSize {
		node := fleet.Name(i)
		config, err := h.RESTConfig(account())
		if err != nil {
			b.Fatal(err)
		}
		h.traffic.count(config, node)
		own := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(own, 0o700); err != nil {
			b.Fatal(err)
		}
		all = append(all, standin.Config{
			Node: node, Server: config, Dir: own, Records: h.records[node], Spread: dra.StartSpread, Together: h.together,
		})
	}
	return all
}

// publishedAll waits until all slices exist and returns how long that took since begin.
func (h *herd) publishedAll(b *testing.B, begin time.Time) time.Duration {
	b.Helper()
	eventually(b, "all slices are published", func(context.Context) error {
		if n := h.traffic.accepted("create resourceslices"); n < herdSize*standin.Slices {
			return fmt.Errorf("%d slices", n)
		}
		return nil
	})
	return h.traffic.lastOf("create resourceslices").Sub(begin)
}

// watching waits until each plugin watches its slices again, and returns how long that took since the API server was ready.
func (h *herd) watching(b *testing.B, ready time.Time) time.Duration {
	b.Helper()
	var last time.Time
	eventually(b, "all plugins watch again", func(context.Context) error {
		var n int
		if n, last = h.traffic.watchersSince(ready.Add(-time.Second)); n < herdSize {
			return fmt.Errorf("%d of %d", n, herdSize)
		}
		return nil
	})
	return last.Sub(ready)
}

// pause waits until a time.
func pause(b *testing.B, until time.Time) {
	b.Helper()
	select {
	case <-b.Context().Done():
		b.Fatal(context.Cause(b.Context()))
	case <-time.After(time.Until(until)):
	}
}

// printServer prints what the API server says of the plugins' watches and of its queues.
func (h *herd) printServer(b *testing.B) {
	b.Helper()
	text, err := h.admin.RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		for name, label := range map[string]string{
			"apiserver_longrunning_requests{":                          `resource="resourceslices"`,
			"apiserver_flowcontrol_rejected_requests_total{":           "",
			"apiserver_flowcontrol_request_wait_duration_seconds_sum{": `priority_level="` + h.levelName() + `"`,
		} {
			if strings.HasPrefix(line, name) && strings.Contains(line, label) {
				fmt.Print("the API server: ", line)
			}
		}
	}
}

package podres_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/podres"
)

// phases are the times of what one thing takes, many times done, by its name.
type phases struct {
	mu    sync.Mutex // guards times
	times map[string][]time.Duration
}

// took adds the time since a beginning. It suits defer.
func (p *phases) took(name string, began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.times[name] = append(p.times[name], time.Since(began))
}

// percentile is the smallest time that p percent of a thing's times don't exceed.
func (p *phases) percentile(name string, percent int) time.Duration {
	slices.Sort(p.times[name])
	return p.times[name][max(0, (len(p.times[name])*percent+99)/100-1)]
}

// timed* stand before what a server asks.
type (
	timedKubelet struct {
		podresourcesv1.PodResourcesListerClient
		*phases
	}
	timedTable struct {
		podres.Assignments
		*phases
	}
	timedPeers struct {
		podres.Peers
		*phases
	}
	timedClaims struct {
		podres.Claims
		*phases
	}
)

func (t timedKubelet) Get(
	ctx context.Context, r *podresourcesv1.GetPodResourcesRequest, o ...grpc.CallOption,
) (*podresourcesv1.GetPodResourcesResponse, error) {
	defer t.took("kubelet", time.Now())
	return t.PodResourcesListerClient.Get(ctx, r, o...)
}

func (t timedTable) View() (*podres.View, error) {
	defer t.took("journal", time.Now())
	return t.Assignments.View()
}

func (t timedPeers) Sandbox(pid int) (podres.PeerSandbox, error) {
	defer t.took("bundle", time.Now())
	return t.Peers.Sandbox(pid)
}

func (t timedClaims) HandOver(ctx context.Context, uid string, to journal.Sandbox) error {
	defer t.took("hand-over", time.Now())
	return t.Claims.HandOver(ctx, uid, to)
}

// BenchmarkGet is what a sandbox waits for: 200 claims on the node, a kubelet and a cluster that answer at once, and a new
// connection each time, because each shim is a process of its own and asks once. It takes turns with an empty call: of the kubelet, on
// a new connection. A third turn is what nobody can have: the same question on a connection that is kept.
func BenchmarkGet(b *testing.B) {
	w := newWorld(b)
	for i := range 199 {
		w.prepared(record(fmt.Sprintf("x%03d", i), fmt.Sprintf("other-%03d", i), gpu))
	}
	w.prepared(record("c1", "p1", gpu))
	w.lists(dynamic("c1", gpu))
	w.startKubelet()
	p := &phases{times: map[string][]time.Duration{}}
	w.confirm = apiServer(b, p)
	cfg := w.config()
	cfg.Kubelet, cfg.Assignments = timedKubelet{cfg.Kubelet, p}, timedTable{cfg.Assignments, p}
	cfg.Peers, cfg.Claims = timedPeers{cfg.Peers, p}, timedClaims{cfg.Claims, p}
	w.start(cfg)
	client, hangUp := w.dial()
	b.Cleanup(hangUp)
	kept := &phases{times: map[string][]time.Duration{}}
	ask := func(to *phases, get func() (*podresourcesv1.PodResources, error)) {
		defer to.took("Get", time.Now())
		if answer, err := get(); err != nil || len(plugged(answer)) != 1 {
			b.Fatalf("Get = %v, %v", plugged(answer), err)
		}
	}
	for b.Loop() {
		ask(p, w.get)
		began := time.Now()
		w.emptyCall(b)
		p.took("empty", began)
		ask(kept, func() (*podresourcesv1.PodResources, error) { return w.getBy(client) })
	}
	for name := range p.times {
		for _, percent := range []int{50, 99} {
			b.ReportMetric(float64(p.percentile(name, percent))/float64(time.Microsecond), fmt.Sprintf("%s-p%d-µs", name, percent))
		}
	}
	for _, percent := range []int{50, 99} {
		empty := float64(p.percentile("empty", percent))
		b.ReportMetric(float64(p.percentile("Get", percent))/empty, fmt.Sprintf("p%d/empty", percent))
		b.ReportMetric(float64(kept.percentile("Get", percent))/empty, fmt.Sprintf("kept-p%d/empty", percent))
	}
}

// apiServer asks a server on loopback about a claim, as the API server is asked, on a connection that is kept.
func apiServer(b *testing.B, p *phases) func(context.Context, string) error {
	b.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.URL.Path) }))
	b.Cleanup(server.Close)
	return func(ctx context.Context, uid string) error {
		defer p.took("cluster", time.Now())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/"+uid, http.NoBody)
		if err != nil {
			return err
		}
		answer, err := server.Client().Do(r)
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}
}

// emptyCall asks the kubelet's double on a connection of its own.
func (w *world) emptyCall(b *testing.B) {
	b.Helper()
	conn, err := grpc.NewClient("unix:"+w.kubeletSocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := podresourcesv1.NewPodResourcesListerClient(conn).Get(b.Context(), &podresourcesv1.GetPodResourcesRequest{}); err != nil {
		b.Fatal(err)
	}
}

//go:build e2e

package bench

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// quiet is how long the plugin makes no call once it has none to make: its client waits up to 200 ms between two.
const quiet = 2 * time.Second

// firstLook is the longest time after its start at which the plugin looks for orphans, which with claims takes calls.
const firstLook = time.Minute

// call is one kind of request to the API server: "get pods", "patch resourceclaims/status".
type call string

// counter stands between the plugin and the API server, and counts what passes.
type counter struct {
	mu    sync.Mutex // guards below
	calls map[call]int
	last  time.Time // of the latest call
}

// startCounter serves the cluster's API on a port of its own, to whoever asks, as the administrator. It returns a
// kubeconfig file.
func startCounter(b *testing.B, c *cluster) (*counter, string) {
	b.Helper()
	config, err := c.RESTConfig(controlplane.Admin())
	if err != nil {
		b.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		b.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		b.Fatal(err)
	}
	n := &counter{calls: map[call]int{}}
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport, FlushInterval: -1, // watches are streams
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.count(callOf(r))
		proxy.ServeHTTP(w, r)
	}))
	b.Cleanup(server.Close)
	b.Cleanup(server.CloseClientConnections) // before that: it waits for watches
	path := filepath.Join(b.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, kubeconfigOf(b, server.URL), 0o600); err != nil {
		b.Fatal(err)
	}
	return n, path
}

func kubeconfigOf(b *testing.B, server string) []byte {
	b.Helper()
	const name = "counted"
	text, err := clientcmd.Write(api.Config{
		Clusters:       map[string]*api.Cluster{name: {Server: server}},
		Contexts:       map[string]*api.Context{name: {Cluster: name}},
		CurrentContext: name,
	})
	if err != nil {
		b.Fatal(err)
	}
	return text
}

// callOf names a request as RBAC would: /api/v1/namespaces/NS/pods/NAME, /apis/GROUP/VERSION/RESOURCE.
func callOf(r *http.Request) call {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	parts = parts[min(len(parts), map[string]int{"api": 2, "apis": 3}[parts[0]]):]
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) == 0 {
		return call("other " + r.URL.Path)
	}
	resource := parts[0]
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	return call(verbOf(r, len(parts) > 1) + " " + resource)
}

func verbOf(r *http.Request, named bool) string {
	switch {
	case r.URL.Query().Has("watch"):
		return "watch"
	case r.Method == http.MethodGet && !named:
		return "list"
	case r.Method == http.MethodPost:
		return "create"
	case r.Method == http.MethodPut:
		return "update"
	}
	return strings.ToLower(r.Method)
}

func (n *counter) count(c call) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls[c]++
	n.last = time.Now()
}

// settled waits until the plugin makes no more calls, and returns those since the last time.
func (n *counter) settled(b *testing.B) map[call]int {
	b.Helper()
	var calls map[call]int
	err := wait.PollUntilContextTimeout(b.Context(), quiet/10, 5*time.Minute, true, func(context.Context) (bool, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if time.Since(n.last) < quiet {
			return false, nil
		}
		calls, n.calls = n.calls, map[call]int{}
		return true, nil
	})
	if err != nil {
		b.Fatalf("the plugin goes on calling the API server: %v: %v", err, n.calls)
	}
	return calls
}

// tally is what some claims have cost.
type tally struct {
	calls  map[call]int
	claims int
}

func (t *tally) add(calls map[call]int, claims int) {
	if t.calls == nil {
		t.calls = map[call]int{}
	}
	for c, n := range calls {
		t.calls[c] += n
	}
	t.claims += claims
}

// report states the calls of one claim by their verbs, and prints them by verb and resource.
func (t *tally) report(b *testing.B, what string) {
	b.Helper()
	for verb, name := range map[string]string{"get": "gets", "patch": "patches", "create": "creates", "update": "updates"} {
		n := 0
		for c, calls := range t.calls {
			if strings.HasPrefix(string(c), verb+" ") {
				n += calls
			}
		}
		b.ReportMetric(float64(n)/float64(t.claims), name+"/"+what)
	}
	for _, c := range slices.Sorted(maps.Keys(t.calls)) {
		fmt.Printf("API calls of %d claims, %s: %d %s\n", t.claims, what, t.calls[c], c)
	}
}

// BenchmarkAPICalls counts the plugin's calls to the API server for a claim: of its preparation with all that is told
// of it, and of its way back.
func BenchmarkAPICalls(b *testing.B) {
	const claims = 10
	c, dir := newCluster(b), socketDir(b)
	counter, kubeconfig := startCounter(b, c)
	p := startPlugin(b, scriptedNode(b, functionsOf(15*claims)), dir, nodeName, kubeconfig)
	// GPUs: a VF's settings take a PF's netlink, which the scripted node lacks.
	gpus := slices.DeleteFunc(c.published(b, 15*claims), func(o offer) bool { return !strings.HasPrefix(o.device, "gpu-") })
	time.Sleep(firstLook)
	fmt.Println("API calls of the start:", counter.settled(b))
	var preparing, unpreparing tally
	for i := 0; b.Loop(); i++ {
		// New ones: Events of the same text on the same objects would be counted up instead of made.
		tenants := c.tenants(b, fmt.Sprintf("counted-%d", i), gpus[:claims])
		counter.settled(b)
		each(b, tenants, p.prepare)
		preparing.add(counter.settled(b), claims)
		each(b, tenants, p.unprepare)
		unpreparing.add(counter.settled(b), claims)
	}
	b.ReportMetric(0, "ns/op")
	preparing.report(b, "prepare")
	unpreparing.report(b, "unprepare")
}

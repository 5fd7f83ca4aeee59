package plugin

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/serving"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// reviewer is an API server whose reviews are all positive, and its kubeconfig.
func reviewer(t *testing.T) (*httptest.Server, string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
			fmt.Fprint(w, `{"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "status": {"authenticated": true, "user": {"username": "p"}}}`)
			return
		}
		fmt.Fprint(w, `{"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": {"allowed": true}}`)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
		"clusters": [{"name": "c", "cluster": {"server": "` + server.URL + `"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return server, file
}

// noMetrics are the metrics of a node without a claim.
func noMetrics() *metrics.Metrics {
	return metrics.New(plugintest.NoRecords{}, func() int { return 0 })
}

// served is where a service with the flags serves metrics.
func served(t *testing.T, m serving.Scraping, kubeconfig string) string {
	t.Helper()
	m.Listen = "127.0.0.1:0"
	s := &service{
		config: Config{Node: node.Config{Name: "worker-1"}, Kubeconfig: kubeconfig, Metrics: Scraping{Serving: m}}, log: slog.New(slog.DiscardHandler), metrics: noMetrics(),
	}
	server, err := s.listenMetrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	go func() { _ = server.Serve(t.Context()) }() // it ends with the test
	return server.Addr().String()
}

// scraped is the status that a scraper with a token, if any, gets.
func scraped(t *testing.T, url, token string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// TestRunClosesMetrics: unless --metrics-open is set.
func TestRunClosesMetrics(t *testing.T) {
	api, kubeconfig := reviewer(t)
	closed, open := served(t, serving.Scraping{}, kubeconfig), served(t, serving.Scraping{Open: true}, "testdata/nothing.yaml")
	gone, gonesConfig := reviewer(t)
	gone.Close()
	away := served(t, serving.Scraping{}, gonesConfig)
	for _, c := range []struct {
		url, token string
		want       int
	}{
		{"http://" + closed, "t", 400},
		{"https://" + closed, "", 401},
		{"https://" + closed, "t", 200},
		{"https://" + away, "t", 503},
		{"http://" + open, "", 200},
	} {
		if got := scraped(t, c.url+"/metrics", c.token); got != c.want {
			t.Errorf("%s with token %q: %d, want %d (API server at %s)", c.url, c.token, got, c.want, api.URL)
		}
	}
}

// TestRunNeedsItsCertificateAndAPIServer: it neither falls back to another certificate nor to
// metrics for everybody.
func TestRunNeedsItsCertificateAndAPIServer(t *testing.T) {
	_, kubeconfig := reviewer(t)
	for want, config := range map[string]Config{
		"read the certificate for metrics": {Kubeconfig: kubeconfig, Metrics: Scraping{Serving: serving.Scraping{Listen: "127.0.0.1:0", CertFile: "testdata/nothing", KeyFile: "testdata/nothing"}}},
		"find the API server":              {Kubeconfig: "testdata/nothing.yaml", Metrics: Scraping{Serving: serving.Scraping{Listen: "127.0.0.1:0"}}},
	} {
		s := &service{config: config, log: slog.New(slog.DiscardHandler), metrics: noMetrics()}
		if server, err := s.listenMetrics(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v; want %q", server, err, want)
		}
	}
}

package serving_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/serving"
)

func TestProfilesAreServedOnLoopbackOnly(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:0": true, "[::1]:9457": true, ":9457": false, "0.0.0.0:9457": false, "10.0.0.1:9457": false, "localhost:9457": false, "127.0.0.1": false, "": false,
	} {
		if got := serving.Loopback(addr); got != want {
			t.Errorf("%q is loopback: %v, want %v", addr, got, want)
		}
	}
	if _, err := serving.ListenProfiles(t.Context(), "0.0.0.0:0"); err == nil {
		t.Error("profiles are served on all interfaces")
	}
	server, err := serving.ListenProfiles(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
}

// TestProfilesHaveTheirOwnPort: neither the socket of probes nor the port of metrics has them.
func TestProfilesHaveTheirOwnPort(t *testing.T) {
	const path = "/debug/pprof/heap"
	for name, c := range map[string]struct {
		handler http.Handler
		want    int
	}{
		"profiles": {serving.Profiles(), http.StatusOK},
		"probes":   {serving.Probes(func() string { return "" }), http.StatusNotFound},
		"metrics":  {serving.Metrics(prometheus.NewRegistry(), nil), http.StatusNotFound},
	} {
		w := httptest.NewRecorder()
		c.handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		if w.Code != c.want {
			t.Errorf("%s: status %d, want %d", name, w.Code, c.want)
		}
	}
}

package serving_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/serving"
)

// TestScrapesShareACollection: however many scrape at once, collections are few, and each
// scrape has an answer.
func TestScrapesShareACollection(t *testing.T) {
	var rounds atomic.Int64
	server := httptest.NewServer(serving.Metrics(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		rounds.Add(1)
		return nil, nil
	}), nil))
	defer server.Close()
	const scrapes = 400
	var answered, others atomic.Int64
	var wg sync.WaitGroup
	for range scrapes {
		wg.Go(func() {
			resp, err := http.Get(server.URL + "/metrics")
			if err != nil {
				others.Add(1)
				return
			}
			defer resp.Body.Close()
			switch resp.StatusCode {
			case http.StatusOK:
				answered.Add(1)
			case http.StatusServiceUnavailable:
			default:
				others.Add(1)
			}
		})
	}
	wg.Wait()
	t.Logf("%d scrapes at once: %d answered, %d collections", scrapes, answered.Load(), rounds.Load())
	if answered.Load() == 0 || others.Load() > 0 {
		t.Errorf("%d answered, %d neither that nor refused for too many", answered.Load(), others.Load())
	}
	// One for each time that the shared collection grows too old, and no more.
	if rounds.Load() > 10 {
		t.Errorf("%d collections, want at most 10", rounds.Load())
	}
}

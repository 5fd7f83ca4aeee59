package dra_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/dra"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/vf"
)

// TestScrapesShareACollection: however many scrape at once, the PFs are asked few times,
// and each scrape has an answer.
func TestScrapesShareACollection(t *testing.T) {
	n := newNode(t)
	_, vfs := n.k.AddNIC(0x21, 1)
	n.prepared("uid-1", "vf-"+vfs[0].Label())
	var rounds atomic.Int64
	n.metrics.WatchVFs(n.records.List, func(context.Context, pci.Address) ([]vf.Counters, error) {
		rounds.Add(1)
		return nil, nil
	}, false)
	server, err := dra.Listen(t.Context(), "127.0.0.1:0", n.metrics.Registry, func() string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() { _ = server.Serve(t.Context()) }() // it ends with the test
	const scrapes = 400
	var answered, others atomic.Int64
	var wg sync.WaitGroup
	for range scrapes {
		wg.Go(func() {
			resp, err := http.Get("http://" + server.Addr().String() + "/metrics")
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
	t.Logf("%d scrapes at once: %d answered, %d rounds over the PFs", scrapes, answered.Load(), rounds.Load())
	if answered.Load() == 0 || others.Load() > 0 {
		t.Errorf("%d answered, %d neither that nor refused for too many", answered.Load(), others.Load())
	}
	// A round for each time that the shared collection grows too old, and no more.
	if rounds.Load() > 10 {
		t.Errorf("%d rounds over the PFs, want at most 10", rounds.Load())
	}
}

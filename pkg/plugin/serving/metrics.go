package serving

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

const (
	// maxScrapes is how many scrapes are answered at once; others get the status 503.
	maxScrapes = 8
	// scrapeLimit is for one answer, a collection included.
	scrapeLimit = 20 * time.Second
	// writeLimit is for all of a request: the question whether it may, the answer, and sending it.
	writeLimit = reviewLimit + scrapeLimit + 10*time.Second
	// shareFor is how long a collection is shared. It asks each PF that has claimed VFs
	// and reads the journal, and the shortest intervals of scrapes are longer.
	shareFor = 3 * time.Second
)

// MetricsPath is where metrics are, and the URL that a scraper's role names.
const MetricsPath = "/metrics"

// Metrics returns the handler of [MetricsPath], protected by guard. With a nil guard it
// serves every client.
func Metrics(registry prometheus.Gatherer, guard *Guard) http.Handler {
	scrapes := promhttp.HandlerFor(&sharedGatherer{from: registry, now: time.Now}, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, Timeout: scrapeLimit,
	})
	if guard != nil {
		scrapes = guard.protect(scrapes)
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+MetricsPath, scrapes)
	return mux
}

// sharedGatherer collects once for all who ask while a collection is under way or
// within shareFor after it. It is safe for concurrent use.
type sharedGatherer struct {
	from prometheus.Gatherer
	now  func() time.Time

	mu       sync.Mutex // guards all below, and is held while it collects
	until    time.Time
	families []*dto.MetricFamily // shared with those who asked, who only read it
	err      error
}

// Gather implements [prometheus.Gatherer].
func (g *sharedGatherer) Gather() ([]*dto.MetricFamily, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now().Before(g.until) {
		return g.families, g.err
	}
	g.families, g.err = g.from.Gather()
	g.until = g.now().Add(shareFor)
	return g.families, g.err
}

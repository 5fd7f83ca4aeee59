//go:build e2e

package bench

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"k8s.io/client-go/rest"

	benchplot "github.com/kata-vfio/kata-vfio/test/bench/plot"
)

// traffic is what many clients send to the API server. It is safe for concurrent use.
type traffic struct {
	connections    atomic.Int64
	sent, received atomic.Int64 // bytes on the wire

	mu       sync.Mutex
	requests []sentRequest
}

// sentRequest is one of a node's requests, and its answer's status; 0 for none.
type sentRequest struct {
	at   time.Time
	node string
	call call
	code int
}

// count counts what a node's client sends, on connections of its own.
func (t *traffic) count(config *rest.Config, node string) {
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		t.connections.Add(1)
		return &countedConn{conn, t}, nil
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &countedTransport{next, t, node} })
}

type countedConn struct {
	net.Conn
	traffic *traffic
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.traffic.received.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.traffic.sent.Add(int64(n))
	return n, err
}

type countedTransport struct {
	next    http.RoundTripper
	traffic *traffic
	node    string
}

// RoundTrip implements [http.RoundTripper].
func (c *countedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	made := sentRequest{at: time.Now(), node: c.node, call: callOf(r)}
	response, err := c.next.RoundTrip(r)
	if err == nil {
		made.code = response.StatusCode
	}
	c.traffic.mu.Lock()
	defer c.traffic.mu.Unlock()
	c.traffic.requests = append(c.traffic.requests, made)
	return response, err
}

// accepted returns how many requests of a kind had success.
func (t *traffic) accepted(c call) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for i := range t.requests {
		if t.requests[i].call == c && t.requests[i].code/100 == 2 {
			n++
		}
	}
	return n
}

// lastOf returns when the last request of a kind was made.
func (t *traffic) lastOf(c call) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	var last time.Time
	for i := range t.requests {
		if r := &t.requests[i]; r.call == c && r.at.After(last) {
			last = r.at
		}
	}
	return last
}

// watchersSince returns how many nodes began a watch since a time, and when the last of them did for the first time.
func (t *traffic) watchersSince(begin time.Time) (int, time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := map[string]time.Time{}
	for i := range t.requests {
		r := &t.requests[i]
		if at, seen := first[r.node]; strings.HasPrefix(string(r.call), "watch ") && r.code == http.StatusOK && r.at.After(begin) && (!seen || r.at.Before(at)) {
			first[r.node] = r.at
		}
	}
	var last time.Time
	for _, at := range first {
		if at.After(last) {
			last = at
		}
	}
	return len(first), last
}

// counted are the requests of a period.
type counted struct {
	total, peak           int // the peak is of a second
	connections           int64
	sent, received        int64
	calls                 map[call]int
	codes                 map[int]int
	first5, first10, secs int
}

// restart begins to count connections and bytes from zero.
func (t *traffic) restart() {
	t.connections.Store(0)
	t.sent.Store(0)
	t.received.Store(0)
}

// since counts the requests since a time, and the connections and bytes since the last call.
func (t *traffic) since(begin time.Time) counted {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := counted{
		connections: t.connections.Swap(0), sent: t.sent.Swap(0), received: t.received.Swap(0),
		calls: map[call]int{}, codes: map[int]int{},
	}
	perSecond := map[int]int{}
	for i := range t.requests {
		r := &t.requests[i]
		if r.at.Before(begin) {
			continue
		}
		second := int(r.at.Sub(begin).Seconds())
		perSecond[second]++
		c.total++
		c.calls[r.call]++
		c.codes[r.code]++
		if second < 5 {
			c.first5++
		}
		if second < 10 {
			c.first10++
		}
		c.peak, c.secs = max(c.peak, perSecond[second]), max(c.secs, second+1)
	}
	return c
}

// String describes the period.
func (c counted) String() string {
	var words []string
	for _, call := range slices.Sorted(maps.Keys(c.calls)) {
		words = append(words, fmt.Sprintf("%d %s", c.calls[call], call))
	}
	return fmt.Sprintf("%d connections, %d requests in %d s, at most %d in a second, %d in the first 5 s, %d in 10; sent %d KiB, received %d KiB; by status %v; %s",
		c.connections, c.total, c.secs, c.peak, c.first5, c.first10, c.sent>>10, c.received>>10, c.codes, strings.Join(words, ", "))
}

// draw draws the requests of each second since a time.
func (t *traffic) draw(name string, begin time.Time) error {
	t.mu.Lock()
	perSecond := map[int]int{}
	last := 0
	for i := range t.requests {
		second := int(t.requests[i].at.Sub(begin).Seconds())
		perSecond[second]++
		last = max(last, second)
	}
	t.mu.Unlock()
	points := make(plotter.XYs, last+1)
	for i := range points {
		points[i].X, points[i].Y = float64(i), float64(perSecond[i])
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return fmt.Errorf("draw the requests of each second: %w", err)
	}
	p := plot.New()
	p.Title.Text = fmt.Sprintf("%d plugins at one API server: two starts, restart of the API server, steady state", herdSize)
	p.X.Label.Text, p.Y.Label.Text = "seconds", "requests a second"
	p.Add(line, plotter.NewGrid())
	file, err := benchplot.Save(p, strings.ReplaceAll(strings.TrimPrefix(name, "Benchmark"), "/", "-"), 9*vg.Inch, 3*vg.Inch)
	if file != "" {
		fmt.Println("drawn:", file)
	}
	return err
}

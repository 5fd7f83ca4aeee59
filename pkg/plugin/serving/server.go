// Package serving has the HTTP servers of plugin and controller: probes at a socket of the pod, and metrics for users that the API
// server authorizes.
package serving

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

const (
	// maxHeader limits a request's header, and thus a token.
	maxHeader = 16 << 10
	// headerLimit limits the time for a TLS handshake, and for a header after it. A client that says nothing costs that long.
	headerLimit = 3 * time.Second
)

// Server serves one handler at one address.
type Server struct {
	listener net.Listener
	http     *http.Server
}

// Listen opens the address, so that an address in use is an error at the start. Without certificates it serves plain HTTP. Connections are
// limited, in total and from each source: see [connections].
func Listen(ctx context.Context, addr string, handler http.Handler, certificates *tls.Config) (*Server, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for HTTP requests: %w", err)
	}
	l = limited(l)
	if certificates != nil {
		l = tls.NewListener(l, certificates)
	}
	return newServer(l, handler), nil
}

func newServer(l net.Listener, handler http.Handler) *Server {
	return &Server{listener: l, http: &http.Server{
		Handler: handler, MaxHeaderBytes: maxHeader, ConnContext: withConnection,
		// The log would have each failed handshake, so any client could fill it.
		ErrorLog:          log.New(io.Discard, "", 0),
		ReadHeaderTimeout: headerLimit, ReadTimeout: 10 * time.Second, WriteTimeout: writeLimit, IdleTimeout: time.Minute,
	}}
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve serves until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.http.Close() })
	defer stop()
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP at %s: %w", s.Addr(), err)
	}
	return nil
}

// Close closes a server, whether or not it was served.
func (s *Server) Close() {
	_ = s.http.Close()
	_ = s.listener.Close() // Serve closed it already
}

// selfSignedFor is longer than a plugin runs without a restart.
const selfSignedFor = 10 * 365 * 24 * time.Hour

// SelfSigned returns a TLS configuration with a new certificate for host. Clients can't
// verify it: it protects a token from eavesdroppers, not from an impostor of the server.
func SelfSigned(host string) (*tls.Config, error) {
	pair, err := selfSigned(host)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for metrics: %w", err)
	}
	return config(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair, nil }), nil
}

// selfSigned makes an ECDSA key and a certificate. The helper in client-go makes two RSA keys,
// which take seconds on a slow node, and RSA makes each handshake cost a millisecond.
func selfSigned(host string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(selfSignedFor), // clocks differ
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key}, nil
}

// FromFiles returns a TLS configuration with the certificate and key of two PEM files.
// It reads them at each handshake, so that a renewed certificate needs no restart. If they
// can't be read then, it serves the last good pair.
func FromFiles(certFile, keyFile string) (*tls.Config, error) {
	var last atomic.Pointer[tls.Certificate]
	read := func() error {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err == nil {
			last.Store(&pair)
		}
		return err
	}
	if err := read(); err != nil {
		return nil, fmt.Errorf("read the certificate for metrics: %w", err)
	}
	return config(func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		_ = read() // half replaced: the next handshake reads both
		return last.Load(), nil
	}), nil
}

// config offers HTTP/1.1 only: scrapers need no HTTP/2, whose streams have been used for
// denial of service (CVE-2023-44487).
func config(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: certificate}
}

const (
	// maxScrapes is the number of scrapes that are answered at the same time. Others get status 503.
	maxScrapes = 8
	// scrapeLimit limits one answer, including the collection.
	scrapeLimit = 20 * time.Second
	// writeLimit limits a whole request: its authorization, the answer, and sending it.
	writeLimit = reviewLimit + scrapeLimit + 10*time.Second
	// shareFor is how long a collection is shared. It reads the journal and asks each PF with claimed VFs. Scrape
	// intervals are longer.
	shareFor = 3 * time.Second
)

// MetricsPath is the path of the metrics, and the URL in a scraper's role.
const MetricsPath = "/metrics"

// Metrics returns the handler of [MetricsPath], protected by guard. With a nil guard it serves every client. Only a client that the
// guard admits may keep its connection after an answer.
func Metrics(registry prometheus.Gatherer, guard *Guard) http.Handler {
	scrapes := promhttp.HandlerFor(&sharedGatherer{from: registry, now: time.Now}, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, Timeout: scrapeLimit,
	})
	if guard != nil {
		scrapes = guard.protect(scrapes)
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+MetricsPath, scrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		mux.ServeHTTP(w, r)
	})
}

// sharedGatherer collects once for all requests during a collection and shareFor after it. It is safe for concurrent
// use.
type sharedGatherer struct {
	from prometheus.Gatherer
	now  func() time.Time

	mu       sync.Mutex // guards all below, and is held while it collects
	until    time.Time
	families []*dto.MetricFamily // shared with earlier callers, which only read it
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

package dra

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxHeader bounds a request's header.
const maxHeader = 16 << 10

// Server serves /metrics, /healthz and /readyz.
type Server struct {
	listener net.Listener
	http     *http.Server
}

// Listen opens the address, so that one in use is an error at start and not a
// line in a log. ready returns why the plugin is not ready, empty when it is.
func Listen(ctx context.Context, addr string, registry *prometheus.Registry, ready func() string) (*Server, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics and probes: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", newScrapes(registry))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, "") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, ready()) })
	return &Server{listener: l, http: &http.Server{
		Handler: mux, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: scrapeLimit + 10*time.Second, IdleTimeout: time.Minute,
	}}, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve serves until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.http.Close() })
	defer stop()
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics and probes: %w", err)
	}
	return nil
}

// Close ends a server, whether it was ever served or not.
func (s *Server) Close() {
	_ = s.http.Close()
	_ = s.listener.Close() // closed already where it was served
}

// answer says "ok", or what is wrong with status 503.
func answer(w http.ResponseWriter, problem string) {
	if problem != "" {
		http.Error(w, problem, http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n") // a prober that hung up is no error of ours
}

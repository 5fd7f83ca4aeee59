// Package serving has what the plugin serves over HTTP: probes for the kubelet, and
// metrics for those whom the API server lets read them.
package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

const (
	// maxHeader bounds a request's header, and with it a token.
	maxHeader = 16 << 10
	// maxConnections bounds the memory that idle clients take.
	maxConnections = 256
)

// Server serves one handler at one address.
type Server struct {
	listener net.Listener
	http     *http.Server
}

// Listen opens the address, so that one in use is an error at start and not a
// line in a log. Without certificates it serves plain HTTP.
func Listen(ctx context.Context, addr string, handler http.Handler, certificates *tls.Config) (*Server, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for HTTP requests: %w", err)
	}
	l = netutil.LimitListener(l, maxConnections)
	if certificates != nil {
		l = tls.NewListener(l, certificates)
	}
	return &Server{listener: l, http: &http.Server{
		Handler: handler, MaxHeaderBytes: maxHeader,
		// It reports each failed handshake, and any client could fill the log with them.
		ErrorLog:          log.New(io.Discard, "", 0),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: writeLimit, IdleTimeout: time.Minute,
	}}, nil
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

// Close ends a server, whether it was ever served or not.
func (s *Server) Close() {
	_ = s.http.Close()
	_ = s.listener.Close() // closed already where it was served
}

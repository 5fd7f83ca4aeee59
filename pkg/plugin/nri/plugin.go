// Package nri is the second line that keeps devices with their pods: a plugin
// of the container runtime (Node Resource Interface) that checks every sandbox
// and every container against the claims, and refuses what does not belong.
//
// It is no more than the second line. A sandbox's VM runs before the plugin
// hears of it, a runtime goes on without a plugin that is away or too slow, and
// pods of exempt namespaces are trusted. The first line is Prepare, which has
// the device bound for the pods of the claim alone.
//
// Two instances of a rolling update may be connected at once: checks change
// nothing, and the work on a claim may be repeated.
package nri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

const (
	// Name and index of the plugin in NRI. Plugins are called in the order of
	// their indexes, and each sees what those before it have adjusted: the last
	// sees what the runtime will do.
	Name  = "kata-vfio"
	index = "99"

	// Waits between connections, doubled each time and shortened by up to half at
	// random, so that the plugins of a node don't come all at once.
	firstRedial, lastRedial = 100 * time.Millisecond, 10 * time.Second
	// endLimit bounds the wait for a stub whose connection is closed.
	endLimit = time.Second
)

// Plugin is the node's NRI plugin.
type Plugin struct {
	cfg  Config
	live sandboxes
	conn atomic.Pointer[connection] // the latest
}

// New returns a plugin that is not connected.
func New(cfg Config) *Plugin { return &Plugin{cfg: cfg} }

// Connected reports whether the runtime asks the plugin: it is connected and
// synchronized. While it is not, nothing is checked.
func (p *Plugin) Connected() bool {
	c := p.conn.Load()
	return c != nil && c.synchronized.Load() && !c.isClosed()
}

// Run serves the runtime until ctx ends, and connects again whenever the
// connection is lost. It returns when the work under way has ended. It may be
// called again after it has returned, and not before.
func (p *Plugin) Run(ctx context.Context) {
	work := newWorker(ctx, &p.cfg)
	defer work.wait()
	var said string // the last failure in the log: the same one is logged once
	for redial := firstRedial; ; redial = min(2*redial, lastRedial) {
		synchronized, err := p.serve(ctx, work)
		if ctx.Err() != nil {
			return
		}
		if synchronized {
			redial, said = firstRedial, ""
		}
		if text := err.Error(); text != said {
			said = text
			p.cfg.Log.Warn("not connected to the runtime: sandboxes and containers are not checked; trying on",
				slog.String("socket", p.cfg.Socket), slog.Any("err", err))
		}
		if !sleep(ctx, redial/2+rand.N(redial/2), nil) {
			return
		}
	}
}

// serve makes one connection and returns when it has ended, with the reason,
// and whether the runtime had synchronized.
func (p *Plugin) serve(ctx context.Context, work *worker) (synchronized bool, err error) {
	conn, err := dial(ctx, p.cfg.Socket)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	s, err := p.stub(conn, work)
	if err != nil {
		return false, fmt.Errorf("make NRI stub: %w", err)
	}
	p.conn.Store(conn)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	select {
	case err = <-ended:
	case <-conn.closed:
		err = within(endLimit, ended)
	case <-ctx.Done():
		_ = conn.Close()
		err = within(endLimit, ended)
	}
	return conn.synchronized.Load(), fmt.Errorf("NRI connection ended: %w", err)
}

// within waits for the end of a stub whose connection has ended. A stub that
// the runtime left between registration and configuration waits for ever; its
// goroutine is given up, which a runtime that dies in that moment costs.
func within(limit time.Duration, ended <-chan error) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return errors.New("the runtime was gone before it had configured the plugin")
	}
}

// stub returns a stub on the connection; each has its own, since a stub that
// has failed to start is not fit for another try. The failure policy has the
// runtime fail a request that we don't answer in time instead of going on
// without us; before NRI 0.12.4 it knows no policy and goes on.
func (p *Plugin) stub(conn *connection, work *worker) (stub.Stub, error) {
	h := &hooks{cfg: &p.cfg, work: work, live: &p.live, synchronized: func() { conn.synchronized.Store(true) }}
	return stub.New(h,
		stub.WithPluginName(Name), stub.WithPluginIdx(index), stub.WithConnection(conn),
		stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true}),
		stub.WithLogger(logger{p.cfg.Log}))
}

// dial connects to the socket. Its errors say what to do.
func dial(ctx context.Context, socket string) (*connection, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	switch {
	case err == nil:
		return &connection{Conn: conn, closed: make(chan struct{})}, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("no NRI socket: enable NRI in the runtime (containerd: disable = false in io.containerd.nri.v1.nri, "+
			"then restart it) and mount the socket's directory: %w", err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("nobody listens on the NRI socket: is the runtime running, and is the socket's directory mounted, not the file?: %w", err)
	}
	return nil, fmt.Errorf("connect to NRI: %w", err)
}

// connection tells when it is closed, which its reader does when the other end
// is gone.
type connection struct {
	net.Conn
	synchronized atomic.Bool
	once         sync.Once
	closed       chan struct{}
}

func (c *connection) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// Close implements [net.Conn].
func (c *connection) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

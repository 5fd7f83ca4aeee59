// Package nri is the second line of defense that keeps devices with their pods. It is a plugin of the container runtime (Node Resource
// Interface). It compares each sandbox and each container with the claims, and refuses a device, mount or annotation that belongs to no
// claim.
//
// The first line is Prepare, which binds a device only for the pods of its claim. The second line is weaker: the sandbox's VM already runs
// when the runtime calls the plugin, a runtime continues without a plugin that is absent or slow, and pods of exempt namespaces are
// trusted.
//
// Two instances may be connected during a rolling update: checks change nothing, and the work on a claim can be repeated.
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

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/podres"
)

const (
	// Name and index of the plugin in NRI. The runtime calls plugins in the order of their indexes,
	// and each plugin sees the adjustments of those before it.
	Name  = "kata-vfio"
	index = "99"

	// The pause between connections doubles each time. It is shortened at random by up to half, so
	// that the plugins of a node do not connect at the same time.
	firstRedial, lastRedial = 100 * time.Millisecond, 10 * time.Second
	// endLimit bounds the wait for a stub after its connection was closed.
	endLimit = time.Second
)

// Plugin is the node's NRI plugin.
type Plugin struct {
	cfg  Config
	live sandboxes
	conn atomic.Pointer[connection] // the latest
	work atomic.Pointer[worker]     // the worker of the latest Run
}

// New returns a plugin that is not connected.
func New(cfg Config) *Plugin { return &Plugin{cfg: cfg} }

// Connected reports whether the plugin is connected and synchronized. While it is not, nothing is
// checked.
func (p *Plugin) Connected() bool {
	c := p.conn.Load()
	return c != nil && c.synchronized.Load() && !c.isClosed()
}

// RenewLater resets a claim's devices in the background after the sandbox that had them, and retries until the reset succeeds. It does
// nothing if another sandbox has the devices by then, or if the plugin does not run. The next hand-over or Unprepare then resets the
// devices.
func (p *Plugin) RenewLater(claimUID, sandboxID string) {
	if work := p.work.Load(); work != nil {
		work.add(job{claim: claimUID, sandbox: journal.Sandbox{ID: sandboxID}, renew: true})
	}
}

// Run serves the runtime until ctx ends, and connects again when the connection is lost. It returns when the work in progress has ended. Do
// not call it again before it has returned.
func (p *Plugin) Run(ctx context.Context) {
	work := newWorker(ctx, &p.cfg)
	p.work.Store(work)
	defer work.wait()
	var logged string // the last failure in the log
	for redial := firstRedial; ; redial = min(2*redial, lastRedial) {
		synchronized, err := p.serve(ctx, work)
		if ctx.Err() != nil {
			return
		}
		if synchronized {
			redial, logged = firstRedial, ""
		}
		if text := err.Error(); text != logged {
			logged = text
			p.cfg.Log.Warn("not connected to the runtime: sandboxes and containers are not checked; retrying",
				slog.String("socket", p.cfg.Socket), slog.Any("err", err))
		}
		if !sleep(ctx, redial/2+rand.N(redial/2), nil) {
			return
		}
	}
}

// serve serves one connection. It returns why the connection ended, and whether the runtime had synchronized the plugin.
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
	// The channel has room for the result: after endLimit nobody receives it.
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

// within waits for a stub after the end of its connection. A stub waits forever if the runtime dies
// between registration and configuration; its goroutine then leaks.
func within(limit time.Duration, ended <-chan error) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return errors.New("the runtime disconnected before it configured the plugin")
	}
}

// stub returns a stub for one connection, because a stub that failed to start can't be used again.
// With the failure policy the runtime fails a request that the plugin does not answer in time. A
// runtime before NRI 0.12.4 ignores the policy and continues without the plugin.
func (p *Plugin) stub(conn *connection, work *worker) (stub.Stub, error) {
	h := &hooks{cfg: &p.cfg, work: work, live: &p.live, conn: conn}
	return stub.New(h,
		stub.WithPluginName(Name), stub.WithPluginIdx(index), stub.WithConnection(conn),
		stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true}),
		stub.WithLogger(logger{p.cfg.Log}))
}

// dial connects to the socket. Its errors say how to fix the cause.
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
		return nil, fmt.Errorf("nothing listens on the NRI socket: check that the runtime runs, and that the socket's directory is mounted, not the file: %w", err)
	}
	return nil, fmt.Errorf("connect to NRI: %w", err)
}

// connection closes the channel closed when it is closed. Its reader closes the connection when the runtime disconnects.
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

// Assignments returns which claim has which device; [podres.Table] implements it. After an error
// the claims of all devices are unknown.
type Assignments interface {
	View() (*podres.View, error)
}

// Claims records which sandbox has a claim's devices, and resets them when the sandbox has ended; [prepare.Preparer] implements it. The
// plugin retries after an error, except after a [prepare.NotPreparedError], which is normal for a pod that has ended, and a
// [prepare.QuarantinedError].
type Claims interface {
	HandOver(ctx context.Context, uid string, to journal.Sandbox) error
	Renew(ctx context.Context, uid, sandboxID string) ([]isolation.Proof, error)
}

// Config is what a [Plugin] works with. Only Observer may be nil.
type Config struct {
	Assignments Assignments
	Claims      Claims
	Host        Host
	Rules       Rules
	// Socket is the runtime's NRI socket, "/var/run/nri/nri.sock".
	Socket string
	Log    *slog.Logger
	// Observer is told what the plugin does and refuses.
	Observer Observer
}

// Observer observes the plugin. Its methods must be safe for concurrent use and must not block.
type Observer interface {
	// HookEnded counts a call of the runtime under its name in NRI, and the work that follows under
	// "HandOver" and "Renew". The error of a refused call is the refusal.
	HookEnded(hook string, took time.Duration, err error)
	// Refused is called for each refusal, and for each running container with a device that it must
	// not have.
	Refused(r Refusal)
}

// logger passes the stub's log on. The stub logs each connection at level info, which becomes debug here.
type logger struct{ log *slog.Logger }

// Debugf implements the logger of NRI.
func (l logger) Debugf(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelDebug, format, args)
}

// Infof implements the logger of NRI.
func (l logger) Infof(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelDebug, format, args)
}

// Warnf implements the logger of NRI.
func (l logger) Warnf(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelWarn, format, args)
}

// Errorf implements the logger of NRI.
func (l logger) Errorf(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelError, format, args)
}

func (l logger) write(ctx context.Context, level slog.Level, format string, args []any) {
	if l.log.Enabled(ctx, level) {
		l.log.LogAttrs(ctx, level, "NRI stub", slog.String("text", fmt.Sprintf(format, args...)))
	}
}

package nri_test

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"
	"github.com/containerd/nri/pkg/stub"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/nri"
)

// TestMain silences the log of the runtime's side.
func TestMain(m *testing.M) {
	nrilog.Set(silent{})
	os.Exit(m.Run())
}

type silent struct{}

func (silent) Debugf(context.Context, string, ...any) {}
func (silent) Infof(context.Context, string, ...any)  {}
func (silent) Warnf(context.Context, string, ...any)  {}
func (silent) Errorf(context.Context, string, ...any) {}

// runtime is the NRI side of containerd: the adaptation that it has inside. The
// plugins reach it over a relay, since it leaves their connections open when it
// is stopped.
type runtime struct {
	t      *testing.T
	dir    string
	socket string // the relay's

	nri   *adaptation.Adaptation
	relay *relay

	mu         sync.Mutex // guards below
	pods       []*api.PodSandbox
	containers []*api.Container
}

// newRuntime returns a runtime that does not run yet. Paths of unix sockets are
// short, those of t.TempDir are not.
func newRuntime(t *testing.T) *runtime {
	t.Helper()
	dir, err := os.MkdirTemp("", "nri")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &runtime{t: t, dir: dir, socket: filepath.Join(dir, "plugins.sock")}
}

// startRuntime returns one that runs, with the pods it has from before.
func startRuntime(t *testing.T, pods ...*api.PodSandbox) *runtime {
	t.Helper()
	r := newRuntime(t)
	r.pods = pods
	r.start()
	return r
}

func (r *runtime) start() {
	r.t.Helper()
	inner := filepath.Join(r.dir, "nri.sock")
	a, err := adaptation.New("containerd", "v2.4.2", r.synchronize, r.update,
		adaptation.WithSocketPath(inner), adaptation.WithPluginPath(r.dir+"/none"), adaptation.WithPluginConfigPath(r.dir+"/none"))
	if err != nil {
		r.t.Fatal(err)
	}
	if err := a.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.nri, r.relay = a, newRelay(r.t, r.socket, inner)
	r.t.Cleanup(r.stop)
}

// stop ends the runtime and the connections to it.
func (r *runtime) stop() {
	r.relay.stop()
	r.nri.Stop()
}

func (r *runtime) synchronize(ctx context.Context, plugin adaptation.SyncCB) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := plugin(ctx, r.pods, r.containers)
	return err
}

func (r *runtime) update(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
	return nil, nil
}

// ready waits until the plugin is connected and asked.
func (r *runtime) ready(p *nri.Plugin) {
	r.t.Helper()
	eventually(r.t, "connected", p.Connected)
	r.nri.BlockPluginSync().Unblock() // the runtime has it in its list
}

func (r *runtime) createContainer(p *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, error) {
	rpl, err := r.nri.CreateContainer(r.t.Context(), &api.CreateContainerRequest{Pod: p, Container: c})
	return rpl.GetAdjust(), err
}

// other connects another plugin.
func (r *runtime) other(index string, plugin any) {
	r.t.Helper()
	s, err := stub.New(plugin, stub.WithPluginName("other"), stub.WithPluginIdx(index), stub.WithSocketPath(r.socket))
	if err != nil {
		r.t.Fatal(err)
	}
	if err := s.Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(s.Stop)
	r.nri.BlockPluginSync().Unblock()
}

// adjuster is a plugin that wants something of every container.
type adjuster struct {
	adjust *api.ContainerAdjustment
	synced chan struct{}
}

func (a *adjuster) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return a.adjust, nil, nil
}

func (a *adjuster) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	close(a.synced)
	return nil, nil
}

func (r *runtime) adjuster(index string, adjust *api.ContainerAdjustment) {
	r.t.Helper()
	a := &adjuster{adjust: adjust, synced: make(chan struct{})}
	r.other(index, a)
	<-a.synced
	r.nri.BlockPluginSync().Unblock()
}

// relay passes connections on until it is stopped.
type relay struct {
	listener net.Listener
	wg       sync.WaitGroup
	mu       sync.Mutex // guards conns
	conns    []net.Conn
}

func newRelay(t *testing.T, socket, to string) *relay {
	t.Helper()
	_ = os.Remove(socket)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: l}
	r.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, in, out)
			r.mu.Unlock()
			r.wg.Go(func() { _, _ = io.Copy(in, out); _ = in.Close(); _ = out.Close() })
			r.wg.Go(func() { _, _ = io.Copy(out, in); _ = in.Close(); _ = out.Close() })
		}
	})
	return r
}

func (r *relay) stop() {
	_ = r.listener.Close()
	r.mu.Lock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

// claims does to the journal what package prepare does, and says what it did.
type claims struct {
	n     *node
	calls chan string
}

func (c *claims) HandOver(_ context.Context, uid string, to journal.Sandbox) error {
	c.change(uid, func(r *journal.Record) { r.Sandbox = &to })
	c.calls <- "HandOver " + uid + " " + to.ID
	return nil
}

func (c *claims) Renew(_ context.Context, uid, sandbox string) ([]isolation.Proof, error) {
	c.change(uid, func(r *journal.Record) {
		if r.Sandbox != nil && r.Sandbox.ID == sandbox {
			r.Sandbox = nil
		}
	})
	c.calls <- "Renew " + uid + " " + sandbox
	return nil, nil
}

func (c *claims) change(uid string, change func(*journal.Record)) {
	r, err := c.n.records.Load(uid)
	if err != nil || r == nil {
		c.n.t.Errorf("load %s: %v, %v", uid, r, err)
		return
	}
	own := *r
	change(&own)
	if err := c.n.records.Save(&own); err != nil {
		c.n.t.Error(err)
	}
}

// next returns the next call.
func (c *claims) next() string {
	c.n.t.Helper()
	select {
	case call := <-c.calls:
		return call
	case <-time.After(limit):
		c.n.t.Fatal("no work was done")
		return ""
	}
}

// limit is how long a test waits for what must happen.
const limit = 20 * time.Second

// run runs a plugin of the node until the test ends.
func (n *node) run(r *runtime, change func(*nri.Config)) (*nri.Plugin, *claims) {
	n.t.Helper()
	c := &claims{n: n, calls: make(chan string, 100)}
	cfg := nri.Config{Assignments: n.table, Claims: c, Host: n.kernel, Rules: rules(), Socket: r.socket, Log: quiet()}
	if change != nil {
		change(&cfg)
	}
	p := nri.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { p.Run(ctx); close(done) }()
	n.t.Cleanup(func() { cancel(); <-done })
	return p, c
}

// eventually waits for a condition that nothing announces.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not %s after %s", what, limit)
		}
	}
}

package podres_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/podres"
)

const (
	thisBoot  = "6f0b5c2e"
	namespace = "tenant-a"
	gpu       = "gpu-0000-3b-00-0"
	vf        = "vf-0000-21-10-0"
)

// TestMain lets the tests start this binary as a shim that says when it runs
// and waits for its standard input to end.
func TestMain(m *testing.M) {
	if os.Getenv("PODRES_TEST_SHIM") != "" {
		_, _ = io.WriteString(os.Stdout, shimRuns)
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// world is a node: a journal, CDI specs, a kubelet and a shim. The server under
// test asks them over real sockets and files; HandOver is the only double.
type world struct {
	t       testing.TB
	dir     string
	records *journal.Store
	specs   *cdi.Dir
	kubelet *kubelet
	shim    shim
	claims  claims
	log     lockedBuffer
	// reserve prepares a claim again; nil if no claim needs it.
	reserve func(plan.Ref) error
	// confirm is the cluster's word on a claim; nil if there is none.
	confirm func(context.Context, string) error
	// limit is how long the server waits for the kubelet: long where it must
	// not matter.
	limit time.Duration
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, dir: socketDir(t), limit: time.Minute}
	var err error
	if w.records, err = journal.Open(filepath.Join(w.dir, "journal")); err != nil {
		t.Fatal(err)
	}
	if w.specs, err = cdi.Open(filepath.Join(w.dir, "cdi")); err != nil {
		t.Fatal(err)
	}
	w.kubelet = &kubelet{answer: &podresourcesv1.PodResources{}}
	w.shim.sandbox = podres.PeerSandbox{
		ID: "s1", PodNamespace: namespace, PodName: "db-0", PodUID: "p1", Shim: journal.Process{PID: 4711, StartTime: 99},
	}
	return w
}

// socketDir is a directory whose path is short enough for a socket.
func socketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "podres")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (w *world) socket() string        { return filepath.Join(w.dir, "run", "pod-resources.sock") }
func (w *world) kubeletSocket() string { return filepath.Join(w.dir, "kubelet.sock") }

// record is a claim prepared for the pod db-0.
func record(uid, podUID string, devices ...string) *journal.Record {
	r := &journal.Record{
		Kind: journal.Claim, State: journal.Prepared, BootID: thisBoot,
		Plan: plan.Plan{Claim: plan.Ref{
			UID: uid, Namespace: namespace, Name: "claim-" + uid, Pods: []claim.Pod{{UID: podUID, Name: "db-0"}},
		}},
	}
	for i, d := range devices {
		r.Plan.Devices = append(r.Plan.Devices, plan.Device{Pool: "worker-1/kata-vfio.dev", Name: d, Address: pci.Address{Bus: uint8(i)}})
	}
	return r
}

// asEndpoint makes a device of a record a physical endpoint.
func asEndpoint(r *journal.Record, device string) *journal.Record {
	for i := range r.Plan.Devices {
		if r.Plan.Devices[i].Name == device {
			r.Plan.Devices[i].Attachment = v1alpha1.AttachPhysicalEndpoint
		}
	}
	return r
}

// prepared saves the record with its CDI spec.
func (w *world) prepared(r *journal.Record) {
	w.t.Helper()
	if err := w.records.Save(r); err != nil {
		w.t.Fatal(err)
	}
	nodes := make([][]cdi.Node, len(r.Plan.Devices))
	for i := range nodes {
		nodes[i] = []cdi.Node{{Path: fmt.Sprintf("/dev/vfio/%d", i), Major: 511, Minor: int64(i)}}
	}
	spec, err := cdi.Spec(&r.Plan, nodes)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.specs.Write(r.ID(), spec); err != nil {
		w.t.Fatal(err)
	}
}

// write writes a file below the world's directory.
func (w *world) write(name, content string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// config is that of an instance of its own, with a journal opened again.
func (w *world) config() podres.Config {
	w.t.Helper()
	records := journal.OpenReadOnly(filepath.Join(w.dir, "journal"))
	resolver, err := podres.NewHostSpecs(filepath.Join(w.dir, "etc-cdi"), filepath.Join(w.dir, "cdi"))
	if err != nil {
		w.t.Fatal(err)
	}
	client, closer, err := podres.DialKubelet(w.kubeletSocket())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = closer.Close() })
	table := podres.NewTable(podres.TableConfig{
		Journal: records, Specs: w.specs, BootID: thisBoot, Node: "worker-1",
		JournalDir: filepath.Join(w.dir, "journal"), SpecsDir: filepath.Join(w.dir, "cdi"),
	})
	return podres.Config{
		Assignments: table, Cluster: cluster{w},
		Claims: &w.claims, Kubelet: client, Peers: &w.shim, Resolver: resolver,
		Log:   slog.New(slog.NewTextHandler(&w.log, nil)),
		Owner: uint32(os.Geteuid()), KubeletLimit: w.limit,
	}
}

// instance is one running server.
type instance struct {
	stop context.CancelFunc
	done chan error
}

// start serves an instance; its end is awaited with the test.
func (w *world) start(cfg podres.Config) *instance {
	w.t.Helper()
	l, err := podres.Listen(w.t.Context(), w.socket())
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	i := &instance{stop: stop, done: make(chan error, 1)}
	go func() { i.done <- podres.New(cfg).Serve(ctx, l) }()
	w.t.Cleanup(func() { i.end(w.t) })
	return i
}

// end stops the instance and waits for it. It may be repeated.
func (i *instance) end(t testing.TB) {
	i.stop()
	err, running := <-i.done
	if running {
		close(i.done)
	}
	if err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// startKubelet serves the kubelet's double on its socket.
func (w *world) startKubelet() {
	w.t.Helper()
	_ = os.Remove(w.kubeletSocket())
	l, err := net.Listen("unix", w.kubeletSocket())
	if err != nil {
		w.t.Fatal(err)
	}
	server := grpc.NewServer()
	podresourcesv1.RegisterPodResourcesListerServer(server, w.kubelet)
	go func() { _ = server.Serve(l) }()
	w.t.Cleanup(server.Stop)
}

// dial returns a client on a connection of its own, and what closes it.
func (w *world) dial() (podresourcesv1.PodResourcesListerClient, func()) {
	w.t.Helper()
	conn, err := grpc.NewClient("unix:"+w.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	return podresourcesv1.NewPodResourcesListerClient(conn), func() { _ = conn.Close() }
}

// get asks for the pod tenant-a/db-0 on a new connection.
func (w *world) get() (*podresourcesv1.PodResources, error) {
	client, hangUp := w.dial()
	defer hangUp()
	return w.getBy(client)
}

// getBy is get on the client's connection.
func (w *world) getBy(client podresourcesv1.PodResourcesListerClient) (*podresourcesv1.PodResources, error) {
	answer, err := client.Get(w.t.Context(), &podresourcesv1.GetPodResourcesRequest{PodName: "db-0", PodNamespace: namespace})
	return answer.GetPodResources(), err
}

// plugged returns the CDI names that Kata makes of an answer.
func plugged(answer *podresourcesv1.PodResources) []string {
	var names []string
	for _, c := range answer.GetContainers() {
		for _, d := range c.GetDevices() {
			for _, id := range d.GetDeviceIds() {
				names = append(names, d.GetResourceName()+"="+id)
			}
		}
	}
	return names
}

// kubelet is a double of the kubelet's server.
type kubelet struct {
	podresourcesv1.UnimplementedPodResourcesListerServer

	answer *podresourcesv1.PodResources
	// before, if set, is what happens to a call first.
	before func(context.Context) error
}

func (k *kubelet) Get(ctx context.Context, _ *podresourcesv1.GetPodResourcesRequest) (*podresourcesv1.GetPodResourcesResponse, error) {
	if k.before != nil {
		if err := k.before(ctx); err != nil {
			return nil, err
		}
	}
	return &podresourcesv1.GetPodResourcesResponse{PodResources: k.answer}, nil
}

func (k *kubelet) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	return &podresourcesv1.ListPodResourcesResponse{PodResources: []*podresourcesv1.PodResources{k.answer}}, nil
}

func (k *kubelet) GetAllocatableResources(
	context.Context, *podresourcesv1.AllocatableResourcesRequest,
) (*podresourcesv1.AllocatableResourcesResponse, error) {
	return &podresourcesv1.AllocatableResourcesResponse{CpuIds: []int64{1, 2}}, nil
}

// dynamic is a claim of ours as the kubelet lists it, with its bug: each device
// has the CDI names of those before it, too.
func dynamic(uid string, devices ...string) *podresourcesv1.DynamicResource {
	r := &podresourcesv1.DynamicResource{ClaimName: "claim-" + uid, ClaimNamespace: namespace}
	var names []*podresourcesv1.CDIDevice
	for _, d := range devices {
		names = append(names,
			&podresourcesv1.CDIDevice{Name: cdi.QualifiedName(uid, d)},
			&podresourcesv1.CDIDevice{Name: "kata-vfio.dev/metadata=" + uid + "-" + d})
		r.ClaimResources = append(r.ClaimResources, &podresourcesv1.ClaimResource{
			DriverName: "kata-vfio.dev", PoolName: "worker-1/kata-vfio.dev", DeviceName: d, CdiDevices: slices.Clone(names),
		})
	}
	return r
}

// lists makes the kubelet list the claims in one container.
func (w *world) lists(resources ...*podresourcesv1.DynamicResource) {
	w.kubelet.answer.Containers = append(w.kubelet.answer.Containers,
		&podresourcesv1.ContainerResources{Name: "main", DynamicResources: resources})
}

// shim is what the peer at the socket is.
type shim struct {
	sandbox podres.PeerSandbox
	err     error
	pid     atomic.Int64 // of the last that was asked about
}

func (s *shim) Sandbox(pid int) (podres.PeerSandbox, error) {
	s.pid.Store(int64(pid))
	return s.sandbox, s.err
}

// claims is a double of package prepare.
type claims struct {
	mu    sync.Mutex // guards given and shims
	shims []journal.Process
	given []string // "<claim UID> to <sandbox>[ in <network namespace>]", sorted
	fail  map[string]error
	// wait, if set, is what a hand-over waits for.
	wait chan struct{}
}

func (c *claims) HandOver(ctx context.Context, uid string, to journal.Sandbox) error {
	if c.wait != nil {
		select {
		case <-c.wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if to.NetNS != "" {
		to.ID += " in " + to.NetNS
	}
	c.shims = append(c.shims, to.Shim)
	c.given = append(c.given, uid+" to "+to.ID)
	slices.Sort(c.given)
	return c.fail[uid]
}

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// cluster is the API server of a world.
type cluster struct{ w *world }

func (c cluster) Reserve(_ context.Context, ref plan.Ref) error {
	if c.w.reserve == nil {
		return nil
	}
	return c.w.reserve(ref)
}

func (c cluster) Confirm(ctx context.Context, uid string) error {
	if c.w.confirm == nil {
		return nil
	}
	return c.w.confirm(ctx, uid)
}

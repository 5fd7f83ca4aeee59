package nri_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"
	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/nri"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// observer has the reported refusals.
type observer chan nri.Refusal

func (observer) HookEnded(string, time.Duration, error) {}
func (o observer) Refused(r nri.Refusal)                { o <- r }

func TestRuntimeRefusesSandboxes(t *testing.T) {
	n, r := tenants(t), startRuntime(t)
	reports := make(chan nri.Refusal, 10)
	p, _ := n.run(r, func(c *nri.Config) { c.Observer = observer(reports) })
	r.ready(p)
	runc := pod("p1", "s1")
	runc.RuntimeHandler = "runc"
	err := r.nri.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: runc})
	if err == nil || !strings.Contains(err.Error(), "(HandlerNotAllowed)") || len(reports) != 1 {
		t.Errorf("RunPodSandbox = %v with %d reports, want one HandlerNotAllowed", err, len(reports))
	}
	if err := r.nri.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: pod("p1", "s1")}); err != nil {
		t.Errorf("RunPodSandbox under the right handler = %v", err)
	}
}

// Another plugin of the node is not to be trusted with devices, whether it
// comes before this one or after.
func TestRuntimeRefusesWhatAnotherPluginWants(t *testing.T) {
	for name, tt := range map[string]struct {
		container *api.Container
		adjust    *api.ContainerAdjustment
		want      string
	}{
		"a node of another pod":          {plain(nil), adjustDevice("/dev/vfio/16", 511, 4), "NodeOfOthersClaim"},
		"a node under another name":      {plain(nil), adjustDevice("/dev/null2", 511, 4), "NodeWithoutClaim"},
		"a CDI device of another pod":    {plain(nil), adjustCDI(cdiName("c2", otherGPU())), "NodeOfOthersClaim"},
		"to hide a node that CDI put in": {with("c2", otherGPU()), adjustDevice("-/dev/vfio/16", 0, 0), "NodeOfOthersClaim"},
		"something harmless":             {with("c1", gpu()), adjustDevice("/dev/fuse", 10, 229), ""},
	} {
		t.Run(name, func(t *testing.T) {
			n, r := tenants(t), startRuntime(t)
			p, _ := n.run(r, nil)
			r.ready(p)
			r.adjuster("10", tt.adjust)
			tt.container.CDIDevices, tt.container.Linux.Resources = nil, nil // the nodes alone must do
			_, err := r.createContainer(pod("p1", "s1"), tt.container)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), "("+tt.want+")")):
				t.Errorf("CreateContainer = %v, want %s", err, tt.want)
			}
		})
	}
}

// TestContainersAreLeftAsTheyAre: an address of the host's would be taken for one of the guest's.
func TestContainersAreLeftAsTheyAre(t *testing.T) {
	n, r := tenants(t), startRuntime(t)
	p, _ := n.run(r, nil)
	r.ready(p)
	own := with("c1", gpu())
	own.Env = []string{"PCIDEVICE_KATA_VFIO_DEV_GPU=mine"}
	for name, tt := range map[string]struct {
		pod       *api.PodSandbox
		container *api.Container
	}{
		"with a device":               {pod("p1", "s1"), with("c1", gpu())},
		"with a variable of its own":  {pod("p1", "s1"), own},
		"with a function of a NIC":    {pod("p3", "s3"), with("c3", nic())},
		"without a device of anybody": {pod("p1", "s1"), plain(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			adjust, err := r.createContainer(tt.pod, tt.container)
			if err != nil {
				t.Fatal(err)
			}
			if len(adjust.GetEnv()) > 0 || len(adjust.GetMounts()) > 0 || len(adjust.GetAnnotations()) > 0 {
				t.Errorf("it is adjusted by %v", adjust)
			}
		})
	}
}

func TestTwoInstancesDoNotGetInEachOthersWay(t *testing.T) {
	n, r := tenants(t), startRuntime(t)
	for range 2 {
		p, _ := n.run(r, nil)
		r.ready(p)
	}
	if _, err := r.createContainer(pod("p1", "s1"), with("c1", gpu())); err != nil {
		t.Errorf("CreateContainer = %v", err)
	}
	if _, err := r.createContainer(pod("p1", "s1"), with("c2", otherGPU())); err == nil {
		t.Error("another pod's device passes")
	}
}

func TestRenewLaterResetsInTheBackground(t *testing.T) {
	n, r := tenants(t), startRuntime(t)
	p, work := n.run(r, nil)
	r.ready(p)
	p.RenewLater("c1", "s0")
	// The first connection resets what sandboxes had that no longer exist.
	for got, want := "", "Renew c1 s0"; got != want; got = work.next() {
	}
}

func TestRenewLaterWithoutRunIsDropped(t *testing.T) {
	nri.New(nri.Config{}).RenewLater("c1", "s0") // does not panic
}

func TestSandboxIsEnteredAndItsDevicesAreResetAfterIt(t *testing.T) {
	n, r := tenants(t), startRuntime(t)
	n.process("4711")
	p, work := n.run(r, nil)
	r.ready(p)
	if err := r.nri.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: pod("p1", "s1")}); err != nil {
		t.Fatal(err)
	}
	if got, want := work.next(), "HandOver c1 s1"; got != want {
		t.Fatalf("work = %q, want %q", got, want)
	}
	rec, err := n.records.Load("c1")
	if want := (journal.Process{PID: 4711, StartTime: 4711}); err != nil || rec.Sandbox.VMM != want {
		t.Errorf("VMM of %v (%v), want %v", rec.Sandbox, err, want)
	}
	if err := r.nri.StopPodSandbox(t.Context(), &api.StopPodSandboxRequest{Pod: pod("p1", "s1")}); err != nil {
		t.Fatal(err)
	}
	if got, want := work.next(), "Renew c1 s1"; got != want {
		t.Errorf("work = %q, want %q", got, want)
	}
}

// A refused sandbox must not be entered as having the device.
func TestRefusedSandboxIsNotEntered(t *testing.T) {
	n, r := tenants(t), startRuntime(t)
	n.process("4711")
	p, work := n.run(r, nil)
	r.ready(p)
	if err := r.nri.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: pod("p4", "s4")}); err == nil {
		t.Fatal("a sandbox that booted without its device passes")
	}
	_ = r.nri.StopPodSandbox(t.Context(), &api.StopPodSandboxRequest{Pod: pod("p4", "s4")})
	if got, want := work.next(), "Renew c4 s4"; got != want {
		t.Errorf("work = %q, want %q", got, want)
	}
}

func TestHotPluggedDeviceIsEnteredWhenItsSandboxRuns(t *testing.T) {
	n, r := tenants(t), startRuntime(t)
	p, work := n.run(r, func(c *nri.Config) { c.Rules.ColdPlug = false })
	r.ready(p)
	if err := r.nri.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: pod("p4", "s4")}); err != nil {
		t.Fatal(err)
	}
	if got, want := work.next(), "HandOver c4 s4"; got != want {
		t.Errorf("work = %q, want %q", got, want)
	}
}

// The runtime forgets the sandboxes from before its restart: it lists those
// that ended, with no process, and never tells of their end.
func TestLostSandboxesAreCleanedUp(t *testing.T) {
	n := tenants(t)
	n.process("4711")
	n.prepare("c1", "p1", "s1", func(r *journal.Record) { r.Sandbox.Ticks = 1 }, gpu())
	// That of c2 may be booting.
	n.prepare("c3", "p3", "s3", func(r *journal.Record) { r.Sandbox.Ticks = 0 }, nic())
	n.prepare("c7", "p7", "s7", func(r *journal.Record) { r.Sandbox.VMM = journal.Process{PID: 1, StartTime: 2} }, gpu4())
	ended := pod("p1", "s1")
	ended.Pid = 0
	gone := pod("p3", "s3")
	gone.Pid = 9999                                                     // no such process
	r := startRuntime(t, ended, gone, pod("p4", "s4"), pod("p7", "s7")) // p4 booted without its device
	p, work := n.run(r, nil)
	r.ready(p)
	got := map[string]bool{work.next(): true, work.next(): true, work.next(): true}
	want := map[string]bool{"Renew c1 s1": true, "Renew c3 s3": true, "HandOver c7 s7": true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("work (-want +got):\n%s", diff)
	}
	// The event of its end ends the delay.
	if err := r.nri.StopPodSandbox(t.Context(), &api.StopPodSandboxRequest{Pod: pod("p2", "s2")}); err != nil {
		t.Fatal(err)
	}
	if got, want := work.next(), "Renew c2 s2"; got != want {
		t.Errorf("work = %q, want %q", got, want)
	}
}

func TestRunningContainersWithForeignDevicesAreReported(t *testing.T) {
	n := tenants(t)
	n.process("4711")
	r := newRuntime(t)
	stolen, good := with("c2", otherGPU()), with("c2", otherGPU())
	stolen.PodSandboxId, good.PodSandboxId = "s1", "s2"
	r.pods, r.containers = []*api.PodSandbox{pod("p1", "s1"), pod("p2", "s2")}, []*api.Container{stolen, good}
	r.start()
	reports := make(chan nri.Refusal, 10)
	p, _ := n.run(r, func(c *nri.Config) { c.Observer = observer(reports) })
	r.ready(p)
	if got := <-reports; got.Verdict.Code != rule.NodeOfOthersClaim || got.Pod.UID != "p1" || len(reports) != 0 {
		t.Errorf("report %v and %d more, want one NodeOfOthersClaim of p1", got.Err().Error(), len(reports))
	}
}

func TestPluginComesBackWhenTheRuntimeDoes(t *testing.T) {
	n, r := tenants(t), newRuntime(t)
	log := &lines{}
	p, _ := n.run(r, func(c *nri.Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
	eventually(t, "logged", func() bool { return log.count("enable NRI in the runtime") > 0 })
	if p.Connected() {
		t.Error("connected to nobody")
	}
	for range 2 {
		r.start()
		r.ready(p)
		if _, err := r.createContainer(pod("p1", "s1"), with("c2", otherGPU())); err == nil {
			t.Error("another pod's device passes")
		}
		r.stop()
		eventually(t, "disconnected", func() bool { return !p.Connected() })
	}
	if got := log.count("enable NRI in the runtime"); got > 3 { // once for each time that it is gone
		t.Errorf("the missing socket is logged %d times:\n%s", got, log)
	}
}

// The stub waits for ever for a runtime that ends in this moment.
func TestRuntimeThatDiesAfterRegistrationIsNoEnd(t *testing.T) {
	n, r := tenants(t), newRuntime(t)
	l, err := net.Listen("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := n.run(r, nil)
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	// Nothing is read before somebody listens: what comes earlier is dropped.
	dying := &dyingRuntime{mux: multiplex.Multiplex(conn, multiplex.WithBlockedRead()), registered: make(chan struct{})}
	inner, err := dying.mux.Listen(multiplex.RuntimeServiceConn)
	if err != nil {
		t.Fatal(err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	api.RegisterRuntimeService(server, dying)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(t.Context(), inner) })
	dying.mux.Unblock()
	<-dying.registered
	eventually(t, "answered", func() bool { return server.Shutdown(t.Context()) == nil })
	_ = dying.mux.Close()
	_ = inner.Close() // the server may have been about to look at it when it was shut down
	wg.Wait()
	_ = l.Close()
	r.start()
	r.ready(p)
}

type dyingRuntime struct {
	mux        multiplex.Mux
	registered chan struct{}
}

func (d *dyingRuntime) RegisterPlugin(context.Context, *api.RegisterPluginRequest) (*api.Empty, error) {
	close(d.registered)
	return &api.Empty{}, nil
}

func (d *dyingRuntime) UpdateContainers(context.Context, *api.UpdateContainersRequest) (*api.UpdateContainersResponse, error) {
	return &api.UpdateContainersResponse{}, nil
}

// lines is a log.
type lines struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *lines) count(text string) int { return strings.Count(l.String(), text) }

package inventory

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// fakeEvents says what a test makes it say.
type fakeEvents struct {
	next   chan any // a Uevent or an error
	closed chan struct{}
}

func newFakeEvents() *fakeEvents {
	return &fakeEvents{next: make(chan any, 100), closed: make(chan struct{})}
}

func (e *fakeEvents) Next() (Uevent, error) {
	select {
	case <-e.closed:
		return Uevent{}, os.ErrClosed
	case said := <-e.next:
		if err, ok := said.(error); ok {
			return Uevent{}, err
		}
		return said.(Uevent), nil
	}
}

func (e *fakeEvents) Close() error {
	close(e.closed)
	return nil
}

// watched is a node that is being watched.
type watched struct {
	t      *testing.T
	root   string
	events *fakeEvents
	w      *Watcher
	stop   context.CancelFunc
	done   chan error
}

// newWatched starts a watcher on a node with one function, 0000:00:03.0. It is
// called in a bubble, in which time passes only while everybody waits.
func newWatched(t *testing.T) *watched {
	t.Helper()
	n := &watched{t: t, root: t.TempDir(), events: newFakeEvents(), done: make(chan error, 1)}
	n.put("0000:00:03.0", "0")
	fs, err := sysfs.Open(n.root)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, fs)
	if n.w, err = WatchBy(t.Context(), fs, n.events); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	n.stop = stop
	go func() { n.done <- n.w.Run(ctx) }()
	synctest.Wait()
	return n
}

// put sets the NUMA node of a function, which is added if it is not there, and gives it a BAR of as many bytes and one.
func (n *watched) put(a, node string) {
	n.t.Helper()
	dir := filepath.Join(n.root, sysfs.Devices, a)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		n.t.Fatal(err)
	}
	for name, value := range map[string]string{
		"vendor": "0x8086", "device": "0x10c9", "class": "0x020000", "numa_node": node,
		"resource": "0x0000000000001000 0x000000000000100" + node + " 0x0000000000000200",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value+"\n"), 0o644); err != nil {
			n.t.Fatal(err)
		}
	}
}

// closing closes c at the end of the test.
func closing(t *testing.T, c io.Closer) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func (n *watched) say(said ...any) {
	for _, s := range said {
		n.events.next <- s
	}
}

func (n *watched) snapshot() *device.Snapshot {
	snap, err := n.w.Snapshot(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	return snap
}

// node returns the NUMA node of a function in the latest snapshot; -1 for none.
func (n *watched) node(a pci.Address) int {
	f, ok := n.snapshot().Function(a)
	if !ok || f.NUMANode == nil {
		return -1
	}
	return *f.NUMANode
}

func (n *watched) end() {
	n.t.Helper()
	n.stop()
	if err := <-n.done; err != nil {
		n.t.Errorf("Run ended with %v", err)
	}
}

var (
	here  = pci.Address{Device: 3}
	there = pci.Address{Device: 4}
)

func event(action string, a pci.Address) Uevent {
	return Uevent{Action: action, Subsystem: "pci", Path: "/devices/pci0000:00/" + a.String()}
}

func TestWatchUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newWatched(t)
		defer n.end()
		n.put("0000:00:03.0", "1")
		n.put("0000:00:04.0", "1")
		n.say(event("change", here))
		synctest.Wait()
		if got := n.node(here); got != 0 {
			t.Errorf("node %d before the burst has settled, want 0 still", got)
		}
		time.Sleep(settle)
		synctest.Wait()
		if here, there := n.node(here), n.node(there); here != 1 || there != -1 {
			t.Errorf("nodes %d and %d; want 1, and the other, of which nothing was said, not there", here, there)
		}
		if err := os.RemoveAll(filepath.Join(n.root, sysfs.FunctionPath(here))); err != nil {
			t.Fatal(err)
		}
		n.say(event("remove", here), event("add", there))
		time.Sleep(settle)
		synctest.Wait()
		if here, there := n.node(here), n.node(there); here != -1 || there != 1 {
			t.Errorf("nodes %d and %d; want -1 and 1", here, there)
		}
	})
}

// A burst of events makes one update, and an irrelevant one none.
func TestWatchCoalesces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newWatched(t)
		defer n.end()
		snapshots, cancel := n.w.Subscribe()
		defer cancel()
		first := <-snapshots
		if diff := cmp.Diff(n.snapshot(), first); diff != "" {
			t.Errorf("the first snapshot is not the current one:\n%s", diff)
		}
		n.put("0000:00:03.0", "1")
		for range 50 {
			n.say(event("change", here))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		select {
		case <-snapshots:
		default:
			t.Error("no snapshot after a burst of events")
		}
		n.put("0000:00:03.0", "0")
		n.say(Uevent{Action: "add", Subsystem: "net", Path: "/devices/virtual/net/veth1"})
		n.say(event("change", there)) // relevant, but it changes nothing
		time.Sleep(time.Second)
		synctest.Wait()
		select {
		case snap := <-snapshots:
			t.Errorf("a snapshot that says nothing new: %+v", snap)
		default:
		}
	})
}

// TestWatchStorm: VFs that a PF makes one after the other are published in few steps, and soon after the last.
func TestWatchStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newWatched(t)
		defer n.end()
		snapshots, cancel := n.w.Subscribe()
		defer cancel()
		<-snapshots
		const vfs, most = 1000, 3
		updates := 0
		for i := range vfs {
			n.put(pci.Address{Bus: uint8(1 + i/256), Device: uint8(i / 8 % 32), Function: uint8(i % 8)}.String(), "0")
			n.say(event("add", pci.Address{Bus: uint8(1 + i/256), Device: uint8(i / 8 % 32), Function: uint8(i % 8)}))
			time.Sleep(2 * time.Millisecond)
			select {
			case <-snapshots:
				updates++
			default:
			}
		}
		time.Sleep(settle)
		synctest.Wait()
		select {
		case <-snapshots:
			updates++
		default:
		}
		if updates == 0 || updates > most {
			t.Errorf("%d updates while %d VFs came in %s, want 1 to %d", updates, vfs, vfs*2*time.Millisecond, most)
		}
	})
}

func TestWatchOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newWatched(t)
		defer n.end()
		n.put("0000:00:04.0", "1")
		n.say(ErrOverrun)
		time.Sleep(settle)
		synctest.Wait()
		if got := n.node(there); got != 1 {
			t.Errorf("node %d of the function whose event was lost, want 1", got)
		}
	})
}

// A scan that fails leaves the last good snapshot, marked stale, and is tried
// again although no event asks for it.
func TestWatchFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newWatched(t)
		defer n.end()
		good := n.snapshot()
		n.put("0000:00:03.0", "broken")
		n.say(event("change", here))
		time.Sleep(settle)
		synctest.Wait()
		bad := n.snapshot()
		if bad.Stale == "" || good.Stale != "" {
			t.Errorf("stale is %q, and %q in the older snapshot", bad.Stale, good.Stale)
		}
		if diff := cmp.Diff(good.Functions, bad.Functions); diff != "" {
			t.Errorf("the failed scan changed the functions:\n%s", diff)
		}
		time.Sleep(10 * time.Second) // some tries
		n.put("0000:00:03.0", "1")
		time.Sleep(retryLast + settle)
		synctest.Wait()
		if got := n.node(here); got != 1 || n.snapshot().Stale != "" {
			t.Errorf("once it can be read: node %d, stale %q", got, n.snapshot().Stale)
		}
	})
}

func TestWatchRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newWatched(t)
		defer n.end()
		n.put("0000:00:03.0", "1")
		n.put("0000:00:04.0", "1")
		snap, err := n.w.Refresh(t.Context(), []pci.Address{here})
		if err != nil {
			t.Fatal(err)
		}
		f, ok := snap.Function(here)
		if !ok || len(f.BARs) != 1 || f.BARs[0].Size != 2 {
			t.Errorf("refreshed function: %+v", f)
		}
		if _, ok := snap.Function(there); ok {
			t.Error("more was refreshed than was asked for")
		}
		time.Sleep(settle)
		synctest.Wait()
		if got := n.node(here); got != 1 {
			t.Errorf("after a refresh the published node is %d, want 1", got)
		}
		n.put("0000:00:03.0", "broken")
		if snap, err := n.w.Refresh(t.Context(), []pci.Address{here}); err == nil {
			t.Errorf("a refresh that fails: %+v", snap)
		}
	})
}

// A slow subscriber gets the latest snapshot.
func TestWatchSlowSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newWatched(t)
		defer n.end()
		snapshots, cancel := n.w.Subscribe()
		for _, node := range []string{"1", "2", "3"} {
			n.put("0000:00:03.0", node)
			n.say(event("change", here))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		snap := <-snapshots
		if f, _ := snap.Function(here); f == nil || *f.NUMANode != 3 {
			t.Errorf("the slow subscriber got %+v, want node 3", f)
		}
		cancel()
		n.put("0000:00:03.0", "4")
		n.say(event("change", here))
		time.Sleep(time.Second)
		synctest.Wait()
		select {
		case snap := <-snapshots:
			t.Errorf("after cancel: %+v", snap)
		default:
		}
	})
}

func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newWatched(t)
		defer n.stop()
		broken := errors.New("broken")
		n.say(broken)
		if err := <-n.done; !errors.Is(err, broken) {
			t.Errorf("Run ended with %v, want %v", err, broken)
		}
		<-n.events.closed
	})
}

func TestWatchNeedsANode(t *testing.T) {
	fs, err := sysfs.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	closing(t, fs)
	events := newFakeEvents()
	if w, err := WatchBy(t.Context(), fs, events); !errors.Is(err, os.ErrNotExist) || w != nil {
		t.Errorf("watch a directory that is not a node: %v, %v", w, err)
	}
	<-events.closed
}

// The real socket: it can be opened without privilege, and Close ends the wait.
func TestListen(t *testing.T) {
	events, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for { // a real event may come first
			if _, err := events.Next(); err != nil && !errors.Is(err, ErrOverrun) {
				return
			}
		}
	}()
	if err := events.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended
}

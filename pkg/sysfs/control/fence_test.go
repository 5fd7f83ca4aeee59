package control_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
)

// A blocker does not answer writes until the test says so.
type blocker struct {
	recorder
	mu    sync.Mutex // guards recorder
	until map[string]chan struct{}
}

func newBlocker(paths ...string) *blocker {
	b := &blocker{until: map[string]chan struct{}{}}
	for _, p := range paths {
		b.until[p] = make(chan struct{})
	}
	return b
}

func (b *blocker) Write(path string, data []byte) error {
	if until, ok := b.until[path]; ok {
		<-until
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.recorder.Write(path, data)
}

func (b *blocker) written() [][2]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.writes
}

const (
	unbindPath = "sys/bus/pci/drivers/vfio-pci/unbind"
	probePath  = "sys/bus/pci/drivers_probe"
)

// stuckAt returns the error of an unbind that began at the time.
func stuckAt(a pci.Address, since time.Time) *control.StuckError {
	return &control.StuckError{Address: a, Path: "/" + unbindPath, Value: a.String(), Since: since}
}

func wantStuck(t *testing.T, err error, want *control.StuckError) {
	t.Helper()
	var got *control.StuckError
	if !errors.As(err, &got) {
		t.Fatalf("error %v, want a StuckError", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

// The bubble of synctest ends only when every goroutine has: each test below
// shows too that nothing is leaked once the kernel has answered.

func TestWriteIsGivenUpAtTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlocker(unbindPath)
		c := control.New(b, b, 5*time.Second)
		begun := time.Now()
		err := c.Write(t.Context(), control.Unbind(gpu, "vfio-pci"))
		wantStuck(t, err, stuckAt(gpu, begun))
		if waited := time.Since(begun); waited != 5*time.Second {
			t.Errorf("waited %s, want the limit", waited)
		}
		close(b.until[unbindPath])
	})
}

func TestWriteIsGivenUpWhenTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlocker(unbindPath)
		c := control.New(b, b, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		err := c.Write(ctx, control.Unbind(gpu, "vfio-pci"))
		wantStuck(t, err, stuckAt(gpu, begun))
		if waited := time.Since(begun); waited != time.Second {
			t.Errorf("waited %s, want until the context's end", waited)
		}
		close(b.until[unbindPath])
	})
}

func TestStuckFunctionIsFencedUntilTheKernelAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlocker(unbindPath)
		c := control.New(b, b, time.Second)
		stuck := stuckAt(gpu, time.Now())
		wantStuck(t, c.Write(t.Context(), control.Unbind(gpu, "vfio-pci")), stuck)
		if diff := cmp.Diff([]control.StuckError{*stuck}, c.Stuck()); diff != "" {
			t.Errorf("stuck (-want +got):\n%s", diff)
		}

		refused := time.Now()
		wantStuck(t, c.Write(t.Context(), control.Probe(gpu)), stuck)
		if waited := time.Since(refused); waited != 0 {
			t.Errorf("waited %s at the fence", waited)
		}
		if err := c.Write(t.Context(), control.Probe(nic)); err != nil {
			t.Errorf("another function: %v", err)
		}

		close(b.until[unbindPath])
		synctest.Wait()
		if left := c.Stuck(); len(left) != 0 {
			t.Errorf("still fenced: %v", left)
		}
		if err := c.Write(t.Context(), control.Probe(gpu)); err != nil {
			t.Errorf("after the kernel answered: %v", err)
		}
		want := [][2]string{{probePath, nic.String()}, {unbindPath, gpu.String()}, {probePath, gpu.String()}}
		if diff := cmp.Diff(want, b.written()); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
}

func TestAnswerBeatsTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := writerFunc(func(string, []byte) error {
			time.Sleep(time.Second - 1)
			return nil
		})
		if err := control.New(w, nil, time.Second).Write(t.Context(), control.Probe(gpu)); err != nil {
			t.Errorf("a write within the limit: %v", err)
		}
	})
}

func TestStuckResetRestoresTheListWhenTheKernelAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			list  = "sys/bus/pci/devices/0000:3b:00.0/reset_method"
			reset = "sys/bus/pci/devices/0000:3b:00.0/reset"
		)
		b := newBlocker(reset)
		b.files = map[string]string{list: "flr bus"}
		c := control.New(b, b, time.Second)
		begun := time.Now()
		want := &control.StuckError{Address: gpu, Path: "/" + reset, Value: "1", Since: begun}
		_, err := c.Reset(t.Context(), gpu, "bus", "")
		wantStuck(t, err, want)
		close(b.until[reset])
		synctest.Wait()
		writes := [][2]string{{list, "bus"}, {reset, "1"}, {list, "flr bus"}}
		if diff := cmp.Diff(writes, b.written()); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
}

func TestStuckIsSorted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlocker(unbindPath)
		c := control.New(b, b, time.Second)
		var wg sync.WaitGroup
		for _, a := range []pci.Address{nic, gpu, {Bus: 1}} {
			wg.Go(func() { _ = c.Write(t.Context(), control.Unbind(a, "vfio-pci")) })
		}
		wg.Wait()
		var got []string
		for _, s := range c.Stuck() {
			got = append(got, s.Address.String())
		}
		if diff := cmp.Diff([]string{"0000:01:00.0", "0000:3b:00.0", "0000:5e:00.0"}, got); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
		close(b.until[unbindPath])
	})
}

func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlocker(unbindPath)
		c := control.New(b, b, time.Second)
		if err := c.Settle(t.Context(), gpu); err != nil {
			t.Errorf("with nothing under way: %v", err)
		}
		stuck := stuckAt(gpu, time.Now())
		wantStuck(t, c.Write(t.Context(), control.Unbind(gpu, "vfio-pci")), stuck)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		wantStuck(t, c.Settle(ctx, gpu), stuck)
		if err := c.Settle(t.Context(), nic); err != nil {
			t.Errorf("another function: %v", err)
		}

		settled := make(chan error, 1)
		go func() { settled <- c.Settle(t.Context(), gpu) }()
		synctest.Wait()
		select {
		case err := <-settled:
			t.Fatalf("settled while the write is in the kernel: %v", err)
		default:
		}
		close(b.until[unbindPath])
		if err := <-settled; err != nil {
			t.Errorf("after the kernel answered: %v", err)
		}
	})
}

func TestStuckErrorNamesFunctionAndAttribute(t *testing.T) {
	since := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	reset := &control.StuckError{Address: gpu, Path: "/sys/bus/pci/devices/0000:3b:00.0/reset", Value: "1", Since: since}
	tests := map[error]string{
		stuckAt(gpu, since): `write "0000:3b:00.0" to /sys/bus/pci/drivers/vfio-pci/unbind: the kernel has not answered since 15:04:05;` +
			` no other operation on 0000:3b:00.0 starts until it does (a process that has the function's VFIO device open must close it)`,
		reset: `write "1" to /sys/bus/pci/devices/0000:3b:00.0/reset: the kernel has not answered since 15:04:05;` +
			` no other operation on 0000:3b:00.0 starts until it does`,
	}
	for err, want := range tests {
		if got := err.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

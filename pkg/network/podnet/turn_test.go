package podnet

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// TestRequestThatHangsKeepsTheTurn of all namespaces that the attacher enters later, and of its configuration.
func TestRequestThatHangsKeepsTheTurn(t *testing.T) {
	m, through := &Attacher{Wait: time.Millisecond, Log: slog.New(slog.DiscardHandler)}, make(chan struct{})
	if err := m.ask(soon(t), t, func(*netlink.Handle) error { <-through; return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the request that hangs: %v", err)
	}
	if err := m.ask(soon(t), t, func(*netlink.Handle) error { t.Error("another is sent"); return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the next: %v", err)
	}
	what := Interface{Network: &v1alpha1.GuestNetwork{}}
	if err := m.configure(soon(t), what, net.HardwareAddr{2, 0, 0x5e, 0x10, 0, 0xff}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the configuration: %v", err)
	}
	close(through)
	if err := m.ask(t.Context(), t, func(*netlink.Handle) error { return nil }); err != nil {
		t.Errorf("after the request has ended: %v", err)
	}
}

// ask makes a request with a socket of its own, as each attempt to place an interface does.
func (m *Attacher) ask(ctx context.Context, t *testing.T, request func(*netlink.Handle) error) error {
	t.Helper()
	file, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.enter(file)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	return s.socket.Do(ctx, request)
}

// soon returns a context that ends after a moment.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

package guestnet_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/network/guestnet"
)

// guest is a network namespace of a test's own: the real kernel, without a way
// out.
type guest struct {
	*netlink.Handle
	t  *testing.T
	id string // of the namespace
}

// newGuest puts the test's thread into a new namespace. The thread stays locked,
// so that it ends with the test, and the namespace with it. Tests run side by
// side, since most of their time is the kernel's duplicate address detection.
func newGuest(t *testing.T) *guest {
	t.Helper()
	t.Parallel()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("new network namespace: %v", err)
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(handle.Close)
	return &guest{handle, t, namespace(t)}
}

// namespace names the network namespace of the calling thread.
func namespace(t *testing.T) string {
	t.Helper()
	id, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (g *guest) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// nic adds an interface with a MAC, and its peer "<name>p", which is up: what a
// switch port is to a NIC.
func (g *guest) nic(name, mac string) {
	g.t.Helper()
	g.must(g.addNIC(name, mac))
}

// addNIC is nic for other goroutines than the test's.
func (g *guest) addNIC(name, mac string) error {
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	if err := g.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: hw}, PeerName: name + "p"}); err != nil {
		return err
	}
	return g.LinkSetUp(g.link(name + "p"))
}

func (g *guest) link(name string) netlink.Link {
	g.t.Helper()
	l, err := g.LinkByName(name)
	if err != nil {
		g.t.Errorf("%s: %v", name, err)
		return &netlink.Dummy{}
	}
	return l
}

// address adds an address to an interface.
func (g *guest) address(name, prefix string) {
	g.t.Helper()
	addr, err := netlink.ParseAddr(prefix)
	g.must(err)
	g.must(g.AddrAdd(g.link(name), addr))
}

// state is all that Configure could have changed: interfaces, addresses,
// routes of all tables and rules, a line each.
func (g *guest) state() string {
	g.t.Helper()
	var b strings.Builder
	links, err := g.LinkList()
	g.must(err)
	for _, l := range links {
		a := l.Attrs()
		fmt.Fprintln(&b, "link", a.Index, a.Name, a.HardwareAddr, a.MTU, a.Flags)
	}
	addresses, err := g.AddrList(nil, netlink.FAMILY_ALL)
	g.must(err)
	for _, a := range addresses {
		fmt.Fprintln(&b, "address", a.LinkIndex, a.IPNet)
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := g.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_TABLE)
		g.must(err)
		for _, r := range routes {
			if r.Table != unix.RT_TABLE_LOCAL {
				fmt.Fprintln(&b, "route", r.Dst, r.Gw, r.LinkIndex, r.Table, r.Priority, r.Protocol)
			}
		}
		rules, err := g.RuleList(family)
		g.must(err)
		for _, r := range rules {
			fmt.Fprintln(&b, "rule", r)
		}
	}
	return b.String()
}

// sysctl sets a variable of the namespace.
func (g *guest) sysctl(name, value string) {
	g.t.Helper()
	g.must(os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o644))
}

// configure runs Configure with enough time.
func (g *guest) configure(devices ...guestnet.Device) (*guestnet.Report, error) {
	g.t.Helper()
	return g.configureWith(g.t.Context(), options(), devices...)
}

// configureWith runs Configure, but never outside of the test's namespace.
func (g *guest) configureWith(ctx context.Context, opts guestnet.Options, devices ...guestnet.Device) (*guestnet.Report, error) {
	g.t.Helper()
	if here := namespace(g.t); here != g.id {
		g.t.Fatalf("in namespace %s, not in the test's %s", here, g.id)
	}
	return guestnet.Configure(ctx, devices, opts)
}

func options() guestnet.Options {
	return guestnet.Options{Wait: 20 * time.Second, SysRoot: "/nonexistent", Log: quiet()}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// nicOf is a device with a MAC and its network.
func nicOf(mac string, n v1alpha1.GuestNetwork) guestnet.Device {
	hw, err := net.ParseMAC(mac)
	if err != nil {
		panic(err)
	}
	return guestnet.Device{Claim: "nic", Request: "vf", Name: "node/" + mac, MAC: hw, Network: n}
}

// wantError checks that err is an E and has the words.
func wantError[E error](t *testing.T, err error, words ...string) {
	t.Helper()
	if _, ok := errors.AsType[E](err); !ok {
		t.Fatalf("err is a %T, want a %T: %v", err, *new(E), err)
	}
	wantWords(t, err.Error(), words...)
}

func wantWords(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("lacks %q: %s", word, text)
		}
	}
}

// buffer is a log that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// await returns when the text has been written.
func (b *buffer) await(ctx context.Context, text string) error {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		b.mu.Lock()
		there := strings.Contains(b.b.String(), text)
		b.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

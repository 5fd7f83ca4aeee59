package guestnet_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/network/guestnet"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func TestFindWaitsForLateInterface(t *testing.T) {
	g := newGuest(t)
	g.nic("eth0", macB)
	log := &buffer{}
	opts := options()
	opts.Log = slog.New(slog.NewTextHandler(log, nil))
	var late sync.WaitGroup
	late.Go(func() {
		if err := log.await(t.Context(), "interface for device node/"+macA); err != nil {
			t.Errorf("no progress: %v", err)
		}
		if err := g.addNIC("eth1", macA); err != nil {
			t.Error(err)
		}
	})
	report, err := g.configureWith(t.Context(), opts, nicOf(macA, network()))
	late.Wait()
	if err != nil || report.Interfaces[0].Name.Value != "net1" {
		t.Errorf("err = %v, report %+v", err, report)
	}
}

func TestMissingInterfaceIsNamedWithWhatThereIs(t *testing.T) {
	g := newGuest(t)
	g.nic("eth0", macB)
	before := g.state()
	log := &buffer{}
	opts := options()
	opts.Wait, opts.Log = 200*time.Millisecond, slog.New(slog.NewTextHandler(log, nil))
	report, err := g.configureWith(t.Context(), opts, nicOf(macB, network()), nicOf(macA, v1alpha1.GuestNetwork{}))
	wantError[*guestnet.NotFoundError](t, err, "device node/"+macA+" (claim nic, request vf)", "MAC "+macA, "eth0 ("+macB+")", "200ms", "random MAC address", "condition LinkUp")
	if strings.Contains(err.Error(), "lo,") || strings.HasSuffix(err.Error(), "lo") {
		t.Errorf("names the loopback: %v", err)
	}
	if n := strings.Count(log.b.String(), "waiting"); n != 1 {
		t.Errorf("%d lines of progress in 200ms, want 1:\n%s", n, &log.b)
	}
	if report != nil || g.state() != before {
		t.Errorf("report %+v; state:\n%s", report, g.state())
	}
}

func TestCanceledRunSaysWhy(t *testing.T) {
	g := newGuest(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	log := &buffer{}
	opts := options()
	opts.Log = slog.New(slog.NewTextHandler(log, nil))
	var other sync.WaitGroup
	other.Go(func() {
		if err := log.await(t.Context(), "waiting"); err != nil {
			t.Error(err)
		}
		cancel(errors.New("the pod is deleted"))
	})
	_, err := g.configureWith(ctx, opts, nicOf(macA, v1alpha1.GuestNetwork{}))
	other.Wait()
	if err == nil || !strings.Contains(err.Error(), "the pod is deleted") {
		t.Errorf("err = %v", err)
	}
}

func TestTwoInterfacesWithTheMACAreRefused(t *testing.T) {
	g := newGuest(t)
	g.nic("eth1", macA)
	g.nic("eth2", macA)
	before := g.state()
	_, err := g.configure(nicOf(macA, network()))
	wantError[*guestnet.InputError](t, err, "eth1", "eth2")
	if diff := cmp.Diff(before, g.state()); diff != "" {
		t.Errorf("changed:\n%s", diff)
	}
}

func TestOneInterfaceForTwoDevicesIsRefused(t *testing.T) {
	g := newGuest(t)
	g.nic("eth1", macA)
	second := nicOf(macA, v1alpha1.GuestNetwork{})
	second.Name = "node/other"
	_, err := g.configure(nicOf(macA, network()), second)
	wantError[*guestnet.InputError](t, err, "eth1", "device node/"+macA, "device node/other")
}

// sysfs makes a tree where the function has the interfaces.
func sysfs(t *testing.T, function string, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(root, "bus/pci/devices", function, "net", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestInterfaceIsFoundByItsPCIAddress(t *testing.T) {
	const function = "0000:02:00.0"
	addr, err := pci.ParseAddress(function)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		mac, found, how string
		sys             []string
		err             string
	}{
		"no MAC is known":             {sys: []string{"eth2"}, found: "eth2", how: "pci"},
		"the MAC is nobody's":         {mac: "02:00:5e:10:00:99", sys: []string{"eth2"}, found: "eth2", how: "pci"},
		"the MAC goes first":          {mac: macA, sys: []string{"eth2"}, found: "eth1", how: "mac"},
		"it is not in this namespace": {sys: []string{"eth9"}, err: "no interface for"},
		"it has no interface":         {sys: nil, err: "PCI address " + function},
		"it has two":                  {sys: []string{"eth1", "eth2"}, err: "several interfaces could be it: eth1"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuest(t)
			g.nic("eth1", macA)
			g.nic("eth2", macB)
			d := nicOf(macA, v1alpha1.GuestNetwork{})
			d.MAC, d.PCI = nil, &addr
			if c.mac != "" {
				d.MAC = nicOf(c.mac, v1alpha1.GuestNetwork{}).MAC
			}
			opts := options()
			opts.SysRoot, opts.Wait, opts.DryRun = sysfs(t, function, c.sys...), 10*time.Millisecond, true
			report, err := g.configureWith(t.Context(), opts, d)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("err = %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := report.Interfaces[0]; got.Name.Value != c.found || got.FoundBy != c.how {
				t.Errorf("found %s by %s, want %s by %s", got.Name.Value, got.FoundBy, c.found, c.how)
			}
		})
	}
}

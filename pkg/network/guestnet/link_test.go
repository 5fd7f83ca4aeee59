package guestnet_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/network/guestnet"
)

func TestANameThatIsTakenIsRefused(t *testing.T) {
	g := newGuest(t)
	g.nic("eth1", macA)
	g.nic("eth2", macB)
	_, err := g.configure(nicOf(macA, v1alpha1.GuestNetwork{Interface: "eth2"}))
	if err == nil {
		t.Fatal("no error")
	}
	wantWords(t, err.Error(), `"eth2"`, macB, "device node/"+macA)
	_, err = g.configure(nicOf(macA, v1alpha1.GuestNetwork{Interface: "eth2"}), nicOf(macB, v1alpha1.GuestNetwork{}))
	if err == nil || !strings.Contains(err.Error(), "taken") {
		t.Errorf("another device keeps the name: err = %v", err)
	}
	_, err = g.configure(nicOf(macA, v1alpha1.GuestNetwork{Interface: "n"}), nicOf(macB, v1alpha1.GuestNetwork{Interface: "n"}))
	wantError[*guestnet.InputError](t, err, macA, macB, `"n"`)
	g.must(g.LinkAddAltName(g.link("eth2"), "alias"))
	_, err = g.configure(nicOf(macA, v1alpha1.GuestNetwork{Interface: "alias"}))
	if err == nil || !strings.Contains(err.Error(), "taken by eth2") {
		t.Errorf("an alternative name: err = %v", err)
	}
	_, err = g.configure(nicOf(macA, v1alpha1.GuestNetwork{Interface: "alias"}), nicOf(macB, v1alpha1.GuestNetwork{Interface: "net2"}))
	if err == nil || !strings.Contains(err.Error(), "taken by eth2") {
		t.Errorf("an alternative name, which a rename does not free: err = %v", err)
	}
}

func TestTwoDevicesExchangeTheirNames(t *testing.T) {
	g := newGuest(t)
	g.nic("eth1", macA)
	g.nic("eth2", macB)
	g.must(g.LinkSetUp(g.link("eth1")))
	a := nicOf(macA, v1alpha1.GuestNetwork{Interface: "eth2"})
	b := nicOf(macB, v1alpha1.GuestNetwork{Interface: "eth1"})
	report, err := g.configure(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]guestnet.Setting[string]{changed("eth1", "eth2"), changed("eth2", "eth1")},
		[]guestnet.Setting[string]{report.Interfaces[0].Name, report.Interfaces[1].Name}); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	for name, mac := range map[string]string{"eth2": macA, "eth1": macB} {
		l := g.link(name).Attrs()
		if l.HardwareAddr.String() != mac || l.RawFlags&unix.IFF_UP == 0 {
			t.Errorf("%s is %s, flags %v; want %s, up", name, l.HardwareAddr, l.Flags, mac)
		}
	}
}

func TestWithoutALinkAllElseIsConfigured(t *testing.T) {
	g := newGuest(t)
	g.nic("eth1", macA)
	g.must(g.LinkSetDown(g.link("eth1p")))
	device := nicOf(macA, network())
	opts := options()
	opts.Wait = 10 * time.Millisecond
	report, err := g.configureWith(t.Context(), opts, device)
	wantError[*guestnet.NoLinkError](t, err, "net1", "10ms", "condition LinkUp")
	i := report.Interfaces[0]
	if i.Carrier || len(i.Addresses) != 2 || len(i.Routes) != 4 || !i.Addresses[1].Tentative {
		t.Errorf("report %+v", i)
	}
	opts.NoWaitLink = true
	if _, err := g.configureWith(t.Context(), opts, device); err != nil {
		t.Errorf("told not to wait: %v", err)
	}
	opts = options()
	log := &buffer{}
	opts.Log = slog.New(slog.NewTextHandler(log, nil))
	peer := g.link("net1").Attrs().ParentIndex
	var late sync.WaitGroup
	late.Go(func() {
		if err := log.await(t.Context(), "link of net1"); err != nil {
			t.Errorf("no progress: %v", err)
		}
		if err := g.LinkSetUp(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: peer}}); err != nil {
			t.Error(err)
		}
	})
	report, err = g.configureWith(t.Context(), opts, device)
	late.Wait()
	if err != nil || !report.Interfaces[0].Carrier || report.Interfaces[0].Addresses[1].Tentative {
		t.Errorf("with a late link: err = %v, report %+v", err, report)
	}
}

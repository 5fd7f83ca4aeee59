package podnet_test

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/network/podnet"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

const (
	mac = "02:00:5e:10:00:01"
	// podNS is where the runtime mounts a pod's namespace, by way of a link.
	podNS = "/var/run/netns/cni-1"
	peer  = "-peer"
)

// node is a node with real network namespaces, its own and a pod's, and a root
// and a proc that lead there. VFs are dummies: the kernel moves and configures
// them like any interface.
type node struct {
	t         *testing.T
	root      string
	own, pod  *netlink.Handle
	ownNS     netns.NsHandle
	podHandle netns.NsHandle
	fs        *sysfs.FS
}

func vf() pci.Address { return pci.Address{Bus: 0x21, Device: 0x10} }

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, root: t.TempDir()}
	n.ownNS, n.own = n.namespace("own")
	n.podHandle, n.pod = n.namespace("run/netns/cni-1")
	n.link("/run", "var/run")
	proc := filepath.Join(n.root, "proc/1")
	must(t, os.MkdirAll(filepath.Join(proc, "ns"), 0o755))
	must(t, os.Symlink(n.root, filepath.Join(proc, "root")))
	must(t, os.Symlink(filepath.Join(n.root, "own"), filepath.Join(proc, "ns/net")))
	n.link("/proc/sys", "proc/sys")
	must(t, os.MkdirAll(filepath.Join(n.root, sysfs.FunctionPath(vf())), 0o755))
	var err error
	n.fs, err = sysfs.Open(n.root)
	must(t, err)
	t.Cleanup(func() { _ = n.fs.Close() })
	return n
}

// namespace makes a network namespace, mounted at a path as runtimes do.
func (n *node) namespace(name string) (netns.NsHandle, *netlink.Handle) {
	n.t.Helper()
	path := filepath.Join(n.root, name)
	must(n.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(n.t, os.WriteFile(path, nil, 0o600))
	made := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
		}
		made <- err
	}()
	must(n.t, <-made)
	n.t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	ns, err := netns.GetFromPath(path)
	must(n.t, err)
	n.t.Cleanup(func() { _ = ns.Close() })
	handle, err := netlink.NewHandleAt(ns)
	must(n.t, err)
	n.t.Cleanup(handle.Close)
	return ns, handle
}

func (n *node) link(to, name string) {
	n.t.Helper()
	path := filepath.Join(n.root, name)
	must(n.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(n.t, os.Symlink(to, path))
}

// addInterface adds the VF's interface in the node's namespace, as its driver
// does, with a MAC.
func (n *node) addInterface(name, mac string) {
	n.t.Helper()
	hw, err := net.ParseMAC(mac)
	must(n.t, err)
	must(n.t, n.own.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: hw}, PeerName: name + peer}))
	other, err := n.own.LinkByName(name + peer)
	must(n.t, err)
	must(n.t, n.own.LinkSetUp(other))
	l, err := n.own.LinkByName(name)
	must(n.t, err)
	dir, made := filepath.Join(n.root, sysfs.FunctionPath(vf()), "net"), filepath.Join(n.t.TempDir(), name)
	must(n.t, os.MkdirAll(dir, 0o755))
	must(n.t, os.Mkdir(made, 0o755))
	must(n.t, os.WriteFile(filepath.Join(made, "ifindex"), fmt.Appendf(nil, "%d\n", l.Attrs().Index), 0o600))
	must(n.t, os.Rename(made, filepath.Join(dir, name))) // as the kernel does: with all its attributes
}

func (n *node) mover() *podnet.Attacher {
	return &podnet.Attacher{
		FS: n.fs, Proc: filepath.Join(n.root, "proc"), Wait: 20 * time.Second, Log: slog.New(slog.DiscardHandler),
	}
}

// place places the VF's interface with the network.
func (n *node) place(network v1alpha1.GuestNetwork) error {
	return n.mover().Place(n.t.Context(), podnet.Interface{VF: vf(), MAC: mac, Network: &network}, podNS)
}

// seen is what there is in a namespace: interfaces with their addresses, and
// routes by a gateway.
func seen(t *testing.T, h *netlink.Handle) []string {
	t.Helper()
	list, err := h.LinkList()
	must(t, err)
	var all []string
	for _, l := range list {
		a := l.Attrs()
		if a.Name == "lo" || strings.HasSuffix(a.Name, peer) {
			continue
		}
		text := fmt.Sprintf("%s %s mtu %d", a.Name, a.HardwareAddr, a.MTU)
		addresses, err := h.AddrList(l, netlink.FAMILY_ALL)
		must(t, err)
		for _, address := range addresses {
			if address.IP.IsGlobalUnicast() {
				text += " " + address.IPNet.String()
			}
		}
		routes, err := h.RouteList(l, netlink.FAMILY_ALL)
		must(t, err)
		for _, r := range routes {
			if r.Gw != nil {
				text += " via " + r.Gw.String()
			}
		}
		all = append(all, text)
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func network() v1alpha1.GuestNetwork {
	return v1alpha1.GuestNetwork{
		Interface: "net1", MTU: new(1400), Addresses: []string{"192.0.2.10/24", "2001:db8::10/64"},
		Routes: []v1alpha1.GuestRoute{{To: "198.51.100.0/24", Via: "192.0.2.1"}},
	}
}

const placed = "net1 " + mac + " mtu 1400 192.0.2.10/24 2001:db8::10/64 via 192.0.2.1"

// TestVFsInterfaceGoesIntoThePod: by the pod's namespace alone, under the name
// and with the address that are asked for, and a second time nothing changes.
func TestVFsInterfaceGoesIntoThePod(t *testing.T) {
	for name, had := range map[string]string{"as its PF says": mac, "with another address": "02:00:00:00:00:77"} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.addInterface("eth7", had)
			for range 2 {
				must(t, n.place(network()))
				if diff := cmp.Diff([]string{placed}, seen(t, n.pod)); diff != "" {
					t.Errorf("in the pod (-want +got):\n%s", diff)
				}
				if left := seen(t, n.own); len(left) > 0 {
					t.Errorf("the node has %v", left)
				}
			}
		})
	}
}

// TestRoutersAreLeftToTheGuest: what they advertise would be Kata's to give it.
func TestRoutersAreLeftToTheGuest(t *testing.T) {
	n := newNode(t)
	n.addInterface("eth7", mac)
	must(t, n.place(network()))
	got := make(chan string, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		if err := unix.Setns(int(n.podHandle), unix.CLONE_NEWNET); err != nil {
			got <- err.Error()
			return
		}
		text, err := os.ReadFile("/proc/sys/net/ipv6/conf/net1/accept_ra")
		got <- fmt.Sprintf("%s %v", strings.TrimSpace(string(text)), err)
	}()
	if text := <-got; text != "0 <nil>" {
		t.Errorf("accept_ra is %s, want 0", text)
	}
}

// TestAttacherCompletesAfterCrash: the crash left an interface without configuration.
func TestAttacherCompletesAfterCrash(t *testing.T) {
	n := newNode(t)
	n.addInterface("eth7", mac)
	l, err := n.own.LinkByName("eth7")
	must(t, err)
	must(t, n.own.LinkSetNsFd(l, int(n.podHandle)))
	must(t, os.RemoveAll(filepath.Join(n.root, sysfs.FunctionPath(vf()), "net/eth7")))
	must(t, n.place(network()))
	if diff := cmp.Diff([]string{placed}, seen(t, n.pod)); diff != "" {
		t.Errorf("in the pod (-want +got):\n%s", diff)
	}
}

// TestNameThatThePodHas: of the node's it is no trouble, if another is asked
// for; one that is asked for and taken is refused, and the interface stays.
func TestNameThatThePodHas(t *testing.T) {
	n := newNode(t)
	must(t, n.pod.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "cni" + peer}))
	n.addInterface("eth0", mac)
	wanted := network()
	wanted.Interface = ""
	if err := n.place(wanted); err == nil || !strings.Contains(err.Error(), "has an interface eth0 already") {
		t.Errorf("err = %v", err)
	}
	if left := seen(t, n.own); len(left) != 1 {
		t.Errorf("the node has %v", left)
	}
	must(t, n.place(network()))
	if got := seen(t, n.pod); len(got) != 2 || got[1] != placed {
		t.Errorf("in the pod: %q", got)
	}
}

// TestLateInterfaceIsWaitedFor, and not for ever.
func TestLateInterfaceIsWaitedFor(t *testing.T) {
	n := newNode(t)
	m := n.mover()
	m.Wait = 50 * time.Millisecond
	if err := m.Await(t.Context(), vf()); err == nil || !strings.Contains(err.Error(), "no network interface on the node after 50ms") {
		t.Errorf("err = %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- n.mover().Await(t.Context(), vf()) }()
	n.addInterface("eth7", mac)
	must(t, <-done)
}

// TestAttacherEntersOnlyPodNamespaces: it refuses the node's namespace, and paths that are not namespace.
func TestAttacherEntersOnlyPodNamespaces(t *testing.T) {
	n := newNode(t)
	n.addInterface("eth7", mac)
	must(t, os.WriteFile(filepath.Join(n.root, "file"), nil, 0o600))
	n.link("/proc/self/ns/mnt", "mnt")
	wanted := network()
	for at, want := range map[string]string{
		"/own":                  "the node's own",
		"/file":                 "not a network namespace",
		"/var/run/netns/absent": "no such file",
		"/mnt":                  "open",
	} {
		err := n.mover().Place(t.Context(), podnet.Interface{VF: vf(), MAC: mac, Network: &wanted}, at)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "VF 0000:21:10.0") {
			t.Errorf("%s: err = %v, want %q", at, err, want)
		}
	}
	if left := seen(t, n.own); len(left) != 1 {
		t.Errorf("the node has %v", left)
	}
}

// TestAttacherLeavesNoThreadInPodNamespace: the plugin's others find theirs.
func TestAttacherLeavesNoThreadInPodNamespace(t *testing.T) {
	n := newNode(t)
	n.addInterface("eth7", mac)
	must(t, n.place(network()))
	tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
	must(t, err)
	var pod unix.Stat_t
	must(t, unix.Fstat(int(n.podHandle), &pod))
	for deadline := time.Now().Add(5 * time.Second); ; {
		inside := 0
		for _, task := range tasks {
			var s unix.Stat_t
			if unix.Stat(task, &s) == nil && s.Ino == pod.Ino {
				inside++
			}
		}
		if inside == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d threads are in the pod's namespace", inside)
		}
		runtime.Gosched()
	}
}

// Package podnet puts a VF's network interface into a pod's network namespace,
// configured, from where Kata takes it as a physical endpoint: the function to
// the VM, and the interface's name, MTU, addresses and routes into the guest.
//
// The kernel keeps the interface with its function: when the function leaves
// its driver, as it does for Kata, the interface is gone, and when the
// namespace is gone the interface is back in the node's.
package podnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/network/guestnet"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Attacher moves interfaces of VFs. Its methods may be called from several
// goroutines, for one VF by one at a time. It needs CAP_NET_ADMIN and
// CAP_SYS_ADMIN, and the node's processes in sight (hostPID).
type Attacher struct {
	// FS is the node's sysfs, which shows the interfaces of the node's own
	// network namespace.
	FS *sysfs.FS
	// Proc is the node's proc; /proc when empty. Its process 1 has the node's
	// network namespace, and its root is where paths of namespaces are looked up.
	Proc string
	// Wait is how long a driver may take to make the interface, and duplicate
	// address detection to end; 5 s when zero.
	Wait time.Duration
	// Log gets what was changed of an interface.
	Log *slog.Logger
}

// Interface is a VF's and how it is to be.
type Interface struct {
	VF pci.Address
	// MAC is the address that the PF has given to the VF.
	MAC string
	// Network has at least one address. An empty name leaves the interface's.
	Network *v1alpha1.GuestNetwork
}

const (
	defaultWait = 5 * time.Second
	pause       = 20 * time.Millisecond
)

func (m *Attacher) wait() time.Duration {
	if m.Wait == 0 {
		return defaultWait
	}
	return m.Wait
}

// NoInterfaceError says that a VF's driver has made no interface in the node's
// namespace.
type NoInterfaceError struct {
	VF     pci.Address
	Driver string
	Wait   time.Duration
}

func (e *NoInterfaceError) Error() string {
	return fmt.Sprintf("VF %s (driver %s) has no network interface on the node after %s; look for its driver's word in the kernel's log", e.VF, cmp.Or(e.Driver, "none"), e.Wait)
}

// Await returns when the VF has its interface in the node's namespace: some
// drivers (iavf) make it a while after they are bound. Its error is a
// [NoInterfaceError] where there is none in time.
func (m *Attacher) Await(ctx context.Context, vf pci.Address) error {
	_, err := m.number(ctx, vf)
	return err
}

// Place puts the VF's interface into the network namespace at the path, which is
// the node's, and makes it what it is to be there. It may be repeated: what is
// there already stays. After an error, or a crash, the interface is in one of
// the two namespaces, perhaps half configured; who takes it back unbinds the
// function.
func (m *Attacher) Place(ctx context.Context, what Interface, at string) error {
	if err := m.place(ctx, what, at); err != nil {
		return fmt.Errorf("put the interface of VF %s into the pod's network namespace %s: %w", what.VF, at, err)
	}
	return nil
}

func (m *Attacher) place(ctx context.Context, what Interface, at string) error {
	mac, err := net.ParseMAC(what.MAC)
	if err != nil {
		return err
	}
	pod, err := m.podSpace(at)
	if err != nil {
		return err
	}
	defer pod.close()
	there, err := pod.links(ctx)
	if err != nil {
		return err
	}
	if there.name(what.VF, mac) == "" {
		if err := m.move(ctx, what, mac, pod); err != nil {
			return err
		}
	}
	if there, err = pod.links(ctx); err != nil {
		return err
	}
	return pod.run(func() error {
		if err := m.ignoreRouters(there.name(what.VF, mac)); err != nil {
			return err
		}
		return m.configure(ctx, what, mac)
	})
}

// ignoreRouters keeps an interface of the calling thread's namespace, which is
// not up yet, from addresses and routes that a router advertises: Kata would
// give them to the guest for good, which asks routers itself. A kernel without
// IPv6 has no such switch.
func (m *Attacher) ignoreRouters(name string) error {
	// The node's proc is used, since a container's may be read-only. It still shows the thread's namespace
	// (proc_sys_lookup in fs/proc/proc_sysctl.c).
	file, err := os.OpenFile(m.proc("1/root/proc/sys/net/ipv6/conf", name, "accept_ra"), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, err = file.WriteString("0")
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return fmt.Errorf("have the interface ignore routers: %w", err)
	}
	return nil
}

// configure makes the interface with the MAC in the calling thread's namespace
// what is asked, by the code that does it in a guest.
func (m *Attacher) configure(ctx context.Context, what Interface, mac net.HardwareAddr) error {
	device := guestnet.Device{Name: what.VF.String(), MAC: mac, Network: *what.Network}
	_, err := guestnet.Configure(ctx, []guestnet.Device{device}, guestnet.Options{Wait: m.wait(), NoWaitLink: true, Log: m.Log})
	return err
}

// move moves the interface from the node's namespace into the pod's.
func (m *Attacher) move(ctx context.Context, what Interface, mac net.HardwareAddr, pod *namespace) error {
	number, err := m.number(ctx, what.VF)
	if err != nil {
		return err
	}
	node, err := m.nodeSpace()
	if err != nil {
		return err
	}
	defer node.close()
	link, err := node.link(ctx, number)
	if err != nil {
		return err
	}
	if link.parent != "" && link.parent != what.VF.String() {
		return fmt.Errorf("interface %d (%s) is that of %s: the plugin sees another network namespace than /sys shows", number, link.name, link.parent)
	}
	if link.mac != mac.String() {
		if err := node.setMAC(number, mac); err != nil {
			return err
		}
	}
	name := what.Network.Interface
	if name == "" {
		name = link.name
	}
	return node.moveTo(number, name, pod)
}

// number returns the number of the VF's interface in the node's namespace.
func (m *Attacher) number(ctx context.Context, vf pci.Address) (int, error) {
	limit := time.NewTimer(m.wait())
	defer limit.Stop()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		number, err := m.look(vf)
		if err != nil || number != 0 {
			return number, err
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-limit.C:
			driver, _ := m.FS.Driver(vf) // that it can't be read is the lesser trouble
			return 0, &NoInterfaceError{VF: vf, Driver: driver, Wait: m.wait()}
		case <-tick.C:
		}
	}
}

// look returns the number of the VF's interface, 0 where it has none now.
func (m *Attacher) look(vf pci.Address) (int, error) {
	dir := path.Join(sysfs.FunctionPath(vf), "net")
	there, err := m.FS.Exists(dir)
	if err != nil || !there {
		return 0, err
	}
	names, err := m.FS.ReadDir(dir)
	if err != nil || len(names) == 0 {
		return 0, err
	}
	text, err := m.FS.ReadString(path.Join(dir, names[0], "ifindex"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // renamed, or gone, as we looked
	}
	if err != nil {
		return 0, fmt.Errorf("find the interface of VF %s: %w", vf, err)
	}
	return strconv.Atoi(text)
}

func (m *Attacher) proc(elements ...string) string {
	proc := m.Proc
	if proc == "" {
		proc = "/proc"
	}
	return filepath.Join(append([]string{proc}, elements...)...)
}

// Package podnet moves a VF's network interface into a pod's network namespace and configures it. Kata finds it there
// as a physical endpoint: it plugs the function into the VM, and configures the interface's name, MTU, addresses and
// routes in the guest.
//
// The kernel deletes the interface when the function is unbound from its driver, which Kata does, and moves it back to
// the node's namespace when the pod's is deleted.
//
// It also gets the interface's addresses from the node's CNI IPAM plugins (host-local, whereabouts) and releases them, as
// described in the CNI specification's section "Plugin Delegation": a plugin is a binary that reads a network
// configuration and the variables CNI_*, and answers in JSON. Plugins that need a network namespace, such as dhcp, don't
// work here, because the interface can be in a VM.
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

// Attacher moves interfaces of VFs. It is safe for concurrent use with different VFs. It needs CAP_NET_ADMIN,
// CAP_SYS_ADMIN, and the node's processes (hostPID).
type Attacher struct {
	// FS is the node's sysfs, with the interfaces of the node's network namespace.
	FS *sysfs.FS
	// Proc is the node's proc, /proc if empty. Its process 1 is in the node's network namespace, and paths of
	// namespaces are relative to that process's root.
	Proc string
	// Wait limits the waits for the driver to create the interface, and for duplicate address detection. The default is
	// 5 s.
	Wait time.Duration
	// Log gets the changes to an interface.
	Log *slog.Logger

	// turn is that of all requests, because each retry of a pod's start opens other sockets.
	turn guestnet.Turn
}

// Interface is the requested state of a VF's interface.
type Interface struct {
	VF pci.Address
	// MAC is the address that the PF set for the VF.
	MAC string
	// Network has at least one address. Without a name the interface keeps its own.
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

// NoInterfaceError says that a VF has no interface in the node's namespace.
type NoInterfaceError struct {
	VF     pci.Address
	Driver string
	Wait   time.Duration
}

func (e *NoInterfaceError) Error() string {
	return fmt.Sprintf("VF %s (driver %s) has no network interface on the node after %s; look for its driver's word in the kernel's log", e.VF, cmp.Or(e.Driver, "none"), e.Wait)
}

// Await waits until the VF has an interface in the node's namespace. Some drivers (iavf) create it a while after the
// bind. If there is none in time, the error is a [NoInterfaceError].
func (m *Attacher) Await(ctx context.Context, vf pci.Address) error {
	_, err := m.number(ctx, vf)
	return err
}

// Place moves the VF's interface into the network namespace at a path of the node, and configures it there. It can be
// repeated. After an error or a crash the interface is in one of the two namespaces, possibly half configured. To
// return it, unbind the function.
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
	// Once more: a move can change the interface's index, if another interface of the pod has it.
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

// ignoreRouters makes an interface that is not up yet ignore router advertisements, in the namespace of the calling
// thread. Otherwise Kata would copy the advertised addresses and routes to the guest as static ones, although the guest
// solicits routers itself. A kernel without IPv6 has no such setting.
func (m *Attacher) ignoreRouters(name string) error {
	// The node's proc is used, because a container's may be read-only. It still shows the thread's namespace
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

// configure configures the interface with the MAC in the namespace of the calling thread, with the same code as in a
// guest.
func (m *Attacher) configure(ctx context.Context, what Interface, mac net.HardwareAddr) error {
	device := guestnet.Device{Name: what.VF.String(), MAC: mac, Network: *what.Network}
	_, err := guestnet.Configure(ctx, []guestnet.Device{device}, guestnet.Options{Wait: m.wait(), NoWaitLink: true, Turn: &m.turn, Log: m.Log})
	return err
}

// move moves the interface from the node's namespace to the pod's.
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
		if err := node.setMAC(ctx, number, mac); err != nil {
			return err
		}
	}
	name := what.Network.Interface
	if name == "" {
		name = link.name
	}
	return node.moveTo(ctx, number, name, pod)
}

// number returns the index of the VF's interface in the node's namespace.
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
			driver, _ := m.FS.Driver(vf) // an unknown driver is not a reason to fail
			return 0, &NoInterfaceError{VF: vf, Driver: driver, Wait: m.wait()}
		case <-tick.C:
		}
	}
}

// look returns the index of the VF's interface, or 0 if it has none now.
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
		return 0, nil // renamed or deleted meanwhile
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

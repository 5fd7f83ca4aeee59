package podnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/network/guestnet"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// dumpAttempts limits the attempts to read a list that changes during the read.
const dumpAttempts = 5

// namespace is a network namespace, with a socket in it.
type namespace struct {
	file   *os.File
	socket *guestnet.Socket
}

// nodeSpace opens the node's network namespace.
func (m *Attacher) nodeSpace() (*namespace, error) {
	file, err := os.Open(m.proc("1/ns/net"))
	if err == nil {
		var s *namespace
		if s, err = m.enter(file); err == nil {
			return s, nil
		}
	}
	return nil, fmt.Errorf("enter the node's network namespace: %w", err)
}

// podSpace opens the network namespace at a path of the node. The node's own namespace is an error: a pod in it would
// have no boundary.
func (m *Attacher) podSpace(at string) (*namespace, error) {
	file, err := openIn(m.proc("1/root"), at)
	if err != nil {
		return nil, err
	}
	s, err := m.enter(file)
	if err != nil {
		return nil, err
	}
	node, err := os.Stat(m.proc("1/ns/net"))
	if err != nil {
		s.close()
		return nil, fmt.Errorf("find the node's network namespace: %w", err)
	}
	pod, err := s.file.Stat()
	if err != nil {
		s.close()
		return nil, err
	}
	// Device and inode identify a namespace (namespaces(7)).
	if os.SameFile(node, pod) {
		s.close()
		return nil, errors.New("it is the node's own: a pod with hostNetwork can't have a physical endpoint")
	}
	return s, nil
}

// openIn opens a file below a root, and resolves symbolic links against that root: /var/run leads to the node's /run,
// not to the container's.
func openIn(root, at string) (*os.File, error) {
	dir, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // nothing was written to it
	// O_NONBLOCK, because opening a FIFO at the path would wait for a writer.
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	fd, err := unix.Openat2(int(dir.Fd()), at, &how)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: at, Err: err}
	}
	return os.NewFile(uintptr(fd), at), nil
}

// enter opens a socket in the network namespace of a file. Any other file is an error. The namespace owns the file;
// after an error it is closed.
func (m *Attacher) enter(file *os.File) (*namespace, error) {
	kind, err := unix.IoctlRetInt(int(file.Fd()), unix.NS_GET_NSTYPE)
	if err == nil && kind != unix.CLONE_NEWNET {
		err = fmt.Errorf("a namespace of type %#x", kind)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s is not a network namespace: %w", file.Name(), err), file.Close())
	}
	handle, err := netlink.NewHandleAt(netns.NsHandle(file.Fd()), unix.NETLINK_ROUTE)
	var socket *guestnet.Socket
	if err == nil {
		socket, err = guestnet.NewSocket(handle, &m.turn)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &namespace{file: file, socket: socket}, nil
}

func (s *namespace) close() {
	s.socket.Close(func() { _ = s.file.Close() }) // nothing was written to it
}

// run runs work in the namespace, on a thread that ends afterwards, so that no other goroutine ever runs in the
// namespace.
func (s *namespace) run(work func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		if err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter it: %w", err)
			return
		}
		done <- work()
	}()
	return <-done
}

// link is the current state of an interface.
type link struct {
	name, mac string
	// parent is the address of its function. It is empty on kernels before 5.15.
	parent string
}

type links []link

// name returns the name of the VF's interface, found by its function or else by its MAC, or "" if there is none.
func (l links) name(vf pci.Address, mac net.HardwareAddr) string {
	for _, i := range l {
		if i.parent == vf.String() || i.parent == "" && i.mac == mac.String() {
			return i.name
		}
	}
	return ""
}

// links returns the interfaces of the namespace.
func (s *namespace) links(ctx context.Context) (links, error) {
	for attempt := 1; ; attempt++ {
		list, err := guestnet.Ask(ctx, s.socket, (*netlink.Handle).LinkList)
		// An interface came or went during the dump (NLM_F_DUMP_INTR), so the list may lack others, too.
		if errors.Is(err, netlink.ErrDumpInterrupted) && attempt < dumpAttempts {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list its interfaces: %w", err)
		}
		var all links
		for _, l := range list {
			all = append(all, newLink(l.Attrs()))
		}
		return all, nil
	}
}

// link returns the interface with an index.
func (s *namespace) link(ctx context.Context, number int) (link, error) {
	l, err := guestnet.Ask(ctx, s.socket, func(handle *netlink.Handle) (netlink.Link, error) { return handle.LinkByIndex(number) })
	if err != nil {
		return link{}, fmt.Errorf("look at interface %d: %w", number, err)
	}
	return newLink(l.Attrs()), nil
}

func newLink(a *netlink.LinkAttrs) link {
	l := link{name: a.Name, mac: a.HardwareAddr.String()}
	if a.ParentDevBus == "pci" {
		l.parent = a.ParentDev
	}
	return l
}

// setMAC sets an interface's address. Many drivers accept one only while the interface is down. The move takes it down
// anyway.
func (s *namespace) setMAC(ctx context.Context, number int, mac net.HardwareAddr) error {
	device := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: number}}
	if err := s.socket.Do(ctx, func(handle *netlink.Handle) error { return handle.LinkSetDown(device) }); err != nil {
		return fmt.Errorf("take interface %d down: %w", number, err)
	}
	if err := s.socket.Do(ctx, func(handle *netlink.Handle) error { return handle.LinkSetHardwareAddr(device, mac) }); err != nil {
		return fmt.Errorf("give interface %d the address %s: %w", number, mac, err)
	}
	return nil
}

// moveTo moves an interface to another namespace and renames it.
func (s *namespace) moveTo(ctx context.Context, number int, name string, to *namespace) error {
	pod, err := to.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("keep the pod's network namespace open: %w", err)
	}
	err = s.socket.Do(ctx, func(*netlink.Handle) error {
		// The kernel finds the namespace by its descriptor when it carries out the request, which may be after the caller
		// has left. Control keeps the descriptor open until then.
		var moved error
		err := pod.Control(func(fd uintptr) { moved = s.requestMove(number, name, fd) })
		return errors.Join(err, moved)
	})
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("the pod has an interface %s already; give the VF another name (network.interface of its VFConfig)", name)
	}
	if err != nil {
		return fmt.Errorf("move interface %d there as %s: %w", number, name, err)
	}
	return nil
}

// requestMove moves and renames an interface in one request. With two requests, the name would have to be unused in
// both namespaces.
func (s *namespace) requestMove(number int, name string, target uintptr) error {
	socket, err := nl.GetNetlinkSocketAt(netns.NsHandle(s.file.Fd()), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer socket.Close()
	// They are for a lost answer, which would keep the turn and the descriptors.
	timeout := unix.NsecToTimeval(guestnet.RequestLimit.Nanoseconds())
	if err := errors.Join(socket.SetSendTimeout(&timeout), socket.SetReceiveTimeout(&timeout)); err != nil {
		return err
	}
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Index = int32(number)
	req.AddData(info)
	req.AddData(nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(target))))
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}
	_, err = req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

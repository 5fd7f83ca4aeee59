package inventory

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Uevent is a message of the kernel about a device (lib/kobject_uevent.c).
type Uevent struct {
	// Action is "add", "remove", "change", "move", "online", "offline", "bind" or "unbind".
	Action string
	// Path is the device's place below /sys: "/devices/pci0000:3a/...".
	Path string
	// Subsystem is the class or bus: "pci", "net", "vfio".
	Subsystem string
}

// ParseUevent decodes a message of the kernel: "action@path", followed by variables "NAME=value", each ended by a NUL. It returns an error
// for messages of udev, which begin in another way.
func ParseUevent(data []byte) (Uevent, error) {
	header, rest, ok := bytes.Cut(data, []byte{0})
	action, devpath, ok2 := strings.Cut(string(header), "@")
	if !ok || !ok2 || action == "" || !strings.HasPrefix(devpath, "/") {
		return Uevent{}, fmt.Errorf("uevent begins with %.40q, want action@path", data)
	}
	ev := Uevent{Action: action, Path: devpath}
	for field := range bytes.SplitSeq(rest, []byte{0}) {
		if value, ok := bytes.CutPrefix(field, []byte("SUBSYSTEM=")); ok {
			ev.Subsystem = string(value)
		}
	}
	return ev, nil
}

const (
	// kernelGroup is the multicast group of the kernel's own messages; udev
	// sends what it made of them to group 2 (lib/kobject_uevent.c).
	kernelGroup = 1
	// receiveBuffer holds the events of a few thousand functions that appear at
	// once. Without privilege the kernel gives less, and may drop some: then it
	// says so.
	receiveBuffer = 8 << 20
	// longest is more than a message can have: 2048 bytes of variables
	// (UEVENT_BUFFER_SIZE) and a path of at most a page.
	longest = 8192
)

// netlinkEvents is a socket for the kernel's uevents.
type netlinkEvents struct {
	file *os.File
	conn syscall.RawConn
	buf  [longest]byte
}

// listen opens the socket. Events come from then on.
func listen() (*netlinkEvents, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	// The file takes over the descriptor and lets Next wait in the runtime's
	// poller, from where Close can wake it.
	file := os.NewFile(uintptr(fd), "uevents")
	// SO_RCVBUFFORCE is not limited by net.core.rmem_max, and needs CAP_NET_ADMIN (socket(7)).
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up socket: %w", err), file.Close())
	}
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &netlinkEvents{file: file, conn: conn}, nil
}

// Next implements [Events]. It skips messages that did not come from the kernel or do not have the kernel's format: anybody may send to a
// socket.
func (e *netlinkEvents) Next() (Uevent, error) {
	for {
		n, from, err := e.receive()
		// The kernel reports lost messages by ENOBUFS once. The socket stays usable (netlink(7)).
		if errors.Is(err, unix.ENOBUFS) {
			return Uevent{}, ErrOverrun
		}
		if err != nil {
			return Uevent{}, err
		}
		if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
			continue
		}
		if ev, err := ParseUevent(e.buf[:n]); err == nil {
			return ev, nil
		}
	}
}

// receive waits for one message.
func (e *netlinkEvents) receive() (n int, from unix.Sockaddr, err error) {
	waitErr := e.conn.Read(func(fd uintptr) bool {
		for {
			n, from, err = unix.Recvfrom(int(fd), e.buf[:], 0)
			if !errors.Is(err, unix.EINTR) {
				// false has the runtime's poller wait until the socket can be read.
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	if waitErr != nil {
		return 0, nil, waitErr
	}
	return n, from, err
}

// Close implements [events].
func (e *netlinkEvents) Close() error { return e.file.Close() }

// A subject is the device of a uevent. Several events about one device have the same effect as one.
type subject struct{ subsystem, path string }

// scope says what has to be read again.
type scope struct {
	// all is a full scan.
	all bool
	// addrs are the functions to read again. If it is empty, only the facts of the host are read.
	addrs []pci.Address
}

// relevant reports whether a uevent may change the inventory. A node with containers creates and removes virtual netdevs and loop devices
// all the time.
func relevant(ev Uevent) bool {
	_, onFunction := lastAddress(ev.Path)
	switch ev.Subsystem {
	case "pci", "net", "drm", "infiniband", "nvme", "vfio-dev":
		return onFunction
	case "block":
		return onFunction || !strings.HasPrefix(path.Base(ev.Path), "loop")
	case "vfio", "iommu", "drivers":
		return true
	case "misc":
		return path.Base(ev.Path) == "iommu"
	case "module":
		return strings.Contains(ev.Path, "vfio") || strings.Contains(ev.Path, "iommufd")
	}
	return false
}

// newScope returns what must be read again because of a set of subjects.
func newScope(subjects map[subject]bool, snap *device.Snapshot) scope {
	var s scope
	for subj := range subjects {
		addrs, ok := concernedBy(subj, snap)
		s.all = s.all || !ok
		s.addrs = append(s.addrs, addrs...)
	}
	return s
}

// concernedBy returns the functions that an event may change, and false if only a full scan can tell.
func concernedBy(subj subject, snap *device.Snapshot) ([]pci.Address, bool) {
	if a, ok := lastAddress(subj.path); ok {
		return []pci.Address{a}, true
	}
	switch subj.subsystem {
	case "vfio":
		return listMembers(path.Base(subj.path), snap)
	case "block":
		return withDisks(snap), true
	case "iommu":
		return nil, false
	}
	return nil, true
}

// listMembers returns the members of the group with a VFIO node's name, "15" or
// "noiommu-15".
func listMembers(node string, snap *device.Snapshot) ([]pci.Address, bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(node, "noiommu-"))
	if err != nil {
		return nil, true // the control node
	}
	g, ok := snap.Group(n)
	if !ok {
		return nil, false
	}
	return g.Members, true
}

// withDisks returns the functions that a virtual block device may be built on.
func withDisks(snap *device.Snapshot) []pci.Address {
	var addrs []pci.Address
	for i := range snap.Functions {
		if c := &snap.Functions[i].Children; len(c.Block) > 0 || len(c.NVMe) > 0 {
			addrs = append(addrs, snap.Functions[i].Address)
		}
	}
	return addrs
}

// maxPending is how many subjects are remembered one by one; beyond that a
// full scan is cheaper.
const maxPending = 1024

// pending gathers what has changed since the last update. Its methods may be
// called from several goroutines.
type pending struct {
	// wake holds a token while there is something to take.
	wake chan struct{}

	mu       sync.Mutex // guards what follows
	all      bool
	subjects map[subject]bool
	last     time.Time // of an add
}

func newPending() *pending {
	return &pending{wake: make(chan struct{}, 1), subjects: map[subject]bool{}}
}

// add records subjects. Without subjects it records that anything may have changed.
func (p *pending) add(subjects ...subject) {
	p.mu.Lock()
	for _, s := range subjects {
		p.subjects[s] = true
	}
	p.all = p.all || len(subjects) == 0 || len(p.subjects) > maxPending
	p.last = time.Now()
	p.mu.Unlock()
	select {
	// One pending wake-up is enough: the update takes everything that is noted by then.
	case p.wake <- struct{}{}:
	default:
	}
}

// latest returns when something was last added.
func (p *pending) latest() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// take returns what has changed, and forgets it. It also takes the token from wake: a later add puts in another one.
func (p *pending) take() (all bool, subjects map[subject]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.wake:
	default:
	}
	all, subjects = p.all, p.subjects
	p.all, p.subjects = false, map[subject]bool{}
	return all, subjects
}

// put puts back what take returned and could not be used. It wakes nobody.
func (p *pending) put(all bool, subjects map[subject]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = p.all || all
	maps.Copy(p.subjects, subjects)
}

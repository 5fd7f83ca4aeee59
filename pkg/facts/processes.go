package facts

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// OpenHandle is one file by which a process has functions open through VFIO.
type OpenHandle struct {
	// Process is the process. Several handles share the value.
	Process *vfio.Usage
	// Node is the open file: "/dev/vfio/15", or "a VFIO device" if the kernel names its function.
	Node string
	// Devices are the functions that the process reaches through the file, by address: for a group, all its functions on VFIO. There
	// are none if the kernel does not name the device, or if the node was deleted.
	Devices []pci.Address
	// Claims are the claims that have any of Devices, including claims that began or ended while the processes were read.
	Claims []*journal.Record
}

// Privileges that reads need: OfConfigSpace for all of configuration space (without it, drivers/pci/pci-sysfs.c returns only 64
// bytes), and OfProcesses for the files that other users' processes have open or mapped (fs/proc/base.c, by ptrace_may_access).
const (
	OfConfigSpace = "CAP_SYS_ADMIN"
	OfProcesses   = "CAP_SYS_PTRACE"
	// ofAllProcesses is what a pod needs so that /proc shows all processes of the node.
	ofAllProcesses = "hostPID"
)

// Fact returns the open handle as evidence.
func (h *OpenHandle) Fact() Fact {
	return Fact{Path: "/" + sysfs.Process(h.Process.PID, "fd"), Value: h.Node, How: "process", Needs: OfProcesses}
}

// processes is the result of reading all processes once.
type processes struct {
	users    []vfio.Usage
	holdings []OpenHandle
	seen     Fact
}

// processTime limits the time for reading all processes.
const processTime = 30 * time.Second

// Users returns the processes that have a file of VFIO open or registers of functions mapped, by PID. If the fact is not OK, not
// all processes were seen, so there may be more users.
func (n *Node) Users() ([]vfio.Usage, Fact) {
	p := n.processes()
	return p.users, p.seen
}

// Holdings returns all open handles of VFIO, by PID and node, with the fact of [Node.Users].
func (n *Node) Holdings() ([]OpenHandle, Fact) {
	p := n.processes()
	return p.holdings, p.seen
}

// Holders returns the processes that hold the function.
func (n *Node) Holders(a pci.Address) []OpenHandle {
	var found []OpenHandle
	for _, h := range n.processes().holdings {
		if slices.Contains(h.Devices, a) {
			found = append(found, h)
		}
	}
	return found
}

func (n *Node) readProcesses() processes {
	ctx, cancel := context.WithTimeout(context.Background(), processTime)
	defer cancel()
	users, err := vfio.Usages(ctx, n.fs)
	p := processes{users: users, seen: fact(sysfs.Proc, "", "process", err)}
	p.seen.Needs = OfProcesses
	if errors.Is(err, vfio.ErrCannotSee) {
		p.seen.Status, p.seen.Err = Denied, err.Error()
		// No read was refused: the missing processes are outside the reader's PID namespace.
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
			p.seen.Needs = ofAllProcesses
		}
	}
	nodes := n.behind()
	for i := range users {
		p.holdings = append(p.holdings, newHoldings(&users[i], nodes)...)
	}
	if len(p.holdings) == 0 {
		return p
	}
	// A claim may have begun after the journal was read, so the journal is read again. A claim that ended since the first read had its
	// functions when the processes were read, or shortly before.
	records, _ := n.JournalNow()
	now := tenancies(records)
	for i := range p.holdings {
		p.holdings[i].Claims = n.claims(p.holdings[i].Devices, now)
	}
	return p
}

// functionsByNode returns the functions on VFIO, by their device nodes.
func (n *Node) functionsByNode() map[string][]pci.Address {
	nodes := map[string][]pci.Address{}
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		if !f.OnVFIO() && !f.Locked {
			continue
		}
		for _, node := range vfioNodes(f) {
			nodes[node] = append(nodes[node], f.Address)
		}
	}
	return nodes
}

// vfioNodes returns the nodes by which VFIO gives the function.
func vfioNodes(f *device.Function) []string {
	var nodes []string
	if f.Group != nil {
		// The group has one of the two nodes, depending on whether it has an IOMMU (vfio_noiommu_group_alloc in drivers/vfio/group.c).
		nodes = append(nodes, vfio.GroupNode(*f.Group), vfio.NoIOMMUNode(*f.Group))
	}
	if f.Children.VFIO != "" {
		nodes = append(nodes, vfio.DeviceNode(f.Children.VFIO))
	}
	return nodes
}

// Behind returns the functions behind a VFIO node, by address; none if VFIO has no function of the node.
func (n *Node) Behind(node string) []pci.Address { return n.behind()[node] }

// newHoldings returns the open handles of one process.
func newHoldings(u *vfio.Usage, nodes map[string][]pci.Address) []OpenHandle {
	var all []OpenHandle
	for _, node := range u.Nodes {
		all = append(all, OpenHandle{Process: u, Node: node, Devices: nodes[node]})
	}
	held := func(a pci.Address) bool {
		return slices.ContainsFunc(all, func(h OpenHandle) bool { return slices.Contains(h.Devices, a) })
	}
	// A process can have a device open although it has not opened its node: another process opened the device and passed the
	// descriptor over a socket.
	for _, a := range u.Devices {
		if !held(a) {
			all = append(all, OpenHandle{Process: u, Node: "the VFIO device of " + a.String(), Devices: []pci.Address{a}})
		}
	}
	if len(all) == 0 && u.Unnamed > 0 { // devices whose group's node is not open here; an old kernel does not name them
		all = append(all, OpenHandle{Process: u, Node: "a VFIO device"})
	}
	return all
}

// claims returns the claims that have any of the functions, each once, by the journal as New read it and by the tenancies now. If
// both have a claim, the record is that of now.
func (n *Node) claims(devices []pci.Address, now []Tenancy) []*journal.Record {
	var claims []*journal.Record
	for _, a := range devices {
		for _, t := range slices.Concat(filterTenancies(now, a), n.TenanciesAt(a)) {
			known := slices.ContainsFunc(claims, func(r *journal.Record) bool { return r.ID() == t.Record.ID() })
			if !known {
				claims = append(claims, t.Record)
			}
		}
	}
	return claims
}

const (
	cgroups = "sys/fs/cgroup"
	// maxCgroups is the largest depth of cgroups that is searched. The kubelet's cgroups are five levels deep.
	maxCgroups = 32
	// noLimit is the value from which a memory limit in cgroup v1 means no limit: the kernel then prints the largest number of pages
	// that it can count (mm/page_counter.c).
	noLimit = 1 << 62
)

// MemoryBound returns the memory limit of a process, given the text of its proc/<pid>/cgroup: bound is the file of the nearest
// cgroup that has a limit, in bytes. If no cgroup has a limit, ok is false and seen has the files that were read. The error says
// why the cgroup is unavailable.
func (n *Node) MemoryBound(cgroup string) (bound Fact, ok bool, seen []Fact, err error) {
	dir, file, err := memoryCgroup(cgroup)
	if err != nil {
		return Fact{}, false, nil, err
	}
	top := cgroups
	if file != memoryMax {
		// In cgroup v1, each controller has a tree of its own.
		top = path.Join(cgroups, "memory")
	}
	at := path.Join(top, dir)
	if f := n.Exists(at); !f.OK() {
		return Fact{}, false, []Fact{f}, fmt.Errorf("cgroup %s is unavailable", dir)
	}
	// A limit of any cgroup above bounds the process, so the first one that is found will do.
	for ; at != top && len(seen) < maxCgroups; at = path.Dir(at) {
		f := n.Read(path.Join(at, file))
		if !f.Known() {
			return Fact{}, false, []Fact{f}, fmt.Errorf("the limit of cgroup %s is unavailable", dir)
		}
		seen = append(seen, f)
		if isBound(f) {
			return f, true, seen, nil
		}
	}
	return Fact{}, false, seen, nil
}

const memoryMax = "memory.max"

// memoryCgroup returns the cgroup that counts the memory, and the name of its limit's file: the cgroup of the controller memory or,
// if there is none, the unified cgroup (cgroups(7)).
func memoryCgroup(text string) (dir, file string, err error) {
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			dir, file = parts[2], "memory.limit_in_bytes"
		case parts[0] == "0" && file == "":
			dir, file = parts[2], memoryMax
		}
	}
	switch {
	case file == "":
		return "", "", errors.New("proc does not say which cgroup it is in")
	case !path.IsAbs(dir) || slices.Contains(strings.Split(dir, "/"), ".."):
		// What is above the reader's own root is shown by ".." (cgroup_namespaces(7)).
		return "", "", errors.New("the audit runs in another cgroup namespace and does not see the cgroup")
	}
	return dir, file, nil
}

func isBound(f Fact) bool {
	limit, err := strconv.ParseUint(f.Value, 10, 64)
	return f.OK() && err == nil && limit < noLimit
}

// capIPCLock is CAP_IPC_LOCK's number (include/uapi/linux/capability.h).
const capIPCLock = 14

// LocksAtWill reports whether a process may lock, and so pin for DMA, any amount of memory: it has CAP_IPC_LOCK, or no limit of
// locked memory. known is false if one of the two could not be read and the other does not permit it.
func (n *Node) LocksAtWill(pid int) (free, known bool, seen []Fact) {
	status := n.Read(sysfs.Process(pid, "status"))
	limits := n.Read(sysfs.Process(pid, "limits"))
	caps, _ := sysfs.StatusField(status.Value, "CapEff")
	// VFIO accounts pinned pages against the soft limit (vfio_lock_acct in drivers/vfio/vfio_iommu_type1.c).
	soft := lockedLimit(limits.Value)
	status.Value, limits.Value = "CapEff: "+caps, "Max locked memory: "+soft
	seen = []Fact{status, limits}
	bits, err := strconv.ParseUint(caps, 16, 64)
	switch {
	// With CAP_IPC_LOCK the kernel compares with no limit (bypass_rlim in mm/util.c).
	case err == nil && bits&(1<<capIPCLock) != 0, soft == "unlimited":
		return true, true, seen
	case err != nil || soft == "":
		return false, false, seen
	}
	return false, true, seen
}

// lockedLimit returns the soft limit of locked memory of proc/<pid>/limits.
func lockedLimit(text string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "Max locked memory"); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				return fields[0]
			}
		}
	}
	return ""
}

// Listening returns the addresses on which processes in the node's network namespace listen on a TCP port, except
// loopback addresses, and the fact of that (proc_pid_net(5)). If the fact is not known, there may be more addresses.
func (n *Node) Listening(port uint16) ([]string, Fact) {
	open, seen := n.Listeners(port)
	open = slices.DeleteFunc(open, func(a netip.Addr) bool { return a.Unmap().IsLoopback() })
	texts := make([]string, len(open))
	for i, a := range open {
		texts[i] = a.String()
	}
	seen.Value = strings.Join(texts, " ")
	return texts, seen
}

// Listeners is like [Node.Listening], but includes loopback addresses.
func (n *Node) Listeners(port uint16) ([]netip.Addr, Fact) {
	var open []netip.Addr
	// The files of process 1: those in /proc/net are of the reader's own network namespace.
	all := n.Read(sysfs.Process(1, "net/tcp"))
	for _, file := range []Fact{all, n.Read(sysfs.Process(1, "net/tcp6"))} {
		if !file.Known() && all.Known() { // without IPv6, there is no tcp6
			all = file
		}
		for line := range strings.Lines(file.Value) {
			fields := strings.Fields(line)
			const listen = "0A" // TCP_LISTEN in include/net/tcp_states.h
			if len(fields) < 4 || fields[3] != listen {
				continue
			}
			if a, ok := parseSocket(fields[1]); ok && a.Port() == port {
				open = append(open, a.Addr())
			}
		}
	}
	all.Value = fmt.Sprint(open)
	return open, all
}

// parseSocket reads "0100007F:1A0A": the 32-bit words of the address as numbers in the machine's byte order, and the port. All
// machines that this project supports are little-endian.
func parseSocket(text string) (netip.AddrPort, bool) {
	address, number, ok := strings.Cut(text, ":")
	raw, err := hex.DecodeString(address)
	port, err2 := strconv.ParseUint(number, 16, 16)
	if !ok || err != nil || err2 != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	a, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(a, uint16(port)), ok
}

package facts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// OpenHandle is one process that has functions by VFIO.
type OpenHandle struct {
	// Process is shared.
	Process *vfio.Usage
	// Node is what it has open: "/dev/vfio/15", or "a VFIO device" where the kernel
	// says which function that is of.
	Node string
	// Devices are the functions that it reaches by it: all of a group that VFIO has,
	// by address. None for a device that the kernel does not name, or a node that
	// has gone.
	Devices []pci.Address
	// Claims are the claims that have any of Devices, those that came or went while
	// processes were looked at included.
	Claims []*journal.Record
}

// What reads take: all of configuration space (drivers/pci/pci-sysfs.c gives others
// 64 bytes of it), and what other users' processes have open or mapped
// (fs/proc/base.c, by ptrace_may_access).
const (
	OfConfigSpace = "CAP_SYS_ADMIN"
	OfProcesses   = "CAP_SYS_PTRACE"
	// OfAllProcesses is what it takes that they are there to be looked at.
	OfAllProcesses = "hostPID"
)

// Fact returns the holding as evidence.
func (h *OpenHandle) Fact() Fact {
	return Fact{Path: fmt.Sprintf("/proc/%d/fd", h.Process.PID), Value: h.Node, How: "process", Needs: OfProcesses}
}

// processes is what one look at them gave.
type processes struct {
	users    []vfio.Usage
	holdings []OpenHandle
	seen     Fact
}

// processTime is how long processes are looked at.
const processTime = 30 * time.Second

// Users returns the processes that hold something of VFIO's or have registers of
// functions mapped, by PID. The fact says whether all processes were seen: where it
// is not OK there may be more.
func (n *Node) Users() ([]vfio.Usage, Fact) {
	p := n.processes()
	return p.users, p.seen
}

// Holdings returns what processes hold by VFIO, by PID and node, with the fact of
// [Node.Users].
func (n *Node) Holdings() ([]OpenHandle, Fact) {
	p := n.processes()
	return p.holdings, p.seen
}

// HoldersOf returns the processes that hold the function.
func (n *Node) HoldersOf(a pci.Address) []OpenHandle {
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
	p := processes{users: users, seen: fact("proc", "", "process", err)}
	p.seen.Needs = OfProcesses
	if errors.Is(err, vfio.ErrCannotSee) {
		p.seen.Status, p.seen.Err = Denied, err.Error()
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
			p.seen.Needs = OfAllProcesses
		}
	}
	nodes := n.behind()
	for i := range users {
		p.holdings = append(p.holdings, holdingsOf(&users[i], nodes)...)
	}
	if len(p.holdings) == 0 {
		return p
	}
	// A claim may have come since the journal was read. One that has gone since had
	// its functions when processes were looked at, or shortly before.
	now, _ := n.JournalNow()
	for i := range p.holdings {
		p.holdings[i].Claims = n.claimsOf(p.holdings[i].Devices, tenancies(now))
	}
	return p
}

// functionsByNode returns the functions that VFIO has by their device nodes.
func (n *Node) functionsByNode() map[string][]pci.Address {
	nodes := map[string][]pci.Address{}
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		if !isVFIO(f) && !f.Locked {
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
		nodes = append(nodes, vfio.GroupNode(*f.Group), vfio.NoIOMMUNode(*f.Group))
	}
	if f.Children.VFIO != "" {
		nodes = append(nodes, vfio.DeviceNode(f.Children.VFIO))
	}
	return nodes
}

// NodeOf returns the functions behind a VFIO node, by address; none for a node
// that leads to no function that VFIO has.
func (n *Node) NodeOf(node string) []pci.Address { return n.behind()[node] }

// holdingsOf returns what one process holds.
func holdingsOf(u *vfio.Usage, nodes map[string][]pci.Address) []OpenHandle {
	var all []OpenHandle
	for _, node := range u.Nodes {
		all = append(all, OpenHandle{Process: u, Node: node, Devices: nodes[node]})
	}
	held := func(a pci.Address) bool {
		return slices.ContainsFunc(all, func(h OpenHandle) bool { return slices.Contains(h.Devices, a) })
	}
	for _, a := range u.Devices {
		if !held(a) {
			all = append(all, OpenHandle{Process: u, Node: "the VFIO device of " + a.String(), Devices: []pci.Address{a}})
		}
	}
	if len(all) == 0 && u.Unnamed > 0 { // devices that came without their group's node, of which an old kernel does not say which
		all = append(all, OpenHandle{Process: u, Node: "a VFIO device"})
	}
	return all
}

// claimsOf returns the claims that have any of the functions, by the journal as it
// was read first or now, each once; as it is now where both know it.
func (n *Node) claimsOf(devices []pci.Address, now []Tenancy) []*journal.Record {
	var claims []*journal.Record
	for _, a := range devices {
		for _, t := range slices.Concat(tenanciesOf(now, a), n.TenanciesOf(a)) {
			known := slices.ContainsFunc(claims, func(r *journal.Record) bool { return r.ID() == t.Record.ID() })
			if !known {
				claims = append(claims, t.Record)
			}
		}
	}
	return claims
}

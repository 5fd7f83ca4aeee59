package facts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/link"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// LinksFile is where a copy of a node holds its [Links]: no file of the node
// itself says it.
const LinksFile = "kata-vfio/links.json"

// Links has the VF settings that the node's network interfaces report.
type Links struct {
	PFs []Uplink `json:"pfs"`
}

// Uplink is a PF's interface.
type Uplink struct {
	PF pci.Address `json:"pf"`
	// Link is nil if the interface could not be read.
	Link *link.Link `json:"link,omitempty"`
	// Eswitch is the mode of the PF's eswitch; empty for one that has none to choose.
	Eswitch link.Mode `json:"eswitch,omitempty"`
	// Pause is the port's flow control; nil if its driver has none, or where
	// PauseError says why it could not be read. A copy may be older than both.
	Pause      *link.Pause `json:"pause,omitempty"`
	PauseError string      `json:"pauseError,omitempty"`
	// Error says why the interface, or the eswitch, could not be read.
	Error string `json:"error,omitempty"`
}

// Switchdev reports whether the VFs are connected by interfaces of the node, whose
// bridge or rules say what they may send.
func (u *Uplink) Switchdev() bool { return u.Eswitch.Switchdev() }

// ReadLinks asks the kernel for the interfaces of PFs with VFs, where the node is
// a running one and not a copy. It comes before the first [Node.Uplink]; without it
// that is answered by the copy's file. What can't be read is kept as the reason.
func (n *Node) ReadLinks(ctx context.Context) {
	proc, live, err := link.Live(n.fs)
	if !live && err == nil {
		return
	}
	const path = "netlink: interfaces of PFs"
	if err != nil {
		n.links = func() (*Links, Fact) { return nil, broken(path, "netlink", err) }
		return
	}
	read := &Links{}
	ask := asked{link.NewRtnetlink(proc), link.NewDevlink(proc), link.NewEthtool(proc)}
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		if f.PF == nil || f.PF.NumVFs == 0 || f.Class.Base() != pci.BaseNetwork {
			continue
		}
		u := Uplink{PF: f.Address}
		if err := u.read(ctx, n.fs, &ask); err != nil {
			u.Error = err.Error()
		}
		read.PFs = append(read.PFs, u)
	}
	n.links = func() (*Links, Fact) { return read, Fact{Path: path, How: "netlink"} }
}

// asked are the sources about an interface.
type asked struct {
	interfaces *link.Rtnetlink
	switches   *link.Devlink
	ports      *link.Ethtool
}

func (u *Uplink) read(ctx context.Context, fsys *sysfs.FS, ask *asked) error {
	number, err := link.Number(fsys, u.PF)
	if err != nil {
		return err
	}
	if number == 0 {
		return fmt.Errorf("PF %s has no network interface in the node's network namespace", u.PF)
	}
	l, err := ask.interfaces.Read(ctx, number)
	if err != nil {
		return err
	}
	// sysfs gave the number, and netlink answered later: by now it may be another interface's.
	if l.Parent != "" && l.Parent != u.PF.String() {
		return fmt.Errorf("interface %d is that of %s and not of PF %s", number, l.Parent, u.PF)
	}
	s, err := ask.switches.Read(ctx, link.Handle{Bus: "pci", Name: u.PF.String()})
	if err != nil {
		return err // without the mode, the interface's settings may not apply
	}
	u.Link, u.Eswitch = l, s.Mode
	if u.Pause, err = ask.ports.Pause(ctx, number); err != nil {
		u.PauseError = err.Error()
	}
	// In switchdev mode the frames of a VF pass a representor, and devlink's ports say which one it is.
	if u.Switchdev() {
		return u.Link.Connect(s.Ports)
	}
	return nil
}

// Links returns the settings of the node's interfaces and their fact, nil without any.
func (n *Node) Links() (*Links, Fact) { return n.links() }

// copiedLinks reads a copy's file.
func (n *Node) copiedLinks() (*Links, Fact) { return decodeLinks(n.Read(LinksFile)) }

func decodeLinks(f Fact) (*Links, Fact) {
	f.Path, f.How = "netlink", "netlink" // a node has no such file, only copies do
	if !f.OK() {
		return nil, f
	}
	var said Links
	if err := json.Unmarshal([]byte(f.Value), &said); err != nil {
		return nil, broken(f.Path, f.How, err)
	}
	f.Value = ""
	return &said, f
}

// Uplink returns the PF's interface; the fact says why it is nil.
func (n *Node) Uplink(pf pci.Address) (*Uplink, Fact) {
	all, f := n.Links()
	if all == nil {
		return nil, f
	}
	for i := range all.PFs {
		u := &all.PFs[i]
		if u.PF != pf {
			continue
		}
		if u.Link == nil || u.Error != "" {
			return nil, Fact{Path: "netlink: PF " + pf.String(), How: "netlink", Status: Broken, Err: u.Error}
		}
		return u, Fact{Path: "netlink: " + u.Link.Name, Value: string(u.Eswitch), How: "netlink"}
	}
	return nil, Fact{Path: "netlink: PF " + pf.String(), How: "netlink", Status: Absent}
}

// VFSettings returns what the PF imposes on a VF. The fact says where that was read, or why it is nil. It has no
// value: use [device.VFSettings.String].
func (n *Node) VFSettings(f *device.Function) (*device.VFSettings, Fact) {
	u, fact := n.Uplink(f.VF.PF)
	if u == nil {
		return nil, fact
	}
	// rtnetlink lists the VFs that existed when it was asked, and the snapshot is of another moment.
	if f.VF.Index >= len(u.Link.VFs) {
		return nil, Fact{Path: fact.Path, How: "netlink", Status: Broken, Err: fmt.Sprintf("it reports %s, but not VF %d", output.Count(len(u.Link.VFs), "VF"), f.VF.Index)}
	}
	return &u.Link.VFs[f.VF.Index].Settings, Fact{Path: fact.Path + " vf " + strconv.Itoa(f.VF.Index), How: "netlink"}
}

// broken is a fact that could not be had.
func broken(path, how string, err error) Fact {
	f := Fact{Path: path, How: how, Status: Broken, Err: err.Error()}
	if errors.Is(err, fs.ErrPermission) {
		f.Status = Denied
	}
	return f
}

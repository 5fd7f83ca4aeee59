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

// LinksFile is the file of a node's copy with its [Links]. The node itself has no such file, because the links come from netlink.
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
	// Eswitch is the mode of the PF's eswitch. It is empty if the PF has no such modes.
	Eswitch link.Mode `json:"eswitch,omitempty"`
	// Pause is the port's flow control. It is nil if the driver has none, or if it could not be read; PauseError is the reason then.
	// Copies from earlier versions have neither field.
	Pause      *link.Pause `json:"pause,omitempty"`
	PauseError string      `json:"pauseError,omitempty"`
	// Error says why the interface, or the eswitch, could not be read.
	Error string `json:"error,omitempty"`
}

// Switchdev reports whether the PF's eswitch is in switchdev mode: each VF has an interface on the node, and the bridge or rules of
// these interfaces decide what the VF may send.
func (u *Uplink) Switchdev() bool { return u.Eswitch.Switchdev() }

// ReadLinks asks the kernel for the interfaces of PFs with VFs, if the node is a running node and not a copy. Call it before the
// first [Node.Uplink]; otherwise, Uplink answers from the file of a copy. If an interface can't be read, its Error says why.
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

// asked are the sources of facts about an interface.
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
	// The number is from sysfs, and netlink answered later. Meanwhile, the number may belong to another interface.
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

// Links returns the settings of the node's interfaces and their fact. The settings are nil if they are missing or could not be read.
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

// VFSettings returns the settings that the PF imposes on a VF. The fact says where they were read, or why they are nil. It has no
// value: use [device.VFSettings.String].
func (n *Node) VFSettings(f *device.Function) (*device.VFSettings, Fact) {
	u, fact := n.Uplink(f.VF.PF)
	if u == nil {
		return nil, fact
	}
	// rtnetlink lists the VFs that existed when it was asked. The snapshot is from another moment, and may have more VFs.
	if f.VF.Index >= len(u.Link.VFs) {
		return nil, Fact{Path: fact.Path, How: "netlink", Status: Broken, Err: fmt.Sprintf("it reports %s, but not VF %d", output.Count(len(u.Link.VFs), "VF"), f.VF.Index)}
	}
	return &u.Link.VFs[f.VF.Index].Settings, Fact{Path: fact.Path + " vf " + strconv.Itoa(f.VF.Index), How: "netlink"}
}

// broken returns the fact of a read that failed with err.
func broken(path, how string, err error) Fact {
	f := Fact{Path: path, How: how, Status: Broken, Err: err.Error()}
	if errors.Is(err, fs.ErrPermission) {
		f.Status = Denied
	}
	return f
}

package audit

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/encode"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/terminal"
)

// Sandboxes are Kata's sandboxes of a node, as Kata itself has them. The JSON form is
// stable for machines: names are added, never changed.
type Sandboxes struct {
	Sandboxes []Sandbox `json:"sandboxes"`
	// Unread are the states of Kata's that could not be read, one sentence each.
	Unread []string `json:"unread,omitempty"`
}

// Sandbox is one of them.
type Sandbox struct {
	ID        string `json:"id"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	// Runtime is "go" or "rust"; empty where the VMM alone tells of the sandbox.
	Runtime    string `json:"runtime,omitempty"`
	Hypervisor string `json:"hypervisor,omitempty"`
	// PID is the VMM's.
	PID int `json:"pid,omitempty"`
	// Running says that this process is seen.
	Running bool            `json:"running"`
	Devices []SandboxDevice `json:"devices"`
}

// SandboxDevice is a function of the node in a sandbox.
type SandboxDevice struct {
	Address pci.Address `json:"address"`
	// GuestPath is where it is in the guest, "05/00"; empty where that can't be told.
	GuestPath   string `json:"guestPath,omitempty"`
	Bus         string `json:"bus,omitempty"`
	ColdPlugged bool   `json:"coldPlugged"`
	Endpoint    bool   `json:"endpoint,omitempty"`
	// Claims are the claims that have it by the plugin's journal.
	Claims []string `json:"claims"`
}

// SandboxesOf returns the node's sandboxes: those of one pod where a name is given.
func SandboxesOf(n *facts.Node, namespace, pod string) *Sandboxes {
	found, asked := runtimes.Sandboxes(n)
	all := &Sandboxes{Sandboxes: []Sandbox{}}
	for i := range found {
		if s := &found[i]; pod == "" || s.Namespace == namespace && s.Pod == pod {
			all.Sandboxes = append(all.Sandboxes, sandboxOf(n, s))
		}
	}
	for _, f := range asked {
		if !f.Known() {
			all.Unread = append(all.Unread, f.Path+": "+f.Err)
		}
	}
	return all
}

func sandboxOf(n *facts.Node, s *runtimes.Sandbox) Sandbox {
	view := Sandbox{
		ID: s.ID, Namespace: s.Namespace, Pod: s.Pod, Runtime: string(s.Runtime), Hypervisor: s.Hypervisor, PID: s.PID,
		Running: s.VMM != nil, Devices: []SandboxDevice{},
	}
	for _, d := range s.Devices {
		device := SandboxDevice{Address: d.Address, GuestPath: d.GuestPath, Bus: d.Bus, ColdPlugged: d.ColdPlugged, Endpoint: d.Endpoint, Claims: []string{}}
		for _, t := range n.TenanciesOf(d.Address) {
			device.Claims = append(device.Claims, t.Claim())
		}
		view.Devices = append(view.Devices, device)
	}
	return view
}

// Write writes the sandboxes as a table, JSON or YAML.
func (all *Sandboxes) Write(w io.Writer, format string) error {
	switch format {
	case "json":
		return encode.JSON(w, "sandboxes", all)
	case "yaml":
		return encode.YAML(w, "sandboxes", all)
	}
	return all.writeTable(w)
}

func (all *Sandboxes) writeTable(w io.Writer) error {
	t := terminal.Table{Titles: []string{"POD", "SANDBOX", "RUNTIME", "PID", "DEVICE", "IN THE GUEST", "CLAIM"}}
	for i := range all.Sandboxes {
		t.Rows = append(t.Rows, all.Sandboxes[i].rows()...)
	}
	for _, line := range t.Lines(false) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return fmt.Errorf("write sandboxes: %w", err)
		}
	}
	return nil
}

// rows returns one for each device, or one for a sandbox without any.
func (s *Sandbox) rows() [][]terminal.Cell {
	head := []terminal.Cell{
		{Text: orDash(strings.Trim(s.Namespace+"/"+s.Pod, "/"))}, {Text: fmt.Sprintf("%.12s", s.ID)}, {Text: orDash(s.Runtime)}, {Text: s.process()},
	}
	if len(s.Devices) == 0 {
		return [][]terminal.Cell{append(head, terminal.Cell{Text: "-"}, terminal.Cell{Text: "-"}, terminal.Cell{Text: "-"})}
	}
	var rows [][]terminal.Cell
	for _, d := range s.Devices {
		rows = append(rows, append(slices.Clone(head), terminal.Cell{Text: d.Address.String()}, terminal.Cell{Text: orDash(d.GuestPath)},
			terminal.Cell{Text: orDash(strings.Join(d.Claims, ","))}))
	}
	return rows
}

// process says which one runs the VM.
func (s *Sandbox) process() string {
	switch {
	case s.PID == 0:
		return "-"
	case !s.Running:
		return fmt.Sprintf("%d (not seen)", s.PID)
	}
	return strconv.Itoa(s.PID)
}

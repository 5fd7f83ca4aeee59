package audit

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// Sandboxes are the sandboxes of a node according to Kata's own state. The JSON form is stable for machines:
// names are added, never changed.
type Sandboxes struct {
	Sandboxes []finding.KataSandbox `json:"sandboxes"`
	// Unread are the states of Kata that could not be read, one sentence each.
	Unread []string `json:"unread,omitempty"`
}

// NewSandboxes returns the node's sandboxes, or only those of one pod if a name is given.
func NewSandboxes(n *facts.Node, namespace, pod string) *Sandboxes {
	k := check.DescribeKata(n)
	others := func(s finding.KataSandbox) bool { return pod != "" && (s.Namespace != namespace || s.Pod != pod) }
	return &Sandboxes{Sandboxes: slices.DeleteFunc(k.Sandboxes, others), Unread: k.Unread}
}

// Write writes the sandboxes as a table, JSON or YAML. width is the width of the terminal for the table; 0 means no limit.
func (all *Sandboxes) Write(w io.Writer, format string, width int) error {
	if done, err := output.Document(w, format, "sandboxes", all); done {
		return err
	}
	return all.writeTable(w, width)
}

func (all *Sandboxes) writeTable(w io.Writer, width int) error {
	if len(all.Sandboxes) == 0 {
		_, err := fmt.Fprintln(w, "No sandbox of Kata was found.")
		return err
	}
	t := output.Table{Titles: []string{"POD", "SANDBOX", "RUNTIME", "PID", "DEVICE", "IN THE GUEST", "CLAIM"}}
	for i := range all.Sandboxes {
		t.Rows = append(t.Rows, newRows(&all.Sandboxes[i])...)
	}
	for _, line := range t.Lines(width, false) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return fmt.Errorf("write sandboxes: %w", err)
		}
	}
	return nil
}

// newRows returns a row for each device, or one for a sandbox without any.
func newRows(s *finding.KataSandbox) [][]output.Cell {
	head := []output.Cell{
		{Text: orDash(strings.Trim(s.Namespace+"/"+s.Pod, "/"))}, {Text: fmt.Sprintf("%.12s", s.ID)}, {Text: orDash(s.Runtime)}, {Text: process(s)},
	}
	if len(s.Devices) == 0 {
		return [][]output.Cell{append(head, output.Cell{Text: "-"}, output.Cell{Text: "-"}, output.Cell{Text: "-"})}
	}
	var rows [][]output.Cell
	for _, d := range s.Devices {
		// Without the clone, the rows of a sandbox would share their last cells.
		rows = append(rows, append(slices.Clone(head), output.Cell{Text: d.Address.String()}, output.Cell{Text: orDash(d.GuestPath)},
			output.Cell{Text: orDash(strings.Join(d.Claims, ","))}))
	}
	return rows
}

// process returns the process that runs the VM.
func process(s *finding.KataSandbox) string {
	switch {
	case s.PID == 0:
		return "-"
	case !s.Running:
		return fmt.Sprintf("%d (not seen)", s.PID)
	}
	return strconv.Itoa(s.PID)
}

package audit

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/encode"
	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
)

// Handlers are the runtime handlers of a node that run Kata. The JSON form is stable for machines: names are added, never changed.
type Handlers struct {
	Handlers []finding.KataHandler `json:"handlers"`
}

// HandlersOf returns the node's handlers.
func HandlersOf(n *facts.Node) *Handlers { return &Handlers{Handlers: check.KataOf(n).Handlers} }

// Write writes the handlers as text, JSON or YAML.
func (all *Handlers) Write(w io.Writer, format string) error {
	if done, err := encode.Document(w, format, "handlers", all); done {
		return err
	}
	return all.writeText(w)
}

func (all *Handlers) writeText(w io.Writer) error {
	var lines []string
	for i := range all.Handlers {
		if i > 0 {
			lines = append(lines, "")
		}
		lines = append(lines, handlerLines(&all.Handlers[i])...)
	}
	if len(lines) == 0 {
		lines = []string{"no runtime handler of this node runs Kata"}
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return fmt.Errorf("write handlers: %w", err)
		}
	}
	return nil
}

// handlerLines are a handler and its settings, each with what it is called in Kata's files.
func handlerLines(h *finding.KataHandler) []string {
	head := fmt.Sprintf("%s: Kata's %s runtime, by %s", h.Name, h.Runtime, h.Engine)
	if h.Damaged != "" {
		return []string{terminal.Visible(head), terminal.Visible("  its settings are not known: " + h.Damaged)}
	}
	lines := []string{terminal.Visible(head)}
	for _, row := range [][2]string{
		{"vmm", h.VMM},
		{"default_memory", strconv.FormatInt(h.MemoryMiB, 10) + " MiB"},
		{"memory beside limits", strconv.FormatInt(h.LimitedMiB, 10) + " MiB"},
		{"static_sandbox_resource_mgmt", strconv.FormatBool(h.FixedSize)},
		{"sandbox_cgroup_only", strconv.FormatBool(h.InPodsCgroup)},
		{"cold_plug_vfio", h.ColdPlug},
		{"hot_plug_vfio", h.HotPlug},
		{"pcie_root_port", strconv.FormatInt(h.RootPorts, 10)},
		{"vfio_mode", orDash(h.VFIOMode)},
		{"pod_resource_api_sock", orDash(h.Socket)},
		{"enable_annotations", orDash(strings.Join(h.Annotations, ", "))},
		{"files", strings.Join(h.Files, ", ")},
	} {
		lines = append(lines, terminal.Visible(fmt.Sprintf("  %-28s  %s", row[0], row[1])))
	}
	return lines
}

package audit

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// Handlers are the runtime handlers of a node that run Kata. The JSON form is stable for machines: names are added, never changed.
type Handlers struct {
	Handlers []finding.KataHandler `json:"handlers"`
	// Damaged are the files of the container runtimes that can't be parsed, one sentence each: handlers may be missing.
	Damaged []string `json:"damaged,omitempty"`
	// CRIOff is the file that switches containerd's CRI plugin off; empty if none does.
	CRIOff string `json:"criOff,omitempty"`
}

// NewHandlers returns the node's handlers.
func NewHandlers(n *facts.Node) *Handlers {
	k := check.DescribeKata(n)
	return &Handlers{Handlers: k.Handlers, Damaged: k.Damaged, CRIOff: k.CRIOff}
}

// Write writes the handlers as text, JSON or YAML.
func (all *Handlers) Write(w io.Writer, format string) error {
	if done, err := output.Document(w, format, "handlers", all); done {
		return err
	}
	return all.writeText(w)
}

func (all *Handlers) writeText(w io.Writer) error {
	for _, line := range all.lines() {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return fmt.Errorf("write handlers: %w", err)
		}
	}
	return nil
}

// lines returns the problems of the files, and the handlers.
func (all *Handlers) lines() []string {
	var lines []string
	for _, damaged := range all.Damaged {
		lines = append(lines, output.Visible("the container runtime's configuration can't be read, so handlers may be missing: "+damaged))
	}
	if all.CRIOff != "" {
		lines = append(lines, output.Visible("containerd's CRI plugin is disabled by "+all.CRIOff+", so the kubelet can't use containerd"))
	}
	for i := range all.Handlers {
		if len(lines) > 0 {
			lines = append(lines, "")
		}
		lines = append(lines, handlerLines(&all.Handlers[i])...)
	}
	if len(all.Handlers)+len(all.Damaged) == 0 {
		lines = append(lines, "no runtime handler of this node runs Kata")
	}
	return lines
}

// handlerLines returns a handler and its settings, by their names in Kata's files.
func handlerLines(h *finding.KataHandler) []string {
	head := fmt.Sprintf("%s: Kata's %s runtime, by %s", h.Name, h.Runtime, h.Engine)
	if h.Damaged != "" {
		return []string{output.Visible(head), output.Visible("  its settings are not known: " + h.Damaged)}
	}
	lines := []string{output.Visible(head)}
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
		lines = append(lines, output.Visible(fmt.Sprintf("  %-28s  %s", row[0], row[1])))
	}
	return lines
}

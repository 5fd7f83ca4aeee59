package bootstrap

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// Outlook is the state of the node that its files determine after the plan is applied, and after the reboot if one is due.
type Outlook struct {
	// Files are the files that differ then, including those of /proc and /sys, by path.
	Files []FileOutlook
	// Arguments are the required arguments that the kernel's command line lacks now.
	Arguments []string
	// Reboot: a reboot is due.
	Reboot bool
	// IOMMU is true if the kernel drives no IOMMU now, the firmware describes VT-d, and the plan or the next boot starts the
	// kernel with it. Passthrough is true if the kernel's own devices then bypass the IOMMU.
	IOMMU, Passthrough bool
}

// FileOutlook is one file.
type FileOutlook struct {
	Path string
	// Parts are the parts of bootstrap that change it.
	Parts []string
	state.Image
	Content []byte
}

// Outlook returns the expected state of the node. It includes changes that a problem prevents: they follow once the
// problem is solved.
func (p *Plan) Outlook() *Outlook {
	o := &Outlook{Reboot: p.Reboot || len(p.awaits) > 0}
	for i := range p.changes {
		c := &p.changes[i]
		o.Files = append(o.Files, FileOutlook{Path: c.file.Path, Parts: []string{c.file.Part}, Image: c.to, Content: c.content})
		o.Reboot = o.Reboot || slices.Contains(c.file.Then, state.Reboot)
	}
	var line *FileOutlook
	for _, s := range p.Settings {
		switch {
		case s.Status == Right || s.Status == NotBrought:
		case s.Path != kernelargs.Running:
			o.Files = append(o.Files, shown(s.Path, s.Part, s.Value))
		default:
			if line == nil {
				line = new(shown(s.Path, s.Part, s.Now))
			}
			line.Content = []byte(kernelargs.Add(strings.TrimSpace(string(line.Content)), s.Value) + "\n")
			o.Arguments = append(o.Arguments, s.Value)
		}
	}
	if line != nil {
		o.Files = append(o.Files, *line)
	}
	slices.SortStableFunc(o.Files, func(a, b FileOutlook) int { return cmp.Compare(a.Path, b.Path) })
	o.IOMMU = len(p.platform.IOMMUs) == 0 && p.platform.Firmware.DMAR != nil && slices.Contains(o.Arguments, "intel_iommu=on")
	o.Passthrough = p.passthrough
	return o
}

// shown is a file of the running kernel.
func shown(name, part, content string) FileOutlook {
	return FileOutlook{Path: path.Clean(name), Parts: []string{part}, Image: state.NewImage(0o444), Content: []byte(content + "\n")}
}

// Refused returns the problems that prevent all changes.
func (p *Plan) Refused() []state.Problem { return p.refused() }

package bootstrap

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// writeNothing removes all files from the requirements if the system keeps no files of bootstrap, and says what to do instead.
func (p *Plan) writeNothing(w *state.Wanted, words []string) {
	p.Notice = p.platform.Loader.Notice()
	if p.Notice == "" {
		return
	}
	p.Talos = p.platform.TalosConfig(w.Files, words)
	w.Problems = append(w.Problems, p.unwritten(w.Files)...)
	if p.Talos != nil {
		// These facts come from /etc/containerd, which on Talos configures another containerd than the kubelet's.
		w.Facts = slices.DeleteFunc(w.Facts, func(f state.Fact) bool { return f.Part == "containerd" })
	}
	p.platform.Adapt(w.Problems)
	w.Files = nil
}

// unwritten returns the manual step, which names the files that bootstrap would write elsewhere.
func (p *Plan) unwritten(files []state.File) []state.Problem {
	problem := state.Problem{Part: "platform", Code: rule.ReadOnlySystem, ByHand: true}
	switch names := filePaths(files); {
	case p.Talos != nil:
		problem.Text = "bootstrap writes no files on Talos"
		problem.Fix = "apply the schematic and the machine config that `kata-vfio-bootstrap plan` prints; `kata-vfio-audit node` checks the result"
		if len(p.Talos.Left) > 0 {
			problem.Text += ", and neither its schematic nor its machine config has a place for: " + strings.Join(p.Talos.Left, ", ")
		}
	case len(files) == 0:
		return nil
	default:
		problem.Text = fmt.Sprintf("on %s, bootstrap writes no files, so it can't set up: %s", p.platform.Loader.Kind, strings.Join(names, ", "))
		problem.Fix = "configure the same in the system's own way; `kata-vfio-audit node` checks the result"
	}
	return []state.Problem{problem}
}

func filePaths(files []state.File) []string {
	var names []string
	for _, f := range files {
		names = append(names, "/"+f.Path)
	}
	slices.Sort(names)
	return names
}

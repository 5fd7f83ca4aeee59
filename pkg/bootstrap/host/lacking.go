package host

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/platform"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// Modules judges the modules that parts need: a problem that names those that the kernel does not have, and a fact with those that
// it has and has not loaded. What is built in counts as loaded. Where the kernel's list of modules can't be read, nothing is said.
func Modules(needed []state.Module, p *platform.Platform) ([]state.Problem, []state.Fact) {
	if p.Modules == nil {
		return nil, nil
	}
	var lacking []state.Module
	var loadable []string
	for _, m := range needed {
		switch has := p.Modules[m.Name]; {
		case !has.There():
			lacking = append(lacking, m)
		case p.Live && !has.BuiltIn && !has.Loaded:
			loadable = append(loadable, m.Name)
		}
	}
	return lacks(lacking, p), loads(loadable, p)
}

func lacks(modules []state.Module, p *platform.Platform) []state.Problem {
	if len(modules) == 0 {
		return nil
	}
	var names, options []string
	for _, m := range modules {
		names, options = append(names, fmt.Sprintf("%s (%s)", m.Name, m.Why)), append(options, m.Config)
	}
	return []state.Problem{{
		Part: preflightPart, Fatal: true, Text: fmt.Sprintf("kernel %s lacks modules that Kata needs: %s", p.Kernel, strings.Join(names, ", ")),
		Fix: fmt.Sprintf("install the kernel's package of further modules, or another kernel (%s)", strings.Join(options, ", ")),
	}}
}

func loads(names []string, p *platform.Platform) []state.Fact {
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []state.Fact{{
		Part: preflightPart, Name: "modules to load", Value: strings.Join(names, " ") + ": the kernel loads each when Kata first needs it",
		Source: path.Join("/usr/lib/modules", p.Kernel, "modules.dep"),
	}}
}

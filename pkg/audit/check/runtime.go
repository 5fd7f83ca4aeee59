package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

// runtimeChecks returns the checks of group RT: what the container runtime, NRI,
// Kata and the kubelet are set up to do keeps devices with their tenants.
func runtimeChecks() []Check {
	all := slices.Concat(runtimeHandlerChecks(), runtimePlugChecks(), runtimeVMMChecks(), runtimeHardeningChecks(),
		runtimeMemoryChecks(), runtimeGuestChecks(), runtimeNodeChecks(), runtimeMountChecks(), runtimeCleanupChecks(), runtimeSizeChecks(), confidentialAgentChecks())
	slices.SortFunc(all, func(a, b Check) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// question asks something of one handler and Kata's configuration for it. Its
// answer says what is wrong, and is empty where all is well; seen is what says so.
type question func(n *facts.Node, h *runtimes.Handler, k *runtimes.Kata) (wrong string, seen []facts.Fact)

// ofHandlers asks a question that needs no configuration of Kata's of each handler
// that is Kata's. The configuration that the question gets may be damaged.
func ofHandlers(ask question) func(*facts.Node) []finding.Finding {
	return func(n *facts.Node) []finding.Finding {
		return eachHandler(n, func(h *runtimes.Handler) ([]finding.Finding, bool) {
			return answered(n, h, ask), true
		})
	}
}

// ofKata asks of each handler that is Kata's, and says unknown where Kata's files
// were not to be understood.
func ofKata(ask question) func(*facts.Node) []finding.Finding {
	return ofChosen(func(*facts.Node, *runtimes.Handler, *runtimes.Kata) bool { return true }, ask)
}

// ofDeviceVMs asks of the handlers whose VMs can get devices.
func ofDeviceVMs(ask question) func(*facts.Node) []finding.Finding {
	return ofChosen(runtimes.TakesDevices, ask)
}

func ofChosen(choose func(*facts.Node, *runtimes.Handler, *runtimes.Kata) bool, ask question) func(*facts.Node) []finding.Finding {
	return func(n *facts.Node) []finding.Finding {
		return eachHandler(n, func(h *runtimes.Handler) ([]finding.Finding, bool) {
			k := runtimes.KataOf(n, h)
			switch {
			case !choose(n, h, k):
				return nil, false
			case !k.OK():
				return ofHandler(h, unknown("Kata's configuration", k.Damaged...)), true
			}
			return answered(n, h, ask), true
		})
	}
}

// answered asks, and returns a failure or a pass.
func answered(n *facts.Node, h *runtimes.Handler, ask question) []finding.Finding {
	wrong, seen := ask(n, h, runtimes.KataOf(n, h))
	if wrong == "" {
		return pass("", seen...)
	}
	return ofHandler(h, fail(wrong, seen...))
}

func ofHandler(h *runtimes.Handler, found []finding.Finding) []finding.Finding {
	for i := range found {
		found[i].Object = "handler " + h.Name
	}
	return found
}

// eachHandler puts together what is said of Kata's handlers: everything that is
// wrong or unknown, or one pass with what was seen. look returns false for a
// handler that the rule is not about.
func eachHandler(n *facts.Node, look func(*runtimes.Handler) ([]finding.Finding, bool)) []finding.Finding {
	r := runtimes.Of(n)
	found := damagedRuntimes(r)
	var seen []finding.Evidence
	asked := 0
	for _, h := range r.Kata() {
		said, ok := look(&h)
		if !ok {
			continue
		}
		asked++
		for _, f := range said {
			if f.State == finding.Pass {
				seen = append(seen, f.Evidence...)
				continue
			}
			found = append(found, f)
		}
	}
	switch {
	case len(found) > 0:
		return found
	case !r.Found():
		return notApplicable("the node has no configuration of containerd or CRI-O")
	case asked == 0:
		return notApplicable("the node has no such handler of Kata's", r.Files...)
	}
	ok := pass(count(asked, "handler"))
	ok[0].Evidence = onceEach(seen)
	return ok
}

// damagedRuntimes says of each file that was not to be understood that anything
// may be in it.
func damagedRuntimes(r *runtimes.Runtimes) []finding.Finding {
	var found []finding.Finding
	for _, file := range r.Damaged {
		f := unknown("what the container runtime is set up to do", file)
		f[0].Object = file.Path
		found = append(found, f...)
	}
	return found
}

// onceEach drops evidence that several handlers share.
func onceEach(all []finding.Evidence) []finding.Evidence {
	var once []finding.Evidence
	for _, e := range all {
		if !slices.Contains(once, e) {
			once = append(once, e)
		}
	}
	return once
}

// says returns a setting as what was seen.
func says(settings ...runtimes.Setting) []facts.Fact {
	var seen []facts.Fact
	for _, s := range settings {
		seen = append(seen, s.Fact())
	}
	return seen
}

// mustBeEmpty asks that a string of the hypervisor section be empty or left out. wrong
// has a verb for what it is instead.
func mustBeEmpty(name, wrong string) question {
	return func(_ *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
		s := k.Hypervisor(name)
		if s.Text() == "" {
			return "", says(s)
		}
		return fmt.Sprintf(wrong, s.Text()), says(s)
	}
}

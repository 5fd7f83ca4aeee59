package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// runtimeChecks returns the checks of group RT: the configuration of the container runtime, NRI, Kata and the kubelet keeps devices
// with their tenants.
func runtimeChecks() []Check {
	all := slices.Concat(runtimeHandlerChecks(), runtimeNodeChecks(), runtimeVMMChecks(), runtimeSharingChecks(), runtimeHardeningChecks(), runtimeGuestChecks(), runtimeTopologyChecks(), []Check{qemuSpeedCheck(), guestMemoryCheck(), containerdServesCheck()})
	slices.SortFunc(all, func(a, b Check) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// question is a question about one handler and Kata's configuration for it. wrong describes the fault, and is empty if
// there is none; seen is the evidence.
type question func(n *facts.Node, h *runtimes.Handler, k *runtimes.Kata) (wrong string, seen []facts.Fact)

// ofHandlers asks about each of Kata's handlers a question that does not depend on Kata's configuration. The configuration that the
// question gets may be damaged.
func ofHandlers(ask question) func(*facts.Node) Answer {
	return func(n *facts.Node) Answer {
		return eachHandler(n, func(h *runtimes.Handler) (Answer, bool) { return answered(n, h, runtimes.LoadKata(n, h), ask), true })
	}
}

// ofKata asks about each of Kata's handlers. The answer is unknown if Kata's files can't be parsed.
func ofKata(ask question) func(*facts.Node) Answer {
	return ofChosen(func(*facts.Node, *runtimes.Handler, *runtimes.Kata) bool { return true }, ask)
}

// ofDeviceVMs asks about the handlers whose VMs can get devices.
func ofDeviceVMs(ask question) func(*facts.Node) Answer {
	return ofChosen(runtimes.TakesDevices, ask)
}

func ofChosen(choose func(*facts.Node, *runtimes.Handler, *runtimes.Kata) bool, ask question) func(*facts.Node) Answer {
	return func(n *facts.Node) Answer {
		return eachConfigured(n, choose, func(h *runtimes.Handler, k *runtimes.Kata) Answer { return answered(n, h, k, ask) })
	}
}

// eachConfigured asks about each chosen handler of Kata's. The answer is unknown if Kata's files can't be parsed.
func eachConfigured(n *facts.Node, choose func(*facts.Node, *runtimes.Handler, *runtimes.Kata) bool, ask func(*runtimes.Handler, *runtimes.Kata) Answer) Answer {
	return eachHandler(n, func(h *runtimes.Handler) (Answer, bool) {
		k := runtimes.LoadKata(n, h)
		switch {
		case !choose(n, h, k):
			return nil, false
		case !k.OK():
			return unknown("Kata's configuration", k.Damaged...), true
		}
		return ask(h, k), true
	})
}

// answered asks, and returns a failure or a pass.
func answered(n *facts.Node, h *runtimes.Handler, k *runtimes.Kata, ask question) Answer {
	wrong, seen := ask(n, h, k)
	if wrong == "" {
		return pass("", seen...)
	}
	return fail(wrong, seen...)
}

// ofHandler sets the handler that the findings are about.
func (a Answer) ofHandler(h *runtimes.Handler) Answer { return a.object("handler " + h.Name) }

// eachHandler collects the findings of Kata's handlers: all failures and unknown results, or one pass with the facts.
// look returns false for a handler that the rule does not apply to.
func eachHandler(n *facts.Node, look func(*runtimes.Handler) (Answer, bool)) Answer {
	r := runtimes.Of(n)
	found := damagedRuntimes(r)
	var seen []rule.Evidence
	asked := 0
	for _, h := range r.Kata() {
		said, ok := look(&h)
		if !ok {
			continue
		}
		asked++
		if said[0].State == finding.Pass {
			seen = append(seen, said[0].Evidence...)
		} else {
			found = append(found, said.ofHandler(&h)...)
		}
	}
	switch {
	case len(found) > 0:
		return found
	case !r.Found():
		return notApplicable("the node has no containerd or CRI-O configuration")
	case asked == 0:
		return notApplicable("no Kata handler is concerned", r.Files...)
	}
	ok := pass(count(asked, "handler"))
	ok[0].Evidence = onceEach(seen)
	return ok
}

// damagedRuntimes reports each file that can't be decoded, because it may contain anything.
func damagedRuntimes(r *runtimes.Runtimes) Answer {
	return over(r.Damaged, func(file facts.Fact) Answer {
		return unknown("the container runtime's configuration", file).object(file.Path)
	})
}

// onceEach drops evidence that several handlers share.
func onceEach(all []rule.Evidence) []rule.Evidence {
	var once []rule.Evidence
	for _, e := range all {
		if !slices.Contains(once, e) {
			once = append(once, e)
		}
	}
	return once
}

// says returns a setting as a fact.
func says(settings ...runtimes.Setting) []facts.Fact {
	var seen []facts.Fact
	for _, s := range settings {
		seen = append(seen, s.Fact())
	}
	return seen
}

// runtimeHandlerChecks are about containerd's and CRI-O's handlers, and how devices get into VMs.
func runtimeHandlerChecks() []Check {
	return []Check{
		{ID: "RT-002", Judge: ofHandlers(kataAnnotations)},
		{ID: "RT-003", Judge: ofHandlers(cdiAnnotations)},
		{ID: "RT-005", Judge: ofHandlers(privileged)},
		{ID: "RT-025", Judge: namedForKata},
		{ID: "RT-004", Judge: podResources},
		{ID: "RT-017", Judge: ofDeviceVMs(noHotPlug)},
		ofKataSetting("RT-018"),
	}
}

// cdiAnnotations fails if a pod can choose devices. The Rust runtime ignores these annotations, and without cold plug the
// Go runtime does not read them.
func cdiAnnotations(_ *facts.Node, h *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	by, passes := h.Passes("cdi.k8s.io/")
	switch {
	case !passes:
		return "", says(h.PodAnnotations, h.ContainerAnnotations)
	case h.IsRust() || k.OK() && !k.ColdPlugs():
		return "", append(says(by, k.Hypervisor("cold_plug_vfio")), h.Facts()...)
	case h.Engine == runtimes.CRIO:
		return "CRI-O passes all pod annotations to Kata's Go runtime, including `cdi.k8s.io/*`", h.Facts()
	case by.Name == "sandboxer":
		return "the shim gets all pod annotations, including `cdi.k8s.io/*`", says(by)
	}
	return fmt.Sprintf("%s lets pods name CDI devices: %q", by.Name, by.List()), says(by)
}

// kataAnnotations fails for patterns of annotations. A list of complete keys is the site's decision, and passes. With the Rust
// runtime, CDI annotations reach the guest's agent, too.
func kataAnnotations(_ *facts.Node, h *runtimes.Handler, _ *runtimes.Kata) (string, []facts.Fact) {
	prefixes := []string{"io.katacontainers."}
	if h.IsRust() {
		prefixes = append(prefixes, "cdi.k8s.io/")
	}
	for _, prefix := range prefixes {
		by, passes := h.Passes(prefix)
		switch {
		case !passes:
			continue
		case h.Engine == runtimes.CRIO:
			return "CRI-O passes all pod annotations to Kata", h.Facts()
		case by.Name == "sandboxer":
			return "the shim gets all pod annotations", says(by)
		case slices.ContainsFunc(by.List(), func(p string) bool { return strings.ContainsAny(p, `*?[\`) }):
			return fmt.Sprintf("%s allows pod annotations by patterns: %q", by.Name, by.List()), says(by)
		}
	}
	return "", says(h.PodAnnotations, h.ContainerAnnotations)
}

func privileged(_ *facts.Node, h *runtimes.Handler, _ *runtimes.Kata) (string, []facts.Fact) {
	seen := says(h.PrivilegedWithoutHostDevices)
	switch {
	case !h.PrivilegedWithoutHostDevices.On():
		return "a privileged pod gets all devices of the node", seen
	case h.AllDevicesAllowed.On():
		return "a privileged pod can use all devices of the node, though it does not list them", says(h.AllDevicesAllowed)
	}
	return "", seen
}

// namedForKata checks the handlers whose names begin with kata, and those that the plugin trusts.
func namedForKata(n *facts.Node) Answer {
	r := runtimes.Of(n)
	named := slices.DeleteFunc(slices.Clone(r.Handlers), func(h runtimes.Handler) bool {
		return !strings.HasPrefix(h.Name, "kata") && !slices.Contains(runtimes.Allowed(n), h.Name)
	})
	var seen []facts.Fact
	found := append(damagedRuntimes(r), over(named, func(h runtimes.Handler) Answer {
		seen = append(seen, h.Facts()...)
		switch {
		case !h.IsKata():
			runs := cmp.Or(h.Path.Text(), h.Type.Text(), "the engine's default runtime")
			return fail(fmt.Sprintf("%q runs %q, which is not Kata", h.Name, runs), h.Facts()...).ofHandler(&h)
		case h.Binary.IsSet():
			return fail("it sets BinaryName, which only runc's shim uses", append(h.Facts(), h.Binary.Fact())...).ofHandler(&h)
		}
		return nil
	})...)
	if len(named) == 0 {
		return found.or(notApplicable("no handler is named for Kata", r.Files...))
	}
	return found.or(pass(count(len(named), "handler"), seen...))
}

// ourSocket is the plugin's socket, whose file [facts.PodResourcesSocket] creates at boot.
const ourSocket = "/run/kata-vfio/pod-resources.sock"

// podResources checks each handler that cold-plugs devices. For handlers that use the plugin's socket, it also checks that the
// socket will exist after the next boot, when /run is empty.
func podResources(n *facts.Node) Answer {
	coldPlugs := func(_ *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) bool { return !k.OK() || k.ColdPlugs() }
	found := eachConfigured(n, coldPlugs, func(_ *runtimes.Handler, k *runtimes.Kata) Answer { return socketIsThere(n, k) })
	ours := slices.ContainsFunc(runtimes.Of(n).Kata(), func(h runtimes.Handler) bool {
		k := runtimes.LoadKata(n, &h)
		return k.ColdPlugs() && k.Runtime("pod_resource_api_sock").Text() == ourSocket
	})
	units, wants := n.List(n.Real("etc/systemd/system/sockets.target.wants"))
	switch {
	case len(found) != 1 || found[0].State != finding.Pass, !ours, slices.Contains(units, facts.PodResourcesSocket):
		return found
	case !wants.Known():
		return unknown("whether the socket exists after a boot", wants)
	}
	wants.Value = count(len(units), "unit") + " without " + facts.PodResourcesSocket
	return fail(fmt.Sprintf("the socket exists now, but %s is not enabled: after a boot it is missing until the plugin runs", facts.PodResourcesSocket), wants).pending("comes with the next boot")
}

func socketIsThere(n *facts.Node, k *runtimes.Kata) Answer {
	s := k.Runtime("pod_resource_api_sock")
	if s.Text() == "" {
		return fail("pod_resource_api_sock is not set: Kata trusts annotations or attaches no devices", says(s)...)
	}
	isSocket, file := n.IsSocket(s.Text())
	seen := append(says(s), file)
	switch {
	case file.Status == facts.Absent:
		return fail(fmt.Sprintf("the socket %q does not exist", s.Text()), seen...)
	// The directory of the plugin's socket is closed to all but root.
	case !file.OK():
		return unknown(fmt.Sprintf("whether the socket %q exists", s.Text()), seen...)
	case !isSocket:
		return fail(fmt.Sprintf("%q is not a socket", s.Text()), seen...)
	}
	return pass("", seen...)
}

func noHotPlug(_ *facts.Node, h *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	cold, hot := k.Hypervisor("cold_plug_vfio"), k.Hypervisor("hot_plug_vfio")
	if k.HotPlugs() && !h.IsRust() {
		return fmt.Sprintf("hot_plug_vfio is %q: Kata attaches devices to running VMs", hot.Text()), says(cold, hot)
	}
	return "", says(cold)
}

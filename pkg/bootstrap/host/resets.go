package host

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const (
	resetPart    = "reset"
	pciFunctions = "sys/bus/pci/devices"
)

// resetRules returns udev rules that set the reset methods of functions when the functions appear, and so again at each boot.
func (n *node) resetRules() string {
	var rules strings.Builder
	for i := range n.blueprint.VFIO.ResetMethods {
		r := &n.blueprint.VFIO.ResetMethods[i]
		rules.WriteString(`ACTION=="add", SUBSYSTEM=="pci"`)
		for _, term := range []struct{ key, values string }{
			{"KERNEL", alternatives(r.Match.Addresses, "%v")},
			{"ATTR{vendor}", alternatives(r.Match.Vendors, "0x%v")},
			{"ATTR{device}", alternatives(r.Match.Devices, "0x%v")},
			{"ATTR{class}", alternatives(r.Match.Classes, "0x%v*")},
		} {
			if term.values != "" {
				fmt.Fprintf(&rules, ", %s==%q", term.key, strings.ToLower(term.values))
			}
		}
		// Leave VFs out: a VF has the class of its PF, but reset methods of its own. The kernel announces a VF a moment before
		// it links physfn (pci_iov_add_virtfn in drivers/pci/iov.c). If udev applies the rule before the link exists, that is
		// harmless: the kernel refuses a list with a method that the VF does not have.
		fmt.Fprintf(&rules, ", TEST!=\"physfn\", ATTR{reset_method}=%q\n", strings.Join(r.Methods, " "))
	}
	return rules.String()
}

// alternatives returns the values as one pattern of udev(7).
func alternatives[T any](values []T, format string) string {
	var all []string
	for _, v := range values {
		all = append(all, fmt.Sprintf(format, v))
	}
	return strings.Join(all, "|")
}

// resets requires the reset methods of the functions that the running kernel has. The kernel accepts new methods at any time,
// and uses them at the next reset.
func (n *node) resets() {
	if !n.platform.Live || len(n.blueprint.VFIO.ResetMethods) == 0 {
		return
	}
	names, err := n.tree.ReadDir(pciFunctions)
	if err != nil {
		n.problem(state.Problem{
			Part: resetPart, Code: rule.FileUnreadable, Fatal: true, Path: pciFunctions, Text: "vfio.resetMethods is for PCI functions, which can't be listed: " + err.Error(),
			Fix: "mount /sys, or remove vfio.resetMethods from the blueprint",
		})
		return
	}
	for _, name := range names {
		a, err := pci.ParseAddress(name)
		if err != nil {
			continue
		}
		if methods := n.wantedMethods(a); methods != nil {
			n.resetsBy(a, methods)
		}
	}
}

// wantedMethods returns the methods that the blueprint wants for a function, and nil if there are none. The last match decides, as the last rule for
// udev does.
func (n *node) wantedMethods(a pci.Address) []string {
	class, there := n.text(resetPart, function(a, "class"))
	vendor, ok := n.number(a, "vendor")
	id, ok2 := n.number(a, "device")
	_, isVF := n.text(resetPart, function(a, "physfn/vendor"))
	if !there || !ok || !ok2 || isVF {
		return nil
	}
	for _, r := range slices.Backward(n.blueprint.VFIO.ResetMethods) {
		if matches(&r.Match, a, pci.ID(vendor), pci.ID(id), strings.TrimPrefix(class, "0x")) {
			return r.Methods
		}
	}
	return nil
}

// matches reports whether a function is one of a match without types and PFs. The class has six digits.
func matches(m *v1alpha1.DeviceMatch, a pci.Address, vendor, id pci.ID, class string) bool {
	return (len(m.Addresses) == 0 || slices.Contains(m.Addresses, a)) &&
		(len(m.Vendors) == 0 || slices.Contains(m.Vendors, vendor)) &&
		(len(m.Devices) == 0 || slices.Contains(m.Devices, id)) &&
		(len(m.Classes) == 0 || slices.ContainsFunc(m.Classes, func(prefix string) bool { return strings.HasPrefix(class, strings.ToLower(prefix)) }))
}

// resetsBy requires the reset methods of a function. The kernel refuses a list with a method that it does not have for the
// function, and bootstrap would then undo all its changes. So if a method is missing, resetsBy only reports the difference.
func (n *node) resetsBy(a pci.Address, methods []string) {
	path := function(a, "reset_method")
	now, there := n.text(resetPart, path)
	has := strings.Fields(now)
	for _, method := range methods {
		if there && slices.Contains(has, method) {
			continue
		}
		n.problem(state.Problem{
			Part: resetPart, Code: rule.ResetMethodMissing, Path: path, Text: fmt.Sprintf("vfio.resetMethods wants %q for %s, and the kernel uses %q of those that it has", strings.Join(methods, " "), a, strings.Join(has, " ")),
			Fix: fmt.Sprintf("have the kernel use all that it has, and run apply again: `echo default > /%s; cat /%s`; \"%s\" needs a function that is alone below its port", path, path, blueprint.ResetByBus),
		})
		return
	}
	n.setting(state.Setting{Part: resetPart, Path: path, Value: strings.Join(methods, " "), Why: fmt.Sprintf("the kernel resets %s in this way", a)})
}

package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

// optOut is an argument that switches a mitigation off.
type optOut struct {
	name string
	// off are the values that do, alone or in a list; "" is the bare word.
	off []string
	// flaw is the file of the flaw that it lays open; empty for all.
	flaw string
}

// optOuts are those that Documentation/admin-guide/kernel-parameters.txt lists as
// what mitigations=off stands for, with their other spellings, and the attack vectors
// of Documentation/admin-guide/hw-vuln/attack_vector_controls.rst that begin in a guest.
func optOuts() []optOut {
	off := []string{"off"}
	bare := []string{""}
	return []optOut{
		{"mitigations", []string{"off", "no_guest_host", "no_guest_guest", "no_cross_thread"}, ""},
		{"nopti", bare, "meltdown"},
		{"pti", off, "meltdown"},
		{"kpti", []string{"0", "off", "n", "no"}, "meltdown"},
		{"nospectre_v1", bare, "spectre_v1"},
		{"nospectre_v2", bare, "spectre_v2"},
		{"spectre_v2", off, "spectre_v2"},
		{"spectre_v2_user", off, "spectre_v2"},
		{"spectre_bhi", off, "spectre_v2"},
		{"nospectre_bhb", bare, "spectre_v2"},
		{"nospec_store_bypass_disable", bare, "spec_store_bypass"},
		{"spec_store_bypass_disable", off, "spec_store_bypass"},
		{"ssbd", []string{"force-off"}, "spec_store_bypass"},
		{"l1tf", off, "l1tf"},
		{"kvm-intel.vmentry_l1d_flush", []string{"never"}, "l1tf"},
		{"mds", off, "mds"},
		{"tsx_async_abort", off, "tsx_async_abort"},
		{"srbds", off, "srbds"},
		{"mmio_stale_data", off, "mmio_stale_data"},
		{"reg_file_data_sampling", off, "reg_file_data_sampling"},
		{"gather_data_sampling", off, "gather_data_sampling"},
		{"retbleed", off, "retbleed"},
		{"spec_rstack_overflow", off, "spec_rstack_overflow"},
		{"indirect_target_selection", off, "indirect_target_selection"},
		{"tsa", off, "tsa"},
		{"vmscape", off, "vmscape"},
		{"kvm.nx_huge_pages", []string{"off", "never"}, "itlb_multihit"},
	}
}

// disables reports whether the value switches the mitigation off: some take lists,
// as "auto,no_guest_host".
func (o *optOut) disables(value string) bool {
	words := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ';' })
	if value == "" {
		words = []string{""}
	}
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(o.off, w) })
}

func noOptOut(n *facts.Node) []finding.Finding {
	cmdline := n.Cmdline()
	if !cmdline.OK() {
		return unknown("the kernel's command line", cmdline)
	}
	var found []finding.Finding
	for _, o := range optOuts() {
		if o.flaw != "" && notAffected(n, o.flaw) {
			continue
		}
		found = append(found, o.judge(n, cmdline)...)
	}
	if len(found) == 0 {
		return pass("nothing is switched off", cmdline)
	}
	return found
}

func (o *optOut) judge(n *facts.Node, cmdline facts.Fact) []finding.Finding {
	argument := n.BootArgument(o.name)
	now := argument.Running.OK() && o.disables(argument.Running.Value)
	next, set := argument.Next()
	later := set && o.disables(next)
	word := o.name
	if shown := orElse(argument.Running.Value, next); shown != "" {
		word += "=" + shown
	}
	var found []finding.Finding
	switch {
	case now:
		found = fail(fmt.Sprintf("the kernel was started with %s", word), cmdline)
		found[0].Pending = "not found on disk: the next boot may be without it"
		if later {
			found[0].Pending = "set on disk too: it comes back with every boot"
		}
	case later:
		found = fail(fmt.Sprintf("the next boot will be with %s", strings.TrimSuffix(o.name+"="+next, "=")), cmdline)
		found[0].Pending = "comes with the next boot"
	default:
		return nil
	}
	found[0].Object = o.name
	found[0].Evidence = append(found[0].Evidence, evidence(argument.Configured)...)
	return found
}

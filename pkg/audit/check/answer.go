package check

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// Answer is what a check says: one finding for each object that fails or can't be
// told, or one for all of them. Its methods add to each of its findings what a
// failure names, and return it, so that a finding is one expression:
//
//	fail("its reset failed", seen).on(f).reaching(others...).fix("reboot the node")
type Answer []finding.Finding

// on says which function the findings are about.
func (a Answer) on(f *device.Function) Answer { return a.at(f.Address) }

// at is [Answer.on] for a function that may not be in the snapshot.
func (a Answer) at(address pci.Address) Answer {
	return a.each(func(f *finding.Finding) { f.Device = new(address) })
}

// object says what else they are about: "claim t1/train".
func (a Answer) object(name string) Answer {
	return a.each(func(f *finding.Finding) { f.Object = name })
}

// reaching adds functions that are in reach.
func (a Answer) reaching(devices ...pci.Address) Answer {
	return a.each(func(f *finding.Finding) { f.Devices = append(f.Devices, devices...) })
}

// fix says what to do where that is more precise than the rule's.
func (a Answer) fix(text string) Answer {
	return a.each(func(f *finding.Finding) { f.Remediation = text })
}

// weighs gives the findings another severity than the rule's.
func (a Answer) weighs(s isolation.Severity) Answer {
	return a.each(func(f *finding.Finding) { f.Severity = s })
}

// as changes what the findings say: a person has to decide, for example.
func (a Answer) as(state finding.State) Answer {
	return a.each(func(f *finding.Finding) { f.State = state })
}

// pending says how the next boot differs.
func (a Answer) pending(text string) Answer {
	return a.each(func(f *finding.Finding) { f.Pending = text })
}

// ofRecord says which claim the findings are about.
func (a Answer) ofRecord(rec *journal.Record) Answer {
	return a.object(claimName(rec)).reaching(rec.Plan.Addresses()...)
}

// or returns the findings, or the other answer if there are none.
func (a Answer) or(other Answer) Answer {
	if len(a) == 0 {
		return other
	}
	return a
}

// over judges objects one by one. wrong returns nothing for one that is in order.
func over[T any](objects []T, wrong func(T) Answer) Answer {
	var found Answer
	for _, object := range objects {
		found = append(found, wrong(object)...)
	}
	return found
}

// seen adds evidence.
func (a Answer) seen(more ...facts.Fact) Answer {
	return a.each(func(f *finding.Finding) { f.Evidence = append(f.Evidence, evidence(more)...) })
}

func (a Answer) each(change func(*finding.Finding)) Answer {
	for i := range a {
		change(&a[i])
	}
	return a
}

// conclude ends a rule that judges several objects: with the findings, or a pass that shows the objects, or not
// applicable if there are none.
func conclude[T any](found Answer, looked []T, what, none string, read func(T) []facts.Fact) Answer {
	return concludeAs(found, looked, pass(count(len(looked), what)), none, read)
}

// concludeAs is conclude with a pass that says more than how many objects there are.
func concludeAs[T any](found Answer, looked []T, passed Answer, none string, read func(T) []facts.Fact) Answer {
	switch {
	case len(found) > 0:
		return found
	case len(looked) == 0:
		return notApplicable(none)
	}
	return showing(passed, looked, read)
}

// functionsWhere returns the functions of the node that are so, ports too.
func functionsWhere(n *facts.Node, so func(*device.Function) bool) []*device.Function {
	var found []*device.Function
	for i := range n.Snapshot.Functions {
		if f := &n.Snapshot.Functions[i]; so(f) {
			found = append(found, f)
		}
	}
	return found
}

// anyFunction is for functionsWhere.
func anyFunction(*device.Function) bool { return true }

func onVFIODriver(f *device.Function) bool { return device.IsVFIO(f.Driver) }

// The words by which checks answer, each a list of one.

func pass(text string, seen ...facts.Fact) Answer {
	return say(finding.Pass, text, seen)
}

func fail(text string, seen ...facts.Fact) Answer {
	return say(finding.Fail, text, seen)
}

// notApplicable is for a node that has nothing the rule is about.
func notApplicable(text string, seen ...facts.Fact) Answer {
	return say(finding.NotApplicable, text, seen)
}

// unknown is for facts that were not to be had: it names the first that was not.
func unknown(what string, seen ...facts.Fact) Answer {
	for _, f := range seen {
		if !f.OK() {
			why := f.Err
			if f.Status == facts.Absent {
				why = "not present"
			}
			return say(finding.Unknown, fmt.Sprintf("can't tell %s: %s: %s", what, f.Path, why), seen)
		}
	}
	return say(finding.Unknown, "can't tell "+what, seen)
}

func say(state finding.State, text string, seen []facts.Fact) Answer {
	f := finding.Finding{State: state, Text: text}
	for _, s := range seen {
		f.Evidence = append(f.Evidence, s.Evidence())
	}
	return Answer{f}
}

// count says how many: "1 function", "3 functions".
func count(n int, what string) string { return terminal.Count(n, what) }

// assignable returns the functions that tenants have or can get.
func assignable(n *facts.Node) []*device.Function {
	return slices.DeleteFunc(n.Functions(), func(f *device.Function) bool { return !n.IsAvailable(f.Address) })
}

// noneAssignable is why rules about assignable functions don't apply.
const noneAssignable = "the node has no assignable function"

// each judges every function that tenants have or can get. A pass shows what read returns.
func each(n *facts.Node, read func(*device.Function) []facts.Fact, judge func(*device.Function) Answer) Answer {
	return ofAssignable(n, over(assignable(n), func(f *device.Function) Answer { return judge(f).on(f) }), read)
}

// ofAssignable ends a rule about all functions that tenants have or can get.
func ofAssignable(n *facts.Node, found Answer, read func(*device.Function) []facts.Fact) Answer {
	return conclude(found, assignable(n), "function", noneAssignable, read)
}

// port is a port above functions that tenants have or can get.
type port struct {
	*device.Function
	below []pci.Address
}

// ports returns the ports on the ways of such functions, in the order of the functions.
func ports(n *facts.Node) []*port {
	var all []*port
	known := map[pci.Address]*port{}
	for _, f := range assignable(n) {
		for _, p := range upstream(n, f) {
			if known[p.Address] == nil {
				known[p.Address] = &port{Function: p}
				all = append(all, known[p.Address])
			}
			known[p.Address].below = append(known[p.Address].below, f.Address)
		}
	}
	return all
}

// link is attribute for a symbolic link of a function: its driver, its group.
func link(a pci.Address, name, value string) facts.Fact {
	f := attribute(a, name, value)
	f.How = "link"
	return f
}

// attribute returns a fact that the scan read, as evidence: the path of a
// function's attribute, and what it said.
func attribute(a pci.Address, name, value string) facts.Fact {
	return facts.Fact{Path: fmt.Sprintf("/sys/bus/pci/devices/%s/%s", a, name), Value: value, How: "read"}
}

// config is attribute for a register of configuration space.
func config(a pci.Address, value string) facts.Fact {
	f := attribute(a, "config", value)
	f.How, f.Needs = "config", facts.OfConfigSpace
	return f
}

// acsRegisters returns what a function's ACS registers say.
func acsRegisters(f *device.Function) facts.Fact {
	switch acs := f.Capabilities.ACS; {
	case acs != nil:
		return config(f.Address, fmt.Sprintf("ACS capability 0x%04x, control 0x%04x (%s)", acs.Capability, acs.Control, cmp.Or(isolation.ACSNames(acs.Control), "all off")))
	case f.Capabilities.Truncated:
		return notReadable(f)
	}
	return config(f.Address, "no ACS capability")
}

// notReadable says that extended capabilities could not be read.
func notReadable(f *device.Function) facts.Fact {
	seen := config(f.Address, "")
	seen.Status, seen.Err = facts.Denied, "configuration space is readable in part only"
	return seen
}

// because makes findings of the verdict's reasons or notes with the code, each
// once for all functions that have it from the same culprit.
func because(n *facts.Node, code isolation.Code, culprit func(*isolation.Reason) bool) Answer {
	var found Answer
	at := map[pci.Address]int{}
	for _, f := range assignable(n) {
		v := n.Verdict(f)
		for _, r := range slices.Concat(v.Reasons, v.Notes) {
			if r.Code != code || culprit != nil && !culprit(&r) {
				continue
			}
			who := f.Address
			if r.Culprit != nil {
				who = *r.Culprit
			}
			if i, ok := at[who]; ok {
				found[i].Devices = append(found[i].Devices, f.Address)
				continue
			}
			at[who] = len(found)
			found = append(found, reasonFinding(f, &r))
		}
	}
	return found
}

// words returns addresses as text.
func words(addrs []pci.Address) []string {
	var all []string
	for _, a := range addrs {
		all = append(all, a.String())
	}
	return all
}

// reasonFinding turns a reason of a verdict into a finding.
func reasonFinding(f *device.Function, r *isolation.Reason) finding.Finding {
	made := finding.Finding{State: finding.Fail, Text: r.Text, Remediation: r.Fix, Devices: []pci.Address{f.Address}}
	if r.Culprit != nil && *r.Culprit != f.Address {
		made.Object = "port " + r.Culprit.String()
	} else {
		made.Device = new(f.Address)
	}
	for _, e := range r.Evidence {
		seen := facts.Fact{Path: e.Path, Value: e.Value, How: "read"}
		if path.Base(e.Path) == "config" {
			seen.How, seen.Needs = "config", facts.OfConfigSpace
		}
		made.Evidence = append(made.Evidence, seen.Evidence())
	}
	return made
}

// What a pass was made of: a pass without evidence asks to be believed.

// maxShown is how many of a rule's objects that are in order its pass shows; the
// rest is counted. A node may have thousands that say the same.
const maxShown = 8

// showing adds the facts of the first objects to a pass, and does not read the others. Other findings have their own
// evidence, and stay unchanged.
func showing[T any](found Answer, objects []T, read func(T) []facts.Fact) Answer {
	if len(found) != 1 || found[0].State != finding.Pass {
		return found
	}
	shown := objects[:min(len(objects), maxShown)]
	var seen []facts.Fact
	for _, object := range shown {
		for _, f := range read(object) {
			if !slices.Contains(seen, f) {
				seen = append(seen, f)
			}
		}
	}
	found[0].Evidence = append(found[0].Evidence, evidence(seen)...)
	found[0].LeftOut = len(objects) - len(shown)
	return found
}

// one makes a reader of one fact a reader for [showing].
func one[T any](read func(T) facts.Fact) func(T) []facts.Fact {
	return func(object T) []facts.Fact { return []facts.Fact{read(object)} }
}

// itself is a fact that was kept.
func itself(f facts.Fact) facts.Fact { return f }

// groupOf returns the link that says which group a function is in.
func groupOf(f *device.Function) facts.Fact {
	if f.Group == nil {
		seen := link(f.Address, "iommu_group", "")
		seen.Status = facts.Absent
		return seen
	}
	return link(f.Address, "iommu_group", strconv.Itoa(*f.Group))
}

// upstream returns the ports above a function.
func upstream(n *facts.Node, f *device.Function) []*device.Function {
	var above []*device.Function
	for _, a := range f.Upstream {
		if p, ok := n.Snapshot.Function(a); ok {
			above = append(above, p)
		}
	}
	return above
}

// above says what kinds of ports are above a function, by their Express capabilities.
func above(n *facts.Node, f *device.Function) []facts.Fact {
	seen := []facts.Fact{attribute(f.Address, "class", f.Class.String())}
	for _, p := range upstream(n, f) {
		if express := p.Capabilities.Express; express != nil {
			seen = append(seen, config(p.Address, fmt.Sprintf("PCI Express capability, port type %d", express.Type)))
		}
	}
	return seen
}

// way returns a reader of the ACS registers of the ports above a function, and of
// the group that the kernel made of that.
func way(n *facts.Node) func(*device.Function) []facts.Fact {
	return func(f *device.Function) []facts.Fact {
		seen := []facts.Fact{groupOf(f)}
		for _, p := range upstream(n, f) {
			seen = append(seen, acsRegisters(p))
		}
		return seen
	}
}

// capability returns one that software switches, by lspci's name.
func capability(f *device.Function, name string) *pci.Switchable {
	c := &f.Capabilities
	return map[string]*pci.Switchable{"ATS": c.ATS, "PRI": c.PRI, "PASID": c.PASID, "DPC": c.DPC}[name]
}

// switched returns whether capabilities of a function that software switches are on:
// names are those of lspci.
func switched(f *device.Function, names ...string) []facts.Fact {
	var words []string
	for _, name := range names {
		switch c := capability(f, name); {
		case c == nil:
			words = append(words, "no "+name+" capability")
		case c.Enabled:
			words = append(words, fmt.Sprintf("%s capability, control 0x%04x (enabled)", name, c.Control))
		default:
			words = append(words, fmt.Sprintf("%s capability, control 0x%04x (disabled)", name, c.Control))
		}
	}
	return []facts.Fact{config(f.Address, strings.Join(words, ", "))}
}

// groupFile returns a reader of a file of a function's group.
func groupFile(n *facts.Node, name string) func(*device.Function) []facts.Fact {
	return func(f *device.Function) []facts.Fact {
		if f.Group == nil {
			return []facts.Fact{groupOf(f)}
		}
		return []facts.Fact{n.Read(fmt.Sprintf("sys/kernel/iommu_groups/%d/%s", *f.Group, name))}
	}
}

// attributeFile returns a reader of a function's attribute, from the node.
func attributeFile(n *facts.Node, name string) func(*device.Function) []facts.Fact {
	return func(f *device.Function) []facts.Fact {
		return []facts.Fact{n.Read("sys/bus/pci/devices/" + f.Address.String() + "/" + name)}
	}
}

// resetMethods is what the kernel can reset a function by.
func resetMethods(f *device.Function) facts.Fact {
	return attribute(f.Address, "reset_method", strings.Join(f.ResetMethods, " "))
}

// addresses returns those of functions.
func addresses(functions []*device.Function) []pci.Address {
	var all []pci.Address
	for _, f := range functions {
		all = append(all, f.Address)
	}
	return all
}

// functionsAt returns the functions with the addresses.
func functionsAt(n *facts.Node, addrs []pci.Address) []*device.Function {
	var all []*device.Function
	for _, a := range addrs {
		if f, ok := n.Snapshot.Function(a); ok {
			all = append(all, f)
		}
	}
	return all
}

// nowhere is the answer of a place that nothing is at.
func nowhere(path string) facts.Fact {
	return facts.Fact{Path: path, Status: facts.Absent, How: "list"}
}

// parameter is a module's parameter with good values only.
type parameter struct {
	module, name string
	good         []string
	// bad says what another value does, and none why a kernel without the parameter is
	// not concerned.
	bad, none string
}

func (p parameter) judge(n *facts.Node) Answer {
	s := n.Parameter(p.module, p.name)
	switch {
	case s.Running.Status == facts.Absent:
		return setLater(notApplicable(p.none, s.Running), &s, p.good...)
	case !s.Running.OK():
		return unknown(p.name, s.Running)
	case !isAny(s.Running.Value, p.good):
		return pending(fail(p.bad, s.Running), &s, p.good...)
	}
	return setLater(pass(p.name+"="+s.Running.Value, s.Running), &s, p.good...)
}

// pending adds to a failure what the next boot makes of it: nothing is configured
// that would bring it about again, or it is.
func pending(found Answer, s *facts.Setting, good ...string) Answer {
	text := "also set on disk: it returns with every boot"
	switch next, set := s.Next(); {
	case !set:
		text = "not set on disk: it was set after the boot, or is the kernel's default"
	case isAny(next, good):
		text = "fixed on disk, reboot pending"
	}
	return found.pending(text).seen(s.Configured...)
}

// setLater turns a good answer into a failure where the next boot would undo it.
func setLater(found Answer, s *facts.Setting, good ...string) Answer {
	next, set := s.Next()
	if !set || isAny(next, good) {
		return found
	}
	last := s.Configured[len(s.Configured)-1]
	return fail(fmt.Sprintf("correct now, but %s sets %s=%s for the next boot", last.Path, s.Name, next), s.Running).
		pending("comes with the next boot").seen(s.Configured...)
}

// isAny reports whether a value is one of the words, or the same boolean, which
// modules take in many spellings.
func isAny(value string, words []string) bool {
	on, ok := kernelargs.Bool(value)
	return slices.ContainsFunc(words, func(w string) bool {
		switch w {
		case value:
			return true
		case "Y", "1":
			return ok && on
		case "N", "0":
			return ok && !on
		}
		return false
	})
}

// isYes reports whether a boolean is set to true.
func isYes(value string) bool {
	on, _ := kernelargs.Bool(value)
	return on
}

func evidence(seen []facts.Fact) []finding.Evidence {
	var all []finding.Evidence
	for _, f := range seen {
		all = append(all, f.Evidence())
	}
	return all
}

// badArgument judges a parameter of the kernel command line: bad returns what is wrong with one of its values, or "".
// The running kernel's value counts. Values for later boots are shown as well, and fail if the running kernel's value is
// good.
func badArgument(n *facts.Node, name string, bad func(value string) string) Answer {
	cmdline := n.Cmdline()
	if !cmdline.OK() {
		return unknown("the kernel command line", cmdline)
	}
	now, lines := argumentFails(name, n.RunningArguments(name), bad)
	next, later := argumentFails(name, n.NextArguments(name), bad)
	switch {
	case len(lines) > 0 && len(later) > 0:
		return now.pending("also set on disk: it returns with every boot").seen(later...)
	case len(lines) > 0 && len(n.BootFiles()) > 0:
		return now.pending("removed from the boot loader's files, reboot pending")
	case len(lines) > 0:
		return now
	case len(later) > 0:
		return next.pending("comes with the next boot")
	}
	return pass("no weakening argument "+name+"=", cmdline)
}

// argumentFails names the bad values of an argument, and the lines that set them.
func argumentFails(name string, all []facts.Argument, bad func(string) string) (Answer, []facts.Fact) {
	var words []string
	var lines []facts.Fact
	for _, a := range all {
		if why := bad(a.Value); why != "" {
			words = append(words, fmt.Sprintf("%s sets %s=%s, which %s", a.Line.Path, name, a.Value, why))
			lines = append(lines, a.Line)
		}
	}
	return fail(strings.Join(words, "; "), lines...), lines
}

// badWords returns a judge of values that are words with commas between: what is
// wrong with each bad word.
func badWords(words map[string]string) func(string) string {
	return func(value string) string {
		for word := range strings.SplitSeq(value, ",") {
			if why := words[word]; why != "" {
				return why
			}
		}
		return ""
	}
}

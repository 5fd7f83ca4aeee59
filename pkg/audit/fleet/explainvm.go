package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// The API has no object for Kata's own view of a VM; it is in the nodes' reports.

// podVM describes the pod's VM by the latest report of each node. A report from before the pod's creation is
// about a former pod of that name.
func (e *explaining) podVM(namespace, name string, created time.Time) {
	e.vms(created, func(_ string, s *finding.KataSandbox) bool { return s.Namespace == namespace && s.Pod == name })
}

// deviceVM describes the VM that has a function of a node.
func (e *explaining) deviceVM(node, address string) {
	e.vms(time.Time{}, func(of string, s *finding.KataSandbox) bool {
		return of == node && slices.ContainsFunc(s.Devices, func(d finding.KataSandboxDevice) bool { return strings.EqualFold(d.Address.String(), address) })
	})
}

// vms describes the wanted VMs by the latest report of each node that counts. A refused report with such a VM is told, but what it says
// of the VM is not. Reports from before a time are left out.
func (e *explaining) vms(since time.Time, wanted func(node string, s *finding.KataSandbox) bool) {
	reports, refused := CredibleReports(e.state.Reports, e.state.Now)
	isNode := e.state.publishes()
	for _, r := range LatestReports(reports, isNode) {
		for _, s := range sandboxesIn(&r, since, wanted) {
			e.vm(&r, s)
		}
	}
	for _, one := range refused {
		for _, r := range LatestReports([]*finding.Report{one.Report}, isNode) {
			if len(sandboxesIn(&r, since, wanted)) > 0 {
				e.refusedReport(r.Node, one.Why)
			}
		}
	}
}

// sandboxesIn returns the wanted sandboxes of a report that is not from before a time.
func sandboxesIn(r *NodeReport, since time.Time, wanted func(node string, s *finding.KataSandbox) bool) []*finding.KataSandbox {
	if r.Report.Kata == nil || r.At.Before(since) {
		return nil
	}
	var found []*finding.KataSandbox
	for i := range r.Report.Kata.Sandboxes {
		if s := &r.Report.Kata.Sandboxes[i]; wanted(r.Node, s) {
			found = append(found, s)
		}
	}
	return found
}

// refusedReport adds a node's report that does not count. A log can have many from one pod, which are told once.
func (e *explaining) refusedReport(node, why string) {
	m := Moment{Of: "node " + node, What: "refused report", Text: "the node " + why, Trouble: true, Fix: passReport, Who: []rule.Role{rule.Platform}}
	if !slices.ContainsFunc(e.moments, func(o Moment) bool { return o.Of == m.Of && o.What == m.What && o.Text == m.Text }) {
		e.add(m)
	}
}

func (e *explaining) vm(r *NodeReport, s *finding.KataSandbox) {
	of := "node " + r.Node
	if s.Pod != "" {
		of = "pod " + s.Namespace + "/" + s.Pod
	}
	m := Moment{At: r.At.UTC(), Of: of, What: "VM on node " + r.Node, Text: vmText(s)}
	// The Rust runtime records no PID, so a PID of 0 does not mean that the process has ended.
	if s.PID != 0 && !s.Running {
		m.Trouble, m.Fix = true, "see the sandbox on its node: `kata-vfio-audit sandboxes`; delete the pod, so that Kata cleans up after it"
	}
	e.add(m)
}

// vmText describes the VM's process, and the places of its devices in the guest.
func vmText(s *finding.KataSandbox) string {
	words := []string{fmt.Sprintf("sandbox %.12s of Kata's %s runtime", s.ID, cmp.Or(s.Runtime, "unknown"))}
	switch {
	case s.PID == 0:
		words = append(words, "its process is not known")
	case s.Running:
		words = append(words, fmt.Sprintf("process %d runs it", s.PID))
	default:
		words = append(words, fmt.Sprintf("process %d, which ran it, has ended", s.PID))
	}
	for _, d := range s.Devices {
		words = append(words, deviceInGuest(&d))
	}
	return strings.Join(words, "; ")
}

func deviceInGuest(d *finding.KataSandboxDevice) string {
	switch {
	case d.Endpoint:
		return d.Address.String() + " is a network interface of the guest"
	case d.GuestPath == "":
		return d.Address.String() + " is in the guest; its address there is unknown"
	}
	return d.Address.String() + " is at " + d.GuestPath + " in the guest"
}

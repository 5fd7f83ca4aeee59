package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/nodereport"
)

// Kata's own view of a VM, which is in no object of the API: the nodes' reports have it.

// vmOfPod tells of the pod's VM by the latest report of each node. One from before the pod was created is of a former pod of its name.
func (e *explaining) vmOfPod(namespace, name string, created time.Time) {
	for _, r := range e.latest() {
		for i := range r.Kata.Sandboxes {
			s := &r.Kata.Sandboxes[i]
			if s.Namespace == namespace && s.Pod == name && !r.At.Before(created) {
				e.vm(&r, s)
			}
		}
	}
}

// vmOfDevice tells of the VM that has a function of a node.
func (e *explaining) vmOfDevice(node, address string) {
	for _, r := range e.latest() {
		for i := range r.Kata.Sandboxes {
			s := &r.Kata.Sandboxes[i]
			if r.Node == node && slices.ContainsFunc(s.Devices, func(d finding.KataSandboxDevice) bool { return strings.EqualFold(d.Address.String(), address) }) {
				e.vm(&r, s)
			}
		}
	}
}

// latest returns the latest report of each node that has Kata's own view.
func (e *explaining) latest() []nodereport.NodeReport {
	published := e.Nodes()
	all := nodereport.Latest(e.Reports, func(name string) bool { return slices.Contains(published, name) })
	return slices.DeleteFunc(all, func(r nodereport.NodeReport) bool { return r.Kata == nil })
}

func (e *explaining) vm(r *nodereport.NodeReport, s *finding.KataSandbox) {
	of := "node " + r.Node
	if s.Pod != "" {
		of = "pod " + s.Namespace + "/" + s.Pod
	}
	m := Moment{At: r.At.UTC(), Of: of, What: "VM on node " + r.Node, Text: vmText(s)}
	if s.PID != 0 && !s.Running {
		m.Trouble, m.Fix = true, "see the sandbox on its node: `kata-vfio-audit sandboxes`; delete the pod, so that Kata cleans up after it"
	}
	e.add(m)
}

// vmText says what runs the VM and where its devices are in the guest.
func vmText(s *finding.KataSandbox) string {
	words := []string{fmt.Sprintf("sandbox %.12s of Kata's %s runtime", s.ID, cmp.Or(s.Runtime, "unknown"))}
	switch {
	case s.PID == 0:
		words = append(words, "its process is not known")
	case s.Running:
		words = append(words, fmt.Sprintf("process %d runs it", s.PID))
	default:
		words = append(words, fmt.Sprintf("process %d, which ran it, is gone", s.PID))
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
		return d.Address.String() + " is in the guest, where can't be told"
	}
	return d.Address.String() + " is at " + d.GuestPath + " in the guest"
}

package runtimes

import (
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// Sandbox is one of Kata's sandboxes: by its state, its VMM and its bundle.
type Sandbox struct {
	// Kata is the sandbox by Kata's state. It also has the VMM's PID, the devices and their guest paths if only the VMM's command line
	// shows them.
	Kata KataSandbox
	// Namespace and Pod are the pod's names by its bundle; empty if there is no bundle.
	Namespace, Pod string
	// VMM is the process of the VM; nil if none was found.
	VMM *VMM
}

// Sandboxes returns Kata's sandboxes of the node, by id, and the facts of reading their states ([ReadKataSandboxes]). They include
// sandboxes whose VMM runs without a state. It reads them once.
func Sandboxes(n *facts.Node) ([]Sandbox, []facts.Fact) {
	type key struct{}
	type answer struct {
		found []Sandbox
		asked []facts.Fact
	}
	a := facts.Memo(n, key{}, func() answer {
		found, asked := readSandboxes(n)
		return answer{found, asked}
	})
	return a.found, a.asked
}

func readSandboxes(n *facts.Node) ([]Sandbox, []facts.Fact) {
	states, asked := ReadKataSandboxes(n)
	var found []Sandbox
	for _, s := range states {
		found = append(found, Sandbox{Kata: s})
	}
	vmms := VMMs(n)
	for i := range vmms {
		if v := &vmms[i]; v.Sandbox != "" {
			found = withVMM(found, v)
		}
	}
	containers, _ := Containers(n)
	for _, c := range containers {
		if i := slices.IndexFunc(found, func(s Sandbox) bool { return s.Kata.ID == c.Info.ID }); i >= 0 {
			found[i].Namespace, found[i].Pod = c.Info.Namespace, c.Info.Pod
		}
	}
	slices.SortStableFunc(found, func(a, b Sandbox) int { return strings.Compare(a.Kata.ID, b.Kata.ID) })
	return found, asked
}

// withVMM adds a VMM to the sandbox that its name says.
func withVMM(found []Sandbox, v *VMM) []Sandbox {
	i := slices.IndexFunc(found, func(s Sandbox) bool { return s.Kata.ID == v.Sandbox })
	if i < 0 {
		i, found = len(found), append(found, Sandbox{Kata: KataSandbox{ID: v.Sandbox}})
	}
	found[i].take(v)
	return found
}

// take adds the content of the VMM's command line. The state's PID is kept, so that the two can be compared.
func (s *Sandbox) take(v *VMM) {
	s.VMM = v
	if s.Kata.PID == 0 {
		s.Kata.PID = v.PID
	}
	for _, p := range v.Passed() {
		a, err := p.Function()
		if err != nil {
			continue
		}
		i := slices.IndexFunc(s.Kata.Devices, func(d KataDevice) bool { return d.Address == a })
		if i < 0 {
			i, s.Kata.Devices = len(s.Kata.Devices), append(s.Kata.Devices, KataDevice{Address: a})
		}
		s.Kata.Devices[i].ColdPlugged = true
		if s.Kata.Devices[i].Bus == "" {
			s.Kata.Devices[i].Bus = p.Bus
		}
	}
	for i := range s.Kata.Devices {
		if s.Kata.Devices[i].GuestPath == "" {
			s.Kata.Devices[i].GuestPath = v.GuestPath(s.Kata.Devices[i].Bus)
		}
	}
}

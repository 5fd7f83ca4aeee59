package plan

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// attempted returns the refusal of a function for which, or for one that its claim would
// take along, Prepare failed more than once by a reason that only an attempt shows. It
// keeps new claims away; [Make] tries again, since the reason may be gone.
func (a *Assessor) attempted(f *device.Function) (Refusal, bool) {
	node := &a.maker.node
	at, ok := DrainOf(node.Snapshot, f, node.Attempted)
	if !ok {
		return Refusal{}, false
	}
	code := node.Attempted[at]
	r := Refusal{
		Code: code, Device: f.Name(), Address: f.Address, Driver: f.Driver,
		Text: fmt.Sprintf("the latest claims that asked for %s were refused: %s", at, attemptWords(code)),
		Fix:  "the claims' events and the plugin's log say who stands in the way; once that is over, a prepared claim or ten minutes lift the taint",
	}
	if at != f.Address {
		r.Culprit = new(at)
	}
	return r, true
}

// attemptWords says what an attempt showed.
func attemptWords(code Code) string {
	switch code {
	case InUse:
		return "a process has it open"
	case DiskInUse:
		return "a disk of it is in exclusive use"
	default:
		return string(code)
	}
}

package prepare

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// InUseError says that processes have a function open, so that it can neither
// be taken from its driver nor given back.
type InUseError struct {
	Claim   plan.Ref
	Address pci.Address
	Holders []vfio.Holder
	// Abandoned are the sandboxes of those holders, by PID, that are VMs without a shim:
	// deleting the pod does not end them.
	Abandoned map[int]string
}

func (e *InUseError) Error() string {
	names := make([]string, len(e.Holders))
	for i, h := range e.Holders {
		names[i] = h.String()
	}
	text := fmt.Sprintf("claim %s: %s is in use by %s: %s", e.Claim, e.Address, strings.Join(names, ", "), e.advice())
	if slices.ContainsFunc(e.Holders, func(h vfio.Holder) bool { return device.IsShared(h.Node) }) {
		text += "; a process with a shared node of the driver open may use each of its GPUs, so bind those that are for VMs at start-up (policy: bound)"
	}
	return text
}

// advice says how to end the holders. The pod that is refused may be the very one whose
// VM it is, so that deleting it is no advice where the VM has no shim. The minute is for
// the runtime's clean-up after the shim, which may still be under way (runtimeclass/README.md).
func (e *InUseError) advice() string {
	var words []string
	if slices.ContainsFunc(e.Holders, func(h vfio.Holder) bool { return e.Abandoned[h.PID] == "" }) {
		words = append(words, "stop it (delete its pod) and try again")
	}
	for _, pid := range slices.Sorted(maps.Keys(e.Abandoned)) {
		words = append(words, fmt.Sprintf("process %d is the VM of sandbox %s, whose shim does not run any more, so that deleting the pod does not end it: "+
			"if the process is there for more than a minute, run `kill -9 %d` on the node and try again", pid, e.Abandoned[pid], pid))
	}
	return strings.Join(words, "; ")
}

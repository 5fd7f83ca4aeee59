package prepare

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// LockedError says that an operation on a function hangs in the kernel, most
// often an unbind (of the function, or of its PF's driver) that waits for a
// process to close it. A reset would hang as well, and hold up whoever reads the
// bridge above meanwhile (pci_reset_function in drivers/pci/pci.c locks both).
type LockedError struct {
	Claim   plan.Ref
	Address pci.Address
	// Driver is the driver whose unbind hangs, empty where that is not known.
	Driver string
}

func (e *LockedError) Error() string {
	if device.WaitsForUsers(e.Driver) {
		return fmt.Sprintf("claim %s: unbinding %s from driver %s hangs in the kernel: %s", e.Claim, e.Address, e.Driver, device.NeverLetsGo)
	}
	return fmt.Sprintf("claim %s: an operation on %s hangs in the kernel: a reset may take a minute, so try again; if it stays, stop the process that has the device open (delete its pod)",
		e.Claim, e.Address)
}

// QuarantinedError says that a claim's functions could not be proven clean and
// are kept from reuse. Where Unprepare returns it, the tenant has lost the
// device and the record stays as the quarantine.
type QuarantinedError struct {
	Record *journal.Record
	Err    error // the failed reset; nil when the quarantine was found
}

func (e *QuarantinedError) Error() string {
	addrs := e.Record.Plan.Addresses()
	words := make([]string, len(addrs))
	for i, a := range addrs {
		words[i] = a.String()
	}
	return fmt.Sprintf("claim %s: %s quarantined: %s; look into the device, then run `kata-vfio-plugin unprepare %s` to try the reset again",
		e.Record.Plan.Claim, strings.Join(words, ", "), e.Record.Reason, e.Record.ID())
}

func (e *QuarantinedError) Unwrap() error { return e.Err }

// UndoError says that a failed Prepare could not be taken back in full. The
// record stays, and the next Prepare, Unprepare or Recover tries again.
type UndoError struct {
	Claim plan.Ref
	Err   error
}

func (e *UndoError) Error() string {
	return fmt.Sprintf("claim %s: taking it back: %s; the next try, or `kata-vfio-plugin unprepare %s`, goes on from here", e.Claim, oneLine(e.Err), e.Claim.UID)
}

func (e *UndoError) Unwrap() error { return e.Err }

// oneLine returns an error's text for a record or a sentence: joined errors
// come on lines of their own.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

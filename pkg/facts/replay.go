package facts

import (
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Replay is the current state of a node according to its ledger. [History] has the events that led to it.
type Replay struct {
	// Claims are the prepared claims that have not ended, by UID, including functions that are bound without a claim.
	Claims map[string]*ReplayedClaim
	// Drivers are the kernel drivers that functions were last bound to in this boot, "" for none. Functions whose last
	// binding failed are omitted.
	Drivers map[pci.Address]string

	boot string
}

// ReplayedClaim is a claim that has functions according to the ledger.
type ReplayedClaim struct {
	// Event is the number of the Prepare event.
	Event   int64
	Claim   ledger.Claim
	Devices []pci.Address
	// Sandbox is the sandbox that has the devices now, empty if there is none. Last is the last sandbox that had them.
	Sandbox, Last string
}

// newReplay returns the state before the first event, for a node in the given boot.
func newReplay(boot string) *Replay {
	return &Replay{Claims: map[string]*ReplayedClaim{}, Drivers: map[pci.Address]string{}, boot: boot}
}

// Apply applies the next event.
func (r *Replay) Apply(e *ledger.Event) {
	if e.Type == ledger.Bind && e.BootID == r.boot {
		r.bind(e)
	}
	if e.Claim == nil || e.Result != ledger.OK {
		return
	}
	c := r.Claims[e.Claim.UID]
	switch {
	case e.Type == ledger.Prepare && c == nil: // a plugin that starts over after a crash writes a second Prepare
		r.Claims[e.Claim.UID] = begun(e)
	case e.Type == ledger.Unprepare:
		delete(r.Claims, e.Claim.UID)
	case e.Type == ledger.Open && c != nil && e.VM != nil:
		c.Sandbox, c.Last = e.VM.Sandbox, e.VM.Sandbox
	case e.Type == ledger.Close && c != nil:
		c.Sandbox = ""
	}
}

func (r *Replay) bind(e *ledger.Event) {
	for _, d := range e.Devices {
		// After a binding that failed, the function's driver is unknown.
		delete(r.Drivers, d.Address)
		if d.DriverAfter != nil && e.Result == ledger.OK {
			r.Drivers[d.Address] = *d.DriverAfter
		}
	}
}

func begun(e *ledger.Event) *ReplayedClaim {
	c := &ReplayedClaim{Event: e.Seq, Claim: *e.Claim}
	for i := range e.Devices {
		c.Devices = append(c.Devices, e.Devices[i].Address)
	}
	return c
}

package facts

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Ledger verifies the node's ledger and returns what that found, with the fact that
// says so: Absent where there is none. One that has lost its key is verified by
// nothing, which is a problem like any other. That the node's clock and disk were
// not put back as a whole, nobody can know on the node: see [ledger.Verify].
func (n *Node) Ledger() (*ledger.Report, Fact) {
	type key struct{}
	type verified struct {
		report *ledger.Report
		fact   Fact
	}
	v := Memo(n, key{}, func() verified {
		r, f := n.verifyLedger()
		return verified{r, f}
	})
	return v.report, v.fact
}

// WithoutLedger says why a copy of a node has nothing of the ledger that the node may
// have. Call it before the node is asked.
func (n *Node) WithoutLedger(why string) { n.noLedger = why }

func (n *Node) verifyLedger() (*ledger.Report, Fact) {
	if n.noLedger != "" {
		return nil, Fact{Path: "/" + ledger.DefaultDir, How: "ledger", Status: Broken, Err: n.noLedger}
	}
	names, dir := n.List(ledger.DefaultDir)
	dir.Value, dir.How = "", "ledger"
	if len(names) == 0 && dir.OK() {
		dir.Status = Absent
	}
	if !dir.OK() {
		return nil, dir
	}
	r, err := n.verifyFiles()
	refused := errors.Is(err, fs.ErrPermission)
	switch {
	case err == nil:
		dir.Value = fmt.Sprintf("%d events in %d segments", r.Size, r.Segments)
		return r, dir
	case errors.Is(err, ledger.ErrNone):
		r = &ledger.Report{Problems: []ledger.Problem{{Kind: ledger.Missing, Seq: 0, What: "the events are gone, and other files of the ledger are there"}}}
		return r, dir
	case errors.Is(err, ledger.ErrNoKey) && !refused && n.Read(path.Join(ledger.DefaultDir, ledger.PublicKeyFile)).Known():
		r = &ledger.Report{Problems: []ledger.Problem{{Kind: ledger.Missing, File: ledger.PublicKeyFile, Seq: -1, What: err.Error()}}}
		return r, dir
	}
	dir.Status, dir.Err = Broken, err.Error()
	if refused {
		dir.Status = Denied
	}
	return nil, dir
}

// verifyFiles verifies what the ledger's directory has. The plugin may be in the middle
// of a write, which a second look finds complete; what a crash cut off stays as it is.
func (n *Node) verifyFiles() (*ledger.Report, error) {
	r, err := ledger.Verify(&ledgerFiles{fs: n.fs}, ledger.Options{})
	if err == nil && len(r.Problems) == 1 && r.Problems[0].Kind == ledger.Unfinished {
		return ledger.Verify(&ledgerFiles{fs: n.fs}, ledger.Options{})
	}
	return r, err
}

// Replay is what the ledger says stands now.
type Replay struct {
	// Claims are those that were prepared and have not ended, by UID; standing
	// bindings are among them.
	Claims map[string]*ReplayedClaim
	// Drivers are the kernel drivers that functions were bound to last, in this
	// boot; "" for none. A function whose last binding failed is not there.
	Drivers map[pci.Address]string
}

// ReplayedClaim is one claim that has functions by the ledger.
type ReplayedClaim struct {
	// Event is the number of the one that says so.
	Event   int64
	Claim   ledger.Claim
	Devices []pci.Address
	// Sandbox has them now; empty for none. Last is the last one that had them.
	Sandbox, Last string
}

// Replay returns what the proven events of the ledger come to; the fact is that of
// [Node.Ledger]. It is empty without a ledger.
func (n *Node) Replay() (*Replay, Fact) {
	type key struct{}
	type result struct {
		told *Replay
		fact Fact
	}
	r := Memo(n, key{}, func() result {
		t := &Replay{Claims: map[string]*ReplayedClaim{}, Drivers: map[pci.Address]string{}}
		report, f := n.Ledger()
		if report == nil {
			return result{t, f}
		}
		for entry, err := range ledger.Events(&ledgerFiles{fs: n.fs}) {
			if err != nil {
				continue // it is among the report's problems
			}
			if entry.Event.Seq < report.Size {
				t.apply(entry.Event, n.Snapshot.Host.BootID)
			}
		}
		return result{t, f}
	})
	return r.told, r.fact
}

// apply takes in the next event.
func (t *Replay) apply(e *ledger.Event, boot string) {
	if e.Type == ledger.Bind && e.BootID == boot {
		for _, d := range e.Devices {
			delete(t.Drivers, d.Address)
			if d.DriverAfter != nil && e.Result == ledger.OK {
				t.Drivers[d.Address] = *d.DriverAfter
			}
		}
	}
	if e.Claim == nil || e.Result != ledger.OK {
		return
	}
	c := t.Claims[e.Claim.UID]
	switch {
	case e.Type == ledger.Prepare && c == nil: // a second one is a plugin's that began again after a crash
		t.Claims[e.Claim.UID] = begun(e)
	case e.Type == ledger.Unprepare:
		delete(t.Claims, e.Claim.UID)
	case e.Type == ledger.Open && c != nil && e.VM != nil:
		c.Sandbox, c.Last = e.VM.Sandbox, e.VM.Sandbox
	case e.Type == ledger.Close && c != nil:
		c.Sandbox = ""
	}
}

func begun(e *ledger.Event) *ReplayedClaim {
	c := &ReplayedClaim{Event: e.Seq, Claim: *e.Claim}
	for i := range e.Devices {
		c.Devices = append(c.Devices, e.Devices[i].Address)
	}
	return c
}

package evidence

import (
	"fmt"
	"io/fs"

	"github.com/kata-vfio/kata-vfio/pkg/history"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// Read verifies the ledger in a directory, and makes tenancies of its events. A ledger that is not sound is read all the same: [Standing] says
// what is wrong. Its error matches [ledger.ErrNone] where there is no ledger.
func Read(dir fs.FS, o ledger.Options) (*history.History, Standing, error) {
	report, err := ledger.Verify(dir, o)
	if err != nil {
		return nil, Standing{}, err
	}
	s := standing(report, o.Key != "")
	h := &history.History{}
	for entry, err := range ledger.Events(dir) {
		if err != nil {
			continue // it is among the report's problems
		}
		h.Add(entry.Event)
	}
	return h, s, nil
}

func standing(r *ledger.Report, pinned bool) Standing {
	s := Standing{Events: r.Size, Sound: r.OK(), Checkpoint: ledger.OneLine(r.Signed), Key: r.Key}
	for _, p := range r.Problems {
		where := ""
		if p.File != "" {
			where = fmt.Sprintf("%s:%d: ", p.File, p.Line)
		}
		s.Problems = append(s.Problems, where+p.What)
	}
	switch {
	case r.Anchored == 0:
		s.Doubts = append(s.Doubts, "no checkpoint from off the node was given (--anchor): that it was not cut off or replaced as a whole can't be known")
	case r.Anchored < r.Size:
		s.Doubts = append(s.Doubts, fmt.Sprintf("an anchor vouches for the first %d events, the node alone for the %d after them", r.Anchored, r.Size-r.Anchored))
	}
	if !pinned {
		s.Doubts = append(s.Doubts, "it was verified by the key that lies beside it (--key names one from elsewhere)")
	}
	if r.Dropped > 0 {
		s.Doubts = append(s.Doubts, fmt.Sprintf("the first %d events were dropped by retention: what they told is not here", r.Dropped))
	}
	return s
}

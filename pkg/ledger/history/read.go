package history

import (
	"fmt"
	"io/fs"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// Verification is what a look at the ledger as a whole gave.
type Verification struct {
	Events int64 `json:"events"`
	// Sound is set where chain, tree and signatures fit.
	Sound bool `json:"sound"`
	// Problems say where they don't.
	Problems []string `json:"problems"`
	// Doubts say what can't be known: that it was not replaced as a whole, where no
	// checkpoint from off the node was given.
	Doubts []string `json:"doubts"`
	// Since is when the first event was written that can be read: of what was before
	// nothing is known. Nil where no event was dropped.
	Since *time.Time `json:"since,omitempty"`
	// Checkpoint is the last signed one, in one line, and Key the node's public key.
	Checkpoint string `json:"checkpoint,omitempty"`
	Key        string `json:"key,omitempty"`
}

// Read verifies the ledger in a directory, and makes tenancies of its events. A
// ledger that is not sound is read all the same: [Verification] says what is wrong.
// Its error matches [ledger.ErrNone] where there is no ledger.
func Read(dir fs.FS, o ledger.Options) (*History, Verification, error) {
	report, err := ledger.Verify(dir, o)
	if err != nil {
		return nil, Verification{}, err
	}
	s := verification(report, o.Key != "")
	h := &History{}
	for entry, err := range ledger.Events(dir) {
		if err != nil {
			continue // it is among the report's problems
		}
		if report.Dropped > 0 && s.Since == nil {
			s.Since = new(entry.Event.Time)
			s.Doubts = append(s.Doubts, dropped(report.Dropped, entry.Event.Time))
		}
		h.Add(entry.Event)
	}
	return h, s, nil
}

func verification(r *ledger.Report, pinned bool) Verification {
	s := Verification{Events: r.Size, Sound: r.OK(), Checkpoint: ledger.OneLine(r.Signed), Key: r.Key}
	for _, p := range r.Problems {
		where := ""
		if p.File != "" {
			where = fmt.Sprintf("%s:%d: ", p.File, p.Line)
		}
		s.Problems = append(s.Problems, where+p.What)
	}
	switch {
	case r.Anchors == 0:
		s.Doubts = append(s.Doubts, "no checkpoint from off the node was compared with (`kata-vfio-audit ledger verify --anchor`): that it was not cut off or replaced as a whole can't be known")
	case r.Anchored > 0 && r.Anchored < r.Size:
		s.Doubts = append(s.Doubts, fmt.Sprintf("an anchor vouches for the first %d events, the node alone for the %d after them", r.Anchored, r.Size-r.Anchored))
	}
	if !pinned && r.Key != "" {
		s.Doubts = append(s.Doubts, "it was verified by the key that lies beside it (--key names one from elsewhere)")
	}
	return s
}

// dropped says from when on a ledger can answer.
func dropped(events int64, since time.Time) string {
	return fmt.Sprintf("it can answer for the time from %s on: of the first %d events the retention has kept only the hashes",
		since.UTC().Format(time.RFC3339), events)
}

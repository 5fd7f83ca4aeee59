package facts

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// Verification is the result of verifying a whole ledger.
type Verification struct {
	Events int64 `json:"events"`
	// Sound is set if chain, tree and signatures match.
	Sound bool `json:"sound"`
	// Problems describe what does not match.
	Problems []string `json:"problems"`
	// Doubts say what the ledger alone does not prove. For example, only a checkpoint that was kept off the node shows that nobody has
	// replaced the whole ledger.
	Doubts []string `json:"doubts"`
	// Since is the time of the first readable event; nothing is known about the time before it. It is nil if no event was dropped.
	Since *time.Time `json:"since,omitempty"`
	// Checkpoint is the last signed checkpoint, on one line, and Key is the node's public key.
	Checkpoint string `json:"checkpoint,omitempty"`
	Key        string `json:"key,omitempty"`
}

// ReadHistory verifies the ledger in a directory and derives the tenancies from its events. It also reads a ledger that is not
// sound: [Verification] says what is wrong. Its error matches [ledger.ErrNone] if there is no ledger.
func ReadHistory(ctx context.Context, dir fs.FS, o ledger.Options) (*History, Verification, error) {
	report, err := ledger.VerifyContext(ctx, dir, o)
	if err != nil {
		return nil, Verification{}, err
	}
	s := verification(report, o.Key != "")
	h := &History{}
	next := int64(0)
	for entry, err := range ledger.Events(dir) {
		if err != nil {
			continue // it is among the report's problems
		}
		// Retention leaves gaps in the numbers. The answer is complete from the last of them on.
		if report.Dropped > 0 && entry.Event.Seq > next {
			s.Since = new(entry.Event.Time)
		}
		next = entry.Event.Seq + 1
		h.Add(entry.Event)
	}
	if s.Since != nil {
		s.Doubts = append(s.Doubts, dropped(report.Dropped, *s.Since))
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
		s.Doubts = append(s.Doubts, "no checkpoint from off the node was compared with the ledger (`kata-vfio-audit ledger verify --anchor`): it may have been "+
			"cut off or replaced as a whole")
	case r.Anchored > 0 && r.Anchored < r.Size:
		s.Doubts = append(s.Doubts, fmt.Sprintf("an anchor proves the first %s; only the node vouches for the %s after",
			output.Count(int(r.Anchored), "event"), output.Count(int(r.Size-r.Anchored), "event")))
	}
	if !pinned && r.Key != "" {
		s.Doubts = append(s.Doubts, "the key beside the ledger verified it (--key sets a key from a trusted source)")
	}
	return s
}

// dropped describes the time that the ledger covers.
func dropped(events int64, since time.Time) string {
	return fmt.Sprintf("the answer is complete from %s on: retention kept only the hashes of %s before",
		since.UTC().Format(time.RFC3339), output.Count(int(events), "event"))
}

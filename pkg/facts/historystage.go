package facts

import (
	"fmt"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// SanitizedBefore is a sanitizing stage of the function.
type SanitizedBefore struct {
	Time time.Time `json:"time"`
	// Event is the number of the ledger's event.
	Event  int64               `json:"event"`
	Result ledger.Result       `json:"result"`
	Stage  ledger.Sanitization `json:"stage"`
	Reason string              `json:"reason,omitempty"`
}

// Words returns the stage in a few words: "Clean by memory (sha256:...)".
func (s *SanitizedBefore) Words() string {
	text := fmt.Sprintf("%s by %s (%s)", s.Stage.Verdict, s.Stage.Profile, s.Stage.Image)
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	return text
}

// sanitize records a stage for the next tenancy of its functions.
func (h *History) sanitize(e *ledger.Event) {
	if e.Sanitize == nil {
		return
	}
	for i := range e.Devices {
		h.sanitized[e.Devices[i].Address] = &SanitizedBefore{Time: e.Time, Event: e.Seq, Result: e.Result, Stage: *e.Sanitize, Reason: e.Reason}
	}
}

package ledger_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// TestDamageNamesWhatIsKnown: a reader who looks for "event 0" because of a damaged key looks at the wrong place.
func TestDamageNamesWhatIsKnown(t *testing.T) {
	for want, e := range map[string]ledger.DamagedError{
		"event 7: gone":                  {Seq: 7, What: "gone"},
		"a.jsonl, line 3 (event 7): cut": {File: "a.jsonl", Line: 3, Seq: 7, What: "cut"},
		"a.jsonl (event 0): missing":     {File: "a.jsonl", What: "missing"},
		"key.pub, line 1: another key":   {File: "key.pub", Line: 1, Seq: -1, What: "another key"},
		"key: missing":                   {File: "key", Seq: -1, What: "missing"},
	} {
		if got := e.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestDamagedHeaderIsOfNoEvent: nobody knows which events follow a header that can't be read.
func TestDamagedHeaderIsOfNoEvent(t *testing.T) {
	s := ledger.CheckSegment(ledger.SegmentName(5000), []byte("no header\n"), nil)
	if s.Damage == nil || s.Damage.Seq != -1 || s.Damage.Line != 1 {
		t.Errorf("damage: got %+v, want line 1 and no event", s.Damage)
	}
}

package ledger_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/sumdb/note"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// TestTheEndOfASegmentIsThatOfAWholeCheck, whichever byte of it was changed, unless that is in a signature in between: the
// events are those that were signed all the same.
func TestTheEndOfASegmentIsThatOfAWholeCheck(t *testing.T) {
	h := newHistory(t)
	v, err := note.NewVerifier(strings.TrimSpace(h.files[ledger.PublicKeyFile]))
	if err != nil {
		t.Fatal(err)
	}
	left := 0
	for name, text := range h.files {
		if !ledger.IsSegment(name) {
			continue
		}
		sound := ledger.CheckSegment(name, []byte(text), v)
		for i := 0; i < len(text); i += 5 {
			data := []byte(text)
			data[i] ^= 1
			whole, end := ledger.CheckSegment(name, data, v), ledger.CheckEnd(name, data, v)
			if whole.Damage != nil && end.Damage == nil && end.Signed == sound.Signed && slices.EqualFunc(end.Events, sound.Events, slices.Equal) {
				left++
				continue
			}
			if diff := cmp.Diff(whole, end, cmp.AllowUnexported(ledger.Chain{})); diff != "" {
				t.Fatalf("%s, byte %d (-whole check +end):\n%s", name, i, diff)
			}
		}
	}
	if left == 0 {
		t.Error("no signature in between was left out")
	}
}

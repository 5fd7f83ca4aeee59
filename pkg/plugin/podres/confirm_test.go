package podres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// refusing confirms no claim.
type refusing struct {
	err  error
	asks int
}

func (*refusing) Reserve(context.Context, plan.Ref) error { return nil }

func (r *refusing) Confirm(context.Context, string) error {
	r.asks++
	return r.err
}

// TestConfirmationsCountForAMoment: an old answer is asked for again, and a refusal needs no second one.
func TestConfirmationsCountForAMoment(t *testing.T) {
	withdrawn := errors.New("its allocation was withdrawn")
	for name, test := range map[string]struct {
		early confirmation
		asks  int
		want  error
	}{
		"fresh":         {early: confirmation{asked: time.Now().Add(time.Hour)}},
		"old":           {early: confirmation{asked: time.Now().Add(-freshFor)}, asks: 1, want: withdrawn},
		"fresh refusal": {early: confirmation{asked: time.Now().Add(time.Hour), err: withdrawn}, want: withdrawn},
		"old refusal":   {early: confirmation{asked: time.Now().Add(-freshFor), err: withdrawn}, want: withdrawn},
	} {
		answers := &refusing{err: withdrawn}
		s := New(Config{Cluster: answers})
		answer := make(chan confirmation, 1)
		answer <- test.early
		own := []*Assignment{{Claim: plan.Ref{UID: "c1"}}}
		if err := s.confirm(t.Context(), own, confirmations{"c1": answer}); !errors.Is(err, test.want) || answers.asks != test.asks {
			t.Errorf("%s: %v after %d more questions, want %v after %d", name, err, answers.asks, test.want, test.asks)
		}
	}
}

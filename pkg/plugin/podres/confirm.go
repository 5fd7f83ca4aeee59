package podres

import (
	"context"
	"time"
)

// freshFor is how long the cluster's answer counts: a kubelet that takes longer has it asked again.
const freshFor = time.Second

// confirmations are the cluster's answers about the claims that a pod has by the journal. It is asked while the kubelet is, since
// both answer from elsewhere and a sandbox waits for both.
type confirmations map[string]<-chan confirmation // by claim UID

// confirmation is an answer, and when it was asked for.
type confirmation struct {
	asked time.Time
	err   error
}

// askEarly asks about the claims of the pod with the UID, which may be empty. What it starts ends with ctx.
func (s *Server) askEarly(ctx context.Context, podUID string) confirmations {
	if s.cfg.Cluster == nil || podUID == "" {
		return nil
	}
	view, err := s.cfg.Assignments.View()
	if err != nil {
		return nil // decide says so
	}
	early := confirmations{}
	for _, a := range view.OfPod(podUID) {
		answer := make(chan confirmation, 1)
		early[a.Claim.UID] = answer
		go func() {
			asked := time.Now()
			answer <- confirmation{asked, s.cfg.Cluster.Confirm(ctx, a.Claim.UID)}
		}()
	}
	return early
}

// confirm returns the cluster's errors about all claims. It asks about those that it was not asked about a moment ago.
func (s *Server) confirm(ctx context.Context, own []*Assignment, early confirmations) error {
	if s.cfg.Cluster == nil {
		return nil
	}
	return inParallel(own, func(a *Assignment) error {
		if answer, ok := early[a.Claim.UID]; ok {
			if c := <-answer; c.err != nil || time.Since(c.asked) < freshFor {
				return c.err
			}
		}
		return s.cfg.Cluster.Confirm(ctx, a.Claim.UID)
	})
}

package podres

import (
	"context"
	"time"
)

// freshFor is how long an answer of the cluster counts. If the kubelet takes longer to answer, the cluster is asked again.
const freshFor = time.Second

// confirmations are the cluster's answers about the claims that a pod has by the journal. The cluster and the kubelet are asked at the same
// time, since both answer from elsewhere and a sandbox waits for both.
type confirmations map[string]<-chan confirmation // by claim UID

// confirmation is an answer of the cluster, and the time of the request.
type confirmation struct {
	asked time.Time
	err   error
}

// askEarly asks the cluster about the claims of the pod with the UID, which may be empty. The requests that it starts end with ctx.
func (s *Server) askEarly(ctx context.Context, podUID string) confirmations {
	if s.cfg.Cluster == nil || podUID == "" {
		return nil
	}
	view, err := s.cfg.Assignments.View()
	if err != nil {
		return nil // decide reports the error
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

// confirm returns the cluster's errors about all claims. It asks again about claims whose answer is missing or older than [freshFor].
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

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// exclusive has the second tenant ask for a virtual function of the PF that the first tenant's pod has one of.
func (s *story) exclusive(ctx context.Context) error {
	s.title("Exclusive domains: while team-a has a virtual function of a PF, no other tenant gets one of this PF")
	said, err := s.says(ctx, "kata-vfio", "devices")
	if err != nil {
		return err
	}
	if !strings.Contains(said, "kept for tenant") {
		return errors.New("no virtual function is kept for team-a, which has another one of the same PF")
	}
	s.say("$ kubectl apply -f vf-near.yaml     # as above: a VF below the root that team-a's pod has its VF from")
	out, err := s.plane.KubectlInput(ctx, strings.NewReader(near), "apply", "-f", "-")
	if err != nil {
		return err
	}
	s.say("%s", out)
	if err := s.otherTenantWaits(ctx); err != nil {
		return err
	}
	s.say("(team-a's pod ends, and its VF is reset)")
	if err := s.show(ctx, "delete", "pod", networkPod, "--namespace", "team-a", "--grace-period=1"); err != nil {
		return err
	}
	if err := s.show(ctx, "wait", "pod/vf", "--for=condition=PodScheduled", "--timeout=120s", "--namespace", "team-b"); err != nil {
		return err
	}
	return s.show(ctx, "get", "resourceclaims", "--namespace", "team-b")
}

// keptWords are what the explanation says of the other functions of the PF.
const keptWords = "kept for one tenant, which has their exclusive domain: 2 vf"

// otherTenantWaits shows that the pod waits, and for whom.
func (s *story) otherTenantWaits(ctx context.Context) error {
	const tainted = "cannot allocate all claims"
	err := s.until(ctx, "the scheduler has looked at pod vf", func(ctx context.Context) error {
		out, err := s.kubectl(ctx, "get", "events", "--namespace", "team-b", "--field-selector=involvedObject.name=vf,reason=FailedScheduling", "-o", eventsView)
		if err == nil && !strings.Contains(out, tainted) {
			err = fmt.Errorf("its events are %q, want one with %q", out, tainted)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := s.show(ctx, "get", "pods", "--namespace", "team-b"); err != nil {
		return err
	}
	said, err := s.says(ctx, "kata-vfio", "explain", "--namespace", "team-b", "pod/vf")
	if err != nil {
		return err
	}
	if words := strings.Join(strings.Fields(said), " "); !strings.Contains(words, keptWords) {
		return fmt.Errorf("the explanation of the pod that waits does not have %q", keptWords)
	}
	return s.status(ctx)
}

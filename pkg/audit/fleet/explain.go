package fleet

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Explanation explains the state of an object. Its JSON form is stable: names are added, never changed.
type Explanation struct {
	// Subject is "claim team-a/train", "pod team-a/train-0", "device n1/gpu-0000-3b-00-0".
	Subject string `json:"subject"`
	// Now is the subject's state in one sentence.
	Now string `json:"now"`
	// Moments are in order of time. Moments without a time come last.
	Moments []Moment `json:"moments"`
	// Todo lists the fixes of present troubles in the order of Moments, each once.
	Todo []string `json:"todo"`
}

// Moment is one event, or one fact without a time.
type Moment struct {
	// At is zero if the time is not recorded.
	At time.Time `json:"at,omitzero"`
	// Of is the object of the moment, in the form of [Explanation.Subject].
	Of string `json:"of"`
	// What is "created", "allocated", "has", "condition Ready", "event Quarantined",
	// "taint audit=IOM-003".
	What string `json:"what"`
	Text string `json:"text,omitempty"`
	// Trouble is set if the moment needs attention. Fix says what to do.
	Trouble bool   `json:"trouble,omitempty"`
	Fix     string `json:"fix,omitempty"`
	// Who are the people that can apply Fix; empty if anybody can.
	Who []rule.Role `json:"who,omitempty"`
	// Past is set for the event of a trouble that is over, because the claim was prepared later.
	Past bool `json:"past,omitempty"`
}

// NotFoundError says that no object has a name.
type NotFoundError struct{ Name string }

func (e *NotFoundError) Error() string { return "there is no " + e.Name }

// Texts explain the words that objects show: the rules, whose IDs are in taints, and the codes.
type Texts struct {
	Rules []rule.Rule
	Codes []rule.Text
}

// explaining builds an explanation.
type explaining struct {
	state   *State
	known   map[string]*rule.Rule
	texts   []rule.Text
	moments []Moment
}

func (s *State) explaining(texts Texts) *explaining {
	e := &explaining{state: s, known: map[string]*rule.Rule{}, texts: texts.Codes}
	for i := range texts.Rules {
		e.known[texts.Rules[i].ID] = &texts.Rules[i]
	}
	return e
}

// ExplainClaim explains a claim, its pods and its devices. The error is a [NotFoundError].
func (s *State) ExplainClaim(namespace, name string, texts Texts) (*Explanation, error) {
	c := s.Cluster.Claim(namespace, name)
	if c == nil {
		return nil, &NotFoundError{fmt.Sprintf("claim %s/%s", namespace, name)}
	}
	e := s.explaining(texts)
	e.claim(c)
	for _, pod := range s.rowClaim(c).Pods {
		e.pod(namespace, pod)
	}
	return e.finish("claim "+c.Name(), claimNow(s, c)), nil
}

// ExplainPod explains a pod and its claims. If the pod is not known, it returns an error, which is a [NotFoundError] only if pods could
// be listed.
func (s *State) ExplainPod(namespace, name string, texts Texts) (*Explanation, error) {
	listed := s.Cluster.Pod(namespace, name)
	if listed == nil {
		if why, missing := s.Missing[Pods]; missing {
			return nil, fmt.Errorf("pod %s/%s can't be explained: pods could not be listed: %s", namespace, name, why)
		}
		return nil, &NotFoundError{fmt.Sprintf("pod %s/%s", namespace, name)}
	}
	e, p := s.explaining(texts), listed.Object
	e.add(Moment{At: p.CreationTimestamp.UTC(), Of: "pod " + namespace + "/" + name, What: "created", Text: "RuntimeClass " + cmp.Or(deref(p.Spec.RuntimeClassName), "none")})
	e.pod(namespace, name)
	now := []string{"is " + cmp.Or(string(p.Status.Phase), "Pending")}
	names := listed.Claims
	for _, name := range names {
		if c := s.Cluster.Claim(namespace, name); c != nil {
			e.claim(c)
			now = append(now, "its claim "+name+" "+claimNow(s, c))
		} else {
			now = append(now, "its claim "+name+" is not there")
		}
	}
	// A claim from a template has a name only after the control plane has created it, so the pod's status may name fewer claims than its spec.
	switch {
	case len(names) == 0 && len(p.Spec.ResourceClaims) == 0:
		now = append(now, "it has no claim")
		e.add(Moment{
			Of: "pod " + namespace + "/" + name, What: "no claim", Text: "the pod's spec has no resourceClaims, so it gets no device", Trouble: true,
			Fix: "create the pod again with spec.resourceClaims, and name the claim in a container's resources.claims (deploy/examples)",
		})
	case len(names) == 0:
		now = append(now, "its claims are not made yet")
	case len(names) < len(p.Spec.ResourceClaims):
		now = append(now, "not all of its claims are made yet")
	}
	return e.finish("pod "+namespace+"/"+name, strings.Join(now, "; ")), nil
}

// ExplainDevice explains a node's device, by its name or its address, and the claim that has it. The error is a
// [NotFoundError].
func (s *State) ExplainDevice(node, name string, texts Texts) (*Explanation, error) {
	e := s.explaining(texts)
	devices := s.Devices()
	for i := range devices {
		d := &devices[i]
		if d.Node != node || d.Name != name && !strings.EqualFold(d.Address, name) {
			continue
		}
		e.device(d)
		e.deviceVM(node, d.Address)
		if namespace, claim, ok := strings.Cut(d.Claim, "/"); ok {
			e.claimOnly(s.Cluster.Claim(namespace, claim))
		}
		return e.finish("device "+node+"/"+d.Name, "is "+d.State()+"; isolated: "+d.Isolation()), nil
	}
	return nil, &NotFoundError{fmt.Sprintf("device %s on node %s; `kubectl kata-vfio devices --node %s` lists them", name, node, node)}
}

func claimNow(s *State, c *cluster.Claim) string {
	row := s.rowClaim(c)
	switch row.State {
	case Refused:
		return "is refused: " + row.Reason
	case Pending:
		return "waits for a device"
	case Allocated:
		return "has devices of node " + row.Node + ", which has not said that they are ready"
	case Deleting:
		return "is being deleted"
	case Unjudged:
		return "is ready on node " + row.Node + ", and its status does not say how well it is isolated"
	case Weakened:
		return "is ready on node " + row.Node + ", and its DeviceClass waives isolation or reset"
	case Ready:
	}
	return "is ready on node " + row.Node
}

package podres

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/assignment"
)

// podName is a pod's name; pods that follow each other may share it.
type podName struct{ namespace, name string }

func (p podName) String() string { return p.namespace + "/" + p.name }

// question is all that is known when a shim asks for a pod's devices.
type question struct {
	pod  podName
	shim PeerSandbox
	view *assignment.View
	// kubelet is its answer; nil where it could not be asked, for the reason
	// that silent gives.
	kubelet *podresourcesv1.PodResources
	silent  error
	// others is set to the prepared claim of another pod that the kubelet says is
	// this one's, where that is why the question has no answer.
	others *assignment.Assignment
}

// decide returns the assignments whose devices the sandbox is to get, by claim
// UID, or why it gets none: what the bundle, the journal and the kubelet say
// must agree.
func (q *question) decide() ([]*assignment.Assignment, error) {
	uid, err := q.podUID()
	if err != nil {
		return nil, err
	}
	own := q.view.OfPod(uid)
	if err := q.proven(uid, own); err != nil {
		return nil, err
	}
	for _, a := range own {
		if err := q.givable(uid, a); err != nil {
			return nil, err
		}
	}
	return own, nil
}

// podUID returns the UID of the pod that asks: by the bundle, else the only
// one that the journal has for the name, else empty.
func (q *question) podUID() (string, error) {
	bundle := podName{q.shim.PodNamespace, q.shim.PodName}
	if bundle != (podName{}) && bundle != q.pod {
		return "", refused(codes.PermissionDenied, "pod %s: sandbox %s asks for it and is pod %s's", q.pod, q.shim.ID, bundle)
	}
	if q.shim.PodUID != "" {
		return q.shim.PodUID, nil
	}
	uids := q.view.PodUIDs(q.pod.namespace, q.pod.name)
	switch len(uids) {
	case 0:
		return "", nil
	case 1:
		return uids[0], nil
	}
	return "", q.refuse(codes.Unavailable,
		"%d pods of this name have claims here (UIDs %s), and which of them asks is not known: %v; "+
			"wait until the older one's claims are unprepared",
		len(uids), strings.Join(uids, ", "), q.shim.Unknown)
}

// proven checks the journal's claims of the pod against the kubelet's. The
// kubelet leaves out claims that only init containers or no container refer
// to, so that it need not name them all where the UID is certain.
func (q *question) proven(uid string, own []*assignment.Assignment) error {
	certain := q.shim.PodUID != ""
	if q.kubelet == nil {
		return q.unproven(certain)
	}
	named := namedClaims(q.kubelet)
	for _, c := range named {
		if !slices.ContainsFunc(own, c.is) {
			return q.foreign(uid, c)
		}
	}
	for _, a := range own {
		if !certain && !slices.ContainsFunc(named, func(c *namedClaim) bool { return c.is(a) }) {
			return q.refuse(codes.FailedPrecondition,
				"claim %s is prepared for a pod of this name (UID %s), the kubelet does not say that this pod has it, "+
					"and whose sandbox this is can't be told: %v",
				a.Claim, uid, q.shim.Unknown)
		}
	}
	return nil
}

// unproven is the refusal without the kubelet's word: the pod may have more
// claims than are prepared for it, and devices of others, and a VM with some of
// them would start all the same.
func (q *question) unproven(certain bool) error {
	if !certain {
		return q.refuse(codes.Unavailable,
			"which pod of this name asks is not known: %v, and %v: try again when the kubelet answers",
			q.shim.Unknown, q.silent)
	}
	return q.refuse(codes.Unavailable,
		"which devices it should have is not known: %v: try again when the kubelet answers", q.silent)
}

// foreign is the refusal of a claim that the kubelet says the pod has, and the
// journal does not.
func (q *question) foreign(uid string, c *namedClaim) error {
	who := uid
	if who == "" {
		who = "unknown"
	}
	for _, a := range q.view.All() {
		if !c.is(a) {
			continue
		}
		q.others = a
		var pods []string
		for _, p := range a.Claim.Pods {
			pods = append(pods, fmt.Sprintf("%s (UID %s)", p.Name, p.UID))
		}
		return q.refuse(codes.FailedPrecondition,
			"claim %s is prepared for pod %s, not for this one (UID %s): give each pod a claim of its own, "+
				"or delete the other pod and this one, and create it again",
			a.Claim, strings.Join(pods, ", "), who)
	}
	return q.refuse(codes.FailedPrecondition,
		"the kubelet says that it has claim %s/%s, and no such claim is prepared here for this pod (UID %s): "+
			"delete the pod, so that its claim is prepared anew",
		c.namespace, c.name, who)
}

// givable checks that an assignment's devices may be given to the pod.
func (q *question) givable(uid string, a *assignment.Assignment) error {
	p, _ := a.Pod(uid)
	if have := (podName{a.Claim.Namespace, p.Name}); have != q.pod {
		return q.refuse(codes.PermissionDenied, "claim %s is prepared for pod %s with this one's UID %s", a.Claim, have, uid)
	}
	if a.Usable() {
		return nil
	}
	return q.refuse(codes.FailedPrecondition, "claim %s %s", a.Claim, unusable(a))
}

// unusable says why an assignment is not usable and what to do.
func unusable(a *assignment.Assignment) string {
	switch {
	case a.State == journal.Quarantined:
		return fmt.Sprintf("is %s: its device could not be proven clean; delete the pod, whose next one gets another", a.State)
	case a.State != journal.Prepared:
		return fmt.Sprintf("is not prepared: it is %s; wait, or delete the pod", a.State)
	case a.Withdrawn != "":
		return fmt.Sprintf("is prepared, and its devices are not allocated to it here: %s; delete the pod and create it again", a.Withdrawn)
	case a.Stale:
		return "was prepared before the node's last start and not since: delete the pod, or restart the kubelet"
	}
	return "is prepared and has no CDI spec with a node for each device: restart the plugin, which writes it anew"
}

// refuse returns the refusal of the pod's Get.
func (q *question) refuse(code codes.Code, format string, args ...any) error {
	return refused(code, "pod %s: %s", q.pod, fmt.Sprintf(format, args...))
}

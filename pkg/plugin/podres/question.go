package podres

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// podName is a pod's name. A pod and its successor can have the same one.
type podName struct{ namespace, name string }

func (p podName) String() string { return p.namespace + "/" + p.name }

// question holds the facts for the decision when a shim asks for a pod's devices.
type question struct {
	pod  podName
	shim PeerSandbox
	view *View
	// kubelet is the kubelet's answer; nil if there was none, for the reason in silent.
	kubelet *podresourcesv1.PodResources
	silent  error
	// others is the assignment that makes decide fail because a claim is prepared for another pod, while the kubelet says that the claim is
	// this pod's.
	others *Assignment
}

// decide returns the assignments whose devices the sandbox gets, by claim UID, or an error that says why it gets none. The bundle, the
// journal and the kubelet must agree.
func (q *question) decide() ([]*Assignment, error) {
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

// podUID returns the UID of the pod. It is the UID in the bundle, or else the only UID that the journal has for the name, or else empty.
func (q *question) podUID() (string, error) {
	bundle := podName{q.shim.PodNamespace, q.shim.PodName}
	if bundle != (podName{}) && bundle != q.pod {
		return "", refused(codes.PermissionDenied, "pod %s: the request comes from sandbox %s, which belongs to pod %s", q.pod, q.shim.ID, bundle)
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
		"%d pods of this name have claims on this node (UIDs %s), and it is unknown which of them asks: %v; "+
			"wait until the claims of the older pod are unprepared",
		len(uids), strings.Join(uids, ", "), q.shim.Unknown)
}

// proven compares the pod's claims in the journal with the kubelet's. The kubelet leaves out claims that
// only init containers or no containers use, so it need not name all of them if the UID is certain.
func (q *question) proven(uid string, own []*Assignment) error {
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
					"and the sandbox's pod is unknown: %v",
				a.Claim, uid, q.shim.Unknown)
		}
	}
	return nil
}

// unproven returns the refusal for a pod about which the kubelet did not answer. The pod may have more claims than are prepared, and
// devices of other drivers, and its VM would start with only some of them.
func (q *question) unproven(certain bool) error {
	if !certain {
		return q.refuse(codes.Unavailable,
			"it is unknown which pod of this name asks: %v, and %v: try again when the kubelet answers",
			q.shim.Unknown, q.silent)
	}
	return q.refuse(codes.Unavailable,
		"the devices that it should have are unknown: %v: try again when the kubelet answers", q.silent)
}

// foreign returns the refusal for a claim that the pod has according to the kubelet, but not according to the journal.
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
			"claim %s is prepared for pod %s, not for this one (UID %s): give each pod its own claim, "+
				"or delete both pods and create this one again",
			a.Claim, strings.Join(pods, ", "), who)
	}
	if unread := q.view.Unread(); unread != nil {
		return q.refuse(codes.FailedPrecondition,
			"the kubelet says that it has claim %s/%s, and a record that can't be read may be that claim's: %v", c.namespace, c.name, unread)
	}
	return q.refuse(codes.FailedPrecondition,
		"the kubelet says that it has claim %s/%s, and no such claim is prepared here for this pod (UID %s): "+
			"delete the pod, so that its claim is prepared again",
		c.namespace, c.name, who)
}

// givable checks that the pod may have an assignment's devices.
func (q *question) givable(uid string, a *Assignment) error {
	p, _ := a.Pod(uid)
	if have := (podName{a.Claim.Namespace, p.Name}); have != q.pod {
		return q.refuse(codes.PermissionDenied, "claim %s is prepared for pod %s, which has the same UID %s", a.Claim, have, uid)
	}
	if a.Usable() {
		return nil
	}
	return q.refuse(codes.FailedPrecondition, "claim %s %s", a.Claim, unusable(a))
}

// unusable returns why an assignment is not usable, and what to do.
func unusable(a *Assignment) string {
	switch {
	case a.State == journal.Quarantined:
		return fmt.Sprintf("is %s: the reset of its device could not be proven; delete the pod, and its successor gets another device", a.State)
	case a.State != journal.Prepared:
		return fmt.Sprintf("is not prepared: it is %s; wait, or delete the pod", a.State)
	case a.Withdrawn != "":
		return fmt.Sprintf("is prepared, but its devices are not allocated to it on this node: %s; delete the pod and create it again", a.Withdrawn)
	case a.Stale:
		return "was prepared before the node's last reboot: delete the pod, or restart the kubelet"
	case a.SpecFault != "":
		return fmt.Sprintf("is prepared, but its CDI spec can't be read (%s): restart the plugin, which writes the spec again", a.SpecFault)
	}
	return "is prepared, but its CDI spec has no node for a device: restart the plugin, which writes the spec again"
}

// refuse returns the refusal of the pod's Get.
func (q *question) refuse(code codes.Code, format string, args ...any) error {
	return refused(code, "pod %s: %s", q.pod, fmt.Sprintf(format, args...))
}

// Package stage decides which sanitizing stages run: a device that waits for its stage gets a claim and a pod, and a stage that
// ended, or that is not needed, loses them. Only the plugin of the device's node decides what a stage's result means. Prepare's
// gate does not rely on this package: if the package decides nothing, devices wait.
//
// A stage's name depends on its device alone, and pod and claim have this name. So the API server refuses a second stage of a
// device, whichever controller creates it.
package stage

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// Millis is a time of the controller's clock, or a duration, in milliseconds.
type Millis int64

// Times that end a stage. A stage's own time limit is the pod's activeDeadlineSeconds, which the kubelet enforces.
const (
	// PendingLimit is how long a pod may wait for a node before another device has its turn.
	PendingLimit Millis = 10 * 60 * 1000
	// LostLimit is how much longer than its time limit a pod on a node may take before it is deleted, because the kubelet does
	// not answer.
	LostLimit Millis = 15 * 60 * 1000
	// DecideLimit is how long the pod of an ended stage stays for the plugin, which reads the result from it. It is also the
	// pause before the next stage of a device whose stage was interrupted.
	DecideLimit Millis = 10 * 60 * 1000
	// StuckLimit is how long a deleted pod counts as a running stage. A pod that stays longer is on a node that is down, and
	// must not prevent stages on other nodes.
	StuckLimit Millis = 10 * 60 * 1000
)

// Labels and annotations of a stage's pod and claim.
const (
	// LabelSanitizer is the label with the profile.
	LabelSanitizer = v1alpha1.DriverName + "/sanitizer"
	// AnnotationDevice is the annotation with the device, as [cluster.ID.String] writes it.
	AnnotationDevice = v1alpha1.DriverName + "/device"
)

// Name returns the name of a device's stage.
func Name(device cluster.ID) string {
	sum := sha256.Sum256([]byte(device.String()))
	return "sanitize-" + hex.EncodeToString(sum[:8])
}

// A Stage is what the API server has of a device's stage: a claim, a pod, or both.
type Stage struct {
	Name string
	// Device is the zero value if the annotation does not name the device of Name.
	Device  cluster.ID
	Profile string
	Claim   *cluster.Claim
	Pod     *cluster.Pod
}

// stages returns the stages of the view, by name. Objects without the controller's label are not its own.
func (v *View) stages() map[string]*Stage {
	all := map[string]*Stage{}
	for _, c := range v.Cluster.Claims() {
		if v.isStage(c.Object) {
			at(all, c.Object).Claim = c
		}
	}
	for _, p := range v.Cluster.Pods() {
		if v.isStage(p.Object) {
			at(all, p.Object).Pod = p
		}
	}
	return all
}

func (v *View) isStage(o metav1.Object) bool {
	return o.GetNamespace() == v.Sanitizers.Namespace && o.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedByController
}

// at returns the stage with an object's name, and adds it if it is missing.
func at(all map[string]*Stage, o metav1.Object) *Stage {
	s := all[o.GetName()]
	if s == nil {
		s = &Stage{Name: o.GetName(), Profile: o.GetLabels()[LabelSanitizer]}
		if id, ok := AnnotatedDevice(o); ok {
			s.Device = id
		}
		all[s.Name] = s
	}
	return s
}

// AnnotatedDevice returns the device of a stage's pod or claim, and false if the annotation does not name the device of its name.
func AnnotatedDevice(o metav1.Object) (cluster.ID, bool) {
	driver, rest, _ := strings.Cut(o.GetAnnotations()[AnnotationDevice], "/")
	// A pool's name may contain slashes, and a device's can't.
	i := strings.LastIndex(rest, "/")
	if i < 0 {
		return cluster.ID{}, false
	}
	id := cluster.ID{Driver: driver, Pool: rest[:i], Name: rest[i+1:]}
	return id, Name(id) == o.GetName()
}

// Active reports whether the pod of a stage runs, or may run: it has not ended.
func (s *Stage) Active() bool { return s.Pod != nil && !s.Pod.Ended() }

// isDeleted reports whether the pod, or the claim that is left, is being deleted.
func (s *Stage) isDeleted() bool {
	if s.Pod != nil {
		return s.Pod.Object.DeletionTimestamp != nil
	}
	return s.Claim.Object.DeletionTimestamp != nil
}

func (s *Stage) isScheduled() bool { return s.Pod.Object.Spec.NodeName != "" }

// hasStarted reports whether a container of the pod has run: the VM has the device, or had it.
func (s *Stage) hasStarted() bool {
	for i := range s.Pod.Object.Status.ContainerStatuses {
		state := &s.Pod.Object.Status.ContainerStatuses[i].State
		if state.Running != nil || state.Terminated != nil {
			return true
		}
	}
	return false
}

// limit returns how long the pod may run from its start on.
func (s *Stage) limit() Millis {
	if seconds := s.Pod.Object.Spec.ActiveDeadlineSeconds; seconds != nil {
		return Millis(*seconds) * 1000
	}
	return v1alpha1.DefaultSanitizeTimeoutSeconds * 1000
}

// took returns the time from the pod's creation to the end of its container, and false if its container did not end.
func (s *Stage) took() (Millis, bool) {
	for i := range s.Pod.Object.Status.ContainerStatuses {
		c := &s.Pod.Object.Status.ContainerStatuses[i]
		if end := c.State.Terminated; c.Name == container && end != nil && !end.FinishedAt.IsZero() {
			// The two times are by the clocks of different machines, so the difference may be negative.
			return max(0, Millis(end.FinishedAt.UnixMilli()-s.Pod.Object.CreationTimestamp.UnixMilli())), true
		}
	}
	return 0, false
}

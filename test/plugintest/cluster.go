package plugintest

import (
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TrainPod is the pod that claims are for, as a tenant should write it.
func TrainPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "train", UID: "pod-uid"},
		Spec:       corev1.PodSpec{NodeName: "worker-1", RuntimeClassName: new("kata-gpu")},
	}
}

// RuntimeClass returns a RuntimeClass.
func RuntimeClass(name, handler string) *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: handler}
}

// Cluster is an API server with the pod, RuntimeClasses, the chart's DeviceClasses and the objects.
func Cluster(objects ...runtime.Object) *fake.Clientset {
	return fake.NewClientset(append(objects, TrainPod(), RuntimeClass("kata-gpu", "kata-gpu"), RuntimeClass("plain", "runc"),
		DeviceClass("gpu.kata-vfio.dev", "*"), DeviceClass("vf.kata-vfio.dev", "*", Untagged))...)
}

// Gate returns the gate of worker-1.
func Gate(client *fake.Clientset) *dra.Gate {
	return &dra.Gate{Client: client, NodeName: "worker-1", Handlers: []string{"kata-gpu"}}
}

// DeviceClass is granted to the namespaces, and has the parameters beside those of
// another driver.
func DeviceClass(name, namespaces string, parameters ...string) *resourceapi.DeviceClass {
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if namespaces != "" {
		class.Annotations = map[string]string{v1alpha1.AnnotationNamespaces: namespaces}
	}
	add := func(driver, text string) {
		class.Spec.Config = append(class.Spec.Config, resourceapi.DeviceClassConfiguration{DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(text)}},
		}})
	}
	add("other.example.com", `{"any":"thing"}`)
	for _, text := range parameters {
		add(v1alpha1.DriverName, text)
	}
	return class
}

// EventLog keeps events as "Kind name type reason action: note".
type EventLog struct {
	mu    sync.Mutex // guards Lines
	Lines []string
}

// Event implements [dra.Recorder].
func (l *EventLog) Event(regarding, _ *corev1.ObjectReference, eventType string, reason rule.Code, action, note string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Lines = append(l.Lines, strings.Join([]string{regarding.Kind, regarding.Namespace + "/" + regarding.Name, eventType, string(reason), action + ":", note}, " "))
}

// Count returns how many events have the word.
func (l *EventLog) Count(word string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, line := range l.Lines {
		if strings.Contains(line, word) {
			n++
		}
	}
	return n
}

// Want checks that the events have the beginnings, in order.
func (l *EventLog) Want(t *testing.T, beginnings ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.Lines) != len(beginnings) {
		t.Fatalf("%d events, want %d:\n%s", len(l.Lines), len(beginnings), strings.Join(l.Lines, "\n"))
	}
	for i, b := range beginnings {
		if !strings.HasPrefix(l.Lines[i], b) {
			t.Errorf("event %q, want %q...", l.Lines[i], b)
		}
	}
}

// Conditions lists conditions as "Type=Status (Reason)".
func Conditions(s resourceapi.AllocatedDeviceStatus) []string {
	var words []string
	for _, c := range s.Conditions {
		words = append(words, c.Type+"="+string(c.Status)+" ("+c.Reason+")")
	}
	return words
}

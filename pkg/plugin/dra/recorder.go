package dra

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// NewRecorder returns a recorder of a node's Events, which works until ctx ends. Each has the node in its reporting instance: the chart's
// policy events refuses those that have another.
func NewRecorder(ctx context.Context, client kubernetes.Interface, node string) (Recorder, error) {
	sink := nodeSink{&events.EventSinkImpl{Interface: client.EventsV1()}, instanceOn(node)}
	broadcaster := events.NewBroadcaster(sink)
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, fmt.Errorf("start recording Events: %w", err)
	}
	context.AfterFunc(ctx, broadcaster.Shutdown)
	return EventRecorder{Recorder: broadcaster.NewRecorder(scheme.Scheme, v1alpha1.DriverName)}, nil
}

// longestInstance is the limit for an Event's reporting instance (events.k8s.io/v1).
const longestInstance = 128

// instanceOn is the reporting instance of a node's plugin.
func instanceOn(node string) string { return shorten(v1alpha1.DriverName+"-"+node, longestInstance) }

// nodeSink creates Events of a node. client-go takes the host's name for the instance, which in a pod is the pod's.
type nodeSink struct {
	events.EventSink
	instance string
}

// Create implements [events.EventSink].
func (s nodeSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	e = e.DeepCopy()
	e.ReportingInstance = s.instance
	return s.EventSink.Create(ctx, e)
}

// EventRecorder records with client-go's broadcaster.
type EventRecorder struct{ Recorder events.EventRecorder }

// Event implements [Recorder].
func (e EventRecorder) Event(regarding, related *corev1.ObjectReference, eventType string, reason rule.Code, action, note string) {
	if related == nil { // an interface that holds a nil pointer is not nil
		e.Recorder.Eventf(regarding, nil, eventType, string(reason), action, "%s", note)
		return
	}
	e.Recorder.Eventf(regarding, related, eventType, string(reason), action, "%s", note)
}

package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Outbox records Events that can't be recorded again later: the claim, and the anchor in its Event, may be gone when the API server answers
// again. It sends the Events in order, retries until the API server accepts them, and keeps them in a file for the next instance. It
// implements [Recorder] and is safe for concurrent use.
type Outbox struct {
	client kubernetes.Interface
	// instance is the reporting instance of the Events, and path the path of the file.
	instance, path string
	log            *slog.Logger
	wake           chan struct{}

	mu      sync.Mutex // guards those below
	waiting []*eventsv1.Event
	lost    int // the number of dropped events since the last log line

	saved string // the content of the file; only Run uses it
}

const (
	// outboxRoom bounds the number of waiting events. Beyond it the oldest events are dropped.
	outboxRoom = 1000
	// outboxPause is the shortest pause before the next attempt. The longest is twice as long: the pause is random, because all nodes lose
	// the API server at the same time.
	outboxPause = 30 * time.Second
)

// NewOutbox returns a node's outbox, which sends while [Outbox.Run] runs. The directory of the file at path must exist.
func NewOutbox(client kubernetes.Interface, node, path string, log *slog.Logger) *Outbox {
	return &Outbox{client: client, instance: instanceOn(node), path: path, log: log, wake: make(chan struct{}, 1)}
}

// Event implements [Recorder].
func (o *Outbox) Event(regarding, related *corev1.ObjectReference, eventType string, reason rule.Code, action, note string) {
	name := newEventName(regarding.Name) // a retry uses the same name, so that the API server detects a duplicate
	o.mu.Lock()
	o.waiting = append(o.waiting, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: regarding.Namespace, Name: name},
		EventTime:  metav1.NowMicro(), ReportingController: v1alpha1.DriverName, ReportingInstance: o.instance,
		Regarding: *regarding, Related: related, Type: eventType, Reason: string(reason), Action: action, Note: note,
	})
	o.bound()
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default: // it is awake
	}
}

// newEventName returns a new name for an Event on a named object. It is a DNS subdomain, as the object's name is: the API server refuses
// others.
func newEventName(regarding string) string {
	const room, random = 200, 16
	return strings.TrimRight(regarding[:min(len(regarding), room)], ".-") + "." + rand.String(random)
}

// bound drops the oldest events if there are too many. The lock is held.
func (o *Outbox) bound() {
	if more := len(o.waiting) - outboxRoom; more > 0 {
		o.waiting = append([]*eventsv1.Event{}, o.waiting[more:]...)
		o.lost += more
	}
}

// Run sends events until ctx ends, those of an earlier instance first.
func (o *Outbox) Run(ctx context.Context) error {
	if err := o.load(); err != nil {
		o.log.WarnContext(ctx, "Events of an earlier start are lost", slog.Any("err", err))
	}
	for {
		err := o.send(ctx)
		o.save(ctx)
		var again <-chan time.Time
		if err != nil {
			// Between one and two pauses, so that the nodes don't all come back together after an outage.
			again = time.After(wait.Jitter(outboxPause, 1))
		}
		select {
		case <-ctx.Done():
			o.save(ctx)
			return nil
		case <-again:
		case <-o.wake:
		}
	}
}

// send sends the waiting events, up to the first that fails.
func (o *Outbox) send(ctx context.Context) error {
	for {
		o.mu.Lock()
		if len(o.waiting) == 0 {
			o.mu.Unlock()
			return nil
		}
		first := o.waiting[0]
		o.mu.Unlock()
		if err := o.create(ctx, first); err != nil {
			return err
		}
		o.mu.Lock()
		if len(o.waiting) > 0 && o.waiting[0] == first { // it was not dropped meanwhile
			o.waiting = o.waiting[1:]
		}
		o.mu.Unlock()
	}
}

// create sends one event. If it returns an error, the event must be sent again.
func (o *Outbox) create(ctx context.Context, e *eventsv1.Event) error {
	limited, cancel := context.WithTimeout(ctx, RequestLimit)
	defer cancel()
	_, err := o.client.EventsV1().Events(e.Namespace).Create(limited, e, metav1.CreateOptions{})
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return nil
	case transient(err), ctx.Err() != nil: // when the plugin ends, the next instance sends it
		return err
	}
	o.log.WarnContext(ctx, "Event not accepted", slog.String("event", e.Namespace+"/"+e.Name), slog.String("reason", e.Reason), slog.Any("err", err))
	return nil
}

// load puts the events of an earlier instance before the waiting ones.
func (o *Outbox) load() error {
	data, err := os.ReadFile(o.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var left []*eventsv1.Event
	if err := json.Unmarshal(data, &left); err != nil {
		return fmt.Errorf("%s: %w", o.path, err)
	}
	o.saved = string(data)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting = append(left, o.waiting...)
	o.bound()
	return nil
}

// save writes the waiting events to the file, and removes the file if there are none. It only logs an error: the events are still in
// memory.
func (o *Outbox) save(ctx context.Context) {
	o.mu.Lock()
	data, err := json.Marshal(o.waiting)
	empty, lost := len(o.waiting) == 0, o.lost
	o.lost = 0
	o.mu.Unlock()
	if lost > 0 {
		o.log.WarnContext(ctx, "Events are lost: the API server has been unreachable for too long", slog.Int("events", lost))
	}
	text := string(data)
	if empty {
		text = ""
	}
	// From here on the lock is not held: callers that add events must not wait for the disk.
	if err != nil || text == o.saved {
		return
	}
	if err := o.write(text); err != nil {
		o.log.WarnContext(ctx, "Events that wait for the API server are not on disk", slog.Any("err", err))
		return
	}
	o.saved = text
}

func (o *Outbox) write(text string) error {
	if text != "" {
		return renameio.WriteFile(o.path, []byte(text), 0o600, renameio.WithTempDir(filepath.Dir(o.path)))
	}
	if err := os.Remove(o.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

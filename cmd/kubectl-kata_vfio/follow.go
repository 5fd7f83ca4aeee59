package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/terminal"
)

// settling is how long a change waits for those that come with it: a claim that is
// allocated is written several times within milliseconds.
const settling = 150 * time.Millisecond

// follow watches what is wanted, but for kinds that are missing, and shows its state
// whenever that has changed, until ctx ends, which is no error. The API server is asked
// for each kind once and tells of changes itself; where it goes away, it is asked again
// with growing pauses, and that is said on warnings.
func (w *want) follow(ctx context.Context, client kubernetes.Interface, missing map[fleet.Kind]string, warnings io.Writer, show func(*fleet.State) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	changed := make(chan struct{}, 1)
	var informers []cache.SharedIndexInformer
	var synced []cache.InformerSynced
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	trouble := &complaints{to: warnings, end: cancel}
	for _, kind := range slices.Concat(w.needs, w.also) {
		if _, lacks := missing[kind]; lacks {
			continue
		}
		informer, err := w.informer(client, kind, changed, trouble)
		if err != nil {
			return fmt.Errorf("watch %s: %w", kind, err)
		}
		informers, synced = append(informers, informer), append(synced, informer.HasSynced)
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return ended(ctx)
	}
	for {
		state := w.state(missing)
		for _, informer := range informers {
			for _, o := range informer.GetStore().List() {
				w.put(state, o)
			}
		}
		if err := show(state); err != nil {
			return err
		}
		if !await(ctx, changed) {
			return ended(ctx)
		}
	}
}

// await waits for a change and for those that come with it; false where ctx ends first.
func await(ctx context.Context, changed <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-changed:
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(settling):
	}
	select {
	case <-changed:
	default:
	}
	return true
}

// ended is nil where the user ended the watch.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

func (w *want) informer(client kubernetes.Interface, kind fleet.Kind, changed chan<- struct{}, trouble *complaints) (cache.SharedIndexInformer, error) {
	k := w.kind(client, kind)
	source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = k.selector
			return k.list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = k.selector
			return k.watch(ctx, o)
		},
	}, client)
	informer := cache.NewSharedIndexInformer(source, k.object, 0, cache.Indexers{})
	tell := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { tell() }, UpdateFunc: func(any, any) { tell() }, DeleteFunc: func(any) { tell() },
	})
	return informer, errors.Join(err,
		informer.SetTransform(withoutManagers),
		informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { trouble.hear(kind, err) }))
}

// withoutManagers drops who wrote which field: half of an object.
func withoutManagers(o any) (any, error) {
	if m, err := meta.Accessor(o); err == nil {
		m.SetManagedFields(nil)
	}
	return o, nil
}

// complaints says of each kind what is wrong with its watch, the same thing once.
// Safe for concurrent use.
type complaints struct {
	end func(error)

	mu   sync.Mutex // guards those below
	to   io.Writer
	said map[fleet.Kind]string
}

// hear ends the watch where the user may not watch any more.
func (c *complaints) hear(kind fleet.Kind, err error) {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		c.end(&forbiddenError{kind: kind, err: err})
		return
	}
	// The server closes every watch after a time, and forgets old versions.
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.said[kind] == err.Error() {
		return
	}
	if c.said == nil {
		c.said = map[fleet.Kind]string{}
	}
	c.said[kind] = err.Error()
	fmt.Fprintf(c.to, "warning: the watch of %s broke off and is tried again: %s\n", kind, terminal.Visible(err.Error()))
}

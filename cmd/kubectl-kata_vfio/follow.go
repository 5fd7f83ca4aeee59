package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// settling is the time that a change waits for further ones: a claim that is allocated is written several times
// within milliseconds.
const settling = 150 * time.Millisecond

// follow watches the wanted kinds, except missing ones, and shows the state whenever it has changed, until ctx
// ends, which is not an error. It lists each kind once and watches it from there. If the API server goes away, it
// retries with growing pauses and reports that on warnings.
func (w *want) follow(ctx context.Context, client lister, missing map[fleet.Kind]string, warnings io.Writer, show func(*fleet.State) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	// One token is enough: it says that something changed, and the state is read from the stores afterwards.
	changed := make(chan struct{}, 1)
	informers := map[fleet.Kind]cache.SharedIndexInformer{}
	var synced []cache.InformerSynced
	var running sync.WaitGroup
	// Deferred calls run last to first: the informers are told to end before their end is awaited.
	defer running.Wait()
	defer cancel(nil)
	trouble := &complaints{to: warnings, needs: w.needs, end: cancel, changed: changed, lost: map[fleet.Kind]string{}}
	for _, kind := range slices.Concat(w.needs, w.also) {
		if _, lacks := missing[kind]; lacks {
			continue
		}
		informer, err := w.informer(client, kind, changed, trouble)
		if err != nil {
			return fmt.Errorf("watch %s: %w", kind, err)
		}
		// A kind that the user may not list or watch never syncs, and would keep the others from being shown.
		settled := func() bool { return informer.HasSynced() || trouble.hasLost(kind) }
		informers[kind], synced = informer, append(synced, settled)
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return ended(ctx)
	}
	for {
		lost := trouble.allLost()
		maps.Copy(lost, missing)
		state := w.state(lost)
		for kind, informer := range informers {
			if lost[kind] != "" {
				continue
			}
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

// await waits for a change and for further ones soon after it; false if ctx ends first.
func await(ctx context.Context, changed <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-changed:
	}
	select {
	case <-ctx.Done():
		return false
	// A pod's start changes the claim, the pod and its Events within moments: they make one picture.
	case <-time.After(settling):
	}
	select {
	case <-changed:
	default:
	}
	return true
}

// ended is nil if the user ended the watch.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

func (w *want) informer(client lister, kind fleet.Kind, changed chan<- struct{}, trouble *complaints) (cache.SharedIndexInformer, error) {
	k := w.kind(client, kind)
	// A client that can't stream a list (WatchList), as client-go's fake ones, says so itself.
	source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: k.list, WatchFuncWithContext: k.watch,
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
		informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { trouble.add(kind, err) }))
}

// withoutManagers drops the managed fields, which are half of an object.
func withoutManagers(o any) (any, error) {
	if m, err := meta.Accessor(o); err == nil {
		m.SetManagedFields(nil)
	}
	return o, nil
}

// complaints reports the problem of each kind's watch, the same one once. Safe for concurrent use.
type complaints struct {
	// needs are the kinds that are required.
	needs   []fleet.Kind
	end     func(error)
	changed chan<- struct{}

	mu   sync.Mutex // guards those below
	to   io.Writer
	said map[fleet.Kind]string
	// lost are the kinds that may not be watched, with the reason.
	lost map[fleet.Kind]string
}

// add ends the watch if the user may no longer watch a required kind, or is no longer authenticated. Without
// another kind the watch continues.
func (c *complaints) add(kind fleet.Kind, err error) {
	switch {
	case apierrors.IsUnauthorized(err):
		c.end(fmt.Errorf("watch %s: the API server no longer accepts your credentials, for example because a token expired; log in again: %w", kind, err))
	case apierrors.IsForbidden(err) && slices.Contains(c.needs, kind):
		c.end(&forbiddenError{kind: kind, err: err})
	case apierrors.IsForbidden(err):
		c.lose(kind)
	// The server closes every watch after a time, and forgets old versions.
	case errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
	default:
		c.say(kind, "the watch ended and is retried: "+err.Error())
	}
}

// lose notes a kind as missing.
func (c *complaints) lose(kind fleet.Kind) {
	const why = "it is not permitted to watch them"
	c.mu.Lock()
	c.lost[kind] = why
	c.mu.Unlock()
	c.say(kind, "the command continues without them: "+why)
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *complaints) hasLost(kind fleet.Kind) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost[kind] != ""
}

func (c *complaints) allLost() map[fleet.Kind]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.lost)
}

func (c *complaints) say(kind fleet.Kind, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.said[kind] == text {
		return
	}
	if c.said == nil {
		c.said = map[fleet.Kind]string{}
	}
	c.said[kind] = text
	fmt.Fprintf(c.to, "warning: the watch of %s %s\n", kind, output.Visible(text))
}

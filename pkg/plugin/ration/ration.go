// Package ration limits the Events about each tenant, so that one tenant neither fills the common limit nor hides the others.
package ration

import (
	"sync"
	"time"
)

// maxNamespaces bounds what is remembered: tenants make namespaces as they please.
const maxNamespaces = 4096

// Ration lets each namespace have Burst things at once, and one in each Pause after
// that. It counts what it left out. Its methods may be called from several
// goroutines. A zero Burst lets nothing through.
type Ration struct {
	Burst int
	Pause time.Duration
	// Now is the clock; nil is time.Now.
	Now func() time.Time

	mu      sync.Mutex // guards buckets
	buckets map[string]*bucket
}

// bucket is the token bucket of one namespace.
type bucket struct {
	tokens  float64
	filled  time.Time
	leftOut int
}

// Take asks for one thing. Where it is granted, leftOut is how many were not since
// the last one that was.
func (r *Ration) Take(namespace string) (granted bool, leftOut int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.bucketOf(namespace)
	if b.tokens < 1 {
		b.leftOut++
		return false, 0
	}
	b.tokens--
	leftOut, b.leftOut = b.leftOut, 0
	return true, leftOut
}

// Return undoes a Take that was granted and of no use, with what it left out.
func (r *Ration) Return(namespace string, leftOut int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.bucketOf(namespace)
	b.tokens, b.leftOut = b.tokens+1, b.leftOut+leftOut
}

// bucketOf returns a namespace's bucket, filled up to now. The lock is held.
func (r *Ration) bucketOf(namespace string) *bucket {
	now := r.clock()
	b := r.buckets[namespace]
	if b == nil {
		r.makeRoom(now)
		b = &bucket{tokens: float64(r.Burst), filled: now}
		r.buckets[namespace] = b
	}
	b.tokens = min(float64(r.Burst), b.tokens+now.Sub(b.filled).Seconds()/r.Pause.Seconds())
	b.filled = now
	return b
}

// makeRoom forgets namespaces without a difference to new ones when there are too
// many, and all of them when that is not enough. The lock is held.
func (r *Ration) makeRoom(now time.Time) {
	if r.buckets == nil {
		r.buckets = map[string]*bucket{}
	}
	if len(r.buckets) < maxNamespaces {
		return
	}
	for name, b := range r.buckets {
		if b.leftOut == 0 && now.Sub(b.filled) > time.Duration(r.Burst)*r.Pause {
			delete(r.buckets, name)
		}
	}
	if len(r.buckets) >= maxNamespaces {
		clear(r.buckets)
	}
}

func (r *Ration) clock() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}

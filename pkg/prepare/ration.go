package prepare

import (
	"sync"
	"time"
)

// maxNamespaces limits the memory, because tenants can create any number of namespaces.
const maxNamespaces = 4096

// Ration limits the Events and records about each namespace, so that one tenant neither uses up the common limit nor
// hides the records of others. It admits Burst items of each namespace at once, then one item per Pause. It counts the
// items that it refuses. It is safe for concurrent use. If Burst is zero, it admits nothing.
type Ration struct {
	Burst int
	Pause time.Duration

	mu      sync.Mutex // guards buckets
	buckets map[string]*bucket
}

// bucket is the token bucket of one namespace.
type bucket struct {
	tokens  float64
	filled  time.Time
	leftOut int
}

// Take asks to admit one item. If the item is granted, leftOut is the number of items that were refused since the last
// granted one.
func (r *Ration) Take(namespace string) (granted bool, leftOut int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.bucket(namespace)
	if b.tokens < 1 {
		b.leftOut++
		return false, 0
	}
	b.tokens--
	leftOut, b.leftOut = b.leftOut, 0
	return true, leftOut
}

// Return undoes a granted Take that was not used, and restores its leftOut.
func (r *Ration) Return(namespace string, leftOut int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.bucket(namespace)
	b.tokens, b.leftOut = b.tokens+1, b.leftOut+leftOut
}

// bucket returns a namespace's bucket, refilled. The lock is held.
func (r *Ration) bucket(namespace string) *bucket {
	// time.Now has a monotonic reading (package time), so a step of the node's clock grants nothing.
	now := time.Now()
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

// makeRoom drops buckets if there are too many: first those that are full again and refused nothing, and all buckets if
// that is not enough. The lock is held.
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
		// Each namespace gets its full burst again. Bounded memory costs more records here, never fewer.
		clear(r.buckets)
	}
}

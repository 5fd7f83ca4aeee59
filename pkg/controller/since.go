package controller

import (
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
)

// firstSeen remembers when this process first saw the present state of each rule, by its own clock. This is later than the API
// server had the state, and depends on no other machine's clock. It is safe for concurrent use.
type firstSeen struct {
	mu sync.Mutex
	of map[seenKey]twin.Millis
}

// seenKey is one state of a rule: the generation changes with selector and taint, and not with annotations or status.
type seenKey struct {
	uid        types.UID
	generation int64
}

// since returns when this process first saw the present state of the rule. If it sees this state for the first time, that is
// now.
func (c *Controller) since(r *resourceapi.DeviceTaintRule) twin.Millis {
	c.seen.mu.Lock()
	defer c.seen.mu.Unlock()
	key := seenKey{r.UID, r.Generation}
	if at, ok := c.seen.of[key]; ok {
		return at
	}
	now := c.millis()
	c.seen.of[key] = now
	return now
}

// forget drops a rule that is gone.
func (c *Controller) forget(r *resourceapi.DeviceTaintRule) {
	c.seen.mu.Lock()
	defer c.seen.mu.Unlock()
	for key := range c.seen.of {
		if key.uid == r.UID {
			delete(c.seen.of, key)
		}
	}
}

package prepare

import (
	"sync"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/ration"
)

// refusals remembers why claims were refused last, so that the kubelet's
// repetitions of one refusal, every minute or so, are one event.
type refusals struct {
	mu   sync.Mutex // guards last
	last map[string]string
}

// maxRefusals bounds what is remembered: tenants make claims as they please.
const maxRefusals = 4096

// refusalRation is how many refusals of one namespace are written: a tenant makes
// refused claims as fast as it likes, and they must not fill the ledger. It is some
// 1,500 a day.
func refusalRation() *ration.Ration { return &ration.Ration{Burst: 20, Pause: time.Minute} }

// repeats enters a refusal, and reports whether the claim's last was the same.
func (r *refusals) repeats(uid, reason string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last[uid] == reason {
		return true
	}
	if r.last == nil || len(r.last) >= maxRefusals {
		r.last = map[string]string{}
	}
	r.last[uid] = reason
	return false
}

// forget forgets a claim's, which was prepared or has ended.
func (r *refusals) forget(uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, uid)
}

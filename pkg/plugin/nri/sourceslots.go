package nri

import "sync"

const (
	// ofTenant is how many look-ups of one tenant may be in progress, so that a tenant whose file systems hang does not use up the slots of
	// the others.
	ofTenant = 8
	// ofAll bounds the look-ups of all tenants: each look-up that hangs keeps a thread, and the Go runtime ends a program with 10,000
	// threads.
	ofAll = 512
)

// slots counts the look-ups in progress by tenant.
type slots struct {
	mu   sync.Mutex // guards below
	used map[string]int
	all  int
}

// take reports whether one more may begin.
func (s *slots) take(tenant string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[tenant] >= ofTenant || s.all >= ofAll {
		return false
	}
	s.used[tenant]++
	s.all++
	return true
}

func (s *slots) give(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.used[tenant]--; s.used[tenant] == 0 {
		delete(s.used, tenant)
	}
}

package journal

import "sync/atomic"

// Cached returns how many decoded files the store keeps.
func (s *Store) Cached() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.cache)
}

// CountSyncs returns the number of syncs of the store's directory from now on.
// Call it before calls that sync.
func (s *Store) CountSyncs() *atomic.Int32 {
	count, sync := &atomic.Int32{}, s.entries.fsync
	s.entries.fsync = func(dir string) error {
		count.Add(1)
		return sync(dir)
	}
	return count
}

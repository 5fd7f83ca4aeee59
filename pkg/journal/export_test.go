package journal

// Cached returns how many decoded files the store keeps.
func (s *Store) Cached() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.cache)
}

// CountSyncs returns the number of syncs of the store's directory from now on.
func (s *Store) CountSyncs() *int {
	count, sync := 0, s.entries.fsync
	s.entries.fsync = func(dir string) error {
		count++
		return sync(dir)
	}
	return &count
}

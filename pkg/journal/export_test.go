package journal

// Cached returns how many decoded files the store keeps.
func (s *Store) Cached() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.cache)
}

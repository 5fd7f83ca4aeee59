package bench

import "testing"

// sized returns the size of what a benchmark measures. With -short, where `make unit` runs each benchmark once to see that it
// still does, it is a small one, whose figures say nothing.
func sized[T any](full, short T) T {
	if testing.Short() {
		return short
	}
	return full
}

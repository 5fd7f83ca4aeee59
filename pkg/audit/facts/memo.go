package facts

import "sync"

// Memo returns what make gave for the key, which it is asked once: what a reader
// outside of this package made of many files. Keys are of a type of the reader's
// own.
func Memo[T any](n *Node, key any, make func() T) T {
	once, _ := n.memo.LoadOrStore(key, sync.OnceValue(func() any { return make() }))
	return once.(func() any)().(T)
}

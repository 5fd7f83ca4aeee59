package ledger

import (
	"math/bits"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// Chain is the state of a ledger behind some of its lines: all that is needed
// to append the next one, however many there were. The zero value is the
// beginning. It is a value: a copy goes its own way.
type Chain struct {
	// Size is the number of events, and the next one's Seq.
	Size int64
	// Last is the leaf hash of the last event, which the next one has as Prev.
	Last tlog.Hash
	// frontier are the roots of the perfect subtrees that the tree is made of,
	// largest first: one for each bit that is set in Size (RFC 6962, section 2.1).
	frontier []tlog.Hash
}

// Extend returns the chain with one more event of that leaf hash.
func (c Chain) Extend(leaf tlog.Hash) Chain {
	frontier := slices.Clone(c.frontier)
	node := leaf
	for range bits.TrailingZeros64(^uint64(c.Size)) {
		last := len(frontier) - 1
		node, frontier = tlog.NodeHash(frontier[last], node), frontier[:last]
	}
	return Chain{Size: c.Size + 1, Last: leaf, frontier: append(frontier, node)}
}

// Root returns the tree's root hash.
func (c Chain) Root() tlog.Hash {
	if c.Size == 0 {
		empty, _ := tlog.TreeHash(0, nil) // which reads nothing
		return empty
	}
	last := len(c.frontier) - 1
	root := c.frontier[last]
	for _, left := range slices.Backward(c.frontier[:last]) {
		root = tlog.NodeHash(left, root)
	}
	return root
}

// Checkpoint returns the checkpoint of the chain's events.
func (c Chain) Checkpoint(origin string) Checkpoint {
	return Checkpoint{Origin: origin, Size: c.Size, Root: c.Root()}
}

// equal reports whether both stand behind the same events.
func (c Chain) equal(o Chain) bool {
	return c.Size == o.Size && c.Last == o.Last && slices.Equal(c.frontier, o.frontier)
}

// fits reports whether the frontier is one of a tree of that size.
func (c Chain) fits() bool {
	return c.Size >= 0 && len(c.frontier) == bits.OnesCount64(uint64(c.Size)) && (c.Size > 0 || c.Last == tlog.Hash{})
}

// Package ledger is the node's tamper-evident history: who held which device,
// when, in which VM, isolated how, and cleaned by what. It reads, verifies and
// proves; package ledger/writer appends. It never writes, and knows a ledger as
// an [io/fs.FS]: a directory of a live node, or one in an archive.
package ledger

// DefaultDir is where a node's ledger lies unless the plugin was told otherwise
// (--ledger-dir), below the node's root.
const DefaultDir = "var/lib/kata-vfio/ledger"

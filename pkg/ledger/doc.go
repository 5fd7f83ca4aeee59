// Package ledger is the node's tamper-evident history: who held which device,
// when, in which VM, isolated how, and cleaned by what. It reads, verifies and
// proves; package ledger/writer appends. It never writes, and knows a ledger as
// an [io/fs.FS]: a directory of a live node, or one in an archive.
package ledger

package journal

// DefaultDir is where a node's journal lies unless the plugin was told otherwise, below the node's root.
const DefaultDir = "var/lib/kata-vfio/journal"

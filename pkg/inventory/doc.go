// Package inventory reads what a node has: every PCI function with its place,
// binding, IOMMU group and children, what on the node needs it, and the facts
// of the host. [Scan] reads all of it, [Rescan] what has changed, and a
// [Watcher] keeps a snapshot up to date by the kernel's uevents.
//
// A function that goes away while it is read is left out. Whatever else can't
// be read fails the scan: a node that is half read looks like a node with free
// devices.
package inventory

// Package frames sends and hears raw Ethernet frames, with whatever source address and VLAN tags: what a tenant can do who
// is root in a VM, and what a listener on the wire sees of it.
package frames

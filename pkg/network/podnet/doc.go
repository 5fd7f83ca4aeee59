// Package podnet puts a VF's network interface into a pod's network namespace,
// configured, from where Kata takes it as a physical endpoint: the function to
// the VM, and the interface's name, MTU, addresses and routes into the guest.
//
// The kernel keeps the interface with its function: when the function leaves
// its driver, as it does for Kata, the interface is gone, and when the
// namespace is gone the interface is back in the node's.
package podnet

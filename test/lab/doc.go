// Package lab boots a machine with a real kernel, an IOMMU, SR-IOV network interfaces and GPU stand-ins, and runs
// commands in it. The machine is QEMU with software emulation (no KVM is needed) and Debian's kernel and root, from
// package image; what is plugged into it is a topology.Topology.
//
// A machine belongs to the process that started it: it ends with its context, with Stop, and with the process,
// however that ends. Everything it writes is in one temporary directory, except the cached image.
package lab

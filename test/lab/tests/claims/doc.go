// Package claims holds the guest tests of the main job: a claim becomes functions bound to VFIO, a CDI spec and a
// device in a VM, and is taken back, on a real kernel.
package claims

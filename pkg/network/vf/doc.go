// Package vf reads and changes what a PF imposes on its VFs: addresses, VLANs,
// rates, spoof checking, trust and link state. They live in the PF, so that they
// hold for a VF on vfio-pci as well, and for the guest behind it.
//
// Every change is read back: a driver may take a setting and do another thing.
package vf

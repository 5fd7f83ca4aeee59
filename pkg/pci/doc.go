// Package pci holds the words of PCI: addresses, ids, class codes and the
// capabilities found in a function's configuration space. It parses, prints
// and compares; it reads nothing.
//
// Layouts follow the PCI Local Bus and PCI Express Base specifications; the
// constants are those of Linux's include/uapi/linux/pci_regs.h.
package pci

// Package nested starts a VM inside the lab machine and gives it the devices of a claim, as Kata would: from the
// device nodes of a CDI spec, each function behind a PCIe root port of its own. The VM's first process is the lab's
// own; it loads drivers, says what it sees, and does what it is asked to until it is stopped.
//
// The package works on the lab machine only: it finds the VM's kernel, drivers and first process where the machine
// has them.
package nested

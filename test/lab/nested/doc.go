// Package nested starts a VM inside the lab machine and gives it the devices of a claim, as Kata's Go runtime (4.1.0) does
// at a cold plug: from the device nodes of a CDI spec, the first function of a group or the one of a cdev, each behind a
// PCIe root port of its own, and with an iommufd object of its own if it has a cdev. The VM's first process is the lab's
// own; it loads drivers, says what it sees, and does what it is asked to until it is stopped.
//
// The package works on the lab machine only: it finds the VM's kernel, drivers and first process where the machine
// has them.
package nested

// Package eswitch holds guest tests of what PFs impose on VFs against netdevsim, the kernel's simulated NIC: it has the
// settings that the machine's igb lacks, and an eswitch with both modes.
package eswitch

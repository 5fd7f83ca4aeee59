// Package nestedvm has guest tests of the nested VM: a VF and a GPU stand-in, given to it by VFIO, work inside.
package nestedvm

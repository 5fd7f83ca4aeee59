// Package vfio knows the user's side of VFIO: which device nodes lead to a
// function, which processes have them open, and the reset that takes several
// functions at once.
//
// Layouts and numbers are those of Linux's include/uapi/linux/vfio.h.
package vfio

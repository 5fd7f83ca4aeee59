// Package sysfs reads a node's /sys, /proc, /dev and /lib below one root
// directory: "/" on a live node, "/host" in a container, or a captured tree.
// It never writes; package sysfs/control does.
//
// Everything stays below that root, by openat2(2) or an [os.Root]: links are
// followed as the kernel wrote them, relative ones, and a link or ".." that leaves
// the root is an error, so a captured tree can't point at the node that looks at it.
//
// Errors wrap the file system's own and name the path below the root;
// errors.Is with [fs.ErrNotExist] tells an attribute that is absent from one
// that could not be read.
package sysfs

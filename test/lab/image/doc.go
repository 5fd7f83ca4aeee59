// Package image builds what the lab machine boots: a Debian root with QEMU, the distribution's kernel,
// its VFIO modules as shipped (legacy group nodes only) and rebuilt (iommufd and device nodes too).
//
// All of it comes from Debian's archive, verified by Debian's keyring; nothing but the package tools is
// installed on the host. A built image is a directory named by the hash of this package's source, so a
// changed recipe is another image, and a directory with that name is always complete: it is built beside it
// and renamed.
package image

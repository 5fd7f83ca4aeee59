// Package bench measures kata-vfio against the kernel's own time, other tools and bare reads, always as a ratio of
// two things timed side by side in one run: machines differ and are shared. `make bench` runs it; with the build tag
// labhost it includes what needs the lab machine.
package bench

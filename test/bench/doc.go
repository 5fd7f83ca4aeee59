// Package bench measures kata-vfio against the kernel's own time, other tools and bare reads, always as a ratio of
// two things timed side by side in one run: machines differ and are shared. `make bench` runs it; with the build tag
// labhost it includes what needs the lab machine, with e2e what needs a cluster: there the plugin's memory is set
// against that of an idle client, its calls of the API server are counted, and what runtimes wait for is timed.
package bench

// Package bench measures kata-vfio against the kernel's own time, other tools and bare reads. Each result is a ratio of two
// things that are timed side by side in one run, because machines differ and are shared. `make bench` runs the benchmarks. With
// the build tag labhost they include those that need the lab machine, and with e2e those that need a cluster. The latter
// compare the plugin's memory with that of an idle client, count its calls of the API server, and time what runtimes wait for.
package bench

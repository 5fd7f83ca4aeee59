// Command release makes what is released of programs that are built: an archive of each program with its man page,
// completions and licenses, the chart, packages for Debian and for what uses RPM, an SBOM, and the checksums of all. It
// asks no network. The same tree and the same programs make the same bytes, wherever and whenever.
//
//	release -programs bin/programs -version 1.2.3 -guest show-in-guest -o bin/release
//	release -chart-only -version 1.2.3 -helm helm -o bin/chart      the chart and its manifest alone, for tests
//
// The programs lie in a directory for each processor, bin/programs/amd64/show. Everything else that there is to know
// of them they say themselves: the commit and its time, their modules, how they were compiled, and their help.
package main

import "github.com/kata-vfio/kata-vfio/test/tools/release/commandline"

func main() { commandline.Run("release", parse) }

// Command kata-vfio-controller keeps GPUs that kata-vfio shares with another DRA driver from two consumers, runs the
// sanitizing stages of devices between two tenants, and registers the tenants of exclusive domains.
package main

import "github.com/kata-vfio/kata-vfio/pkg/cli/command"

func main() {
	command.Main(command.Tree(newCommand), command.Fail("kata-vfio-controller", command.ExitCode))
}

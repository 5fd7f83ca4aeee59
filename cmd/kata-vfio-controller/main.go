// Command kata-vfio-controller keeps GPUs that kata-vfio shares with another DRA driver from two consumers, and runs the
// sanitizing stages of devices between two tenants.
package main

import "github.com/kata-vfio/kata-vfio/pkg/cli/command"

func main() {
	command.Main(command.Tree(newCommand), command.Fail("kata-vfio-controller", command.ExitCode))
}

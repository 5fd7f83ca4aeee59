// Command kata-vfio-controller keeps a GPU that kata-vfio shares with another DRA driver from getting two consumers. It also
// runs the sanitizing stages of devices between two tenants, registers the tenants of exclusive domains, reserves these
// domains, publishes which DeviceClasses tenants have, and counts GPUs for KAI.
package main

import "github.com/kata-vfio/kata-vfio/pkg/cli/command"

func main() {
	command.Main(command.Tree(newCommand), command.Fail("kata-vfio-controller", command.ExitCode))
}

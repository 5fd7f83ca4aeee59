// Command guest is the first process of a Kata VM in the lab: it loads the drivers of its initramfs, which Debian's kernel has as
// modules, and becomes Kata's agent.
package main

import (
	"fmt"
	"os"
	"syscall"

	"github.com/kata-vfio/kata-vfio/test/lab/guest/boot"
)

// agent is where the initramfs has Kata's agent.
const agent = "/usr/bin/kata-agent"

func main() {
	err := boot.LoadModules()
	if err == nil {
		err = syscall.Exec(agent, []string{agent}, os.Environ())
	}
	fmt.Fprintln(os.Stderr, "guest:", err)
	os.Exit(1)
}

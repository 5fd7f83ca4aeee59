// Command machine is the first process of the lab machine, three times over: in the initramfs it stacks the root
// from its layers and moves there; in the root it mounts, loads drivers and sets up the network; and its child, the
// agent, runs the commands that come from outside.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/kata-vfio/kata-vfio/test/lab/guest/boot"
)

// The stages, by the first argument.
const (
	stageRoot  = "root"
	stageAgent = "agent"
)

// self is where the binary lies in the machine's root.
const self = "/usr/libexec/kata-vfio-lab/machine"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "LAB FAILED: %v\n", err)
		if os.Getpid() == 1 {
			err = boot.Restart() // QEMU ends, and the outside reads the console
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
}

func run(args []string) error {
	stage := ""
	if len(args) > 0 {
		stage = args[0]
	}
	switch stage {
	case stageRoot:
		return inRoot()
	case stageAgent:
		return agent(context.Background())
	default:
		return inInitramfs()
	}
}

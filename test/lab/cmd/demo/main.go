// Command demo shows the main job end to end in the lab machine: a claim becomes devices in a VM, and is taken back.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run())
}

// run plays the demo and returns the exit code.
func run() int {
	bin := flag.String("bin", "bin", "the folder of the built commands")
	picture := flag.String("picture", "bin/topology.svg", "where to put the drawing of the machine's PCIe tree")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	d := newDemo(os.Stdout, *bin, *picture)
	if err := d.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	return 0
}

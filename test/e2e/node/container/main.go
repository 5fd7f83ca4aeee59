// Command container is all that the lab node's images have. As "pause" it holds a sandbox's namespaces; as "show" it
// prints what its pod's VM sees, one JSON object on a line, and waits. As "hold" it opens a file, says so, and waits.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// report is where runcvm shows a container what the VM of its sandbox sees.
const report = "/vm/report.json"

func main() {
	// A first process of a PID namespace gets only the signals that it asks for.
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "show" {
		text, err := os.ReadFile(report)
		if err != nil {
			return fmt.Errorf("show what the VM sees: %w", err)
		}
		fmt.Printf("%s\n", text)
	}
	if len(args) > 1 && args[0] == "hold" {
		f, err := os.OpenFile(args[1], os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		fmt.Println("held")
	}
	<-ctx.Done()
	return nil
}

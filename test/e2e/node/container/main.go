// Command container is all that the lab node's images have. As "pause" it holds a sandbox's namespaces; as "show" it
// prints what its pod's VM sees, one JSON object on a line, and waits. As "hold" it opens a file, says so, and waits. As
// "environ" it prints a process' environment, a variable on a line, by its file in /proc, and ends.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/test/lab/guest/look"
)

// report is where runcvm shows a container what the VM of its sandbox sees. Without it the container is in the VM.
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
	if len(args) > 0 && (args[0] == "show" || args[0] == "look") {
		text, err := see()
		if err != nil {
			return fmt.Errorf("show what the VM sees: %w", err)
		}
		fmt.Printf("%s\n", text)
		if args[0] == "look" {
			return nil
		}
	}
	if len(args) > 1 && args[0] == "environ" {
		text, err := os.ReadFile(args[1])
		fmt.Printf("%s", bytes.ReplaceAll(text, []byte{0}, []byte("\n")))
		return err
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

// see is what the pod's VM sees, as JSON: told by runcvm, or seen from inside.
func see() ([]byte, error) {
	text, err := os.ReadFile(report)
	if !errors.Is(err, fs.ErrNotExist) {
		return bytes.TrimSpace(text), err
	}
	seen, err := look.Report()
	if err != nil {
		return nil, err
	}
	return json.Marshal(seen)
}

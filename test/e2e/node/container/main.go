// Command container is all that the lab node's images have. As "pause" it holds a sandbox's namespaces; as "show" it
// prints what its pod's VM sees, one JSON object on a line, and waits. As "hold" it opens a file, says so, and waits. As
// "environ" it prints a process' environment, a variable on a line, by its file in /proc, and ends. As "print" it prints a file, and ends. As "sanitized" it answers for a
// sanitizer, by the ids of a device, that the device is clean, and ends. As "write" it writes a text into the memory of its pod's GPU, as
// "read" it prints how many bytes are there that are not zero, and the text that they begin with, and as "sanitize" it runs
// kata-vfio-sanitize with its arguments: these three work in the VM, by the socket of runcvm, and end.
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
	"slices"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
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
	if len(args) > 0 && slices.Contains([]string{"write", "read", "sanitize"}, args[0]) {
		return inVM(ctx, args[0], args[1:])
	}
	if len(args) > 1 && args[0] == "environ" {
		text, err := os.ReadFile(args[1])
		fmt.Printf("%s", bytes.ReplaceAll(text, []byte{0}, []byte("\n")))
		return err
	}
	if len(args) > 1 && args[0] == "print" {
		text, err := os.ReadFile(args[1])
		fmt.Printf("%s", text)
		return err
	}
	if len(args) > 2 && args[0] == "sanitized" {
		return answer(args[1], args[2])
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

// answer writes the result of a sanitizer that found the device clean. The containers of runcvm are not in the VM, so that nothing
// is wiped: the lab's own tests wipe.
func answer(vendor, device string) error {
	result := &sanitize.Result{
		APIVersion: sanitize.APIVersion, Kind: sanitize.Kind, Verdict: sanitize.Clean, Device: &sanitize.Device{Vendor: vendor, Device: device},
		Checks: []sanitize.Check{{Name: "bar0", Method: "None", Verdict: sanitize.Clean, Bytes: 1, Seconds: 1}},
	}
	text, err := result.Encode()
	if err != nil {
		return err
	}
	return os.WriteFile("/dev/termination-log", text, 0o600)
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

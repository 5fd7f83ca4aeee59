// Command kata-vfio-fabric makes one call to NVIDIA's Fabric Manager, through NVIDIA's library libnvfm.so.1, and ends. It
// reads the call from standard input and writes the answer to standard output, both as JSON. The plugin starts it for
// each call and ends it at the call's deadline, so that no library of a vendor is in the plugin, which is static.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/kata-vfio/kata-vfio/pkg/fabric/manager"
)

// soname is the library of NVIDIA's package nvidia-fabricmanager-dev.
const soname = "libnvfm.so.1"

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run makes the call, writes the answer, and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(manager.Program, flag.ContinueOnError)
	flags.SetOutput(stderr)
	library := flags.String("library", soname, "Fabric Manager's library: a name that the loader finds, or a path")
	if err := flags.Parse(args); err != nil {
		return manager.ExitRequest
	}
	answer, code := answerTo(stdin, *library)
	// A reader who went away needs no answer.
	if err := json.NewEncoder(stdout).Encode(answer); err != nil {
		fmt.Fprintln(stderr, manager.Program+": write the answer:", err)
	}
	return code
}

// mostRequest is the maximum size of a request in bytes. It is more than a request with every partition needs.
const mostRequest = 16 << 10

func answerTo(stdin io.Reader, library string) (manager.Answer, int) {
	var r manager.Request
	d := json.NewDecoder(io.LimitReader(stdin, mostRequest))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return manager.Answer{Error: "read the request: " + err.Error()}, manager.ExitRequest
	}
	if err := r.Check(); err != nil {
		return manager.Answer{Error: err.Error()}, manager.ExitRequest
	}
	return call(&r, library)
}

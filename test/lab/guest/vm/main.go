// Command vm is the first process of the nested VM: it loads the drivers of its initramfs, tells over the control
// port that it is up, and does what package protocol's requests say until it is told to power off.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/test/lab/guest/boot"
	"github.com/kata-vfio/kata-vfio/test/lab/guest/look"
	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "VM FAILED: %v\n", err)
	}
	err := boot.PowerOff()
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func run() error {
	if err := boot.All(boot.Basics()...); err != nil {
		return err
	}
	port, err := openPort()
	if err != nil {
		return err
	}
	first := protocol.Reply{}
	if err := boot.LoadModules(); err != nil {
		first.Error = err.Error()
	}
	out := json.NewEncoder(port)
	if err := out.Encode(first); err != nil {
		return err
	}
	return serve(json.NewDecoder(port), out, listeners{})
}

// openPort opens the control port as a plain stream of bytes.
func openPort() (*os.File, error) {
	port, err := os.OpenFile(protocol.Device, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	raw := unix.Termios{Cflag: unix.CS8 | unix.CREAD | unix.CLOCAL | unix.B115200}
	raw.Cc[unix.VMIN] = 1
	if err := unix.IoctlSetTermios(int(port.Fd()), unix.TCSETS, &raw); err != nil {
		return nil, fmt.Errorf("set %s up: %w", protocol.Device, err)
	}
	return port, nil
}

// serve answers requests until one says to power off.
func serve(in *json.Decoder, out *json.Encoder, all listeners) error {
	for {
		var request protocol.Request
		if err := in.Decode(&request); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read a request: %w", err)
		}
		reply, err := answer(request, all)
		if err != nil {
			reply.Error = err.Error()
		}
		if err := out.Encode(reply); err != nil {
			return fmt.Errorf("reply: %w", err)
		}
		if request.PowerOff {
			return nil
		}
	}
}

func answer(r protocol.Request, all listeners) (protocol.Reply, error) {
	switch {
	case r.Report:
		report, err := look.Report()
		return protocol.Reply{Report: report}, err
	case r.Configure != nil:
		return protocol.Reply{}, configure(*r.Configure)
	case r.Ping != nil:
		result, err := ping(*r.Ping)
		return protocol.Reply{Ping: result}, err
	case r.Run != nil:
		result, err := execute(*r.Run)
		return protocol.Reply{Run: result}, err
	case r.Frames != nil:
		heard, err := all.exchange(*r.Frames)
		return protocol.Reply{Heard: heard}, err
	case r.Bytes != nil:
		read, err := access(*r.Bytes)
		return protocol.Reply{Bytes: read}, err
	default:
		return protocol.Reply{}, nil
	}
}

// execute runs a program. That it fails is a result.
func execute(r protocol.Run) (*protocol.RunResult, error) {
	if len(r.Args) == 0 {
		return nil, errors.New("no program to run")
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(context.Background(), r.Args[0], r.Args[1:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return nil, fmt.Errorf("run %s: %w", r.Args[0], err)
	}
	return &protocol.RunResult{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}, nil
}

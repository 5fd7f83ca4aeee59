package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
)

const (
	// control is where runcvm serves a container what its VM is to do.
	control = "/vm/control.sock"
	// sanitizer is the program in the VM.
	sanitizer = "/bin/kata-vfio-sanitize"
	// message is where the kubelet reads what a container leaves.
	message = "/dev/termination-log"
	// beyondScreen is where no console draws, in a frame buffer of 16 MiB.
	beyondScreen = 8 << 20
	// shown is how many bytes "read" looks at.
	shown = 64
)

// inVM does in the pod's VM what a container of Kata does itself.
func inVM(ctx context.Context, what string, args []string) error {
	switch {
	case what == "write" && len(args) == 1:
		_, err := touch(ctx, []byte(args[0]))
		if err == nil {
			fmt.Printf("wrote %q\n", args[0])
		}
		return err
	case what == "read" && len(args) == 0:
		found, err := touch(ctx, nil)
		if err == nil {
			fmt.Println(describe(found))
		}
		return err
	case what == "sanitize":
		return runSanitizer(ctx, args)
	default:
		return fmt.Errorf("%s %q: want \"write TEXT\", \"read\", or \"sanitize\" with its arguments", what, args)
	}
}

// describe says what a piece of memory has.
func describe(memory []byte) string {
	if !bytes.ContainsFunc(memory, func(r rune) bool { return r != 0 }) {
		return fmt.Sprintf("read %d bytes: all are zero", len(memory))
	}
	text, _, _ := bytes.Cut(memory, []byte{0})
	return fmt.Sprintf("read %q", text)
}

// touch writes to the memory of the pod's GPU, and reads it.
func touch(ctx context.Context, text []byte) ([]byte, error) {
	if len(text) > shown {
		return nil, fmt.Errorf("%q has more than %d bytes", text, shown)
	}
	gpu, err := gpuInVM()
	if err != nil {
		return nil, err
	}
	file := filepath.Join("/sys/bus/pci/devices", gpu, "resource0")
	reply, err := ask(ctx, protocol.Request{Bytes: &protocol.Bytes{File: file, Offset: beyondScreen, Write: text, Read: shown}})
	if err != nil {
		return nil, fmt.Errorf("access the GPU's memory: %w", err)
	}
	return reply.Bytes, nil
}

// gpuInVM is the address of the VM's GPU.
func gpuInVM() (string, error) {
	text, err := os.ReadFile(report)
	if err != nil {
		return "", fmt.Errorf("find the GPU: %w", err)
	}
	var seen protocol.Report
	if err := json.Unmarshal(text, &seen); err != nil {
		return "", fmt.Errorf("find the GPU: read %s: %w", report, err)
	}
	i := slices.IndexFunc(seen.Functions, func(f protocol.Function) bool { return strings.HasPrefix(f.Class, "03") })
	if i < 0 {
		return "", fmt.Errorf("find the GPU: the VM has none: %s", text)
	}
	return seen.Functions[i].Address, nil
}

// runSanitizer runs kata-vfio-sanitize, leaves its result as the container's, and ends as it has ended.
func runSanitizer(ctx context.Context, args []string) error {
	reply, err := ask(ctx, protocol.Request{Run: &protocol.Run{Args: append([]string{sanitizer, "--result="}, args...)}})
	if err != nil {
		return fmt.Errorf("run %s: %w", sanitizer, err)
	}
	if reply.Run == nil {
		return errors.New("the VM has not said how the program ended")
	}
	fmt.Fprint(os.Stderr, reply.Run.Stderr)
	fmt.Print(reply.Run.Stdout)
	if err := os.WriteFile(message, []byte(strings.TrimSpace(reply.Run.Stdout)), 0o600); err != nil {
		return fmt.Errorf("leave the result: %w", err)
	}
	if reply.Run.Code != 0 {
		os.Exit(reply.Run.Code)
	}
	return nil
}

// ask has the VM do something, and waits for it or for the end of ctx.
func ask(ctx context.Context, request protocol.Request) (protocol.Reply, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", control)
	if err != nil {
		return protocol.Reply{}, err
	}
	defer conn.Close() // one request on each
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return protocol.Reply{}, errors.Join(context.Cause(ctx), err)
	}
	var reply protocol.Reply
	if err := json.NewDecoder(conn).Decode(&reply); err != nil {
		return protocol.Reply{}, errors.Join(context.Cause(ctx), err)
	}
	if reply.Error != "" {
		return protocol.Reply{}, errors.New(reply.Error)
	}
	return reply, nil
}

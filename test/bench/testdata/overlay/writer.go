// Package control, as the benchmarks build it: writes go to the scripted kernel, which is another process, so that
// its memory does not count as the plugin's.
package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

// RootWriter asks the scripted kernel on a socket.
type RootWriter struct{ socket string }

var _ Writer = (*RootWriter)(nil)

// NewWriter returns a writer for the scripted kernel that the environment names. SIGUSR1 frees the process' memory
// from then on.
func NewWriter(string) (*RootWriter, error) {
	socket := os.Getenv("KATA_VFIO_BENCH_KERNEL")
	if socket == "" {
		return nil, errors.New("KATA_VFIO_BENCH_KERNEL names no scripted kernel")
	}
	free := make(chan os.Signal, 1)
	signal.Notify(free, syscall.SIGUSR1)
	go func() {
		for range free {
			debug.FreeOSMemory()
		}
	}()
	return &RootWriter{socket: socket}, nil
}

// Close does nothing: each write has a connection of its own.
func (*RootWriter) Close() error { return nil }

// Write implements [Writer].
func (w *RootWriter) Write(path string, data []byte) error {
	conn, err := net.Dial("unix", w.socket)
	if err != nil {
		return fmt.Errorf("reach the scripted kernel: %w", err)
	}
	defer conn.Close()
	if err := json.NewEncoder(conn).Encode(map[string]any{"path": path, "data": data}); err != nil {
		return fmt.Errorf("ask the scripted kernel: %w", err)
	}
	var answer struct{ Errno syscall.Errno }
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return fmt.Errorf("hear the scripted kernel: %w", err)
	}
	if answer.Errno != 0 {
		return answer.Errno
	}
	return nil
}

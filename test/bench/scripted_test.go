//go:build e2e

package bench

import (
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// scriptedNode is a node with at least that many functions. It is not in the plugin's process: see serveKernel.
func scriptedNode(b *testing.B, functions int) *sysfstest.Kernel {
	b.Helper()
	k := sysfstest.New(b)
	k.Scale(functions)
	k.PutFile("proc/devices", "Character devices:\n 10 misc\n235 vfio\n511 vfio-dev\n\nBlock devices:\n259 blkext\n")
	if err := k.Err(); err != nil {
		b.Fatal(err)
	}
	return k
}

// serveKernel has the node react to what another process writes, as testdata/overlay/writer.go asks for it: a
// connection for each write. It returns the socket.
func serveKernel(b *testing.B, k *sysfstest.Kernel, dir string) string {
	b.Helper()
	l, err := net.Listen("unix", filepath.Join(dir, "kernel.sock"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answerWrite(k, conn)
		}
	}()
	return l.Addr().String()
}

// answerWrite does one write. A peer that hung up has ended, and its error is not ours to tell.
func answerWrite(k *sysfstest.Kernel, conn net.Conn) {
	defer conn.Close()
	var write struct {
		Path string
		Data []byte
	}
	if err := json.NewDecoder(conn).Decode(&write); err != nil {
		return
	}
	var answer struct{ Errno unix.Errno }
	if err := k.Write(write.Path, write.Data); err != nil && !errors.As(err, &answer.Errno) {
		answer.Errno = unix.EIO
	}
	_ = json.NewEncoder(conn).Encode(answer)
}

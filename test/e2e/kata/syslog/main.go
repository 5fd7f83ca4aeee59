// Command syslog is the system logger of the lab's node, which Kata's Go runtime doesn't start without: it prints what comes to
// /dev/log, a message on a line.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// socket is where syslog(3) sends messages; each is a datagram.
const socket = "/dev/log"

// maxMessage is more than the kernel lets a process send in one datagram by default.
const maxMessage = 256 << 10

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "syslog:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // which ends the read
	message := make([]byte, maxMessage)
	for {
		n, err := conn.Read(message)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", bytes.TrimRight(message[:n], "\n\x00"))
	}
}

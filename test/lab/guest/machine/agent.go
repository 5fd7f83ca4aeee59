package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/test/lab/remote"
)

// agent serves commands until the machine ends.
func agent(ctx context.Context) error {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Errorf("read the boot ID: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", fmt.Sprintf(":%d", remote.Port))
	if err != nil {
		return err
	}
	server := &remote.Server{
		BootID: strings.TrimSpace(string(id)),
		Env:    []string{"PATH=" + searchPath, "HOME=/root", "USER=root", "TERM=dumb", "LC_ALL=C.UTF-8"},
		Done:   flushHost,
	}
	return server.Serve(ctx, l)
}

// flushHost writes the host's folder back: with 9p's cache=mmap, what a command wrote there would reach the host
// some time later.
func flushHost() {
	dir, err := os.Open("/host")
	if err != nil {
		return
	}
	defer dir.Close()
	_ = unix.Syncfs(int(dir.Fd())) // the reader on the host sees the loss; a command's result is its own
}

package node

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/kata-vfio/kata-vfio/test/e2e/process"
)

// Compile builds a program of Go as a static binary for an image or a lab machine. The package is an import path. It
// needs the go command, in this tree.
func Compile(ctx context.Context, pkg, binary string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", binary, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := process.Run(cmd); err != nil {
		return fmt.Errorf("compile %s: %w\n%s", pkg, err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

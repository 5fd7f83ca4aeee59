// Package compile builds Go programs for machines and images that have nothing but the kernel.
package compile

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/kata-vfio/kata-vfio/test/e2e/process"
	"github.com/kata-vfio/kata-vfio/test/internal/tail"
)

// Static builds a program as a static binary for Linux on amd64. The package is an import path. It needs the go
// command, in this tree.
func Static(ctx context.Context, pkg, binary string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", binary, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	var said tail.Writer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := process.Run(cmd); err != nil {
		return fmt.Errorf("compile %s: %w\n%s", pkg, err, &said)
	}
	return nil
}

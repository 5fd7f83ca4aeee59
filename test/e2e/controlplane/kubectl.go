package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/kata-vfio/kata-vfio/test/e2e/process"
)

// Kubectl runs kubectl as the administrator and returns its standard output. An error quotes the standard error.
func (p *ControlPlane) Kubectl(ctx context.Context, args ...string) ([]byte, error) {
	return p.KubectlInput(ctx, nil, args...)
}

// KubectlInput is Kubectl with a standard input, as for "apply -f -".
func (p *ControlPlane) KubectlInput(ctx context.Context, input io.Reader, args ...string) ([]byte, error) {
	cmd := p.command(ctx, p.kubeconfigPath(Admin(), ""), args)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, &stdout, &stderr
	if err := process.Run(cmd); err != nil {
		return stdout.Bytes(), fmt.Errorf("run kubectl %q: %w: %s", args, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}

// KubectlAs is kubectl as somebody, for the caller to run. It finds plugins in the directory.
func (p *ControlPlane) KubectlAs(ctx context.Context, u User, plugins string, args ...string) (*exec.Cmd, error) {
	config, err := p.KubeconfigFile(u, "")
	if err != nil {
		return nil, err
	}
	cmd := p.command(ctx, config, args)
	cmd.Env = append(cmd.Env, "PATH="+plugins+":"+filepath.Dir(p.binaries.Path("kubectl"))+":"+os.Getenv("PATH"))
	return cmd, nil
}

func (p *ControlPlane) command(ctx context.Context, config string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.binaries.Path("kubectl"), args...)
	// What a person's kubectl has cached of another server at the same port, or prefers, is not for tests.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+config, "KUBECACHEDIR="+p.file("kubectl-cache"), "KUBERC=off")
	return cmd
}

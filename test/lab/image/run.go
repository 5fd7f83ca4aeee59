package image

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/kata-vfio/kata-vfio/test/e2e/process"
	"github.com/kata-vfio/kata-vfio/test/internal/tail"
)

// runner runs the commands of one build and keeps what they say in the build's log.
type runner struct {
	log io.Writer
}

// host runs a command on the host, in a mount namespace of its own: what it mounts (debootstrap mounts /proc in
// the target) is gone when it ends, however it ends, so that a broken build can be deleted.
func (r runner) host(ctx context.Context, name string, args ...string) error {
	_, err := r.run(ctx, "", nil, name, args...)
	return err
}

// chroot runs a command inside root, with /proc, and returns what it wrote to standard output.
func (r runner) chroot(ctx context.Context, root, name string, args ...string) (string, error) {
	shell := []string{"-c", `mount -t proc proc /proc 2>/dev/null; exec "$@"`, "sh", name}
	env := []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
		"INITRD=No", // the kernel package would build an initramfs nobody boots
	}
	env = append(env, proxies()...)
	return r.run(ctx, root, env, "/bin/sh", append(shell, args...)...)
}

func (r runner) run(ctx context.Context, root string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Unshareflags: syscall.CLONE_NEWNS}
	cmd.Env, cmd.Dir = env, "/"
	var stdout strings.Builder
	var said tail.Writer
	cmd.Stdout = io.MultiWriter(&stdout, &said, r.log)
	cmd.Stderr = io.MultiWriter(&said, r.log)
	line := strings.Join(append([]string{name}, args...), " ")
	_, _ = fmt.Fprintf(r.log, "+ %s\n", line) // the log is for people; a build does not fail for it
	if err := process.Run(cmd); err != nil {
		return "", fmt.Errorf("run %q: %w\n%s", line, err, &said)
	}
	return stdout.String(), nil
}

// proxies are the variables by which the host says how the archive is reached.
func proxies() []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		switch strings.ToLower(name) {
		case "http_proxy", "https_proxy", "no_proxy":
			env = append(env, kv)
		}
	}
	return env
}

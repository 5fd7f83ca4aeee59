package arch

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/board"
	"github.com/kata-vfio/kata-vfio/test/internal/apt"
)

// changes are the system calls that change a file system, except for those on files
// that had to be opened for writing first. Not all machines have all of them.
const changes = "open,openat,openat2,creat,mkdir,mkdirat,rmdir,unlink,unlinkat,rename,renameat,renameat2,link,linkat,symlink,symlinkat," +
	"truncate,ftruncate,chmod,fchmod,fchmodat,fchmodat2,chown,fchown,lchown,fchownat,mknod,mknodat,utime,utimes,utimensat,futimesat," +
	"setxattr,lsetxattr,fsetxattr,removexattr,lremovexattr,fremovexattr,mount,umount2,bind"

// writing is in the line of an open for writing, reading that of one that is not.
var (
	writing = regexp.MustCompile(`O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND|O_TMPFILE|O_PATH.*O_CREAT`)
	opening = regexp.MustCompile(`^(?:\[pid +\d+\] |\d+ +)?open(at|at2)?\(`)
)

// TestAuditWritesNothing runs the program on a read-only tree and looks at each
// of its system calls: nothing below --root is opened for writing or changed.
func TestAuditWritesNothing(t *testing.T) {
	strace := tracer(t)
	binary := filepath.Join(t.TempDir(), "kata-vfio-audit")
	build(t, binary)
	tree := board.Server(t)
	readOnly(t, tree.Root())
	out := filepath.Join(t.TempDir(), "node.tgz")
	for _, args := range [][]string{
		{"node"}, {"node", "-o", "json"}, {"node", "--candidate"}, {"devices", "--all"}, {"topology"}, {"collect", "--file", out},
	} {
		t.Run(strings.Join(args[:1], " "), func(t *testing.T) {
			calls := trace(t, strace, append([]string{binary, "--root", tree.Root()}, args...)...)
			looked, changed := below(calls, tree.Root())
			if looked < 100 {
				t.Errorf("only %d files below the root were opened: the trace does not see them", looked)
			}
			for _, call := range changed {
				t.Errorf("it would change the node: %s", call)
			}
		})
	}
	// That the trace sees who writes is part of the proof.
	calls := trace(t, strace, "/bin/sh", "-c", "cd "+tree.Root()+"/sys && : > written; mkdir "+tree.Root()+"/made; chmod 600 "+tree.Root()+"/proc/cmdline")
	if _, changed := below(calls, tree.Root()); len(changed) < 3 {
		t.Errorf("of three changes the trace shows %q", changed)
	}
}

// tracer returns strace, which is installed where it is missing.
func tracer(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("strace"); err == nil {
		return path
	}
	if err := apt.Install(t.Context(), t.Output(), "strace"); err != nil {
		t.Fatal(err)
	}
	path, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func build(t *testing.T, binary string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/kata-vfio-audit")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// readOnly takes the leave to write from everything below root, until the test
// ends. Root may write all the same, and is found by its attempts.
func readOnly(t *testing.T, root string) {
	t.Helper()
	chmod := func(set func(fs.FileMode) fs.FileMode) {
		err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.Type()&fs.ModeSymlink != 0 {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			return os.Chmod(name, set(info.Mode().Perm()))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	chmod(func(m fs.FileMode) fs.FileMode { return m &^ 0o222 })
	t.Cleanup(func() { chmod(func(m fs.FileMode) fs.FileMode { return m | 0o200 }) })
}

// trace runs a command and returns its system calls, a line each, with the paths
// of descriptors. How the command ends is no matter.
func trace(t *testing.T, strace string, command ...string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "calls")
	cmd := exec.CommandContext(t.Context(), strace, append([]string{"-f", "-y", "-qq", "-s", "4096", "--seccomp-bpf", "-e", "trace=?" + strings.ReplaceAll(changes, ",", ",?"), "-o", file}, command...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	_ = cmd.Run()
	calls, err := os.ReadFile(file)
	if err != nil || len(calls) == 0 {
		t.Fatalf("strace: %v: %s", err, &said)
	}
	return strings.Split(strings.TrimSpace(string(calls)), "\n")
}

// below counts the files below root that were opened, and returns the calls that
// change something there.
func below(calls []string, root string) (looked int, changed []string) {
	for _, call := range calls {
		if !strings.Contains(call, root) {
			continue
		}
		switch {
		case opening.MatchString(call) && !writing.MatchString(call):
			looked++
		case !strings.Contains(call, "resumed>"):
			changed = append(changed, call)
		}
	}
	return looked, changed
}

package labtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/test/lab"
	"github.com/kata-vfio/kata-vfio/test/lab/remote"
)

// FilterVariable names the environment variable whose value, a regular expression, chooses among the guest tests.
const FilterVariable = "KATA_VFIO_LAB_RUN"

const (
	// timeout is a guest package's limit. Software emulation varies; usual times are a fifth of it.
	timeout = 10 * time.Minute
	// grace is for the end of a package that ran into its timeout. One that outlives it has a thread that the kernel
	// does not let go.
	grace = 2 * time.Minute
)

var errStuck = errors.New("the tests did not end by their own timeout")

// Start boots a machine for a test and ends it with the test.
func Start(t *testing.T, c lab.Config) *lab.Machine {
	t.Helper()
	if c.Progress == nil {
		c.Progress = os.Stderr
	}
	m, err := lab.Start(t.Context(), c)
	if err != nil {
		t.Fatalf("start the lab machine: %v", err)
	}
	t.Cleanup(m.Stop)
	return m
}

// runsWithoutEnd is how often in a row a package may lose the machine before one more test has passed.
const runsWithoutEnd = 3

// Run compiles the guest tests of a package (an import path or a directory) and runs them in the machine, with
// further arguments such as -test.run=TestBind, and with -short if that is set here. Each guest test becomes a subtest of t. A machine that is lost on
// the way, which nested virtualization under emulation does now and then, is reset, and the tests that had not passed
// run again; the log says so.
func (s *Suite) Run(t *testing.T, m *lab.Machine, pkg string, args ...string) {
	t.Helper()
	p, err := compile(t.Context(), m, pkg)
	if err != nil {
		t.Fatal(err)
	}
	var passed []*result
	for fruitless := 0; ; {
		root, err := p.runToEnd(t.Context(), m, append(slices.Clone(args), skip(passed)...))
		lost := lostBy(m, err)
		if fruitless++; len(root.passed()) > 0 {
			fruitless = 0
		}
		if lost == nil || fruitless == runsWithoutEnd {
			root, err = root.after(passed), cmp.Or(lost, err)
			s.note(failuresOf(pkg, root, err))
			report(t, pkg, root, err)
			return
		}
		t.Logf("what has not passed of %s runs again: %v", pkg, lost)
		passed = append(passed, root.passed()...)
		if err := m.HardReset(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// skip is the flag by which a test program leaves out top-level tests.
func skip(tests []*result) []string {
	if len(tests) == 0 {
		return nil
	}
	names := make([]string, len(tests))
	for i, r := range tests {
		names[i] = r.name
	}
	return []string{"-test.skip=^(" + strings.Join(names, "|") + ")$"}
}

// breakLimit is for QEMU's end to become known after a connection broke.
const breakLimit = 10 * time.Second

// lostBy returns how the machine was lost, if that caused the error of a run, and nil otherwise.
func lostBy(m *lab.Machine, err error) error {
	if exit := (*remote.ExitError)(nil); err == nil || errors.As(err, &exit) {
		return m.Lost()
	}
	return m.LostWithin(breakLimit)
}

// program is a compiled test package in the machine's shared folder.
type program struct {
	name string // its folder there, and the binary in it
}

func compile(ctx context.Context, m *lab.Machine, pkg string) (*program, error) {
	dir, err := goCommand(ctx, "list", "-tags", "lab", "-f", "{{.Dir}}", pkg)
	if err != nil {
		return nil, err
	}
	p := &program{name: filepath.Base(dir) + ".test"}
	folder := filepath.Join(m.Share(), p.name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	if _, err := goCommand(ctx, "test", "-c", "-tags", "lab", "-o", filepath.Join(folder, p.name), pkg); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(folder, p.name)); err != nil {
		return nil, fmt.Errorf("package %s has no tests with the build tag lab: %w", pkg, err)
	}
	return p, copyTestdata(dir, folder)
}

func copyTestdata(from, to string) error {
	from, to = filepath.Join(from, "testdata"), filepath.Join(to, "testdata")
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.CopyFS(to, os.DirFS(from))
}

func goCommand(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, bytes.TrimSpace(errs.Bytes()))
	}
	return strings.TrimSpace(out.String()), nil
}

// runToEnd runs the program, and says what the machine's kernel is at if it does not end by its own timeout.
func (p *program) runToEnd(ctx context.Context, m *lab.Machine, args []string) (*result, error) {
	flags := p.flags(args)
	limit, err := testTimeout(flags)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeoutCause(ctx, limit+grace, errStuck)
	defer cancel()
	root, err := p.run(limited, m, flags)
	if errors.Is(err, errStuck) {
		tasks, taskErr := m.Command(ctx, "sh", "-c", "echo w > /proc/sysrq-trigger; dmesg | tail -n 200").CombinedOutput()
		err = errors.Join(fmt.Errorf("%w; the kernel's blocked tasks:\n%s", err, tasks), taskErr)
	}
	return root, err
}

// testTimeout is the last of the flags' timeouts, as for the flag package.
func testTimeout(flags []string) (limit time.Duration, err error) {
	for _, f := range flags {
		if text, ok := strings.CutPrefix(f, "-test.timeout="); ok && err == nil {
			limit, err = time.ParseDuration(text)
		}
	}
	return limit, err
}

// run runs the program in the machine, through test2json on the host.
func (p *program) run(ctx context.Context, m *lab.Machine, flags []string) (*result, error) {
	convert := exec.CommandContext(ctx, "go", "tool", "test2json", "-t")
	convert.Stderr = os.Stderr
	in, err := convert.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := convert.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := convert.Start(); err != nil {
		return nil, fmt.Errorf("start test2json: %w", err)
	}
	cmd := m.Command(ctx, "./"+p.name, flags...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/host/"+p.name, in, in
	ended := make(chan error, 1)
	go func() {
		err := cmd.Run()
		_ = in.Close() // test2json reads to the end, or is gone
		ended <- err
	}()
	root, err := collect(out, announce)
	if err == nil {
		err = <-ended
	}
	if waitErr := convert.Wait(); err == nil {
		err = waitErr
	}
	return root, err
}

func (p *program) flags(args []string) []string {
	flags := []string{"-test.v=test2json", "-test.timeout=" + timeout.String(), "-test.short=" + strconv.FormatBool(testing.Short())}
	if filter := os.Getenv(FilterVariable); filter != "" {
		flags = append(flags, "-test.run="+filter)
	}
	return append(flags, args...)
}

// announce tells the person who waits; the tests' own reports come when the package has ended.
func announce(r *result) {
	fmt.Fprintf(os.Stderr, "    guest %s: %s (%.2fs)\n", r.name, r.outcome, r.elapsed.Seconds())
}

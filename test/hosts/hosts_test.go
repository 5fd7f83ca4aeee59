package hosts_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/docs/scripted"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := scripted.RemovePrograms(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// TestReportedNodes runs the commands of all rows.
func TestReportedNodes(t *testing.T) {
	programs, err := scripted.Programs()
	if err != nil {
		t.Fatal(err)
	}
	programs = beside(t, programs)
	for family, rows := range load(t) {
		for i := range rows {
			r := &rows[i]
			t.Run(family+"/"+r.Name, func(t *testing.T) {
				t.Parallel()
				r.try(t, programs)
			})
		}
	}
}

func (r *row) try(t *testing.T, programs string) {
	if len(r.Runs)+len(r.Tests) == 0 {
		t.Fatal("the row tries nothing")
	}
	for _, test := range r.Tests {
		mustExist(t, test)
	}
	if len(r.Runs) == 0 {
		return
	}
	tree := r.Node.build(t)
	for i := range r.Runs {
		c := &r.Runs[i]
		for name, text := range c.Write {
			tree.put(name, text)
		}
		output, code := c.execute(t, tree.root, programs)
		faults := append(c.compare(output, code), c.compareFiles(tree)...)
		switch {
		case c.Wrong == "" && len(faults) > 0:
			t.Errorf("%s\n%s\n%s", c.Command, strings.Join(faults, "\n"), output)
		case c.Wrong != "" && len(faults) == 0:
			t.Errorf("%s answers rightly now. Drop wrong: %s\n%s", c.Command, c.Wrong, output)
		}
	}
}

// compare says how the output differs from what is wanted. A wrong answer's exit code doesn't count, as the right one may be a refusal or not.
func (c *run) compare(output string, code int) []string {
	var faults []string
	if code != c.Code && c.Wrong == "" {
		faults = append(faults, fmt.Sprintf("exit code %d, want %d", code, c.Code))
	}
	said := fold(output)
	for _, words := range c.Want {
		if !strings.Contains(said, fold(words)) {
			faults = append(faults, fmt.Sprintf("%q is missing", words))
		}
	}
	for _, words := range c.Never {
		if strings.Contains(said, fold(words)) {
			faults = append(faults, fmt.Sprintf("%q must not be there", words))
		}
	}
	return faults
}

func (c *run) compareFiles(tr *tree) []string {
	var faults []string
	for name, want := range c.Leaves {
		if got := tr.text(name); got != want {
			faults = append(faults, fmt.Sprintf("%s is %q, want %q", name, got, want))
		}
	}
	return faults
}

// execute runs the command and returns what it prints, standard error included.
func (c *run) execute(t *testing.T, root, programs string) (output string, code int) {
	t.Helper()
	words := strings.Fields(c.Command)
	program := filepath.Join(programs, words[0])
	args := append([]string{"--root", root}, words[1:]...)
	for i, arg := range args {
		if file, ok := strings.CutPrefix(arg, "@"); ok { // a file of the tree, for an option that takes one of this machine
			args[i] = filepath.Join(root, file)
		}
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	if c.Live {
		cmd = chrooted(t, root, program, words[1:])
	}
	cmd.Env = []string{"HOME=/", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "COLUMNS=160"}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return strings.ReplaceAll(out.String(), root, ""), exit.ExitCode()
	}
	if err != nil {
		t.Fatalf("%s: %v", c.Command, err)
	}
	return strings.ReplaceAll(out.String(), root, ""), 0
}

// live is the program that runs by chroot.
const live = "kata-vfio-bootstrap"

// beside returns a directory of the programs in which live lies where trees do, so that a tree can have a link to it. It comes before the
// first command: a program that a process still has open for writing can't be executed, and a child has what its parent has open until it
// executes its own program.
func beside(t *testing.T, programs string) string {
	t.Helper()
	dir := t.TempDir()
	files, err := filepath.Glob(programs + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		place := filepath.Join(dir, filepath.Base(file))
		if filepath.Base(file) != live {
			err = os.Symlink(file, place)
		} else if text, unread := os.ReadFile(file); unread == nil {
			err = os.WriteFile(place, text, 0o755)
		} else {
			err = unread
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// chrooted is a command whose root is the tree. Where the test does not run as root it needs user namespaces.
func chrooted(t *testing.T, root, program string, args []string) *exec.Cmd {
	t.Helper()
	const inside = "/.program"
	if err := os.Link(program, root+inside); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), inside, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	cmd.Dir = "/"
	if id := os.Geteuid(); id != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: id, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	return cmd
}

// mustExist fails unless the package has the test.
func mustExist(t *testing.T, test string) {
	t.Helper()
	dir, name, _ := strings.Cut(test, " ")
	files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	declaration := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(name) + `\(t \*testing\.T\)`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if declaration.Match(text) {
			return
		}
	}
	t.Errorf("%s has no test %s", dir, name)
}

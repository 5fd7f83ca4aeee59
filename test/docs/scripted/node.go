// Package scripted follows documents on scripted nodes: what a document tells people to run is run by bash as it stands, where / is a tree
// of files that reads like a node.
//
// A node has the project's programs in /usr/local/bin, bash and a few tools of this machine, and stand-ins for what the node's own
// distribution would bring, which [Node.Script] makes. It needs root, or user namespaces.
package scripted

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/docs"
)

// tools are those of this machine that documents use beside bash.
const tools = "bash sh env cat ls mkdir tee cp chmod chown grep sed head tail wc tr date"

// enter makes this machine's /usr visible in the tree $1, and runs the rest as a command there.
const enter = `mount --bind -o ro /usr "$1/.host/usr" && mount --bind /dev/null "$1/dev/null" && exec chroot "$@"`

// Node is a tree of files in which commands run.
type Node struct {
	tb   testing.TB
	root string
	// Env is added to the environment of commands.
	Env []string
}

// Open makes a node of the tree. The test fails where a process may not have a root of its own.
func Open(tb testing.TB, root string) *Node {
	tb.Helper()
	if out, err := exec.CommandContext(tb.Context(), "unshare", append(namespaces(), "true")...).CombinedOutput(); err != nil {
		tb.Fatalf("run this test as root, or allow user namespaces: %v: %s", err, out)
	}
	n := &Node{tb: tb, root: root}
	for _, dir := range []string{".host/usr", "dev", "lib", "usr/bin", "usr/lib", "usr/local/bin", "root", "tmp"} {
		n.check(os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	n.Put("dev/null", "")
	n.Put("etc/passwd", "root:x:0:0:root:/root:/bin/bash\n")
	for tool := range strings.FieldsSeq(tools) {
		n.link("usr/bin/"+tool, "/.host/usr/bin/"+tool)
	}
	n.link("bin", "usr/bin")
	n.link("lib64", "/.host/usr/lib64")
	libraries, err := filepath.Glob("/usr/lib/*-linux-gnu")
	n.check(err)
	for _, dir := range libraries {
		n.link("lib/"+filepath.Base(dir), "/.host"+dir)
		n.link("usr/lib/"+filepath.Base(dir), "/.host"+dir)
	}
	n.install()
	return n
}

// install puts the project's programs into the node.
func (n *Node) install() {
	n.tb.Helper()
	dir, err := programs()
	n.check(err)
	built, err := filepath.Glob(dir + "/*")
	n.check(err)
	for _, file := range built {
		place := filepath.Join(n.root, "usr/local/bin", filepath.Base(file))
		if os.Link(file, place) != nil { // another file system
			text, err := os.ReadFile(file)
			n.check(err)
			n.check(os.WriteFile(place, text, 0o755))
		}
	}
}

// builtVariable names a directory that has the programs already.
const builtVariable = "KATA_VFIO_PROGRAMS"

// programs returns the directory of the programs, and builds them once.
//
//nolint:gochecknoglobals // linking takes longer than all tests
var programs = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(builtVariable); dir != "" {
		return dir, nil
	}
	dir, err := os.MkdirTemp("", "programs")
	if err != nil {
		return "", err
	}
	args := []string{"build", "-ldflags=-s", "-o", dir + "/"}
	for _, name := range []string{"kata-vfio-audit", "kata-vfio-bootstrap", "kata-vfio-plugin", "kubectl-kata_vfio"} {
		args = append(args, "github.com/kata-vfio/kata-vfio/cmd/"+name)
	}
	cmd := exec.CommandContext(context.Background(), "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("build the programs: %w: %s", err, out), os.RemoveAll(dir))
	}
	return dir, nil
})

// Programs returns the directory of the project's programs, linked statically. They are built once for all tests of a package.
func Programs() (string, error) { return programs() }

// RemovePrograms removes the programs of all nodes. It comes after all tests.
func RemovePrograms() error {
	if os.Getenv(builtVariable) != "" {
		return nil
	}
	dir, err := programs()
	if err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

func namespaces() []string {
	if os.Geteuid() == 0 {
		return []string{"--mount"}
	}
	return []string{"--mount", "--map-root-user"}
}

// Put writes a file of the node.
func (n *Node) Put(name, text string) { n.put(name, text, 0o644) }

// Script makes a program of the node, a script for bash.
func (n *Node) Script(name, text string) { n.put(name, "#!/bin/bash\n"+text, 0o755) }

func (n *Node) put(name, text string, mode os.FileMode) {
	n.tb.Helper()
	place := filepath.Join(n.root, name)
	n.check(os.MkdirAll(filepath.Dir(place), 0o755))
	n.check(os.WriteFile(place, []byte(text), mode))
	n.check(os.Chmod(place, mode))
}

func (n *Node) link(name, target string) {
	n.tb.Helper()
	if err := os.Symlink(target, filepath.Join(n.root, name)); !errors.Is(err, os.ErrExist) {
		n.check(err)
	}
}

func (n *Node) check(err error) {
	n.tb.Helper()
	if err != nil {
		n.tb.Fatal(err)
	}
}

// Run runs a block as root in /root, and goes on after a command that fails, as a person would. It returns what the block prints, standard
// error included, and the commands that failed, as "CODE: COMMAND".
func (n *Node) Run(block string) (output string, failed []string) {
	n.tb.Helper()
	n.Put("tmp/failed", "")
	n.Put("tmp/block", "trap 'echo \"$?: $BASH_COMMAND\" >> /tmp/failed' ERR\n"+block)
	args := append(namespaces(), "sh", "-c", enter, "sh", n.root, "/usr/bin/env", "-i", "HOME=/root", "USER=root", "LC_ALL=C",
		"PATH=/usr/local/bin:/usr/sbin:/usr/bin")
	args = append(args, n.Env...)
	cmd := exec.CommandContext(n.tb.Context(), "unshare", append(args, "bash", "-c", "cd /root; . /tmp/block; exit 0")...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		n.tb.Fatalf("%v of\n%s\n%s", err, block, out)
	}
	text, err := os.ReadFile(filepath.Join(n.root, "tmp/failed"))
	n.check(err)
	for line := range strings.Lines(string(text)) {
		failed = append(failed, strings.TrimSpace(line))
	}
	return string(out), failed
}

// Follow runs a step, in which the commands fail that are named and no others, and compares the output where the document shows one.
func (n *Node) Follow(step docs.Step, failing ...string) (output string) {
	n.tb.Helper()
	out, failed := n.Run(step.Command)
	if !slices.Equal(failed, failing) {
		n.tb.Errorf("fails with %q, want %q:\n%s%s", failed, failing, step.Command, out)
	}
	if step.Output == "" {
		return out
	}
	if err := docs.Match(step.Output, out); err != nil {
		n.tb.Errorf("%s%v", step.Command, err)
	}
	return out
}

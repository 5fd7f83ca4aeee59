package bootstrap_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

var errDead = errors.New("the process is dead")

// power is the file system of a process that is killed at one of its writes.
type power struct {
	bootstrap.Files
	root string
	// left is how many writes are done before; done counts them.
	left, done int
	// half: the fatal write has its effect (or, of a file, leaves its temporary
	// file behind) and the process dies before it knows.
	half half
	dead bool
}

// half is how far the fatal write goes.
type half int

const (
	notAtAll half = iota
	torn
	whole
)

// write does one, unless the power is gone.
func (p *power) write(work func() error) error { return p.tear(func() {}, work) }

// tear is write for what leaves something behind when it is cut off.
func (p *power) tear(leave func(), work func() error) error {
	if p.dead {
		return errDead
	}
	if p.done++; p.done <= p.left {
		return work()
	}
	p.dead = true
	switch p.half {
	case whole:
		_ = work()
	case torn:
		leave()
	case notAtAll:
	}
	return errDead
}

func (p *power) Look(name string) (state.Found, error) {
	if p.dead {
		return state.Found{}, errDead
	}
	return p.Files.Look(name)
}

func (p *power) Write(name string, content []byte, like state.Image) error {
	leave := func() {
		file := filepath.Join(p.root, filepath.Dir(name), "."+filepath.Base(name)+"4711")
		_ = os.WriteFile(file, []byte("half a"), 0o600)
	}
	return p.tear(leave, func() error { return p.Files.Write(name, content, like) })
}

func (p *power) Stage(name string, content []byte, like state.Image) (commit, discard func() error, err error) {
	err = p.write(func() (err error) {
		commit, discard, err = p.Files.Stage(name, content, like)
		return err
	})
	mortal := func(work func() error) func() error { return func() error { return p.write(work) } }
	return mortal(commit), mortal(discard), err
}

func (p *power) Symlink(name, target string) error {
	return p.write(func() error { return p.Files.Symlink(name, target) })
}

func (p *power) Remove(name string) error {
	return p.write(func() error { return p.Files.Remove(name) })
}

func (p *power) MakeDir(name string, mode fs.FileMode) error {
	return p.write(func() error { return p.Files.MakeDir(name, mode) })
}

func (p *power) RemoveDir(name string) error {
	return p.write(func() error { return p.Files.RemoveDir(name) })
}

func (p *power) Sweep(name string) error {
	return p.write(func() error { return p.Files.Sweep(name) })
}

// story is a run that is cut off, on a node that something was done to before.
type story struct {
	name   string
	before func(*node)
	run    func(*node, *bootstrap.Engine) error
}

func stories(first, second *blueprint.Blueprint) []story {
	return []story{
		{"apply", func(*node) {}, func(n *node, e *bootstrap.Engine) error {
			_, err := e.Apply(n.t.Context(), second, "")
			return err
		}},
		{"apply of another blueprint", func(n *node) { n.apply(first) }, func(n *node, e *bootstrap.Engine) error {
			_, err := e.Apply(n.t.Context(), second, "")
			return err
		}},
		{"revert", func(n *node) { n.apply(second) }, func(n *node, e *bootstrap.Engine) error {
			_, err := e.Revert(n.t.Context())
			return err
		}},
	}
}

// The process is killed at each of its writes: before it, in its middle, behind it.
// Then the next apply makes the node what an uninterrupted one makes of it, and the
// next revert what it was.
func TestKilledAtEveryPointTheNextRunFinishesOrReverts(t *testing.T) {
	first := parse(t, "kernel: {hugePages: [{size: 2Mi, count: 8}]}\nnetwork: {leaveVFsAlone: false}\n")
	second := blueprint.Default()
	for _, s := range stories(first, second) {
		t.Run(s.name, func(t *testing.T) {
			make := func() *node {
				n := newNode(t, files("Fedora"))
				n.put("proc/cmdline", "ro\n")
				n.put("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "8\n")
				return n
			}
			n := make()
			original := n.snapshot()
			n.apply(second)
			applied := n.snapshot()
			points := 0
			step := 1
			if testing.Short() {
				step = 5
			}
			for _, h := range []half{notAtAll, torn, whole} {
				for at := int(h); ; at += step {
					n := make()
					s.before(n)
					if !n.killed(s, at, h) {
						break
					}
					points++
					if _, err := n.engine().Plan(t.Context(), second); err != nil {
						t.Errorf("at write %d: plan: %v", at, err)
					}
					n.apply(second)
					n.same(applied, "after apply")
					n.revert()
					n.same(original, "after apply and revert")

					n = make()
					s.before(n)
					n.killed(s, at, h)
					n.revert()
					n.same(original, "after revert")
					if t.Failed() {
						t.Fatalf("killed at write %d (%d)", at, h)
					}
				}
			}
			t.Logf("%d points", points)
			if points < 60/step {
				t.Errorf("only %d writes", points)
			}
		})
	}
}

// killed runs the story up to a write; false if it ends before.
func (n *node) killed(s story, at int, h half) bool {
	n.t.Helper()
	p := &power{root: n.root, left: at, half: h}
	n.files = func(f bootstrap.Files) bootstrap.Files {
		p.Files = f
		return p
	}
	n.tools.before = func() error { return p.write(func() error { return nil }) }
	e := n.engine()
	e.Attributes = attributes(func(name string, data []byte) error { return p.write(func() error { return n.set(name, data) }) })
	err := s.run(n, e)
	n.files, n.tools.before = nil, nil
	if !p.dead && err != nil {
		n.t.Fatal(err)
	}
	return p.dead
}

type attributes func(string, []byte) error

func (a attributes) Write(name string, data []byte) error { return a(name, data) }

func (n *node) set(name string, data []byte) error {
	return os.WriteFile(filepath.Join(n.root, name), data, 0o644)
}

// full is a disk with room for some writes.
type full struct {
	bootstrap.Files
	room int
}

func (f *full) Write(name string, content []byte, like state.Image) error {
	if f.room--; f.room < 0 {
		return unix.ENOSPC
	}
	return f.Files.Write(name, content, like)
}

func (f *full) Stage(name string, content []byte, like state.Image) (commit, discard func() error, err error) {
	if f.room--; f.room < 0 {
		return nil, nil, unix.ENOSPC
	}
	return f.Files.Stage(name, content, like)
}

func TestFullDiskChangesNothing(t *testing.T) {
	b := blueprint.Default()
	for room := 0; ; room++ {
		n := newNode(t, files("RHEL 9"))
		n.put("proc/cmdline", "ro\n")
		before := n.snapshot()
		n.files = func(f bootstrap.Files) bootstrap.Files { return &full{f, room} }
		_, err := n.engine().Apply(t.Context(), b, "")
		n.files = nil
		if err == nil {
			if room < 10 {
				t.Errorf("all was written with room for %d", room)
			}
			return
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("with room for %d writes: %v", room, err)
		}
		if !n.filesRight(b) { // else what had no room is that a tool has run
			n.same(before, "after an apply that had no room")
		}
		n.apply(b)
		n.revert()
		n.same(before, "after a good apply and revert")
	}
}

// filesRight reports whether all files are as wanted.
func (n *node) filesRight(b *blueprint.Blueprint) bool {
	n.t.Helper()
	for _, f := range n.plan(b).Files {
		if f.Status == bootstrap.ToDo {
			return false
		}
	}
	return true
}

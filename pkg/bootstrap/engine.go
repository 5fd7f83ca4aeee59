// Package bootstrap makes a node fit for kata-vfio and takes that back: it compares
// what is wanted (a blueprint, in the words of package state) with what is on disk and
// what runs, says what it would do with a diff for each file, does it, verifies it, and
// reverts it file by file.
//
// What is done is in a journal before it is done, with the former content beside it. A
// process that is killed at any write leaves a node that the next apply or revert puts
// in order; one that fails takes back what it did. Nothing reboots.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/boot"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/containers"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/disk"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/platform"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
)

// Files are the node's files. [disk.Disk] are those of a real one.
type Files interface {
	Look(name string) (disk.Found, error)
	Write(name string, content []byte, like disk.Image) error
	Stage(name string, content []byte, like disk.Image) (commit, discard func() error, err error)
	Symlink(name, target string) error
	Remove(name string) error
	Missing(name string) ([]string, error)
	MakeDir(name string, mode fs.FileMode) error
	RemoveDir(name string) error
	Sweep(name string) error
	Writable(name string) error
	Lock(ctx context.Context, dir string) (release func(), err error)
}

// Attributes writes files of /proc and /sys.
type Attributes interface {
	Write(path string, data []byte) error
}

// Runner runs a tool of the node's to its end. The error has what the tool said.
type Runner interface {
	Run(ctx context.Context, argv []string) error
}

// Part says what one concern wants of a node. It reads and decides. The tree is the
// node without what bootstrap itself has done to it.
type Part func(tree state.Tree, b *blueprint.Blueprint, p *platform.Platform) (state.Wanted, error)

// Parts returns those of this package's own.
func Parts() []Part {
	certain := func(part func(state.Tree, *blueprint.Blueprint, *platform.Platform) state.Wanted) Part {
		return func(tree state.Tree, b *blueprint.Blueprint, p *platform.Platform) (state.Wanted, error) {
			return part(tree, b, p), nil
		}
	}
	return []Part{certain(host.Wanted), certain(boot.Wanted), containerRuntimes}
}

// containerRuntimes is package containers' part.
func containerRuntimes(tree state.Tree, b *blueprint.Blueprint, _ *platform.Platform) (state.Wanted, error) {
	return containers.Wanted(tree, b.Containers)
}

// Engine works on one node. It is not safe for concurrent use; another process is kept
// away by a lock.
type Engine struct {
	// Root is the node's root as it was given, for people.
	Root string
	// Live: the root is that of the running system. Of others nothing that runs is
	// touched.
	Live bool
	Tree state.Tree
	// Files are written by apply and revert alone.
	Files Files
	// Attributes is nil for an image.
	Attributes Attributes
	// Tools is nil where tools are to be listed and not run.
	Tools Runner
	Parts []Part
	Now   func() time.Time
	// Chart is the version of the Helm chart that has the engine run; empty where none does.
	Chart string

	close func() error
}

// Open returns the engine of the node whose root is a directory. With chrootTools the
// tools of an image are run inside it. Close it.
func Open(root string, chrootTools bool) (*Engine, error) {
	absolute, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("open the node's root: %w", err)
	}
	e := &Engine{Root: absolute, Live: absolute == "/", Parts: Parts(), Now: time.Now}
	tree, err := sysfs.Open(absolute)
	if err != nil {
		return nil, err
	}
	files, err := disk.Open(absolute)
	if err != nil {
		return nil, errors.Join(err, tree.Close())
	}
	e.Tree, e.Files = tree, files
	e.close = func() error { return errors.Join(files.Close(), tree.Close()) }
	if !e.Live {
		if chrootTools {
			e.Tools = command{root: absolute}
		}
		return e, nil
	}
	attributes, err := control.NewWriter(absolute)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	closeRest := e.close
	e.Attributes, e.Tools = attributes, command{root: "/"}
	e.close = func() error { return errors.Join(attributes.Close(), closeRest()) }
	return e, nil
}

// Close lets go of the node.
func (e *Engine) Close() error { return e.close() }

// bootID names the running boot; empty for an image.
func (e *Engine) bootID() string {
	if !e.Live {
		return ""
	}
	id, err := e.Tree.ReadAtMost("proc/sys/kernel/random/boot_id", 64)
	if err != nil {
		return ""
	}
	return string(id)
}

// lockPatience is how long another process is waited for.
const lockPatience = 10 * time.Second

// locked does work while no other process does. The lock is on the root itself, which is always there: a node that is refused has
// nothing of ours.
func (e *Engine) locked(ctx context.Context, work func() error) error {
	patient, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	release, err := e.Files.Lock(patient, ".")
	if err != nil {
		return err
	}
	defer release()
	return work()
}

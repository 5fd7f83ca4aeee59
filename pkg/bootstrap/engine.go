// Package bootstrap configures a node for kata-vfio, and reverts it. It compares the blueprint with the files and the running
// settings of the node, shows a diff for each file, makes the changes, verifies them, and reverts them file by file.
//
// A journal records each change before it is made, with a backup of the former content. If the process is killed at any write,
// the next apply or revert completes or undoes its work. If a change fails, bootstrap undoes all changes of the run. It never
// reboots the node.
package bootstrap

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/containers"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Files are the node's files. The Disk of package writer has those of a real node.
type Files interface {
	Look(name string) (state.Found, error)
	Write(name string, content []byte, like state.Image) error
	Stage(name string, content []byte, like state.Image) (commit, discard func() error, err error)
	Symlink(name, target string) error
	Remove(name string) error
	Missing(name string) ([]string, error)
	MakeDir(name string, mode fs.FileMode) error
	RemoveDir(name string) error
	Sweep(name string) error
	Writable(name string) error
	Lock(ctx context.Context, dir string) (release func(), err error)
}

// Attributes writes files of /proc and /sys. A write that the kernel does not answer fails with a [StuckError].
type Attributes interface {
	Write(path string, data []byte) error
}

// Runner runs a tool of the node until it ends. The error has the tool's output.
type Runner interface {
	Run(ctx context.Context, argv []string) error
}

// Part returns what one concern, such as the container runtime, requires of a node. It
// only reads. The tree shows the node without bootstrap's own changes.
type Part func(tree state.Tree, b *blueprint.Blueprint, p *host.Platform) (state.Wanted, error)

// Parts returns all parts.
func Parts() []Part {
	certain := func(part func(state.Tree, *blueprint.Blueprint, *host.Platform) state.Wanted) Part {
		return func(tree state.Tree, b *blueprint.Blueprint, p *host.Platform) (state.Wanted, error) {
			return part(tree, b, p), nil
		}
	}
	return []Part{certain(host.Wanted), certain(host.LoaderWanted), containerRuntimes}
}

// containerRuntimes is package containers' part.
func containerRuntimes(tree state.Tree, b *blueprint.Blueprint, _ *host.Platform) (state.Wanted, error) {
	return containers.Wanted(tree, b.Containers)
}

// Engine works on one node. It is not safe for concurrent use. While it writes, a lock keeps other processes away.
type Engine struct {
	// Root is the node's root as the user gave it, for messages.
	Root string
	// Live is true if the root is that of the running system. Otherwise the engine changes nothing that runs.
	Live bool
	Tree *sysfs.FS
	// Files has the node's files. Only Apply and Revert write the node's configuration. Record, RecordUnknown and SaveModules
	// write files of kata-vfio's own state.
	Files Files
	// Attributes is nil for an image.
	Attributes Attributes
	// Disks is nil if the kernel can't be asked, because the tree is an image or a copy of a node.
	Disks Disks
	// Tools is nil if tools are listed, but not run.
	Tools Runner
	Parts []Part
	Now   func() time.Time
	// Chart is the version of the Helm chart that runs the engine, or empty.
	Chart string

	// Opened are the resources that the engine was opened with, in the order in which Close closes them.
	Opened []io.Closer
}

// Close releases the node.
func (e *Engine) Close() error {
	var errs []error
	for _, c := range e.Opened {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

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

// lockPatience is how long the engine waits for another process.
const lockPatience = 10 * time.Second

// locked calls work while no other process works on the node. It locks the root itself, which always exists. Bootstrap's own
// directory does not exist on a node that was refused.
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

// Package writer changes a node. It has the node's file system below one root, and
// opens engines of package bootstrap that write to that file system and to the
// running kernel, and run the node's tools.
package writer

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// Open returns the engine of the node whose root is a directory. With chrootTools it
// runs the tools of an image inside it. The caller closes the engine.
func Open(root string, chrootTools bool) (*bootstrap.Engine, error) {
	absolute, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("open the node's root: %w", err)
	}
	e := &bootstrap.Engine{Root: absolute, Live: absolute == "/", Parts: bootstrap.Parts(), Now: time.Now}
	tree, err := sysfs.Open(absolute)
	if err != nil {
		return nil, fmt.Errorf("%w; --root wants / or the directory of an image", err)
	}
	files, err := OpenDisk(absolute)
	if err != nil {
		return nil, errors.Join(err, tree.Close())
	}
	e.Tree, e.Files = tree, files
	e.Opened = []io.Closer{files, tree}
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
	e.Attributes, e.Disks, e.Tools = attributeWriter{attributes}, vfio.NewProcesses(tree), command{root: "/"}
	e.Opened = []io.Closer{attributes, files, tree}
	return e, nil
}

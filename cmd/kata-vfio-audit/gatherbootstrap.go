package main

import (
	"errors"
	"io/fs"
	"path"

	"github.com/kata-vfio/kata-vfio/pkg/audit/archive/bundle"
)

// bootstrapDir is where kata-vfio-bootstrap keeps what it has done to the node.
const bootstrapDir = "var/lib/kata-vfio/bootstrap"

// maxBootstrap is the largest of its files that is taken along, in bytes.
const maxBootstrap = 4 << 20

// addBootstrap adds what bootstrap has done to the node and last found on it, without its backups: those are configurations, which may
// hold what nobody else is to see.
func (r *recorded) addBootstrap(b *bundle.Bundle) error {
	for _, name := range []string{"journal.json", "verified.json"} {
		data, err := r.node.ReadAtMost(path.Join(bootstrapDir, name), maxBootstrap)
		switch {
		case err == nil:
			b.Add(path.Join("bootstrap", name), data)
		case !errors.Is(err, fs.ErrNotExist):
			b.Note("bootstrap/" + name + " is left out: " + err.Error())
		}
	}
	return nil
}

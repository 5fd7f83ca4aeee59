package main

import (
	"errors"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/renameio/v2"
)

// save writes the one image under its name to an archive, and returns its ID. The file is the new one or, after an
// error, what it was before.
func save(file string, tag name.Tag, images map[string]v1.Image) (id v1.Hash, err error) {
	f, err := renameio.NewPendingFile(file, renameio.WithPermissions(0o644))
	if err != nil {
		return id, err
	}
	defer func() { err = errors.Join(err, f.Cleanup()) }()
	for _, img := range images {
		if id, err = img.ConfigName(); err != nil {
			return id, err
		}
		if err := tarball.Write(tag, img, f); err != nil {
			return id, err
		}
	}
	return id, f.CloseAtomicallyReplace()
}

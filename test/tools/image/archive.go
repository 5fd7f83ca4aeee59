package main

import (
	"errors"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/renameio/v2"
)

// save writes the image under its name to an archive. The file is the new one or, after an error, what it was before.
func save(file string, tag name.Tag, img v1.Image) (err error) {
	f, err := renameio.NewPendingFile(file, renameio.WithPermissions(0o644))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Cleanup()) }()
	if err := tarball.Write(tag, img, f); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

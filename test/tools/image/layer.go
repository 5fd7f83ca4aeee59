package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"path"
)

// mode is the permissions of all that is in an image, root's.
const mode = 0o755

// layer is a tar archive of the programs and, once and before them, the directories above them.
func layer(programs []program) ([]byte, error) {
	var content bytes.Buffer
	w := &layerWriter{tar: tar.NewWriter(&content), types: map[string]byte{"/": tar.TypeDir}}
	for _, p := range programs {
		if err := w.add(p); err != nil {
			return nil, fmt.Errorf("add program %s: %w", p.path, err)
		}
	}
	if err := w.tar.Close(); err != nil {
		return nil, fmt.Errorf("end the layer: %w", err)
	}
	return content.Bytes(), nil
}

// layerWriter adds programs to a layer.
type layerWriter struct {
	tar   *tar.Writer
	types map[string]byte // of what is there, by its path
}

func (w *layerWriter) add(p program) error {
	if err := w.directory(path.Dir(p.path)); err != nil {
		return err
	}
	if err := w.header(tar.TypeReg, p.path, len(p.content)); err != nil {
		return err
	}
	_, err := w.tar.Write(p.content)
	return err
}

// directory adds what is not there of a directory and those above it.
func (w *layerWriter) directory(dir string) error {
	switch w.types[dir] {
	case tar.TypeDir:
		return nil
	case tar.TypeReg:
		return fmt.Errorf("%s is a program, too", dir)
	}
	if err := w.directory(path.Dir(dir)); err != nil {
		return err
	}
	return w.header(tar.TypeDir, dir, 0)
}

func (w *layerWriter) header(typ byte, name string, size int) error {
	w.types[name] = typ
	entry := name[len("/"):]
	if typ == tar.TypeDir {
		entry += "/"
	}
	return w.tar.WriteHeader(&tar.Header{
		Typeflag: typ, Name: entry, Size: int64(size), Mode: mode, ModTime: epoch(),
	})
}

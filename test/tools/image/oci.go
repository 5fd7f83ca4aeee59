package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/renameio/v2"
)

// saveOCI writes one index of images, each for a processor, under its name to an OCI archive, and returns the index's
// digest. The file is the new one or, after an error, what it was before.
func saveOCI(file string, tag name.Tag, images map[string]v1.Image) (digest v1.Hash, err error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range slices.Sorted(maps.Keys(images)) {
		platform := &v1.Platform{OS: "linux", Architecture: arch}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: images[arch], Descriptor: v1.Descriptor{Platform: platform}})
	}
	if digest, err = index.Digest(); err != nil {
		return digest, err
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), "."+filepath.Base(file)+"-")
	if err != nil {
		return digest, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return digest, err
	}
	// containerd goes by its own name for the name, the others by that of the specification.
	names := map[string]string{"io.containerd.image.name": tag.Name(), "org.opencontainers.image.ref.name": tag.TagStr()}
	if err := path.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return digest, err
	}
	return digest, pack(file, dir)
}

// pack writes a directory's files to an archive, in the order of their names and all of one time.
func pack(file, dir string) (err error) {
	f, err := renameio.NewPendingFile(file, renameio.WithPermissions(0o644))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Cleanup()) }()
	w := tar.NewWriter(f)
	root := os.DirFS(dir)
	err = fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: path, Size: int64(len(content)), Mode: 0o644, ModTime: epoch()}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// compress makes a compressed layer of a tar archive. It is compressed once, here: the library would do it again for
// each of digest, size and content.
func compress(content []byte) (v1.Layer, error) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	if _, err := zip.Write(content); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}

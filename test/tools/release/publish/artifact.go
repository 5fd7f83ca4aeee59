package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// artifact is what is pushed under one tag.
type artifact struct {
	kind      string // image or chart
	reference name.Tag
	content   pushable
}

// pushable is an image, an index of images, or a chart.
type pushable interface {
	remote.Taggable
	Digest() (v1.Hash, error)
}

// artifacts are those of the release. An archive of an image names its repository; its host and path are the registry's.
// They read their content from the temporary directory until they are pushed.
func (r *request) artifacts(temporary string) ([]artifact, error) {
	var list []artifact
	for _, image := range []string{"kata-vfio", "kata-vfio-guestnet", "kata-vfio-sanitize"} {
		file := image + "-" + r.version + ".oci.tar"
		index, named, err := loadIndex(r.file(file), filepath.Join(temporary, file))
		if err != nil {
			return nil, fmt.Errorf("image archive %s: %w", file, err)
		}
		reference, err := r.reference(path.Base(named.RepositoryStr()), named.TagStr())
		if err != nil {
			return nil, err
		}
		list = append(list, artifact{kind: "image", reference: reference, content: index})
	}
	file := "kata-vfio-" + r.version + ".tgz"
	chart, err := loadChart(r.file(file))
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", file, err)
	}
	// helm replaces the plus sign, which a tag can't have, in the same way.
	reference, err := r.reference("charts/"+chart.name, strings.ReplaceAll(chart.version, "+", "_"))
	if err != nil {
		return nil, err
	}
	return append(list, artifact{kind: "chart", reference: reference, content: chart}), nil
}

func (r *request) reference(repository, tag string) (name.Tag, error) {
	if tag != r.version {
		return name.Tag{}, fmt.Errorf("%s has the version %s, and the release %s: make the release again", repository, tag, r.version)
	}
	options := []name.Option{name.StrictValidation}
	if r.plainHTTP {
		options = append(options, name.Insecure)
	}
	return name.NewTag(r.registry+"/"+repository+":"+tag, options...)
}

// loadIndex unpacks an OCI archive into a new directory, and reads its one index and the name that it has there.
func loadIndex(archive, dir string) (v1.ImageIndex, name.Tag, error) {
	if err := unpack(archive, dir); err != nil {
		return nil, name.Tag{}, err
	}
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, name.Tag{}, err
	}
	list, err := outer.IndexManifest()
	if err != nil {
		return nil, name.Tag{}, err
	}
	if len(list.Manifests) != 1 {
		return nil, name.Tag{}, fmt.Errorf("it has %d images: want one", len(list.Manifests))
	}
	named, err := name.NewTag(list.Manifests[0].Annotations["io.containerd.image.name"], name.StrictValidation)
	if err != nil {
		return nil, name.Tag{}, err
	}
	index, err := outer.ImageIndex(list.Manifests[0].Digest)
	return index, named, err
}

// push pushes one artifact, if it is not there already.
func (r *request) push(ctx context.Context, a *artifact) (published, error) {
	digest, err := a.content.Digest()
	if err != nil {
		return published{}, err
	}
	one := published{Kind: a.kind, Repository: a.reference.Repository.Name(), Tag: a.reference.TagStr(), Digest: digest.String()}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	is, err := remote.Head(a.reference, options...)
	switch {
	case isAbsent(err):
		return one, remote.Push(a.reference, a.content, options...)
	case err != nil:
		return published{}, err
	case is.Digest == digest:
		return one, nil
	case r.dev:
		return one, remote.Push(a.reference, a.content, options...)
	}
	return published{}, fmt.Errorf("the registry has it with the digest %s, and this release %s: publish another version", is.Digest, digest)
}

// isAbsent reports whether a registry does not have a tag. For repositories that do not exist yet, some registries answer that
// access is denied.
func isAbsent(err error) bool {
	var status *transport.Error
	return errors.As(err, &status) &&
		slices.Contains([]int{http.StatusNotFound, http.StatusForbidden, http.StatusUnauthorized}, status.StatusCode)
}

// unpack writes the files of an archive to a new directory.
func unpack(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(h.Name) {
			return fmt.Errorf("it has the entry %q, which is not a file of an OCI archive", h.Name)
		}
		if err := save(filepath.Join(dir, h.Name), r); err != nil {
			return err
		}
	}
}

func save(file string, content io.Reader) (err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = io.Copy(f, content)
	return err
}

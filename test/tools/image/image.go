package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// epoch is every time in an image: the real ones would make each image another.
func epoch() time.Time { return time.Unix(0, 0).UTC() }

// program is a file of an image.
type program struct {
	path    string // in the image
	content []byte
}

// image makes the image in memory, where all programs must fit twice.
func (r *request) image() (v1.Image, error) {
	programs, arch, err := r.load()
	if err != nil {
		return nil, err
	}
	content, err := layer(programs)
	if err != nil {
		return nil, err
	}
	config, err := empty.Image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Created = v1.Time{Time: epoch()}
	config.Config = v1.Config{Entrypoint: r.entrypoint, Labels: r.labels}
	base, err := mutate.ConfigFile(empty.Image, config)
	if err != nil {
		return nil, err
	}
	// Not compressed, as in what `docker save` writes: a node unpacks it at once, and a push to a registry by docker
	// or podman compresses it.
	return mutate.Append(base, mutate.Addendum{
		Layer:   static.NewLayer(content, types.DockerUncompressedLayer),
		History: v1.History{Created: v1.Time{Time: epoch()}, CreatedBy: "image"},
	})
}

// load reads the programs, in the order of their paths, and tells the architecture that all of them are for.
func (r *request) load() (programs []program, arch string, err error) {
	for _, p := range slices.Sorted(maps.Keys(r.programs)) {
		file := r.programs[p]
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, "", fmt.Errorf("read program %s: %w", p, err)
		}
		got, err := architecture(content)
		if err != nil {
			return nil, "", fmt.Errorf("program %s is %s: %w", p, file, err)
		}
		if arch != "" && got != arch {
			return nil, "", fmt.Errorf("program %s is for %s, and %s for %s", p, got, programs[0].path, arch)
		}
		arch = got
		programs = append(programs, program{path: p, content: content})
	}
	return programs, arch, nil
}

package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
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

// images makes the image for each processor, in memory, where all programs must fit twice.
func (r *request) images() (map[string]v1.Image, error) {
	programs, err := r.load()
	if err != nil {
		return nil, err
	}
	images := map[string]v1.Image{}
	for arch, programs := range programs {
		if images[arch], err = r.image(arch, programs); err != nil {
			return nil, err
		}
	}
	return images, nil
}

func (r *request) image(arch string, programs []program) (v1.Image, error) {
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
	history := v1.History{Created: v1.Time{Time: epoch()}, CreatedBy: "image"}
	if !r.oci {
		// Not compressed, as in what `docker save` writes: a node unpacks it at once, and a push to a registry by docker
		// or podman compresses it.
		return mutate.Append(base, mutate.Addendum{Layer: static.NewLayer(content, types.DockerUncompressedLayer), History: history})
	}
	compressed, err := compress(content)
	if err != nil {
		return nil, err
	}
	base = mutate.ConfigMediaType(mutate.MediaType(base, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.Append(base, mutate.Addendum{Layer: compressed, MediaType: types.OCILayer, History: history})
}

// load reads the programs, by the processors that they are for and in the order of their paths. Each path has a program
// for the same processors.
func (r *request) load() (map[string][]program, error) {
	programs := map[string][]program{}
	var first, want string
	for _, p := range slices.Sorted(maps.Keys(r.programs)) {
		archs, err := r.loadPath(p, programs)
		if err != nil {
			return nil, err
		}
		if first == "" {
			first, want = p, archs
		}
		if archs != want {
			return nil, fmt.Errorf("program %s is for %s, and %s for %s", p, archs, first, want)
		}
	}
	return programs, r.addDynamic(programs)
}

// loadPath adds the program of a path, for one processor or more, and returns in words which they are.
func (r *request) loadPath(p string, programs map[string][]program) (string, error) {
	var archs []string
	for file := range strings.SplitSeq(r.programs[p], ",") {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read program %s: %w", p, err)
		}
		arch, err := architecture(content)
		if err != nil {
			return "", fmt.Errorf("program %s is %s: %w", p, file, err)
		}
		if slices.Contains(archs, arch) {
			return "", fmt.Errorf("program %s appears twice for one processor, %s", p, arch)
		}
		archs = append(archs, arch)
		programs[arch] = append(programs[arch], program{path: p, content: content})
	}
	slices.Sort(archs)
	words := strings.Join(archs, " and ")
	if len(archs) > 1 && !r.oci {
		return "", fmt.Errorf("program %s is for %s: only an OCI archive can have both", p, words)
	}
	return words, nil
}

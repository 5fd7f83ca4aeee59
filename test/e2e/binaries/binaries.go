// Package binaries builds the commands of a Kubernetes cluster, and what makes its images, from Go modules of this tree
// and keeps them.
//
// The modules' go.mod and go.sum pin and verify every source, so a cluster in a test needs no image, no release
// archive and no package repository beyond Go's. A module's commands lie in a directory named by the hash of what
// they are built from, and a directory with that name is always complete: it is built beside it and renamed.
package binaries

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"

	"github.com/kata-vfio/kata-vfio/test/internal/buildcache"
)

// Module is one of the modules that commands are built from.
type Module string

// The modules. Each pins the versions of its own dependencies, which do not go together in one.
const (
	// Kube has etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and kubectl: links to one
	// static binary.
	Kube Module = "kube"
	// Containerd has containerd, containerd-shim-runc-v2 and ctr, static and in one directory: containerd looks for
	// the shim on its PATH.
	Containerd Module = "containerd"
	// Runc has runc, which needs libseccomp2 where it runs, and gcc, pkg-config and libseccomp-dev where it is built.
	Runc Module = "runc"
	// Helm has helm.
	Helm Module = "helm"
	// CNI has host-local, an IPAM plugin.
	CNI Module = "cni"
	// Image has image, which makes a container image out of static programs.
	Image Module = "image"
	// Kueue has kueue, the controller of job queues.
	Kueue Module = "kueue"
)

// Modules are all modules.
func Modules() []Module { return append(OfNode(), Kueue) }

// OfNode are the modules of a cluster with a node: all that a control plane, a node and its pods run.
func OfNode() []Module { return []Module{Kube, Containerd, Runc, Helm, CNI, Image} }

// Config is what to build.
type Config struct {
	// Modules are the modules whose commands are needed.
	Modules []Module
	// Progress takes lines about what is being built, and since when; nil drops them. Nothing is written where the
	// cache has all.
	Progress io.Writer
	// Nice builds at a low priority, beside something that a person looks at.
	Nice bool
}

func (c Config) withDefaults() Config {
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	return c
}

// Set is the commands of some modules.
type Set struct {
	paths map[string]string
}

// Path is the absolute path of a command, such as "kubelet", or "" where no module of the set has it. Nobody may
// write to it: all tests share it.
func (s *Set) Path(command string) string { return s.paths[command] }

// Ensure returns the commands of the modules, building first what the cache lacks: for Kube that is six to ten
// minutes on two processors and some GiB in Go's own cache. It needs the go command and a network then; Runc may
// need root, too, to install its libraries. Any number of processes may call it; one builds and the others wait. A
// build that ends early, by error or signal, leaves nothing that a later call would use.
func Ensure(ctx context.Context, c Config) (*Set, error) {
	c = c.withDefaults()
	root, err := sourceRoot(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := buildcache.Dir(CacheVariable, "e2e")
	if err != nil {
		return nil, err
	}
	chosen, err := laneOf(os.Getenv(LaneVariable))
	if err != nil {
		return nil, err
	}
	set := &Set{paths: map[string]string{}}
	for _, m := range c.Modules {
		r, err := recipeOf(m)
		if err != nil {
			return nil, err
		}
		r.dir, r.nice = filepath.Join(root, r.dir), c.Nice
		r.lane = chosen.of(r.dir)
		paths, err := r.ensure(ctx, dir, c.Progress)
		if err != nil {
			return nil, fmt.Errorf("build the commands of module %s: %w", m, err)
		}
		maps.Copy(set.paths, paths)
	}
	return set, nil
}

// Sources returns the directory of the sources of a module that m's go.mod requires, for the manifests in it. It
// downloads them if they are missing. Nobody may write there.
func Sources(ctx context.Context, m Module, path string) (string, error) {
	root, err := sourceRoot(ctx)
	if err != nil {
		return "", err
	}
	r, err := recipeOf(m)
	if err != nil {
		return "", err
	}
	out, err := goOutput(ctx, filepath.Join(root, r.dir), r.env(), "mod", "download", "-json", path)
	if err != nil {
		return "", fmt.Errorf("download the sources of %s: %w", path, err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal([]byte(out), &module); err != nil {
		return "", fmt.Errorf("read where the sources of %s are: %w", path, err)
	}
	return module.Dir, nil
}

// sourceRoot is the root of this tree. It is asked for, since a binary built with -trimpath does not know.
func sourceRoot(ctx context.Context) (string, error) {
	root, err := goOutput(ctx, "", os.Environ(), "list", "-m", "-f", "{{.Dir}}", "github.com/kata-vfio/kata-vfio")
	if err != nil {
		return "", fmt.Errorf("find the sources of kata-vfio, below which this must run: %w", err)
	}
	return root, nil
}

// ensure returns the paths of the recipe's commands in the cache below dir.
func (r recipe) ensure(ctx context.Context, dir string, progress io.Writer) (map[string]string, error) {
	entry, err := r.entry(ctx, dir)
	if err != nil {
		return nil, err
	}
	err = entry.Ensure(ctx, progress, func(ctx context.Context, b buildcache.Build) error {
		return (&build{recipe: r, Build: b}).all(ctx)
	})
	if err != nil {
		return nil, err
	}
	return r.open(entry.Path())
}

// open finds the commands in a finished directory.
func (r recipe) open(dir string) (map[string]string, error) {
	paths := map[string]string{}
	for _, command := range r.commands {
		path := filepath.Join(dir, command)
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("find %s in the cache: %w; remove %s and try again", command, err, dir)
		}
		paths[command] = path
	}
	return paths, nil
}

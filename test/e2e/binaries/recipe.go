package binaries

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
)

// recipe is how a module becomes commands.
type recipe struct {
	module   Module
	dir      string   // of the module; of a recipe that recipeOf made, in this tree
	packages []string // that are built, as the go command names them
	commands []string // that must be there in the end
	links    string   // the one binary that all commands are links to, if not empty
	tags     string
	cgo      bool
	version  string // the module v0.MINOR.PATCH whose version a Kubernetes command reports as v1.MINOR.PATCH, if not empty
	needs    []need // on the host
	nice     bool   // build at a low priority
	lane     lane
}

func recipeOf(m Module) (recipe, error) {
	switch m {
	case Kube:
		return recipe{
			module: m, dir: "test/e2e/kube", packages: []string{"."}, links: "kube", version: "k8s.io/component-base",
			commands: []string{
				"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl",
			},
		}, nil
	case Containerd:
		const commands = "github.com/containerd/containerd/v2/cmd/"
		return recipe{
			module: m, dir: "test/e2e/containerd",
			packages: []string{commands + "containerd", commands + "containerd-shim-runc-v2", commands + "ctr"},
			commands: []string{"containerd", "containerd-shim-runc-v2", "ctr"},
			tags:     "no_btrfs,no_devmapper,no_zfs,no_tracing", // snapshotters and an exporter that no test uses
		}, nil
	case Runc:
		return recipe{
			module: m, dir: "test/e2e/runc", packages: []string{"github.com/opencontainers/runc"}, commands: []string{"runc"},
			// Without seccomp runc refuses pods: their sandbox asks for the runtime's default profile.
			tags: "seccomp", cgo: true, needs: runcNeeds(),
		}, nil
	case Helm:
		return recipe{
			module: m, dir: "test/e2e/helm", packages: []string{"helm.sh/helm/v4/cmd/helm"}, commands: []string{"helm"},
		}, nil
	case CNI:
		const plugins = "github.com/containernetworking/plugins/plugins/"
		return recipe{
			module: m, dir: "test/e2e/cni", packages: []string{plugins + "ipam/host-local"}, commands: []string{"host-local"},
		}, nil
	case Kueue:
		return recipe{
			module: m, dir: "test/e2e/kueue", packages: []string{"sigs.k8s.io/kueue/cmd/kueue"}, commands: []string{"kueue"},
		}, nil
	case Image:
		return recipe{module: m, dir: "test/tools/image", packages: []string{"."}, commands: []string{"image"}}, nil
	}
	return recipe{}, fmt.Errorf("no module is named %q; there are %q", m, Modules())
}

// env is the environment of the go command. It switches off the user's workspace and GOFLAGS, so that only go.mod decides.
func (r recipe) env() []string {
	cgo := "CGO_ENABLED=0"
	if r.cgo {
		cgo = "CGO_ENABLED=1"
	}
	return append(os.Environ(), "GOWORK=off", "GOFLAGS=", cgo)
}

// selection are the flags that choose what is built. They go for go list, too.
func (r recipe) selection() []string {
	return append(r.mod(), "-tags="+r.tags)
}

// flags are those of go build. The binaries are stripped: DWARF that nobody reads costs a tenth of the time and a
// fifth of Go's cache.
func (r recipe) flags() []string {
	return append(r.selection(), "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false")
}

// linkFlags returns the flags that strip the binaries and set the version that Kubernetes reports. The build of Kubernetes
// itself sets it in this way.
func (r recipe) linkFlags(ctx context.Context) (string, error) {
	strip := []string{"-s", "-w"}
	if r.version == "" {
		return strings.Join(strip, " "), nil
	}
	version, err := r.goOutput(ctx, slices.Concat([]string{"list"}, r.mod(), []string{"-m", "-f", "{{.Version}}", r.version})...)
	if err != nil {
		return "", err
	}
	release, found := strings.CutPrefix(version, "v0.")
	parts := strings.SplitN("1."+release, ".", 3)
	if !found || len(parts) < 3 {
		return "", fmt.Errorf("%s has the version %q, which is not v0.MINOR.PATCH", r.version, version)
	}
	version = "v" + strings.Join(parts, ".")
	const variable = "k8s.io/component-base/version."
	return strings.Join(append(strip,
		"-X", variable+"gitVersion="+version, "-X", variable+"gitMajor="+parts[0],
		"-X", variable+"gitMinor="+parts[1], "-X", variable+"gitTreeState=clean"), " "), nil
}

// goOutput asks the go command something about the module.
func (r recipe) goOutput(ctx context.Context, args ...string) (string, error) {
	return goOutput(ctx, r.dir, r.env(), args...)
}

// countPackages downloads what is missing and tells how many packages the build has.
func (r recipe) countPackages(ctx context.Context) (int, error) {
	list, err := r.goOutput(ctx, slices.Concat([]string{"list", "-deps"}, r.selection(), r.packages)...)
	if err != nil {
		return 0, err
	}
	return strings.Count(list, "\n") + 1, nil
}

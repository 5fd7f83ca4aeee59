package node

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"text/template"

	"golang.org/x/sync/errgroup"

	"github.com/kata-vfio/kata-vfio/pkg/fabric/manager"
	"github.com/kata-vfio/kata-vfio/test/e2e/binaries"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
	"github.com/kata-vfio/kata-vfio/test/internal/compile"
	"github.com/kata-vfio/kata-vfio/test/nvfm"
)

//go:embed files
var files embed.FS

const (
	module    = "github.com/kata-vfio/kata-vfio"
	sanitizer = "kata-vfio-sanitize"
)

// stage fills a directory of this host with what the machine has in Dir.
func (n *Node) stage(ctx context.Context, set *binaries.Set, dir string) error {
	for _, sub := range []string{"bin", "cni", "etc/cni", "guest", "images"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return compile.Static(groupCtx, module+"/test/e2e/runcvm", filepath.Join(dir, "bin/runcvm"))
	})
	group.Go(func() error {
		return compile.Static(groupCtx, module+"/test/e2e/node/"+askCRI, filepath.Join(dir, "bin", askCRI))
	})
	if n.config.Board {
		group.Go(func() error {
			return compile.Static(groupCtx, module+"/test/e2e/node/"+FabricManager, filepath.Join(dir, "bin", FabricManager))
		})
	}
	group.Go(func() error { return n.stageImages(groupCtx, set.Path("image"), dir) })
	group.Go(func() error { return errors.Join(n.stagePrograms(set, dir), n.stageConfig(dir)) })
	if err := group.Wait(); err != nil {
		return err
	}
	return n.stageKata(ctx, dir)
}

func (n *Node) stagePrograms(set *binaries.Set, dir string) error {
	programs := maps.Clone(n.config.Programs)
	if programs == nil {
		programs = map[string]string{}
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", "kubelet"} {
		programs[name] = set.Path(name)
	}
	for name, path := range programs {
		if err := link(path, filepath.Join(dir, "bin", name)); err != nil {
			return fmt.Errorf("stage %s: %w", name, err)
		}
	}
	if n.config.Sanitizer == "" {
		return nil
	}
	if err := link(n.config.Sanitizer, filepath.Join(dir, "guest", sanitizer)); err != nil {
		return fmt.Errorf("stage the sanitizer: %w", err)
	}
	return nil
}

// stageImages makes, by the image command, the node's own images, which have one program, and those of the caller.
func (n *Node) stageImages(ctx context.Context, command, dir string) error {
	container := filepath.Join(n.dir, "container")
	if err := compile.Static(ctx, module+"/test/e2e/node/container", container); err != nil {
		return err
	}
	ours := map[string]string{} // as in the image that is shipped
	for _, name := range []string{PluginName, "kata-vfio-controller", "kata-vfio-audit", "kata-vfio-bootstrap"} {
		program := filepath.Join(n.dir, name)
		if err := compile.Static(ctx, module+"/cmd/"+name, program); err != nil {
			return err
		}
		ours["/usr/bin/"+name] = program
	}
	programs := map[string]string{"/container": container}
	plugin := Image{Name: pluginImage, Programs: ours, Entrypoint: []string{"/usr/bin/" + PluginName}}
	if n.config.Board {
		built, err := nvfm.Compile(ctx, n.dir)
		if err != nil {
			return err
		}
		plugin.Dynamic, plugin.Libraries = map[string]string{"/usr/bin/" + manager.Program: built.Helper}, []string{built.Library}
	}
	images := append(slices.Clone(n.config.Images),
		Image{Name: PauseImage, Programs: programs, Entrypoint: []string{"/container", "pause"}},
		Image{Name: ShowImage, Programs: programs, Entrypoint: []string{"/container", "show"}},
		plugin)
	if n.config.Sanitizer != "" {
		programs := map[string]string{"/container": container, "/usr/bin/" + sanitizer: n.config.Sanitizer}
		images = append(images, Image{Name: SanitizeImage, Programs: programs, Entrypoint: []string{"/container", "sanitize"}})
	}
	for i, image := range images {
		if err := image.write(ctx, command, filepath.Join(dir, "images", fmt.Sprintf("%d.tar", i))); err != nil {
			return err
		}
	}
	return nil
}

// stageConfig writes the daemons' configuration, the kubelet's identity and its serving certificate.
func (n *Node) stageConfig(dir string) error {
	values := map[string]any{"Dir": Dir, "Port": n.port, "Pause": PauseImage, "Kata": n.config.Kata != nil}
	for name, to := range map[string]string{
		"containerd.toml": "etc/containerd.toml", "kubelet.yaml": "etc/kubelet.yaml",
		"lab-cni": "cni/lab-cni", "lab-cni.conflist": "etc/cni/10-lab.conflist",
	} {
		if err := render(name, filepath.Join(dir, to), values); err != nil {
			return err
		}
	}
	access, err := n.config.Plane.Kubeconfig(controlplane.NodeIdentity(n.config.Name), n.config.Plane.Server(controlplane.LabHost))
	if err != nil {
		return err
	}
	cert, key, err := servingPair(n.config.Name)
	if err != nil {
		return fmt.Errorf("make the kubelet's serving certificate: %w", err)
	}
	for name, text := range map[string][]byte{"kubelet.kubeconfig": access, "kubelet.crt": cert, "kubelet.key": key} {
		if err := os.WriteFile(filepath.Join(dir, "etc", name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// render writes one of our files with its values filled in, executable for those that are programs.
func render(name, path string, values map[string]any) error {
	text, err := template.New(name).Option("missingkey=error").ParseFS(files, "files/"+name)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	return errors.Join(text.Execute(f, values), f.Close())
}

// link makes a file appear at another place: as the same file, or a copy where the places are on two file systems.
func link(from, to string) error {
	real, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	if os.Link(real, to) == nil {
		return nil
	}
	source, err := os.Open(real)
	if err != nil {
		return err
	}
	defer source.Close() // it was only read
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

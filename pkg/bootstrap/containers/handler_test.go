package containers_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
)

const nicDir = opt + "kata-vfio/"

func TestNICHandlerHasAConfigurationOfItsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		o                   blueprint.Containers
		dir, copied, dropIn string
	}{
		"beside GPUs": {blueprint.Containers{NICHandler: true}, nicDir, opt + "configuration-qemu.toml", "50-kata-vfio.toml"},
		"beside NICs": {blueprint.Containers{Base: blueprint.BaseNIC, NICHandler: true}, nicDir, opt + "configuration-qemu.toml", "50-kata-vfio.toml"},
		"Rust": {
			blueprint.Containers{Kata: blueprint.FlavorRust, NICHandler: true},
			opt + "runtime-rs/kata-vfio/",
			opt + "runtime-rs/configuration-qemu-runtime-rs.toml", "50-kata-vfio-runtime-rs.toml",
		},
	} {
		t.Run(name, func(t *testing.T) {
			of := kata().and(files{opt + "configuration-qemu-nvidia-gpu.toml": base + "# GPUs\n"})
			_, w := open(t, of, c.o)
			shipped, err := os.ReadFile(filepath.Join("../../../runtimeclass/kata", c.dropIn))
			if err != nil {
				t.Fatal(err)
			}
			if len(fatal(w)) > 0 || content(w, c.dir+"configuration.toml") != of[c.copied] || content(w, c.dir+"config.d/50-kata-vfio.toml") != string(shipped) {
				t.Errorf("it wants %v, with the problems %+v", paths(w), w.Problems)
			}
			_, without := open(t, of, blueprint.Containers{Kata: c.o.Kata, Base: c.o.Base})
			for _, f := range without.Files {
				if got := content(w, f.Path); f.Path != dropIn && got != string(f.Content) {
					t.Errorf("beside kata-vfio, %s is\n%s", f.Path, got)
				}
			}
			if len(w.Modules) != len(without.Modules) {
				t.Errorf("it needs the modules %+v, and without kata-vfio %+v", w.Modules, without.Modules)
			}
		})
	}
}

func TestNICHandlerOfAPackagedKataIsBelowEtc(t *testing.T) {
	of := kata().and(files{
		"opt/kata/bin/containerd-shim-kata-v2": "", "usr/bin/containerd-shim-kata-v2": "ELF",
		"usr/share/defaults/kata-containers/configuration-qemu.toml": base,
	})
	fsys, w := open(t, of, blueprint.Containers{Base: blueprint.BaseNIC, NICHandler: true})
	apply(t, fsys, w)
	for _, h := range seen(fsys).Kata() {
		if h.Path.Text() != "/usr/bin/containerd-shim-kata-v2" || h.Config.Text() != "/etc/kata-containers/"+h.Name+"/configuration.toml" {
			t.Errorf("the handler is %+v", h)
		}
	}
	if n := len(seen(fsys).Kata()); n != 2 {
		t.Errorf("there are %d handlers", n)
	}
}

func TestNICHandlerThatIsNotFitIsRefusedWithItsPath(t *testing.T) {
	const nic = opt + "configuration-qemu.toml"
	for name, c := range map[string]struct {
		files
		part, path, word string
	}{
		"no base":         {files{nic: ""}, "kata", nic, "remove containers.nicHandler from the blueprint"},
		"a link":          {files{nicDir + "configuration.toml": "-> ../configuration-qemu.toml"}, "kata", nicDir + "configuration.toml", "Remove the link"},
		"annotations":     {files{nicDir + "config.d/60-site": "[hypervisor.qemu]\nenable_annotations = ['kernel_params']\n"}, "kata", nicDir + "config.d/60-site", "enable_annotations"},
		"no virtiofsd":    {files{nic: strings.Replace(base, "/opt/kata/libexec/virtiofsd", "/nowhere", 1)}, "kata", "nowhere", "virtio_fs_daemon"},
		"another handler": {files{main: "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata-vfio]\nruntime_type = 'io.containerd.runc.v2'\n"}, "containerd", main, "defines a handler kata-vfio"},
	} {
		t.Run(name, func(t *testing.T) {
			_, w := open(t, kata().and(containerdPackage("2.4.2-1")).and(c.files), blueprint.Containers{NICHandler: true})
			checkRefused(t, w, c.part, c.path, c.word)
			_, w = open(t, kata().and(containerdPackage("2.4.2-1")).and(c.files), blueprint.Containers{})
			if problems := fatal(w); len(problems) > 0 {
				t.Errorf("without kata-vfio the problems are %+v", problems)
			}
		})
	}
}

// Bootstrap takes over a handler that was installed by hand, as runtimeclass/README.md describes.
func TestNICHandlerThatIsThereAlreadyIsAccepted(t *testing.T) {
	text, err := os.ReadFile("../../../runtimeclass/containerd/kata-vfio.toml")
	if err != nil {
		t.Fatal(err)
	}
	of := kata().and(containerdPackage("2.4.2-1")).and(files{
		main: "version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n", "etc/containerd/conf.d/kata-vfio.toml": string(text),
	})
	fsys, w := open(t, of, blueprint.Containers{NICHandler: true})
	if problems := fatal(w); len(problems) > 0 {
		t.Fatalf("the problems are %+v", problems)
	}
	apply(t, fsys, w)
	if left := changes(t, fsys, wanted(t, fsys, blueprint.Containers{NICHandler: true})); len(left) > 0 || len(seen(fsys).Kata()) != 2 {
		t.Errorf("it wants %v again; the handlers are %+v", left, seen(fsys).Kata())
	}
}

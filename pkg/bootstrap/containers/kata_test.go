package containers_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/containers"
)

const handlerDir = opt + "kata-gpu/"

func TestHandlersConfigurationIsACopyWithOursBeside(t *testing.T) {
	for name, c := range map[string]struct {
		o                        blueprint.Containers
		dir, copied, dropIn, cut string
	}{
		"Go":       {blueprint.Containers{}, handlerDir, opt + "configuration-qemu-nvidia-gpu.toml", "50-kata-gpu.toml", ""},
		"NIC":      {blueprint.Containers{Base: blueprint.BaseNIC}, handlerDir, opt + "configuration-qemu.toml", "50-kata-gpu.toml", ""},
		"hot plug": {blueprint.Containers{HotPlug: true}, handlerDir, opt + "configuration-qemu-nvidia-gpu.toml", "50-kata-gpu-hotplug.toml", ""},
		"Rust": {
			blueprint.Containers{Kata: blueprint.FlavorRust},
			opt + "runtime-rs/kata-gpu/",
			opt + "runtime-rs/configuration-qemu-nvidia-gpu-runtime-rs.toml", "50-kata-gpu-runtime-rs.toml", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			of := kata()
			_, w := open(t, of, c.o)
			shipped, err := os.ReadFile(filepath.Join("../../../runtimeclass/kata", c.dropIn))
			if err != nil {
				t.Fatal(err)
			}
			if content(w, c.dir+"configuration.toml") != of[c.copied] || content(w, c.dir+"config.d/50-kata-gpu.toml") != string(shipped) {
				t.Errorf("it wants %v, with the problems %+v", paths(w), w.Problems)
			}
		})
	}
}

// Where VMs share directories with the node, they get no block devices by path, and virtiofsd keeps the base's other arguments.
func TestSharedDirectoriesBringNoBlockDevices(t *testing.T) {
	const (
		site = opt + "runtime-rs/kata-gpu/config.d/60-site.toml"
		gpu  = opt + "configuration-qemu-nvidia-gpu.toml"
	)
	rust := blueprint.Containers{Kata: blueprint.FlavorRust, Base: blueprint.BaseNIC}
	args := `virtio_fs_extra_args = ["--thread-pool-size=1", "--announce-submounts"]`
	for name, c := range map[string]struct {
		files
		o         blueprint.Containers
		dir, args string
		block     bool // devices are used
	}{
		"Go":                   {nil, blueprint.Containers{}, handlerDir, `["--thread-pool-size=1", "--announce-submounts", "--modcaps=-mknod"]`, false},
		"Go, other arguments":  {files{gpu: strings.Replace(base, args, `virtio_fs_extra_args = ["--modcaps=+sys_admin", "--xattr"]`, 1)}, blueprint.Containers{}, handlerDir, `["--modcaps=+sys_admin:-mknod", "--xattr"]`, false},
		"Go, no arguments":     {files{gpu: strings.Replace(base, args, "", 1)}, blueprint.Containers{}, handlerDir, `["--modcaps=-mknod"]`, false},
		"Go, hot plug":         {nil, blueprint.Containers{HotPlug: true}, handlerDir, `["--thread-pool-size=1", "--announce-submounts", "--modcaps=-mknod"]`, false},
		"Rust":                 {nil, rust, opt + "runtime-rs/kata-gpu/", `["--thread-pool-size=1", "-o", "announce_submounts", "--modcaps=-mknod"]`, false},
		"Rust, nothing shared": {nil, blueprint.Containers{Kata: blueprint.FlavorRust}, opt + "runtime-rs/kata-gpu/", `["--thread-pool-size=1", "-o", "announce_submounts", "--modcaps=-mknod"]`, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, w := open(t, kata().and(c.files), c.o)
			got := content(w, c.dir+"config.d/50-kata-gpu.toml")
			if !strings.Contains(got, "\nvirtio_fs_extra_args = "+c.args+"\n") || strings.Contains(got, "\ndisable_block_device_use = true\n") == c.block {
				t.Errorf("want the arguments %s and block devices %t, got:\n%s", c.args, c.block, got)
			}
			if problems := fatal(w); len(problems) > 0 {
				t.Errorf("the problems are %+v", problems)
			}
		})
	}
	shares := "[hypervisor.qemu]\nshared_fs = 'virtio-fs'\n"
	_, w := open(t, kata().and(files{site: shares}), blueprint.Containers{Kata: blueprint.FlavorRust})
	checkRefused(t, w, "kata", site, "disable_block_device_use = true")
	_, w = open(t, kata().and(files{site: shares + "disable_block_device_use = true\n"}), blueprint.Containers{Kata: blueprint.FlavorRust})
	if problems := fatal(w); len(problems) > 0 {
		t.Errorf("the problems are %+v", problems)
	}
	_, w = open(t, kata().and(containerdPackage("2.2.0")).and(files{handlerDir + "config.d/60-site.toml": "[hypervisor.qemu]\nvirtio_fs_extra_args = ['--modcaps=-mknod', '--xattr']\n"}), blueprint.Containers{})
	if len(w.Problems) > 0 {
		t.Errorf("the site's arguments without CAP_MKNOD are problems: %+v", w.Problems)
	}
}

func TestPackagedKataHasItsOwnPaths(t *testing.T) {
	of := kata().and(files{
		"opt/kata/bin/containerd-shim-kata-v2": "", "usr/bin/containerd-shim-kata-v2": "ELF",
		"usr/share/defaults/kata-containers/configuration-qemu.toml": base,
	})
	fsys, w := open(t, of, blueprint.Containers{Base: blueprint.BaseNIC})
	if problems := fatal(w); len(problems) > 0 || content(w, "etc/kata-containers/kata-gpu/config.d/50-kata-gpu.toml") == "" {
		t.Fatalf("the problems are %+v, wanted %+v", problems, paths(w))
	}
	apply(t, fsys, w)
	h := seen(fsys).Kata()
	if len(h) != 1 || h[0].Path.Text() != "/usr/bin/containerd-shim-kata-v2" || h[0].Config.Text() != "/etc/kata-containers/kata-gpu/configuration.toml" {
		t.Errorf("the handlers are %+v", h)
	}
}

func TestKataThatIsNotFitIsRefusedWithItsPath(t *testing.T) {
	const gpu = opt + "configuration-qemu-nvidia-gpu.toml"
	const site = handlerDir + "config.d/60-site"
	for name, c := range map[string]struct {
		files
		path, word string
	}{
		"not there":            {files{"opt/kata/bin/containerd-shim-kata-v2": ""}, "opt/kata/bin/containerd-shim-kata-v2", "containers.kata: rs in the blueprint"},
		"a link":               {files{handlerDir + "configuration.toml": "-> ../configuration-qemu.toml"}, handlerDir + "configuration.toml", "Remove the link"},
		"no base":              {files{gpu: ""}, gpu, "containers.base: NIC in the blueprint"},
		"a broken base":        {files{gpu: "[hypervisor\n"}, gpu, ":1:"},
		"another hypervisor":   {files{gpu: "[hypervisor.clh]\n"}, gpu, "hypervisor.qemu"},
		"a broken neighbor":    {files{site: "="}, site, "would not start"},
		"annotations again":    {files{site: "[hypervisor.qemu]\nenable_annotations = ['kernel_params']\n"}, site, "enable_annotations"},
		"the kubelet's socket": {files{site: "[runtime]\npod_resource_api_sock = '/var/lib/kubelet/pod-resources/kubelet.sock'\n"}, site, "kubelet.sock"},
		"block devices":        {files{site: "[hypervisor.qemu]\ndisable_block_device_use = false\n"}, site, "disable_block_device_use"},
		"CAP_MKNOD":            {files{site: "[hypervisor.qemu]\nvirtio_fs_extra_args = ['--xattr']\n"}, site, "--modcaps=-mknod"},
		"both ways of plug":    {files{site: "[hypervisor.qemu]\nhot_plug_vfio = 'root-port'\n"}, site, "hot_plug_vfio"},
	} {
		t.Run(name, func(t *testing.T) {
			_, w := open(t, kata().and(c.files), blueprint.Containers{})
			checkRefused(t, w, "kata", c.path, c.word)
		})
	}
}

func TestBaseThatIsAnAbsoluteLinkIsFollowed(t *testing.T) {
	const gpu = opt + "configuration-qemu-nvidia-gpu.toml"
	_, w := open(t, kata().and(files{gpu: "-> /opt/kata/x.toml", "opt/kata/x.toml": base + "# the same\n"}), blueprint.Containers{})
	if got := content(w, handlerDir+"configuration.toml"); !strings.HasSuffix(got, "# the same\n") {
		t.Errorf("it wants %q, the problems are %+v", got, w.Problems)
	}
}

func TestSizesAreTheSites(t *testing.T) {
	_, w := open(t, kata().and(containerdPackage("2.2.0")).and(files{handlerDir + "config.d/60-site.toml": "[hypervisor.qemu]\ndefault_memory = 2048\n[runtime]\nvfio_mode = 'vfio'\n"}), blueprint.Containers{})
	if len(w.Problems) != 1 || w.Problems[0].Fatal || !strings.Contains(w.Problems[0].Text, "vfio_mode") {
		t.Errorf("the problems are %+v", w.Problems)
	}
}

func TestGuestWithoutSharedDirectoriesNeedsASnapshotter(t *testing.T) {
	_, w := open(t, kata().and(containerdPackage("2.2.0")), blueprint.Containers{Kata: blueprint.FlavorRust})
	if len(w.Problems) != 1 || w.Problems[0].Fatal || !strings.Contains(w.Problems[0].Fix, "snapshotter") {
		t.Errorf("the problems are %+v", w.Problems)
	}
}

func TestOptionsThatCantBeAreAnError(t *testing.T) {
	for want, o := range map[string]blueprint.Containers{
		"hotPlug":           {Kata: blueprint.FlavorRust, HotPlug: true},
		"nicHandler":        {HotPlug: true, NICHandler: true},
		`kata: "C"`:         {Kata: "C"},
		`runtime: "docker"`: {Runtime: "docker"},
		`base: "FPGA"`:      {Base: "FPGA"},
	} {
		if _, err := containers.Wanted(nil, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: the error is %v, want one with %q", o, err, want)
		}
	}
}

// What Kata needs of the kernel goes by its runtime and by what its configuration says, all drop-ins over it.
func TestKataNamesTheModulesThatItNeeds(t *testing.T) {
	const site = handlerDir + "config.d/60-site.toml"
	for name, c := range map[string]struct {
		files
		o    blueprint.Containers
		want []string
	}{
		"Go":                 {nil, blueprint.Containers{}, []string{"vhost_vsock", "xfrm_user", "nfnetlink", "sch_ingress", "cls_u32", "act_mirred"}},
		"Rust":               {nil, blueprint.Containers{Kata: blueprint.FlavorRust}, []string{"vhost_vsock", "iommufd", "sch_ingress", "cls_u32", "act_mirred"}},
		"said to be so":      {files{site: "[runtime]\ninternetworking_model = 'tcfilter'\n"}, blueprint.Containers{}, []string{"vhost_vsock", "xfrm_user", "nfnetlink", "sch_ingress", "cls_u32", "act_mirred"}},
		"by macvtap":         {files{site: "[runtime]\ninternetworking_model = 'macvtap'\n"}, blueprint.Containers{}, []string{"vhost_vsock", "xfrm_user", "nfnetlink"}},
		"somebody else's":    {nil, blueprint.Containers{Runtime: blueprint.RuntimeNone}, nil},
		"it is not there":    {files{"opt/kata/bin/containerd-shim-kata-v2": ""}, blueprint.Containers{}, nil},
		"hot plug, by CRI-O": {nil, blueprint.Containers{Runtime: blueprint.RuntimeCRIO, HotPlug: true}, []string{"vhost_vsock", "xfrm_user", "nfnetlink", "sch_ingress", "cls_u32", "act_mirred"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, w := open(t, kata().and(c.files), c.o)
			var got []string
			for _, m := range w.Modules {
				got = append(got, m.Name)
				if m.Why == "" || !strings.HasPrefix(m.Config, "CONFIG_") {
					t.Errorf("%+v does not say what it is for, or how a kernel gets it", m)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("modules (-want +got):\n%s", diff)
			}
		})
	}
}

// virtiofsd is looked for where Kata's configuration says, and only where VMs share a directory with the node by it.
func TestKataWithoutItsVirtiofsdIsRefused(t *testing.T) {
	const (
		gpu     = opt + "configuration-qemu-nvidia-gpu.toml"
		site    = handlerDir + "config.d/60-site.toml"
		rustDir = opt + "runtime-rs/kata-gpu/"
		daemon  = "opt/kata/libexec/virtiofsd"
	)
	rust := blueprint.Containers{Kata: blueprint.FlavorRust}
	for name, c := range map[string]struct {
		files
		o    blueprint.Containers
		path string // of the refusal; empty if there is none
	}{
		"not there":                       {files{daemon: ""}, blueprint.Containers{}, daemon},
		"not there, sharing by default":   {files{daemon: "", gpu: strings.Replace(base, "shared_fs", "# shared_fs", 1)}, blueprint.Containers{}, daemon},
		"not where a drop-in says":        {files{site: "[hypervisor.qemu]\nvirtio_fs_daemon = '/usr/libexec/virtiofsd'\n"}, blueprint.Containers{}, "usr/libexec/virtiofsd"},
		"where a drop-in says":            {files{daemon: "", site: "[hypervisor.qemu]\nvirtio_fs_daemon = '/usr/libexec/virtiofsd'\n", "usr/libexec/virtiofsd": "ELF"}, blueprint.Containers{}, ""},
		"behind a link":                   {files{daemon: "-> /usr/libexec/virtiofsd", "usr/libexec/virtiofsd": "ELF"}, blueprint.Containers{}, ""},
		"a link to nothing":               {files{daemon: "-> /usr/libexec/virtiofsd"}, blueprint.Containers{}, daemon},
		"not said which":                  {files{gpu: strings.Replace(base, "virtio_fs_daemon", "# virtio_fs_daemon", 1)}, blueprint.Containers{}, handlerDir + "configuration.toml"},
		"in the PATH":                     {files{daemon: "", site: "[hypervisor.qemu]\nvirtio_fs_daemon = 'virtiofsd'\n"}, blueprint.Containers{}, ""},
		"nothing is shared":               {files{daemon: "", site: "[hypervisor.qemu]\nshared_fs = 'none'\n"}, blueprint.Containers{}, ""},
		"Rust, nothing is shared":         {files{daemon: ""}, rust, ""},
		"Rust, a drop-in shares":          {files{daemon: "", rustDir + "config.d/60-site.toml": "[hypervisor.qemu]\nshared_fs = 'virtio-fs'\ndisable_block_device_use = true\n"}, rust, daemon},
		"Rust, shared by the VMM itself":  {files{daemon: "", rustDir + "config.d/60-site.toml": "[hypervisor.qemu]\nshared_fs = 'inline-virtio-fs'\n"}, rust, ""},
		"Rust, shared by no way's name":   {files{daemon: "", rustDir + "config.d/60-site.toml": "[hypervisor.qemu]\nshared_fs = ''\ndisable_block_device_use = true\n"}, rust, daemon},
		"Kata is somebody else's to have": {files{daemon: ""}, blueprint.Containers{Runtime: blueprint.RuntimeNone}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, w := open(t, kata().and(c.files), c.o)
			if c.path != "" {
				checkRefused(t, w, "kata", c.path, "virtio_fs_daemon")
				return
			}
			if problems := fatal(w); len(problems) > 0 {
				t.Errorf("the problems are %+v", problems)
			}
		})
	}
}

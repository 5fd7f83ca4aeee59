package containers_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/containers"
)

// What Kata needs of the kernel goes by its runtime and by what its configuration says, all drop-ins over it.
func TestKataNamesTheModulesThatItNeeds(t *testing.T) {
	const site = handlerDir + "config.d/60-site.toml"
	for name, c := range map[string]struct {
		files
		o    containers.Options
		want []string
	}{
		"Go":                 {nil, containers.Options{}, []string{"vhost_vsock", "xfrm_user", "nfnetlink", "sch_ingress", "cls_u32", "act_mirred"}},
		"Rust":               {nil, containers.Options{Kata: containers.FlavourRust}, []string{"vhost_vsock", "iommufd", "sch_ingress", "cls_u32", "act_mirred"}},
		"said to be so":      {files{site: "[runtime]\ninternetworking_model = 'tcfilter'\n"}, containers.Options{}, []string{"vhost_vsock", "xfrm_user", "nfnetlink", "sch_ingress", "cls_u32", "act_mirred"}},
		"by macvtap":         {files{site: "[runtime]\ninternetworking_model = 'macvtap'\n"}, containers.Options{}, []string{"vhost_vsock", "xfrm_user", "nfnetlink"}},
		"somebody else's":    {nil, containers.Options{Runtime: containers.RuntimeNone}, nil},
		"it is not there":    {files{"opt/kata/bin/containerd-shim-kata-v2": ""}, containers.Options{}, nil},
		"hot plug, by CRI-O": {nil, containers.Options{Runtime: containers.RuntimeCRIO, HotPlug: true}, []string{"vhost_vsock", "xfrm_user", "nfnetlink", "sch_ingress", "cls_u32", "act_mirred"}},
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
func TestAKataWithoutItsVirtiofsdIsRefused(t *testing.T) {
	const (
		gpu     = opt + "configuration-qemu-nvidia-gpu.toml"
		site    = handlerDir + "config.d/60-site.toml"
		rustDir = opt + "runtime-rs/kata-gpu/"
		daemon  = "opt/kata/libexec/virtiofsd"
	)
	rust := containers.Options{Kata: containers.FlavourRust}
	for name, c := range map[string]struct {
		files
		o    containers.Options
		path string // of the refusal; empty for none
	}{
		"not there":                       {files{daemon: ""}, containers.Options{}, daemon},
		"not there, sharing by default":   {files{daemon: "", gpu: strings.Replace(base, "shared_fs", "# shared_fs", 1)}, containers.Options{}, daemon},
		"not where a drop-in says":        {files{site: "[hypervisor.qemu]\nvirtio_fs_daemon = '/usr/libexec/virtiofsd'\n"}, containers.Options{}, "usr/libexec/virtiofsd"},
		"where a drop-in says":            {files{daemon: "", site: "[hypervisor.qemu]\nvirtio_fs_daemon = '/usr/libexec/virtiofsd'\n", "usr/libexec/virtiofsd": "ELF"}, containers.Options{}, ""},
		"behind a link":                   {files{daemon: "-> /usr/libexec/virtiofsd", "usr/libexec/virtiofsd": "ELF"}, containers.Options{}, ""},
		"a link to nothing":               {files{daemon: "-> /usr/libexec/virtiofsd"}, containers.Options{}, daemon},
		"not said which":                  {files{gpu: strings.Replace(base, "virtio_fs_daemon", "# virtio_fs_daemon", 1)}, containers.Options{}, handlerDir + "configuration.toml"},
		"in the PATH":                     {files{daemon: "", site: "[hypervisor.qemu]\nvirtio_fs_daemon = 'virtiofsd'\n"}, containers.Options{}, ""},
		"nothing is shared":               {files{daemon: "", site: "[hypervisor.qemu]\nshared_fs = 'none'\n"}, containers.Options{}, ""},
		"Rust, nothing is shared":         {files{daemon: ""}, rust, ""},
		"Rust, a drop-in shares":          {files{daemon: "", rustDir + "config.d/60-site.toml": "[hypervisor.qemu]\nshared_fs = 'virtio-fs'\n"}, rust, daemon},
		"Rust, shared by the VMM itself":  {files{daemon: "", rustDir + "config.d/60-site.toml": "[hypervisor.qemu]\nshared_fs = 'inline-virtio-fs'\n"}, rust, ""},
		"Rust, shared by no way's name":   {files{daemon: "", rustDir + "config.d/60-site.toml": "[hypervisor.qemu]\nshared_fs = ''\n"}, rust, daemon},
		"Kata is somebody else's to have": {files{daemon: ""}, containers.Options{Runtime: containers.RuntimeNone}, ""},
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

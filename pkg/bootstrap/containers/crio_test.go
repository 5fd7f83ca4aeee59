package containers_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
)

// crio is a node with CRI-O, and containerd as a package that nobody uses.
func crio() files {
	return kata().and(files{
		"etc/crio/crio.conf":                  "[crio.runtime]\ndefault_runtime = 'crun'\ncdi_spec_dirs = ['/opt/cdi']\n[crio.runtime.runtimes.crun]\nruntime_path = '/usr/bin/crun'\n[crio.nri]\nenable_nri = false\n",
		"usr/lib/systemd/system/crio.service": "[Service]\nExecStart=/usr/bin/crio\n",
		"var/lib/kubelet/kubeadm-flags.env":   `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///var/run/crio/crio.sock --pod-infra-container-image=x"` + "\n",
	})
}

func TestCRIOHasTheHandlerAndKeepsItsOwn(t *testing.T) {
	for _, c := range []struct {
		flavour  blueprint.Flavor
		nic      bool
		handlers int
	}{{blueprint.FlavorGo, false, 1}, {blueprint.FlavorGo, true, 2}, {blueprint.FlavorRust, false, 1}, {blueprint.FlavorRust, true, 2}} {
		flavour, nic := c.flavour, c.nic
		o := blueprint.Containers{Kata: flavour, NICHandler: nic}
		fsys, w := open(t, crio(), o)
		if problems := fatal(w); len(problems) > 0 || content(w, dropIn) != "" {
			t.Fatalf("the problems are %+v, wanted %+v", problems, paths(w))
		}
		if warned := len(w.Problems) == 1; warned != (flavour == blueprint.FlavorGo) {
			t.Errorf("%s: the problems are %+v", flavour, w.Problems)
		}
		apply(t, fsys, w)
		if left := changes(t, fsys, wanted(t, fsys, o)); len(left) > 0 {
			t.Errorf("it wants %v again", left)
		}
		r := seen(fsys)
		if len(r.Handlers) != 1+c.handlers || len(r.Kata()) != c.handlers || r.Kata()[0].IsRust() != (flavour == blueprint.FlavorRust) || !r.NRI.Enabled || !r.NRI.Validator.On() {
			t.Errorf("the audit sees %+v, NRI %+v", r.Handlers, r.NRI)
		}
		if diff := cmp.Diff([]string{"/opt/cdi", "/etc/cdi", "/var/run/cdi"}, r.CDIDirs); diff != "" {
			t.Errorf("the CDI directories differ (-want +got):\n%s", diff)
		}
	}
}

func TestCRIOThatIsNotFitIsRefusedWithItsPath(t *testing.T) {
	const confD = "etc/crio/crio.conf.d/"
	const handler = "[crio.runtime.runtimes.kata-gpu]\n"
	for name, c := range map[string]struct {
		files
		path, word string
	}{
		"broken":                {files{"etc/crio/crio.conf": "[crio\n"}, "etc/crio/crio.conf", "would not start"},
		"another's handler":     {files{confD + "10-kata": handler + "runtime_type = 'oci'\n"}, confD + "10-kata", "runtime_type"},
		"another's after":       {files{confD + "99-kata": handler + "runtime_type = 'vm'\n"}, confD + "99-kata", "read after bootstrap's file"},
		"in a directory below":  {files{confD + "99/x/kata": handler + "runtime_type = 'vm'\n"}, confD + "99/x/kata", "read after bootstrap's file"},
		"a link to a directory": {files{confD + "10-x": "-> /opt"}, confD + "10-x", "would not start"},
		"NRI off after ours":    {files{confD + "99-nri": "[crio.nri]\nenable_nri = false\n"}, confD + "99-nri", "enable_nri"},
	} {
		t.Run(name, func(t *testing.T) {
			_, w := open(t, crio().and(c.files), blueprint.Containers{})
			checkRefused(t, w, "CRI-O", c.path, c.word)
		})
	}
}

func TestDirectoryBesideCRIOsDropInsIsNoObstacle(t *testing.T) {
	_, w := open(t, crio().and(files{"etc/crio/crio.conf.d/10/site": "[crio.runtime]\nlog_level = 'warn'\n"}), blueprint.Containers{Kata: blueprint.FlavorRust})
	if len(w.Problems) > 0 || content(w, "etc/crio/crio.conf.d/50-kata-vfio.conf") == "" {
		t.Errorf("the problems are %+v", w.Problems)
	}
}

func TestCRIOsCgroupsAreComparedToo(t *testing.T) {
	_, w := open(t, crio().and(files{"var/lib/kubelet/config.yaml": "cgroupDriver: cgroupfs\n"}), blueprint.Containers{Kata: blueprint.FlavorRust})
	if len(w.Problems) != 1 || w.Problems[0].Fatal || !strings.Contains(w.Problems[0].Text, "cgroupfs") {
		t.Errorf("the problems are %+v", w.Problems)
	}
}

func TestContainersWithoutRuntime(t *testing.T) {
	of := kata().and(files{"usr/bin/containerd": "", "usr/lib/systemd/system/containerd.service": ""})
	_, w := open(t, of, blueprint.Containers{})
	if problems := fatal(w); len(problems) != 1 || !strings.Contains(problems[0].Text, "neither containerd nor CRI-O") {
		t.Errorf("the problems are %+v", problems)
	}
	_, w = open(t, of, blueprint.Containers{Runtime: blueprint.RuntimeNone})
	if len(w.Files)+len(w.Problems) > 0 {
		t.Errorf("left alone, it wants %v, with the problems %+v", paths(w), w.Problems)
	}
}

package runtimes_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
)

const kataDir = "opt/kata/share/defaults/kata-containers/kata-gpu"

// kata is Kata's configuration of the handler that runtimeclass/ sets up.
func kata(tb testing.TB, of files) *runtimes.Kata {
	tb.Helper()
	of["etc/containerd/config.toml"] = fragment(tb, "containerd/kata-gpu.toml")
	n := node(tb, of)
	h := runtimes.Of(n).Kata()[0]
	return runtimes.LoadKata(n, &h)
}

func TestDropInsComeOverTheBaseByName(t *testing.T) {
	k := kata(t, files{
		kataDir + "/configuration.toml":        "[hypervisor.qemu]\ncold_plug_vfio='no-port'\nenable_annotations=['a','b']\n[runtime]\nenable_debug=true\n",
		kataDir + "/config.d/50-kata-gpu.toml": fragment(t, "kata/50-kata-gpu.toml"),
		kataDir + "/config.d/60-any-name":      "[runtime]\nvfio_mode = 'vfio'\n",
	})
	if !k.OK() {
		t.Fatalf("damaged: %+v", k.Damaged)
	}
	if a := k.Hypervisor("enable_annotations"); !a.IsSet() || len(a.List()) > 0 || !strings.HasSuffix(a.File, "50-kata-gpu.toml") {
		t.Errorf("enable_annotations are %+v: a list has to replace the base's", a)
	}
	if !k.ColdPlugs() || k.HotPlugs() || !k.Runtime("enable_debug").On() {
		t.Errorf("it plugs cold %v, hot %v, debugs %+v", k.ColdPlugs(), k.HotPlugs(), k.Runtime("enable_debug"))
	}
	if mode := k.Runtime("vfio_mode"); mode.Text() != "vfio" || mode.File != "/"+kataDir+"/config.d/60-any-name" {
		t.Errorf("vfio_mode is %+v: every file of config.d counts", mode)
	}
}

func TestDropInsAreBesideWhatALinkLeadsTo(t *testing.T) {
	k := kata(t, files{
		kataDir + "/configuration.toml":                                 "-> ../other/base.toml",
		kataDir + "/config.d/1.toml":                                    "[runtime]\nvfio_mode = 'wrong'\n",
		"opt/kata/share/defaults/kata-containers/other/base.toml":       "[hypervisor.qemu]\n",
		"opt/kata/share/defaults/kata-containers/other/config.d/1.toml": "[runtime]\nvfio_mode = 'right'\n",
	})
	if got := k.Runtime("vfio_mode").Text(); got != "right" {
		t.Errorf("vfio_mode is %q", got)
	}
}

func TestKataConfigurationThatIsNotUnderstoodIsNotOK(t *testing.T) {
	for about, of := range map[string]files{
		"no base":            {},
		"a damaged base":     {kataDir + "/configuration.toml": "[hypervisor"},
		"a damaged drop-in":  {kataDir + "/configuration.toml": "[hypervisor.qemu]\n", kataDir + "/config.d/x": "="},
		"two hypervisors":    {kataDir + "/configuration.toml": "[hypervisor.qemu]\n[hypervisor.clh]\n"},
		"no hypervisor":      {kataDir + "/configuration.toml": "[runtime]\n"},
		"config.d is a file": {kataDir + "/configuration.toml": "[hypervisor.qemu]\n", kataDir + "/config.d/a/b": ""},
	} {
		if k := kata(t, of); k.OK() {
			t.Errorf("%s: it is taken for understood", about)
		}
	}
}

func TestRustRuntimeNamesItsHypervisor(t *testing.T) {
	k := kata(t, files{kataDir + "/configuration.toml": `
[hypervisor.qemu]
path = "/q"
[hypervisor.qemu.factory]
enable_template = true
[hypervisor.cloud-hypervisor]
path = "/c"
[runtime]
hypervisor_name = "qemu"
`})
	if !k.OK() || k.Hypervisor("path").Text() != "/q" || k.VMM() != "qemu" || !k.Factory("enable_template").On() {
		t.Errorf("it is %+v", k)
	}
}

func FuzzKata(f *testing.F) {
	f.Add("[hypervisor.qemu]\na=[{b=1}]\n")
	f.Add("[[hypervisor]]\n")
	f.Add("hypervisor=1\nruntime=[]\nagent={a={}}")
	f.Fuzz(func(t *testing.T, text string) {
		k := kata(t, files{kataDir + "/configuration.toml": text, kataDir + "/config.d/1": text})
		_ = k.Agent("debug_console_enabled").Fact()
		_ = k.Hypervisor("enable_annotations").List()
		_ = k.Factory("vm_cache_number").Number()
	})
}

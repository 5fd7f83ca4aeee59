package runtimes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
)

// bases are what test/e2e/containerd/dropins has containerd itself read.
func bases() map[string]string {
	return map[string]string{
		"which has the import only": `
version = 4
imports = ["/etc/containerd/conf.d/*.toml"]
`,
		"which says the opposite": `
version = 3
imports = ["conf.d/*.toml"]
[plugins.'io.containerd.cri.v1.runtime']
  cdi_spec_dirs = ["/nowhere"]
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata-gpu]
  runtime_type = "io.containerd.runc.v2"
  runtime_path = "/usr/bin/other"
  privileged_without_host_devices = false
  pod_annotations = ["cdi.k8s.io/*", "io.katacontainers.*"]
  container_annotations = ["io.katacontainers.*"]
  sandboxer = "shim"
[plugins.'io.containerd.nri.v1.nri']
  disable = true
[plugins.'io.containerd.nri.v1.nri'.default_validator]
  enable = false
`,
		"of containerd 1.7": `
version = 2
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins."io.containerd.grpc.v1.cri"]
  cdi_spec_dirs = ["/nowhere"]
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata-gpu]
  runtime_type = "io.containerd.kata.v2"
  privileged_without_host_devices = false
  pod_annotations = ["io.katacontainers.*"]
  sandbox_mode = "shim"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
`,
	}
}

func TestDropInHoldsOverABase(t *testing.T) {
	for _, file := range []string{"kata-gpu.toml", "kata-gpu-runtime-rs.toml"} {
		for name, base := range bases() {
			t.Run(file+" over a base "+name, func(t *testing.T) {
				r := runtimes.Of(node(t, files{
					"etc/containerd/config.toml":          base,
					"etc/containerd/conf.d/kata-gpu.toml": fragment(t, "containerd/"+file),
				}))
				checkHandler(t, r, strings.Contains(file, "-rs"))
				if diff := cmp.Diff([]string{"/etc/cdi", "/var/run/cdi"}, r.CDIDirs); diff != "" {
					t.Errorf("the CDI directories differ (-want +got):\n%s", diff)
				}
				if !r.NRI.Enabled || !r.NRI.Validator.On() || r.NRI.RequiredPlugins.IsSet() {
					t.Errorf("NRI is %+v", r.NRI)
				}
			})
		}
	}
}

func checkHandler(t *testing.T, r *runtimes.Runtimes, rust bool) {
	t.Helper()
	if len(r.Damaged) > 0 || len(r.Kata()) != 1 {
		t.Fatalf("damaged files %v, handlers %+v", r.Damaged, r.Handlers)
	}
	h := r.Kata()[0]
	if h.Name != "kata-gpu" || h.Type.Text() != "io.containerd.kata-gpu.v2" || h.IsRust() != rust {
		t.Errorf("the handler is %+v", h)
	}
	if !h.PrivilegedWithoutHostDevices.On() || h.Sandboxer.Text() != "podsandbox" || !h.PodAnnotations.IsSet() {
		t.Errorf("the handler is %+v", h)
	}
	for _, prefix := range []string{"cdi.k8s.io/", "io.katacontainers."} {
		if by, passes := h.Passes(prefix); passes {
			t.Errorf("%s* passes by %+v", prefix, by)
		}
	}
	if h.PodAnnotations.File != "/etc/containerd/conf.d/kata-gpu.toml" {
		t.Errorf("pod_annotations are said to come from %s", h.PodAnnotations.File)
	}
}

func TestImportIsReadAfterTheFileThatNamesIt(t *testing.T) {
	const path = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata]\nruntime_type = %q\n"
	r := runtimes.Of(node(t, files{
		"etc/containerd/config.toml": "version = 3\nimports = ['b.toml', 'a/*.toml']\n" + fmt.Sprintf(path, "base"),
		"etc/containerd/b.toml":      "imports = ['/last.toml', 'config.toml']\nversion = 3\n" + fmt.Sprintf(path, "b"),
		"etc/containerd/a/1.toml":    "version = 3\n" + fmt.Sprintf(path, "a1"),
		"last.toml":                  "version = 3\n" + fmt.Sprintf(path, "last"),
	}))
	var order []string
	for _, f := range r.Files {
		order = append(order, f.Path)
	}
	want := []string{"/etc/containerd/config.toml", "/etc/containerd/b.toml", "/etc/containerd/a/1.toml", "/last.toml"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("the order of files differs (-want +got):\n%s", diff)
	}
	if got := r.Handlers[0].Type; got.Text() != "last" || got.File != "/last.toml" {
		t.Errorf("the type is %+v", got)
	}
}

func TestFileThatDoesNotHelpIsNamed(t *testing.T) {
	for name, of := range map[string]files{
		"/etc/containerd/config.toml:3: toml: ": {"etc/containerd/config.toml": "version = 3\n\n[plugins\n"},
		"/etc/containerd/gone.toml":             {"etc/containerd/config.toml": "imports = ['gone.toml']\n"},
		"brackets or dotted keys":               {"etc/containerd/config.toml": "a = " + strings.Repeat("[", 1<<19)},
		"longer than":                           {"etc/containerd/config.toml": strings.Repeat("# \n", 1<<19)},
	} {
		r := runtimes.Of(node(t, of))
		if len(r.Damaged) != 1 || !strings.Contains(r.Damaged[0].Err+r.Damaged[0].Path, name) {
			t.Errorf("damaged are %+v, want one with %q", r.Damaged, name)
		}
	}
}

func TestLinksAreFollowedBelowTheRoot(t *testing.T) {
	r := runtimes.Of(node(t, files{
		"etc/containerd/config.toml": "-> /opt/config.toml",
		"opt/config.toml":            "-> ../../../../usr/real.toml",
		"usr/real.toml":              "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata]\n",
	}))
	if len(r.Handlers) != 1 {
		t.Errorf("the handlers are %+v, damaged %+v", r.Handlers, r.Damaged)
	}
}

func TestConfigurationIsTheOneOfTheNodesOwnProcess(t *testing.T) {
	const runtime = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.%s]\n"
	of := files{
		"etc/containerd/config.toml": fmt.Sprintf(runtime, "usual"), "k3s/config.toml": fmt.Sprintf(runtime, "k3s"), "pod/x.toml": fmt.Sprintf(runtime, "pod"),
		"docker.toml": "disabled_plugins = ['io.containerd.grpc.v1.cri']\n" + fmt.Sprintf(runtime, "docker"),
	}
	process := func(pid, config string, in namespaces) files {
		return process(pid, "containerd", in, "containerd\x00--config\x00"+config+"\x00")
	}
	none := files{"proc/9/comm": "containerd\n", "proc/9/cmdline": "containerd\x00-c\x00/k3s/config.toml\x00"}
	for about, c := range map[string]struct {
		of      files
		want    string
		damaged int
	}{
		"one of the node's":          {process("9", "/k3s/config.toml", onNode()), "k3s", 0},
		"one in a pod":               {process("9", "/pod/x.toml", inPod()), "usual", 0},
		"one in a pod and the own":   {process("7", "/pod/x.toml", inPod()).and(process("9", "/k3s/config.toml", onNode())), "k3s", 0},
		"with hostPID beside":        {process("7", "/pod/x.toml", inHostPID()).and(process("9", "/k3s/config.toml", onNode())), "k3s", 0},
		"with hostPID alone":         {process("9", "/pod/x.toml", inHostPID()), "usual", 1},
		"with hostPID, no other":     {process("9", "/etc/containerd/config.toml", inHostPID()), "usual", 0},
		"one that nobody can tell":   {none, "usual", 1},
		"one that serves Docker too": {process("7", "/docker.toml", onNode()).and(process("9", "/k3s/config.toml", onNode())), "k3s", 0},
		"two that disagree":          {process("7", "/etc/containerd/config.toml", onNode()).and(process("9", "/k3s/config.toml", onNode())), "usual", 1},
		"two that agree":             {process("7", "/k3s/config.toml", onNode()).and(process("9", "/k3s/config.toml", onNode())), "k3s", 0},
	} {
		r := runtimes.Of(node(t, of.and(c.of)))
		if len(r.Handlers) != 1 || r.Handlers[0].Name != c.want || len(r.Damaged) != c.damaged {
			t.Errorf("%s: the handlers are %+v, want %s; damaged %+v, want %d", about, r.Handlers, c.want, r.Damaged, c.damaged)
		}
	}
}

func TestNodeWithoutRuntimesHasNone(t *testing.T) {
	r := runtimes.Of(node(t, nil))
	if r.Found() || r.NRI != nil {
		t.Errorf("it has %+v", r)
	}
}

func TestVersionOneFileHasTheShortName(t *testing.T) {
	r := runtimes.Of(node(t, files{"etc/containerd/config.toml": "[plugins.cri.containerd.runtimes.kata]\nruntime_type = 'io.containerd.kata.v2'\n"}))
	if len(r.Kata()) != 1 {
		t.Errorf("the handlers are %+v", r.Handlers)
	}
}

func TestCRIODropInsReplaceWholeHandlers(t *testing.T) {
	r := runtimes.Of(node(t, files{
		"etc/crio/crio.conf": `
[crio.runtime]
default_runtime = "crun"
[crio.runtime.runtimes.crun]
runtime_path = "/usr/bin/crun"
[crio.runtime.runtimes.kata]
runtime_type = "vm"
runtime_path = "/usr/bin/other"
privileged_without_host_devices = true
[crio.nri]
enable_nri = false
`,
		"etc/crio/crio.conf.d/sub/10-kata": "[crio.runtime.runtimes.kata]\nruntime_path = '/opt/kata/bin/containerd-shim-kata-v2'\n",
		"etc/crio/crio.conf.d/99-named":    "[crio.runtime.runtimes.kata-gpu]\ninherit_default_runtime = true\n",
	}))
	byName := map[string]runtimes.Handler{}
	for _, h := range r.Handlers {
		byName[h.Name] = h
	}
	kata, named := byName["kata"], byName["kata-gpu"]
	if !kata.IsKata() || kata.PrivilegedWithoutHostDevices.IsSet() {
		t.Errorf("kata is %+v: the drop-in's is a handler of its own", kata)
	}
	if _, passes := kata.Passes("cdi.k8s.io/"); !passes {
		t.Error("CRI-O is said to keep annotations back")
	}
	if named.IsKata() || named.Path.Text() != "/usr/bin/crun" {
		t.Errorf("a handler that is the default's is %+v", named)
	}
	if r.NRI.Enabled {
		t.Error("NRI is said to be on")
	}
}

package dropins_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/cmd/containerd/server/config"
	_ "github.com/containerd/containerd/v2/core/runtime/v2" // its timeouts
	"github.com/containerd/containerd/v2/pkg/timeout"
	_ "github.com/containerd/containerd/v2/plugins/cri/runtime" // the config's type, defaults and migration
	_ "github.com/containerd/containerd/v2/plugins/nri"
	"github.com/containerd/containerd/v2/version"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
)

// source is the directory of what is tested.
const source = "../../../../runtimeclass"

// Plugins of containerd, and their sections.
const (
	criRuntime = "io.containerd.cri.v1.runtime"
	nri        = "io.containerd.nri.v1.nri"
)

// shimCleanup is the limit for ending a VM whose shim was killed.
const shimCleanup = "io.containerd.timeout.shim.cleanup"

// bases are files that a node may have before the drop-in comes. %s is the directory of drop-ins.
func bases() map[string]string {
	return map[string]string{
		"which has the import only": `
version = 4
imports = ["%s/*.toml"]
`,
		"which says the opposite": `
version = 3
imports = ["%s/*.toml"]
[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = false
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
  plugin_request_timeout = "1s"
[plugins.'io.containerd.nri.v1.nri'.default_validator]
  enable = false
`,
		"of containerd 1.7": `
version = 2
imports = ["%s/*.toml"]
[plugins."io.containerd.grpc.v1.cri"]
  enable_cdi = false
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

// handler is what counts of a runtime, as containerd's own type names it in JSON.
type handler struct {
	Type                         string         `json:"runtimeType"`
	Path                         string         `json:"runtimePath"`
	PodAnnotations               []string       `json:"PodAnnotations"`
	ContainerAnnotations         []string       `json:"ContainerAnnotations"`
	Options                      map[string]any `json:"options"`
	PrivilegedWithoutHostDevices bool           `json:"privileged_without_host_devices"`
	AllDevicesAllowed            bool           `json:"privileged_without_host_devices_all_devices_allowed"`
	Sandboxer                    string         `json:"sandboxer"`
}

// outcome is what containerd makes of its files.
type outcome struct {
	CRI struct {
		CDISpecDirs []string `json:"cdiSpecDirs"`
		Containerd  struct {
			Runtimes map[string]handler `json:"runtimes"`
		} `json:"containerd"`
	}
	NRI struct {
		Disable          bool   `json:"disable"`
		RequestTimeout   string `json:"pluginRequestTimeout"`
		DefaultValidator struct {
			Enable          bool
			RequiredPlugins []string
		} `json:"defaultValidator"`
	}
	// ShimCleanup is how long containerd lets Kata end a VM whose shim was killed.
	ShimCleanup time.Duration
	Timeouts    map[string]string
}

func TestDropInHoldsOverABase(t *testing.T) {
	for file, want := range map[string]handler{
		"kata-gpu.toml": {
			Path:    "/opt/kata/bin/containerd-shim-kata-v2",
			Options: options("/opt/kata/share/defaults/kata-containers/kata-gpu/configuration.toml"),
		},
		"kata-gpu-runtime-rs.toml": {
			Path:    "/opt/kata/runtime-rs/bin/containerd-shim-kata-v2",
			Options: options("/opt/kata/share/defaults/kata-containers/runtime-rs/kata-gpu/configuration.toml"),
		},
	} {
		want.Type, want.Sandboxer, want.PrivilegedWithoutHostDevices = "io.containerd.kata-gpu.v2", "podsandbox", true
		// Not nil: an empty list that was written.
		want.PodAnnotations, want.ContainerAnnotations = []string{}, []string{}
		for name, base := range bases() {
			t.Run(file+" over a base "+name, func(t *testing.T) {
				got := load(t, base, file)
				if diff := cmp.Diff(want, got.CRI.Containerd.Runtimes["kata-gpu"]); diff != "" {
					t.Errorf("the handler differs (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff([]string{"/etc/cdi", "/var/run/cdi"}, got.CRI.CDISpecDirs); diff != "" {
					t.Errorf("the CDI directories differ (-want +got):\n%s", diff)
				}
				checkNRI(t, got)
				checkTimeouts(t, got, map[string]string{shimCleanup: "60s"})
			})
		}
	}
}

// checkTimeouts wants the clean-up after a shim longer than it takes to unpin hundreds of GiB, and shorter than systemd
// waits for containerd's start; and no other timeout but the wanted.
func checkTimeouts(t *testing.T, got outcome, want map[string]string) {
	t.Helper()
	if got.ShimCleanup < 30*time.Second || got.ShimCleanup >= 90*time.Second {
		t.Errorf("the clean-up after a shim has %s", got.ShimCleanup)
	}
	if diff := cmp.Diff(want, got.Timeouts); diff != "" {
		t.Errorf("the timeouts differ (-want +got):\n%s", diff)
	}
}

// containerd knows the timeout by this name: one that it does not know it takes without a word.
func TestContainerdKnowsTheTimeout(t *testing.T) {
	if limit, ok := timeout.All()[shimCleanup]; !ok || limit != 5*time.Second {
		t.Errorf("containerd's default for %s is %s, known: %t; the fragments and rule RT-029 say 5 s", shimCleanup, limit, ok)
	}
}

// A drop-in's timeouts merge with those of the files before it, key by key.
func TestDropInChangesNoOtherTimeout(t *testing.T) {
	const base = `
version = 3
imports = ["%s/*.toml"]
[timeouts]
  "io.containerd.timeout.shim.load" = "7s"
  "io.containerd.timeout.shim.cleanup" = "5s"
`
	got := load(t, base, "kata-gpu.toml")
	checkTimeouts(t, got, map[string]string{"io.containerd.timeout.shim.load": "7s", shimCleanup: "60s"})
}

func options(path string) map[string]any { return map[string]any{"ConfigPath": path} }

// checkNRI looks at what makes the annotation of required plugins count.
func checkNRI(t *testing.T, got outcome) {
	t.Helper()
	if v := got.NRI.DefaultValidator; got.NRI.Disable || !v.Enable || len(v.RequiredPlugins) > 0 ||
		got.NRI.RequestTimeout != "10s" {
		t.Errorf("NRI has %+v, want it on, its validator on and requiring nothing of every pod, and 10 s", got.NRI)
	}
}

// The drop-in must leave the node's other runtimes alone.
func TestDropInChangesNoOtherRuntime(t *testing.T) {
	const base = `
version = 3
imports = ["%s/*.toml"]
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata]
  runtime_type = "io.containerd.kata.v2"
  pod_annotations = ["io.katacontainers.*"]
`
	with, without := load(t, base, "kata-gpu.toml", "kata-vfio.toml"), load(t, base)
	delete(with.CRI.Containerd.Runtimes, "kata-gpu")
	nic := with.CRI.Containerd.Runtimes["kata-vfio"]
	if nic.Path != "/opt/kata/bin/containerd-shim-kata-v2" || !nic.PrivilegedWithoutHostDevices || len(nic.PodAnnotations) != 0 {
		t.Errorf("the handler for NICs is %+v", nic)
	}
	delete(with.CRI.Containerd.Runtimes, "kata-vfio")
	if diff := cmp.Diff(without.CRI.Containerd, with.CRI.Containerd); diff != "" {
		t.Errorf("the other runtimes differ (-without +with the drop-in):\n%s", diff)
	}
	if len(without.CRI.Containerd.Runtimes["kata"].PodAnnotations) != 1 {
		t.Errorf("the base's runtime is %+v", without.CRI.Containerd.Runtimes["kata"])
	}
}

// A key that containerd does not know is only a warning in its log: what it should have done is not done.
func TestContainerdKnowsEveryKeyOfTheDropIn(t *testing.T) {
	var known []string
	if !strings.HasPrefix(version.Version, "2.3.") { // containerd before 2.4 knows it, and there it matters
		known = []string{criRuntime + " enable_cdi"}
	}
	for file, want := range map[string][]string{
		"kata-gpu.toml": known, "kata-gpu-runtime-rs.toml": known, "kata-vfio.toml": nil, "kata-vfio-runtime-rs.toml": nil,
	} {
		text, err := os.ReadFile(filepath.Join(source, "containerd", file))
		if err != nil {
			t.Fatal(err)
		}
		var dropIn config.Config
		if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&dropIn); err != nil {
			t.Fatal(err)
		}
		var unknown []string
		for uri, section := range dropIn.Plugins {
			unknown = append(unknown, unknownKeys(t, uri, section)...)
		}
		if diff := cmp.Diff(want, unknown); diff != "" {
			t.Errorf("%s: the unknown keys differ (-want +got):\n%s", file, diff)
		}
	}
}

func unknownKeys(t *testing.T, uri string, section any) []string {
	t.Helper()
	text, err := toml.Marshal(section)
	if err != nil {
		t.Fatal(err)
	}
	err = toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(copied(t, registered(t, uri).Config))
	missing, ok := errors.AsType[*toml.StrictMissingError](err)
	if err != nil && !ok {
		t.Fatal(err)
	}
	var keys []string
	if ok {
		for _, e := range missing.Errors {
			keys = append(keys, uri+" "+strings.Join(e.Key(), "."))
		}
	}
	return keys
}

// registered is a plugin as containerd registers it.
func registered(t *testing.T, uri string) plugin.Registration {
	t.Helper()
	plugins := plugins()
	at := slices.IndexFunc(plugins, func(r plugin.Registration) bool { return r.URI() == uri })
	if at < 0 {
		t.Fatalf("containerd has no plugin %s", uri)
	}
	return plugins[at]
}

func plugins() []plugin.Registration {
	return registry.Graph(func(*plugin.Registration) bool { return false })
}

// load has containerd read a base and the drop-ins beside it, as its start does.
func load(t *testing.T, base string, dropIns ...string) outcome {
	t.Helper()
	dir := t.TempDir()
	for _, name := range dropIns {
		text, err := os.ReadFile(filepath.Join(source, "containerd", name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "conf.d", name), string(text))
	}
	path := filepath.Join(dir, "config.toml")
	write(t, path, fmt.Sprintf(base, filepath.Join(dir, "conf.d")))
	return loadFile(t, path)
}

// loadFile has containerd read a file and what it imports.
func loadFile(t *testing.T, path string) outcome {
	t.Helper()
	loaded := &config.Config{Version: version.ConfigVersion, Plugins: map[string]any{}}
	all := func() iter.Seq[plugin.Registration] { return slices.Values(plugins()) }
	if err := config.LoadConfigWithPlugins(t.Context(), path, all, loaded); err != nil {
		t.Fatal(err)
	}
	var got outcome
	section(t, loaded, criRuntime, &got.CRI)
	section(t, loaded, nri, &got.NRI)
	got.Timeouts = loaded.Timeouts
	if limit, ok := loaded.Timeouts[shimCleanup]; ok {
		var err error
		if got.ShimCleanup, err = time.ParseDuration(limit); err != nil { // with which containerd does not start
			t.Fatal(err)
		}
	}
	return got
}

// section decodes a plugin's section over its defaults, which the registry keeps: they are copied first. The plugin's
// type is containerd's own business, so it is looked at through its JSON.
func section(t *testing.T, loaded *config.Config, uri string, into any) {
	t.Helper()
	decoded, err := loaded.Decode(t.Context(), uri, copied(t, registered(t, uri).Config))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(decoded)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// copied is a plugin's default config as a value of its own.
func copied(t *testing.T, defaults any) any {
	t.Helper()
	text, err := toml.Marshal(defaults)
	if err != nil {
		t.Fatal(err)
	}
	fresh := reflect.New(reflect.TypeOf(defaults).Elem()).Interface()
	if err := toml.Unmarshal(text, fresh); err != nil {
		t.Fatal(err)
	}
	return fresh
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

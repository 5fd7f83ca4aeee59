package bootstrap_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// talosNode is a node whose image has a system extension with Kata.
func talosNode(t *testing.T, version string) *node {
	t.Helper()
	n := newNode(t, withoutFile(with(map[string]string{
		"etc/os-release": fmt.Sprintf("NAME=\"Talos\"\nID=talos\nVERSION_ID=%s\nPRETTY_NAME=\"Talos (%s)\"\n", version, version), "proc/cmdline": "talos.platform=metal\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0\n", "proc/meminfo": "Hugepagesize:       2048 kB\n",
		"usr/bin/containerd": "ELF", "etc/containerd/config.toml": "version = 3\n",
		"usr/local/bin/containerd-shim-kata-v2":                   "ELF",
		"usr/local/share/kata-containers/configuration-qemu.toml": kataBase,
	}), "usr/lib/systemd"))
	return n
}

const talosBlueprint = "kernel: {hugePages: [{size: 2Mi, count: 512}]}\nvfio: {keepOff: [\"0000:c1:00.0\"]}\ncontainers: {runtime: containerd, base: NIC}\n"

// TestTalosIsGivenItsConfig compares all that is printed for each form of containerd's configuration.
func TestTalosIsGivenItsConfig(t *testing.T) {
	for _, version := range []string{"v1.13.2", "v1.14.0"} {
		p := talosNode(t, version).plan(parse(t, talosBlueprint))
		var b strings.Builder
		fmt.Fprintf(&b, "%s\n\n%s\n%s\n", p.Notice, p.Talos.Schematic, p.Talos.MachineConfig)
		for _, problem := range p.Problems {
			fmt.Fprintf(&b, "%s: %s\n  %s\n", problem.Code, problem.Text, problem.Fix)
		}
		golden := filepath.Join("testdata", "talos-"+version+".txt")
		if *update {
			if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(golden, []byte(b.String()), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), b.String()); diff != "" {
			t.Errorf("%s (-want +got; -update rewrites it):\n%s", golden, diff)
		}
	}
}

// machineConfig has the fields that a machine config's documents are read by.
type machineConfig struct {
	Kind, Name, Content string
	Machine             struct {
		Kernel struct {
			Modules []struct {
				Name       string
				Parameters []string
			}
		}
		Sysctls map[string]string
		Udev    struct{ Rules []string }
		Files   []struct{ Path, Op, Content string }
	}
}

// TestTalosReadsItsConfig: the documents are YAML, containerd's part is TOML without a version, and the handler's
// configuration is one of the files.
func TestTalosReadsItsConfig(t *testing.T) {
	for version, part := range map[string]string{"v1.13.2": "/etc/cri/conf.d/20-customization.part", "v1.14.0": "kata-vfio"} {
		text := talosNode(t, version).plan(parse(t, talosBlueprint)).Talos.MachineConfig
		contents, machine := map[string]string{}, machineConfig{}
		for document := range strings.SplitSeq(text, "---\n") {
			var c machineConfig
			if err := yaml.UnmarshalStrict([]byte(document), &c); err != nil && !strings.Contains(err.Error(), "unknown field") {
				t.Fatalf("%s: %v\n%s", version, err, document)
			}
			if c.Kind != "" {
				contents[c.Name] = c.Content
				continue
			}
			machine = c
			for _, f := range c.Machine.Files {
				contents[f.Path] = f.Content
				if f.Op != "create" || !strings.HasPrefix(f.Path, "/var/") && f.Path != part {
					t.Errorf("%s: Talos does not %s %s", version, f.Op, f.Path)
				}
			}
		}
		m := machine.Machine
		if len(m.Kernel.Modules) < 2 || m.Sysctls["vm.nr_hugepages"] != "512" || len(m.Udev.Rules) < 2 {
			t.Errorf("%s: modules, sysctls and rules are %+v", version, m)
		}
		var containerd struct {
			Version int
			Plugins map[string]struct {
				Containerd struct {
					Runtimes map[string]struct{ Options struct{ ConfigPath string } }
				}
			}
		}
		if err := toml.Unmarshal([]byte(contents[part]), &containerd); err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		config := containerd.Plugins["io.containerd.cri.v1.runtime"].Containerd.Runtimes["kata-gpu"].Options.ConfigPath
		if containerd.Version != 0 || contents[config] == "" {
			t.Errorf("%s: version %d, and the handler's configuration %q is none of %q", version, containerd.Version, config, contents)
		}
	}
}

// TestTalosIsRefusedUntilItHasTheArguments, and then has manual steps only.
func TestTalosIsRefusedUntilItHasTheArguments(t *testing.T) {
	n, b := talosNode(t, "v1.14.0"), parse(t, talosBlueprint)
	before := n.snapshot()
	_, err := n.engine().Apply(t.Context(), b, "")
	if _, ok := errors.AsType[*bootstrap.RefusedError](err); !ok || !strings.Contains(err.Error(), "(with -o json: .talos)") {
		t.Errorf("error %v", err)
	}
	n.same(before, "after the refusal")
	n.put("proc/cmdline", "talos.platform=metal intel_iommu=on iommu=nopt\n")
	p := n.plan(b)
	if p.Talos == nil || problem(p, "Talos has the kernel's arguments") {
		t.Errorf("with all arguments there: %+v, %+v", p.Talos, p.Problems)
	}
}

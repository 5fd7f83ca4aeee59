package host_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/manager"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const (
	activationUnit = "etc/systemd/system/kata-vfio-partition@.service"
	enabled        = "etc/systemd/system/multi-user.target.wants/kata-vfio-partition@"
)

// activated has a node with Fabric Manager and these files activate partitions 0 and 7.
func activated(files tree) state.Wanted {
	tr := tree{managerConfig: vendorConfig, "usr/local/bin/kata-vfio-fabric": "ELF"}
	maps.Copy(tr, files)
	b := blueprint.Default()
	b.Fabric = blueprint.Fabric{Partitions: true, Activate: []int{0, 7}}
	return host.Wanted(tr, b, &host.Platform{Systemd: true})
}

// TestPartitionsAreActivatedAtBoot: the unit makes a call that kata-vfio-fabric takes, and has an instance for each partition.
func TestPartitionsAreActivatedAtBoot(t *testing.T) {
	w := activated(nil)
	unit := content(t, w, activationUnit)
	for _, line := range []string{"Requires=nvidia-fabricmanager.service", "After=nvidia-fabricmanager.service", "Before=kubelet.service k3s.service k3s-agent.service rke2-server.service rke2-agent.service", "Type=oneshot"} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("the unit lacks %s:\n%s", line, unit)
		}
	}
	request := ranByUnit(t, unit, 3)
	d := json.NewDecoder(strings.NewReader(strings.ReplaceAll(request, "%i", "7")))
	d.DisallowUnknownFields()
	var r manager.Request
	if err := d.Decode(&r); err != nil || r.Check() != nil || r.Call != fabric.CallActivate || *r.ID != 7 || r.Address != v1alpha1.DefaultFabricAddress {
		t.Errorf("the unit asks %q: %+v, %v, %v", request, r, err, r.Check())
	}
	var links []string
	for _, f := range w.Files {
		if strings.HasPrefix(f.Path, enabled) && f.Target == "/"+activationUnit && slices.Contains(f.Then, state.Reboot) {
			links = append(links, f.Path)
		}
	}
	if want := []string{enabled + "0.service", enabled + "7.service"}; !slices.Equal(links, want) || len(w.Problems) > 0 {
		t.Errorf("got the links %q, want %q; problems %+v", links, want, w.Problems)
	}
}

// ranByUnit runs the unit's command as systemd does, with a program that fails some times, and returns what the program read at last.
func ranByUnit(t *testing.T, unit string, fails int) string {
	t.Helper()
	_, call, _ := strings.Cut(unit, "\nEnvironment='CALL=")
	call, _, _ = strings.Cut(call, "'\n")
	_, script, found := strings.Cut(unit, "\nExecStart=/bin/sh -c '")
	script, _, _ = strings.Cut(script, "'\n")
	if !found || strings.ContainsAny(call+script, "'\\") {
		t.Fatalf("the unit's command needs another quoting:\n%s", unit)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"sleep": "exit 0", "program": fmt.Sprintf("cat > %[1]s/read; echo >> %[1]s/tries; [ $(wc -l < %[1]s/tries) -gt %[2]d ]", dir, fails),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	script = strings.NewReplacer("$$", "$", "/usr/local/bin/kata-vfio-fabric", filepath.Join(dir, "program")).Replace(script)
	run := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	run.Env = append(os.Environ(), "CALL="+call, "PATH="+dir+":"+os.Getenv("PATH"))
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	read, err := os.ReadFile(filepath.Join(dir, "read"))
	if err != nil {
		t.Fatal(err)
	}
	return string(read)
}

// TestPartitionsAreActivatedByOne: not by units and by the plugin, and not without the program.
func TestPartitionsAreActivatedByOne(t *testing.T) {
	const config = "etc/kata-vfio/node.yaml"
	const head = "apiVersion: resource.kata-vfio.dev/v1alpha1\nkind: NodeConfig\n"
	for name, c := range map[string]struct {
		files tree
		want  rule.Code
		units bool
	}{
		"a node config without fabric": {tree{config: head}, "", true},
		"a node config with fabric":    {tree{config: head + "fabric: {}\n"}, rule.PartitionsActivatedTwice, false},
		"a damaged node config":        {tree{config: "kind: Node\n"}, rule.FileDamaged, false},
	} {
		w := activated(c.files)
		var got rule.Code
		for _, p := range w.Problems {
			got = p.Code
			if !p.Fatal {
				t.Errorf("%s: %+v, want a fatal problem", name, p)
			}
		}
		units := slices.ContainsFunc(w.Files, func(f state.File) bool { return f.Path == activationUnit })
		if got != c.want || units != c.units {
			t.Errorf("%s: got the problem %q and units %t, want %q, %t", name, got, units, c.want, c.units)
		}
	}
	b := blueprint.Default()
	b.Fabric = blueprint.Fabric{Partitions: true, Activate: []int{0}}
	w := host.Wanted(tree{managerConfig: vendorConfig}, b, &host.Platform{Systemd: true})
	if len(w.Problems) != 1 || w.Problems[0].Code != rule.FabricProgramMissing || w.Problems[0].Fatal {
		t.Errorf("without the program: got %+v, want a warning %s", w.Problems, rule.FabricProgramMissing)
	}
}

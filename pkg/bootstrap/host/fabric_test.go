package host_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const (
	managerConfig = "usr/share/nvidia/nvswitch/fabricmanager.cfg"
	ourConfig     = "etc/kata-vfio/fabricmanager.cfg"
)

// vendorConfig is the part of the vendor's file that matters.
const vendorConfig = `# Description: Fabric Manager Operating Mode
FABRIC_MODE=0
# Description: Fabric Manager operates in resiliency mode, such as FABRIC_MODE_RESTART=1
FABRIC_MODE_RESTART = 1
FM_CMD_BIND_INTERFACE=127.0.0.1
UNIX_SOCKET_PATH=
LOG_LEVEL=4`

func fabricWanted(tr tree) state.Wanted {
	b := blueprint.Default()
	b.Fabric.Partitions = true
	return host.Wanted(tr, b, &host.Platform{Systemd: true})
}

// TestFabricManagerIsConfigured: keys get their values, and the rest of the vendor's file stays as it is.
func TestFabricManagerIsConfigured(t *testing.T) {
	w := fabricWanted(tree{managerConfig: vendorConfig})
	want := `# Description: Fabric Manager Operating Mode
FABRIC_MODE=1
# Description: Fabric Manager operates in resiliency mode, such as FABRIC_MODE_RESTART=1
FABRIC_MODE_RESTART=0
FM_CMD_BIND_INTERFACE=127.0.0.1
UNIX_SOCKET_PATH=
LOG_LEVEL=4
STATE_FILE_NAME=/var/lib/kata-vfio-fabric/fabricmanager.state
FM_CMD_UNIX_SOCKET_PATH=/run/kata-vfio-fabric/fabricmanager.sock
`
	if got := content(t, w, ourConfig); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// The vendor's next version may have these settings already.
	if got := content(t, fabricWanted(tree{managerConfig: want}), ourConfig); got != want {
		t.Errorf("a second time:\n%s", got)
	}
	dropIn := fabricFile(t, w, "etc/systemd/system/nvidia-fabricmanager.service.d/50-kata-vfio.conf")
	for _, line := range []string{"Requires=kata-vfio-fabric.service", "After=kata-vfio-fabric.service", "Restart=always"} {
		if !strings.Contains(dropIn, "\n"+line+"\n") {
			t.Errorf("the drop-in lacks %s:\n%s", line, dropIn)
		}
	}
}

func fabricFile(t *testing.T, w state.Wanted, name string) string {
	t.Helper()
	for _, f := range w.Files {
		if f.Path == name {
			return string(f.Content)
		}
	}
	t.Fatalf("no file %s", name)
	return ""
}

// TestFabricManagerIsLeftAlone without the blueprint's word, and refused where it is not installed.
func TestFabricManagerIsLeftAlone(t *testing.T) {
	for _, file := range host.Wanted(tree{managerConfig: vendorConfig}, blueprint.Default(), &host.Platform{Systemd: true}).Files {
		if file.Part == "fabric" {
			t.Errorf("without the blueprint's word: wants %s", file.Path)
		}
	}
	w := fabricWanted(tree{})
	if len(w.Problems) != 1 || w.Problems[0].Code != rule.NoFabricManager || !w.Problems[0].Fatal {
		t.Errorf("without Fabric Manager: got %+v, want %s", w.Problems, rule.NoFabricManager)
	}
}

// TestFabricManagerResumesForClaims runs the service's command: Fabric Manager resumes only if a claim of this boot has a partition.
func TestFabricManagerResumesForClaims(t *testing.T) {
	service := fabricFile(t, fabricWanted(tree{managerConfig: vendorConfig}), "etc/systemd/system/kata-vfio-fabric.service")
	_, command, ok := strings.Cut(service, "ExecStart=/bin/sh -ec '")
	command, _, ok2 := strings.Cut(command, "'\n")
	if !ok || !ok2 {
		t.Fatalf("no command in\n%s", service)
	}
	const partition = `{"name":"partition","value":"3 (modules 1, 3)"}`
	for _, c := range []struct{ name, record, want string }{
		{"no claim", "", "0"},
		{"a claim without a partition", `{"bootID":"this-boot"}`, "0"},
		{"a claim with one", `{"bootID":"this-boot","settings":[` + partition + `]}`, "1"},
		{"a claim of an earlier boot", `{"bootID":"that-boot","settings":[` + partition + `]}`, "0"},
	} {
		root := t.TempDir()
		for name, text := range map[string]string{
			"proc/sys/kernel/random/boot_id": "this-boot\n", ourConfig: "FABRIC_MODE=1\nFABRIC_MODE_RESTART=0\n",
			"var/lib/kata-vfio/journal/claim.json": c.record, "run/kata-vfio-fabric/x": "",
		} {
			if name == "var/lib/kata-vfio/journal/claim.json" && text == "" {
				continue
			}
			file := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		// As systemd reads it: lines are joined, and two $ are one (systemd.service(5)).
		script := strings.NewReplacer("\\\n", " ", "$$", "$", " /etc/", " "+root+"/etc/", ">/run/", ">"+root+"/run/", " /var/", " "+root+"/var/", " /proc/", " "+root+"/proc/").Replace(command)
		if out, err := exec.CommandContext(t.Context(), "/bin/sh", "-ec", script).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", c.name, err, out)
		}
		got, err := os.ReadFile(filepath.Join(root, "run/kata-vfio-fabric/fabricmanager.cfg"))
		if want := "FABRIC_MODE=1\nFABRIC_MODE_RESTART=" + c.want + "\n"; err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", c.name, got, err, want)
		}
	}
}

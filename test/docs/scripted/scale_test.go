package scripted_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/test/board"
	"github.com/kata-vfio/kata-vfio/test/docs"
)

const scaleGuide = "deploy/guides/at-scale.md"

// decoded reads the one block of YAML below a heading.
func decoded[T any](t *testing.T, heading string) *T {
	t.Helper()
	into := new(T)
	if err := yaml.Unmarshal([]byte(yamlOf(t, scaleGuide, heading)[0]), into); err != nil {
		t.Fatal(err)
	}
	return into
}

// TestRebootSentinel runs kured's command on a node with each outcome of a verify, in this boot and before it.
func TestRebootSentinel(t *testing.T) {
	values := decoded[struct {
		Configuration struct{ RebootSentinelCommand string }
	}](t, "Reboot nodes one after the other")
	m := newMachine(t, board.IdleHGX(t, 0), nil)
	reboots := func() bool {
		t.Helper()
		out, failed := m.Node.Run(values.Configuration.RebootSentinelCommand + "\n")
		if strings.Contains(out, "syntax") {
			t.Fatal(out)
		}
		return failed == nil
	}
	if reboots() {
		t.Error("a node without a record is rebooted")
	}
	for _, c := range []struct {
		outcome string
		boot    time.Duration // since now
		want    bool
	}{
		{"reboot needed", -time.Hour, true},
		{"reboot needed", time.Hour, false}, // the record is from before the boot
		{"fit", -time.Hour, false},
		{"changes needed", -time.Hour, false},
		{"can't be made fit", -time.Hour, false},
	} {
		difference := state.Difference{Part: "kernel", What: "reboot", Why: "outcome: reboot needed"}
		text, err := state.NewRecord(time.Now(), "gpu-nodes", c.outcome, []state.Difference{difference}, nil).Encode()
		if err != nil {
			t.Fatal(err)
		}
		m.Node.Put(state.RecordFile, string(text))
		m.Node.Put("proc/stat", fmt.Sprintf("cpu 1 2 3\nbtime %d\n", time.Now().Add(c.boot).Unix()))
		if got := reboots(); got != c.want {
			t.Errorf("%s, booted %v from now: rebooted %v, want %v", c.outcome, c.boot, got, c.want)
		}
	}
}

// TestBatches runs the commands that label nodes in batches.
func TestBatches(t *testing.T) {
	m := newMachine(t, board.IdleHGX(t, 0), nil)
	for _, step := range docs.Steps(t, scaleGuide, "Restart container runtimes in batches") {
		m.follow(step)
	}
}

// TestCloudInit runs the commands of the user data on a node of an image with Kata.
func TestCloudInit(t *testing.T) {
	data := decoded[struct {
		WriteFiles []struct{ Path, Content string } `json:"write_files"`
		Runcmd     []string
		PowerState struct{ Condition string } `json:"power_state"`
	}](t, "cloud-init")
	m := newMachine(t, board.IdleHGX(t, 0), kata())
	for _, f := range data.WriteFiles {
		if _, err := blueprint.Parse([]byte(f.Content)); err != nil {
			t.Error(err)
		}
		m.Node.Put(strings.TrimPrefix(f.Path, "/"), f.Content)
	}
	if _, failed := m.Node.Run(data.PowerState.Condition + "\n"); failed == nil {
		t.Error("the node is rebooted before anything was changed")
	}
	m.Script("usr/bin/touch", "echo > \"$1\"\n")
	m.Node.Run(strings.Join(data.Runcmd, "\n") + "\n")
	if out, failed := m.Node.Run(data.PowerState.Condition + "\n"); failed != nil {
		t.Errorf("the node is not rebooted: %q\n%s", failed, out)
	}
	m.boot()
	if out, failed := m.Node.Run("kata-vfio-bootstrap verify\n"); failed != nil {
		t.Errorf("after the boot: %q\n%s", failed, out)
	}
}

// TestPlaybook runs the playbook's commands on a node, with the exit codes that its conditions are about.
func TestPlaybook(t *testing.T) {
	plays := decoded[[]struct {
		Tasks []struct {
			Name    string
			Command string `json:"ansible.builtin.command"`
			Failed  string `json:"failed_when"`
		}
	}](t, "Ansible")
	m := newMachine(t, board.IdleHGX(t, 0), kata())
	m.Node.Put("etc/kata-vfio/blueprint.yaml", "apiVersion: "+blueprint.APIVersion+"\nkind: "+blueprint.Kind+"\n")
	ran := 0
	for _, task := range (*plays)[0].Tasks {
		if task.Name == "Reboot the node" {
			m.boot()
		}
		if !strings.HasPrefix(task.Command, "kata-vfio-bootstrap") {
			continue
		}
		ran++
		out, failed := m.Node.Run(task.Command + "\n")
		code := "0"
		if failed != nil {
			code, _, _ = strings.Cut(failed[0], ":")
		}
		if want := map[string]string{"Configure the node": "4", "Check the node": "0"}[task.Name]; code != want {
			t.Errorf("%s ends with %s, want %s:\n%s", task.Name, code, want, out)
		}
		if task.Failed != "" && task.Failed != "bootstrap.rc not in [0, 3, 4]" {
			t.Errorf("%s fails when %s", task.Name, task.Failed)
		}
	}
	if ran != 2 {
		t.Errorf("%d commands of bootstrap, want 2", ran)
	}
}

package plugin_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// bootWith returns a node with one port whose ACS control is as given.
func bootWith(bootID string, control uint16) *device.Snapshot {
	return &device.Snapshot{Host: device.Host{BootID: bootID}, Functions: []device.Function{
		{Address: pci.Address{Bus: 1}, Capabilities: pci.Capabilities{ACS: &pci.ACS{Capability: 0x1d, Control: control}}},
	}}
}

func readNote[T any](t *testing.T, dir, name string) T {
	t.Helper()
	var v T
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestBaselineIsKeptOncePerBoot: a plugin that starts again later in the boot,
// when ACS may have been tampered with, leaves it alone.
func TestBaselineIsKeptOncePerBoot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	for _, c := range []struct {
		about  string
		before string
		snap   *device.Snapshot
		want   uint16
	}{
		{"first start", "", bootWith("b1", 0x1d), 0x1d},
		{"started again", "", bootWith("b1", 0), 0x1d},
		{"next boot", "", bootWith("b2", 0x0c), 0x0c},
		{"damaged", "{", bootWith("b2", 0x1c), 0x1c},
	} {
		if c.before != "" {
			if err := os.WriteFile(filepath.Join(dir, facts.BaselineFile), []byte(c.before), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		notes := plugin.NewRunFiles(dir)
		for range 2 {
			if err := notes.Keep(c.snap); err != nil {
				t.Fatal(err)
			}
		}
		got := readNote[facts.Baseline](t, dir, facts.BaselineFile)
		want := facts.Baseline{BootID: c.snap.Host.BootID, Functions: map[pci.Address]facts.Registers{{Bus: 1}: {
			Identity: device.Identity{BootID: c.snap.Host.BootID}, ACS: &c.want,
		}}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.about, diff)
		}
	}
}

func TestPublishedIsWrittenWhenItChanges(t *testing.T) {
	n, r, dir := plugintest.New(t), &plugintest.Recorder{}, t.TempDir()
	notes := plugin.NewRunFiles(dir)
	say := func() facts.Published {
		n.Publish(r)
		published := n.Publisher.Published()
		published.BootID = "b1"
		if err := notes.Publish(published); err != nil {
			t.Fatal(err)
		}
		return readNote[facts.Published](t, dir, facts.PublishedFile)
	}
	if diff := cmp.Diff(facts.Published{BootID: "b1", NodeName: "worker-1", Devices: []pci.Address{}}, say()); diff != "" {
		t.Errorf("nothing published (-want +got):\n%s", diff)
	}
	gpu := n.Kernel.AddGPU(0x3b)
	if diff := cmp.Diff(facts.Published{BootID: "b1", NodeName: "worker-1", Devices: []pci.Address{gpu}}, say()); diff != "" {
		t.Errorf("one GPU (-want +got):\n%s", diff)
	}
	file := filepath.Join(dir, facts.PublishedFile)
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	say()
	if after, err := os.Stat(file); err != nil || !os.SameFile(before, after) {
		t.Errorf("written again though nothing changed (%v)", err)
	}
	n.Reopen(func(c *prepare.Config) { c.HotPlugWindow = 2 << 20 })
	if got := say(); got.HotPlugWindow != 2<<20 {
		t.Errorf("it says %+v, and not the window by which functions are tainted", got)
	}
}

func TestNotesThatCanNotBeWrittenSayWhere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	notes := plugin.NewRunFiles(filepath.Join(dir, "run"))
	if err := notes.Keep(bootWith("b1", 0)); err == nil {
		t.Error("Keep gave no error")
	}
	if err := notes.Publish(facts.Published{}); err == nil {
		t.Error("Publish gave no error")
	}
}

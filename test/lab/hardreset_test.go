//go:build labhost

package lab_test

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/test/lab"
	"github.com/kata-vfio/kata-vfio/test/lab/image"
	"github.com/kata-vfio/kata-vfio/test/lab/labtest"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/crash/victim"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

const (
	aftermathPackage = "./tests/crash/aftermath"
	// victimBinary is where the package's first run puts its binary, which is a victim as well.
	victimBinary = "/host/aftermath.test/aftermath.test"
	victimUID    = "0f8fad5b"
)

// TestPowerCut cuts the machine's power while a plugin is in the middle of its work, in each state of a record. The
// record must be found after the reset, in its state or in an earlier one, and Recover must forget it. Each is a boot: with -short there is one for the end
// of a claim, and one for a VF that the boot does not have.
func TestPowerCut(t *testing.T) {
	m := labtest.Start(t, lab.Config{})
	suite.Run(t, m, aftermathPackage, "-test.run=^TestBefore$")
	for _, tt := range []struct {
		name   string
		act    victim.Act
		phase  effects.Phase
		at     int
		state  journal.State // that was written last
		longer bool          // left out with -short
	}{
		{"preparing, just written", victim.Prepare, effects.PhaseJournal, 1, journal.Preparing, true},
		{"preparing, bound", victim.Prepare, effects.PhaseBind, 2, journal.Preparing, true},
		{"preparing, spec written", victim.Prepare, effects.PhaseCDI, 1, journal.Preparing, true},
		{"prepared, just written", victim.Prepare, effects.PhaseJournal, 2, journal.Prepared, true},
		{"releasing, just written", victim.Unprepare, effects.PhaseJournal, 1, journal.Releasing, true},
		{"cleaned, on the way to its driver", victim.Unprepare, effects.PhaseUnbind, 1, journal.Cleaned, false},
		{"forgotten, just removed", victim.Unprepare, effects.PhaseJournal, 3, "", true},
	} {
		if tt.longer && testing.Short() {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			o := victim.Orders{UID: victimUID, Addresses: []string{topology.GPU0}}
			if tt.act == victim.Unprepare {
				o.Act = victim.Prepare
				runVictim(t, m, o)
			}
			o.Act, o.Phase, o.At, o.Hang = tt.act, tt.phase, tt.at, true
			hangVictim(t, m, o)
			expect(t, m, victim.Aftermath{UID: o.UID, Addresses: o.Addresses, State: tt.state})
			reset(t, m)
			suite.Run(t, m, aftermathPackage, "-test.run=^TestAfterReset$")
		})
	}
	t.Run("a VF that the boot does not have", func(t *testing.T) {
		shell(t, m, "echo 1 > /sys/bus/pci/devices/"+topology.PF0+"/sriov_numvfs")
		o := victim.Orders{Act: victim.Prepare, UID: victimUID, Addresses: []string{topology.VF(topology.PF0, 0)}}
		runVictim(t, m, o)
		expect(t, m, victim.Aftermath{UID: o.UID, Addresses: o.Addresses, State: journal.Prepared})
		reset(t, m)
		suite.Run(t, m, aftermathPackage, "-test.run=^TestAfterReset$")
	})
}

// TestGroupsAreRenumbered prepares a claim, and boots with a device more, which gives the function another group.
func TestGroupsAreRenumbered(t *testing.T) {
	m := labtest.Start(t, lab.Config{VFIO: image.Legacy})
	suite.Run(t, m, aftermathPackage, "-test.run=^TestBefore$")
	o := victim.Orders{Act: victim.Prepare, UID: victimUID, Addresses: []string{topology.GPU0}}
	runVictim(t, m, o)
	expect(t, m, victim.Aftermath{UID: o.UID, Addresses: o.Addresses, State: journal.Prepared, Renumbered: true})
	m.Reconfigure(func(c *lab.Config) {
		more := topology.Standard()
		last := len(more.Roots) - 1
		more.Roots[last].Ports = append(more.Roots[last].Ports, topology.RootPort("extra", topology.Display("extragpu")))
		c.Topology = &more
	})
	if err := m.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	suite.Run(t, m, aftermathPackage, "-test.run=^TestAfterReset$")
}

// TestUnplugged pulls the device of a prepared claim out of the running machine.
func TestUnplugged(t *testing.T) {
	m := labtest.Start(t, lab.Config{})
	suite.Run(t, m, aftermathPackage, "-test.run=^TestBefore$")
	o := victim.Orders{Act: victim.Prepare, UID: victimUID, Addresses: []string{topology.GPU0, topology.GPU2}}
	runVictim(t, m, o)
	expect(t, m, victim.Aftermath{UID: o.UID, Addresses: o.Addresses, State: journal.Prepared})
	if out, err := m.Monitor(t.Context(), "device_del gpu0"); err != nil || out != "" {
		t.Fatalf("device_del: %q, %v", out, err)
	}
	gone := "test -e /sys/bus/pci/devices/" + topology.GPU0 + " && echo there || echo gone"
	for end := time.Now().Add(60 * time.Second); shell(t, m, gone) != "gone"; {
		if time.Now().After(end) {
			t.Fatalf("%s is still there", topology.GPU0)
		}
	}
	suite.Run(t, m, aftermathPackage, "-test.run=^TestAfterUnplug$")
}

// runVictim lets a victim do its work in the machine to the end.
func runVictim(t *testing.T, m *lab.Machine, o victim.Orders) {
	t.Helper()
	cmd := m.Command(t.Context(), victimBinary)
	cmd.Env = []string{victim.Variable + "=" + orders(t, o)}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the victim: %v: %s", err, out)
	}
}

// hangVictim starts a victim in the machine and returns when it has come to its moment, where it stays.
func hangVictim(t *testing.T, m *lab.Machine, o victim.Orders) {
	t.Helper()
	out, in := io.Pipe()
	cmd := m.Command(t.Context(), victimBinary)
	cmd.Env = []string{victim.Variable + "=" + orders(t, o)}
	cmd.Stdout, cmd.Stderr = in, in
	go func() { _ = in.CloseWithError(cmd.Run()) }() // the reset ends it
	line := make([]byte, len(victim.Reached))
	if _, err := io.ReadFull(out, line); err != nil || string(line) != victim.Reached {
		rest, _ := io.ReadAll(out)
		t.Fatalf("the victim says %q, %v; want %q", string(line)+string(rest), err, victim.Reached)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // until the reset
}

func orders(t *testing.T, o victim.Orders) string {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// expect tells the machine's next tests what they should find.
func expect(t *testing.T, m *lab.Machine, a victim.Aftermath) {
	t.Helper()
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.Share(), victim.AftermathFile), text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// reset cuts the power.
func reset(t *testing.T, m *lab.Machine) {
	t.Helper()
	if err := m.HardReset(t.Context()); err != nil {
		t.Fatal(err)
	}
}

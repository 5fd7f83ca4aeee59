//go:build lab

package crash_test

import (
	"os/exec"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/crash/victim"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// TestKillAtEverySettingOfAVF gives a VF all settings that igb has, and kills the plugin after each single one, on the way in
// and on the way out. What the PF imposed before, which is not what its driver begins with, is back each time.
func TestKillAtEverySettingOfAVF(t *testing.T) {
	kernel.VFs(t, topology.PF0, "2")
	pf := kernel.LinkUp(t, topology.PF0) // without a link igb takes no rates
	out, err := exec.CommandContext(t.Context(), "ip", "link", "set", pf,
		"vf", "0", "mac", "02:00:5e:00:00:99", "vlan", "7", "max_tx_rate", "90", "spoofchk", "off").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sum := tally{states: map[journal.State]int{}, vfs: stage.VFs(t, stage.OpenPlain(t, stage.Config()))}
	for _, act := range []victim.Act{victim.Prepare, victim.Unprepare} {
		t.Run(string(act), func(t *testing.T) {
			sum.between = map[string]bool{}
			sum.killAll(t, victim.Orders{
				Act: act, UID: uid, Addresses: []string{topology.VF(topology.PF0, 0)},
				VF: &v1alpha1.VFConfig{VLAN: new(100), VLANQoS: new(3), MaxTxRate: new(50), Trust: new(true)},
				At: 1,
			}, step(2))
			for settings := range sum.between {
				t.Log(settings)
			}
			// None, and one after the other: rate, VLAN, spoof check, trust, address.
			if got := len(sum.between); got > 6 || got < 6/step(2) {
				t.Errorf("kills left %d different settings behind, want %d of 6", got, 6/step(2))
			}
		})
	}
	sum.report(t)
}

// TestKillWithAVGPU kills the plugin at points around the type of a vGPU: no VF keeps one without a record.
func TestKillWithAVGPU(t *testing.T) {
	kernel.VGPUs(t, topology.PF1, "2")
	sum := tally{states: map[journal.State]int{}}
	for _, act := range []victim.Act{victim.Prepare, victim.Unprepare} {
		sum.killAll(t, victim.Orders{Act: act, UID: uid, Addresses: []string{topology.VF(topology.PF1, 0)}, At: 1}, step(3))
	}
	if sum.points == 0 {
		t.Error("no kill")
	}
	t.Logf("%d points tried; records in the states %v", sum.points, sum.states)
}

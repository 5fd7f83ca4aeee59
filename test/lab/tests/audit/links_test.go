//go:build lab

package audit_test

import (
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// imposed is what a PF imposes on a VF, as ip prints it in JSON.
type imposed struct {
	VF    int    `json:"vf"`
	MAC   string `json:"address"`
	VLANs []struct {
		ID  int `json:"vlan"`
		QoS int `json:"qos"`
	} `json:"vlan_list"`
	Rate struct {
		Min int `json:"min_tx"`
		Max int `json:"max_tx"`
	} `json:"rate"`
	SpoofCheck bool   `json:"spoofchk"`
	LinkState  string `json:"link_state"`
	Trust      bool   `json:"trust"`
}

// TestVFSettingsAreWhatIPSays sets two VFs of the igb PF up in opposite ways and compares what netlink tells the audit with what
// ip prints.
func TestVFSettingsAreWhatIPSays(t *testing.T) {
	kernel.VFs(t, topology.PF0, "2")
	pf := kernel.LinkUp(t, topology.PF0)
	ip(t, "link", "set", pf, "vf", "0", "mac", "02:00:00:00:00:10", "spoofchk", "on", "trust", "off")
	ip(t, "link", "set", pf, "vf", "1", "mac", "02:00:00:00:00:11", "vlan", "7", "qos", "3", "spoofchk", "off", "trust", "on")
	ip(t, "link", "set", pf, "vf", "1", "max_tx_rate", "500")
	var shown []struct {
		VFs []imposed `json:"vfinfo_list"`
	}
	if err := json.Unmarshal([]byte(ip(t, "-json", "-details", "link", "show", "dev", pf)), &shown); err != nil {
		t.Fatal(err)
	}
	n := stage.Facts(t)
	uplink, seen := n.Uplink(stage.Address(t, topology.PF0))
	if uplink == nil || uplink.Link.Name != pf || uplink.Switchdev() {
		t.Fatalf("the PF's interface is %+v (%+v); want %s, without an eswitch", uplink, seen, pf)
	}
	for _, want := range shown[0].VFs {
		f := stage.Function(t, n.Snapshot, topology.VF(topology.PF0, want.VF))
		settings, seen := n.VFSettings(f)
		if settings == nil {
			t.Fatalf("the settings of %s: %+v", f.Address, seen)
		}
		if diff := cmp.Diff(want, inIPsWords(want.VF, settings)); diff != "" {
			t.Errorf("VF %d (-ip +audit):\n%s", want.VF, diff)
		}
	}
	if len(shown[0].VFs) != 2 {
		t.Errorf("ip shows %d VFs", len(shown[0].VFs))
	}
}

func inIPsWords(index int, s *device.VFSettings) imposed {
	said := imposed{VF: index, MAC: s.MAC, LinkState: s.LinkState, SpoofCheck: *s.SpoofCheck, Trust: *s.Trust}
	if s.Rate != nil {
		said.Rate.Min, said.Rate.Max = s.Rate.Min, s.Rate.Max
	}
	if v := s.VLAN; v != nil { // ip shows none as 0
		said.VLANs = append(said.VLANs, struct {
			ID  int `json:"vlan"`
			QoS int `json:"qos"`
		}{v.ID, v.QoS})
	}
	return said
}

// TestLoosenedVFIsFound undoes behind the plugin's back what the PF imposes on a tenant's VF.
func TestLoosenedVFIsFound(t *testing.T) {
	kernel.VFs(t, topology.PF0, "1")
	pf := kernel.LinkUp(t, topology.PF0)
	vf := topology.VF(topology.PF0, 0)
	n := stage.Open(t, stage.Config())
	give(t, n, "tenant-a", vf)
	stage.FoundOnlyWhile(t, func() ([]string, func()) {
		ip(t, "link", "set", pf, "vf", "0", "trust", "on", "spoofchk", "off")
		return []string{"fail NIC-001 " + vf, "fail NIC-002 " + vf, "fail NIC-018 " + vf}, func() {
			ip(t, "link", "set", pf, "vf", "0", "trust", "off", "spoofchk", "on")
		}
	})
}

// ip is what a command of ip prints.
func ip(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "ip", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

//go:build lab

package vf

import (
	"encoding/json"
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// labPolicy is the real one, for a PF of the machine with two VFs.
func labPolicy(t *testing.T) (*Policy, pci.Address) {
	t.Helper()
	name := node.Interface(t, topology.PF0)
	if out, err := exec.CommandContext(t.Context(), "ip", "link", "set", name, "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	node.VFs(t, topology.PF0, "2")
	node.Eventually(t, name+" has a carrier", 30*time.Second, func() bool {
		return node.Read(t, "/sys/class/net/"+name+"/carrier") == "1"
	})
	fs, err := sysfs.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	pf, err := pci.ParseAddress(topology.PF0)
	if err != nil {
		t.Fatal(err)
	}
	return &Policy{FS: fs, Links: NewRtnetlink("/proc"), Switches: NewDevlink("/proc")}, pf
}

// ipVF is what iproute2 says of a VF.
type ipVF struct {
	MAC    string                    `json:"address"`
	VLANs  []struct{ VLAN, QoS int } `json:"vlan_list"`
	TxRate struct {
		MaxTx int `json:"max_tx"`
	} `json:"rate"`
	SpoofChk bool   `json:"spoofchk"`
	Trust    bool   `json:"trust"`
	State    string `json:"link_state"`
}

func askIP(t *testing.T, index int) ipVF {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ip", "-json", "link", "show", "dev", node.Interface(t, topology.PF0)).Output()
	if err != nil {
		t.Fatal(err)
	}
	var links []struct {
		VFs []ipVF `json:"vfinfo_list"`
	}
	if err := json.Unmarshal(out, &links); err != nil || len(links) != 1 || len(links[0].VFs) <= index {
		t.Fatalf("ip says %s: %v", out, err)
	}
	return links[0].VFs[index]
}

// Every setting that igb has, as the kernel's own tool sees it, and back.
func TestLabIgbTakesItsSettings(t *testing.T) {
	p, pf := labPolicy(t)
	before, _, err := p.Read(t.Context(), pf, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := &device.VFSettings{
		MAC: "02:00:5e:10:00:01", VLAN: &device.VLAN{ID: 100, QoS: 3, Protocol: "802.1Q"}, Rate: &device.TxRate{Max: 50},
		SpoofCheck: new(false), Trust: new(true),
	}
	if err := p.Supported(t.Context(), pf, 1, want); err != nil {
		t.Fatal(err)
	}
	if now, _, err := p.Read(t.Context(), pf, 1); err != nil || cmp.Diff(before.Settings, now.Settings) != "" {
		t.Fatalf("asking what is supported has changed %s to %+v, %v", before.Settings.String(), now, err)
	}
	if err := p.Apply(t.Context(), pf, 1, want); err != nil {
		t.Fatal(err)
	}
	got := askIP(t, 1)
	if len(got.VLANs) != 1 || got.VLANs[0].VLAN != 100 || got.VLANs[0].QoS != 3 {
		t.Errorf("ip says VLANs %+v", got.VLANs)
	}
	if got.MAC != want.MAC || got.TxRate.MaxTx != 50 || got.SpoofChk || !got.Trust || got.State != "auto" {
		t.Errorf("ip says %+v", got)
	}
	if err := p.Apply(t.Context(), pf, 1, &before.Settings); err != nil {
		t.Fatal(err)
	}
	after, _, err := p.Read(t.Context(), pf, 1)
	if err != nil || cmp.Diff(before.Settings, after.Settings) != "" {
		t.Errorf("restored to %+v, %v; want %s", after, err, before.Settings.String())
	}
}

// What igb lacks is told before anything changes.
func TestLabIgbRefuses(t *testing.T) {
	p, pf := labPolicy(t)
	for name, tt := range map[string]struct {
		want device.VFSettings
	}{
		"linkState": {want: device.VFSettings{LinkState: "enable"}},
		"vlan":      {want: device.VFSettings{VLAN: &device.VLAN{ID: 5, Protocol: "802.1ad"}}},
		"txRate":    {want: device.VFSettings{Rate: &device.TxRate{Min: 10, Max: 50}}},
	} {
		t.Run(name, func(t *testing.T) {
			before, _, err := p.Read(t.Context(), pf, 0)
			if err != nil {
				t.Fatal(err)
			}
			err = p.Supported(t.Context(), pf, 0, &tt.want)
			if name == "txRate" { // igb takes a minimum of 0 and refuses others
				err = p.Apply(t.Context(), pf, 0, &tt.want)
			}
			lacking, ok := errors.AsType[*SettingError](err)
			if !ok || !lacking.Unsupported() || string(lacking.Setting) != name {
				t.Errorf("%v, want that %s is not supported", err, name)
			}
			after, _, err := p.Read(t.Context(), pf, 0)
			if err != nil || cmp.Diff(before.Settings, after.Settings) != "" {
				t.Errorf("changed to %+v, %v; was %s", after, err, before.Settings.String())
			}
		})
	}
}

// A VF that the PF does not have is told as such.
func TestLabNoSuchVF(t *testing.T) {
	p, pf := labPolicy(t)
	if err := p.Apply(t.Context(), pf, 2, &device.VFSettings{Trust: new(true)}); err == nil {
		t.Error("a VF was changed that is not there")
	}
}

//go:build lab

package eswitch_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
)

// A sim is a netdevsim with two VFs, and the policy for it. It is no PCI function: what the policy reads in sysfs is
// copied to where it looks, and its device's name is put in place of the address.
type sim struct {
	*vf.Policy
	pf   pci.Address // by which the policy knows it
	name string      // of its interface
	root string      // of the copy
}

const (
	bus    = "/sys/bus/netdevsim"
	number = "7"
	device = bus + "/devices/netdevsim" + number
)

func handle() vf.Handle { return vf.Handle{Bus: "netdevsim", Name: "netdevsim" + number} }

// newSim makes one, as long as the test runs.
func newSim(t *testing.T) *sim {
	t.Helper()
	run(t, "modprobe", "netdevsim")
	kernel.Write(t, bus+"/new_device", number+" 1")
	t.Cleanup(func() { kernel.Write(t, bus+"/del_device", number) })
	kernel.Write(t, device+"/sriov_numvfs", "2")
	s := &sim{pf: pci.Address{Domain: 0xffff}, root: t.TempDir()}
	if names := s.representors(t); len(names) == 1 { // without representors so far
		s.name = names[0]
	} else {
		t.Fatalf("interfaces %v of a new device, want one", names)
	}
	s.copy(t)
	tree, err := sysfs.Open(s.root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	s.Policy = &vf.Policy{FS: tree, Links: links{vf.NewRtnetlink("/proc")}, Switches: switches{vf.NewDevlink("/proc")}}
	return s
}

// copy brings the copy of its interfaces up to date, representors among them.
func (s *sim) copy(t *testing.T) {
	t.Helper()
	to := filepath.Join(s.root, sysfs.FunctionPath(s.pf), "net")
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(device + "/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.MkdirAll(filepath.Join(to, e.Name()), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"ifindex", "phys_port_name"} {
			text, err := os.ReadFile(filepath.Join(device, "net", e.Name(), file))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(to, e.Name(), file), text, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// links are the interfaces as rtnetlink has them, without the device that they are of.
type links struct{ *vf.Rtnetlink }

func (l links) Read(ctx context.Context, number int) (*vf.Link, error) {
	link, err := l.Rtnetlink.Read(ctx, number)
	if err == nil {
		link.Parent = ""
	}
	return link, err
}

// switches are the eswitches as devlink has them, of the one device.
type switches struct{ *vf.Devlink }

func (s switches) Read(ctx context.Context, _ vf.Handle) (*vf.Switch, error) {
	return s.Devlink.Read(ctx, handle())
}

func (s switches) SetMode(ctx context.Context, _ vf.Handle, m vf.Mode) error {
	return s.Devlink.SetMode(ctx, handle(), m)
}

func (s switches) SetMAC(ctx context.Context, _ vf.Handle, port uint32, mac string) error {
	return s.Devlink.SetMAC(ctx, handle(), port, mac)
}

func run(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		var said []byte
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			said = e.Stderr
		}
		t.Fatalf("%s %v: %v: %s", name, args, err, said)
	}
	return out
}

// ipVF is what iproute2 says of a VF.
type ipVF struct {
	MAC   string `json:"address"`
	VLANs []struct {
		VLAN     int    `json:"vlan"`
		QoS      int    `json:"qos"`
		Protocol string `json:"protocol"`
	} `json:"vlan_list"`
	Rate struct {
		Max int `json:"max_tx"`
		Min int `json:"min_tx"`
	} `json:"rate"`
	SpoofCheck bool   `json:"spoofchk"`
	State      string `json:"link_state"`
	Trust      bool   `json:"trust"`
	RSSQuery   bool   `json:"query_rss_en"`
}

func (s *sim) askIP(t *testing.T) []ipVF {
	t.Helper()
	out := run(t, "ip", "-json", "link", "show", "dev", s.name)
	var found []struct {
		VFs []ipVF `json:"vfinfo_list"`
	}
	if err := json.Unmarshal(out, &found); err != nil || len(found) != 1 || len(found[0].VFs) != 2 {
		t.Fatalf("ip says %s: %v", out, err)
	}
	return found[0].VFs
}

// askDevlink returns the mode as iproute2 has it.
func askDevlink(t *testing.T) string {
	t.Helper()
	name := handle().Bus + "/" + handle().Name
	out := run(t, "devlink", "-j", "dev", "eswitch", "show", name)
	var all struct {
		Devices map[string]struct{ Mode string } `json:"dev"`
	}
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatalf("devlink says %s: %v", out, err)
	}
	return all.Devices[name].Mode
}

// representors are the names of the device's interfaces but the PF's own.
func (s *sim) representors(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(device + "/net")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() != s.name {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names
}

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// compareVF times, taking turns, the settings of a PF's first VF imposed and restored by our code, which reads them before and
// verifies them after, and by one command of iproute2, which does neither.
func compareVF(ctx context.Context, text string) error {
	pf, err := pci.ParseAddress(text)
	if err != nil {
		return err
	}
	fs, err := sysfs.Open("/")
	if err != nil {
		return err
	}
	defer fs.Close()
	interfaces, err := os.ReadDir("/sys/bus/pci/devices/" + text + "/net")
	if err != nil || len(interfaces) != 1 {
		return fmt.Errorf("interfaces %v: %w", interfaces, err)
	}
	c := vfComparison{policy: &vf.Policy{FS: fs, Links: vf.NewRtnetlink("/proc"), Switches: vf.NewDevlink("/proc")}, pf: pf, name: interfaces[0].Name()}
	var m [4][]time.Duration
	for range rounds {
		for i, turn := range []func(context.Context) error{c.impose, c.restore, c.imposeByIP, c.restoreByIP} {
			begin := time.Now()
			if err := turn(ctx); err != nil {
				return err
			}
			m[i] = append(m[i], time.Since(begin))
		}
	}
	ours, back, ip, ipBack := median(m[0]), median(m[1]), median(m[2]), median(m[3])
	fmt.Printf("%s medians of %d: five settings imposed %v, by ip %v; restored %v, by ip %v\n", pf, rounds, ours, ip, back, ipBack)
	fmt.Printf("%s ratio impose/ip %.3f\n", pf, float64(ours)/float64(ip))
	fmt.Printf("%s ratio restore/ip %.3f\n", pf, float64(back)/float64(ipBack))
	return nil
}

// vfComparison has both ways to the same settings.
type vfComparison struct {
	policy   *vf.Policy
	pf       pci.Address
	name     string
	original device.VFSettings
}

// impose does what Prepare does with a claimed VF.
func (c *vfComparison) impose(ctx context.Context) error {
	want := &device.VFSettings{
		MAC: "02:00:5e:10:00:01", VLAN: &device.VLAN{ID: 100, QoS: 3, Protocol: "802.1Q"}, Rate: &device.TxRate{Max: 50},
		SpoofCheck: new(false), Trust: new(true),
	}
	state, _, err := c.policy.Read(ctx, c.pf, 0)
	if err != nil {
		return err
	}
	c.original = state.Settings.Only(want)
	if err := c.policy.Supported(ctx, c.pf, 0, want); err != nil {
		return err
	}
	return c.policy.Apply(ctx, c.pf, 0, want)
}

// restore does what Unprepare does with it.
func (c *vfComparison) restore(ctx context.Context) error {
	return c.policy.Apply(ctx, c.pf, 0, &c.original)
}

func (c *vfComparison) imposeByIP(ctx context.Context) error {
	return c.ip(ctx, "mac", "02:00:5e:10:00:01", "vlan", "100", "qos", "3", "max_tx_rate", "50", "spoofchk", "off", "trust", "on")
}

func (c *vfComparison) restoreByIP(ctx context.Context) error {
	return c.ip(ctx, "mac", c.original.MAC, "vlan", "0", "max_tx_rate", "0", "spoofchk", "on", "trust", "off")
}

func (c *vfComparison) ip(ctx context.Context, settings ...string) error {
	out, err := exec.CommandContext(ctx, "ip", append([]string{"link", "set", "dev", c.name, "vf", "0"}, settings...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip: %w: %s", err, out)
	}
	return nil
}

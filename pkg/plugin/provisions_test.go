package plugin_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics/metricstest"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// lackingVFs are those of a node whose PF waits for a VF that is in use.
type lackingVFs struct{}

func (lackingVFs) Provision(context.Context) ([]plan.Provision, error) {
	return []plan.Provision{{Rule: "ens1f0np0", Have: 2, Want: 8, Refused: "VF 0000:21:02.0 is held by claim uid-1", Fix: "free it", Waits: true}}, nil
}

func (l lackingVFs) Reprovision(ctx context.Context, _ func(*plan.Provision) (string, string)) ([]plan.Provision, error) {
	return l.Provision(ctx)
}

func (lackingVFs) BindSomeByPolicy(context.Context, func(pci.Address) bool) error { return nil }

// provisioning is a node whose config asks for VFs, and what follows it.
type provisioning struct {
	*plugintest.Node
	watch *plugin.ProvisionWatch
	log   bytes.Buffer
}

// wantsVFs has the node's config ask for VFs of a PF, by its name there; they are bound from their making on.
func wantsVFs(n *plugintest.Node, pf string, count int) *provisioning {
	n.T.Helper()
	return configured(n, &v1alpha1.NodeConfig{
		VirtualFunctions: []v1alpha1.VFRule{{PF: pf, Count: &count}},
		Devices:          []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: []string{"vf"}}, Policy: v1alpha1.PolicyBound}},
	})
}

// configured gives the node a config, and a watch.
func configured(n *plugintest.Node, config *v1alpha1.NodeConfig) *provisioning {
	config.Default()
	n.Reopen(func(c *prepare.Config) { c.Node = config })
	p := &provisioning{Node: n}
	p.watch = &plugin.ProvisionWatch{VFs: n.Claims, Metrics: n.Metrics, Log: slog.New(slog.NewTextHandler(&p.log, nil))}
	return p
}

// look lets the watch see the node as it is, as often as it changes by that.
func (p *provisioning) look() {
	p.T.Helper()
	for range 3 {
		p.watch.Changed(p.T.Context(), p.Snapshot())
	}
}

// has checks how many VFs the PF has, how many the metric says that it lacks, and that VFIO has all of them.
func (p *provisioning) has(when string, pf pci.Address, vfs int, lacking float64) {
	p.T.Helper()
	if got := len(p.Kernel.VFs(pf)); got != vfs {
		p.T.Errorf("%s: %d VFs, want %d; log:\n%s", when, got, vfs, p.log.String())
	}
	for _, a := range p.Kernel.VFs(pf) {
		if driver := p.Driver(a); driver != "vfio-pci" {
			p.T.Errorf("%s: VF %s is on %q, want what its policy says; log:\n%s", when, a, driver, p.log.String())
		}
	}
	for rule, got := range gaugesByRule(p.T, p.Metrics) {
		if got != lacking {
			p.T.Errorf("%s: the PF of rule %s lacks %v VFs, want %v", when, rule, got, lacking)
		}
	}
}

// said checks how often something was logged.
func (p *provisioning) said(what string, want int) {
	p.T.Helper()
	if got := strings.Count(p.log.String(), what); got != want {
		p.T.Errorf("%q was logged %d times, want %d:\n%s", what, got, want, p.log.String())
	}
}

func gaugesByRule(t *testing.T, m *metrics.Metrics) map[string]float64 {
	t.Helper()
	all, _ := metricstest.Gauges(t, m.Registry, "kata_vfio_vfs_lacking")
	return all
}

// addLateHCA adds a PF whose driver is not loaded yet, as one that a driver container brings.
func addLateHCA(n *plugintest.Node) pci.Address {
	n.T.Helper()
	n.Kernel.AddRootPort(0x21)
	hca := sysfstest.HCA(pci.Address{Bus: 0x21})
	hca.Class, hca.Driver = pci.ClassEthernet<<8, ""
	n.Kernel.Add(hca)
	n.Kernel.AddModule("mlx5_core", sysfstest.Driver{SRIOV: true, IDs: []sysfstest.Match{
		sysfstest.MatchID(hca.Vendor, hca.Device), sysfstest.MatchID(hca.Vendor, hca.Capabilities.SRIOV.VFDevice),
	}})
	return hca.Address
}

// TestVFsAreMadeOnceTheOneInUseIsFree: the node is told to be short of them until then, and the log says why, once.
func TestVFsAreMadeOnceTheOneInUseIsFree(t *testing.T) {
	n := plugintest.New(t)
	pf, vfs := n.Kernel.AddNIC(0x21, 2)
	p := configured(n, &v1alpha1.NodeConfig{VirtualFunctions: []v1alpha1.VFRule{{PF: pf.String(), Count: new(4)}}})
	n.Prepare("uid-1", "vf-"+vfs[0].Label())
	p.watch.Start(t.Context())
	p.look()
	p.watch.Again(t.Context())
	if lacking := gaugesByRule(t, n.Metrics)[pf.String()]; lacking != 2 || len(n.Kernel.VFs(pf)) != 2 {
		t.Errorf("lacking %v VFs, want two, with %v", lacking, n.Kernel.VFs(pf))
	}
	p.said("VF count unchanged", 1)
	if _, err := n.Claims.Unprepare(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	p.look()
	if lacking := gaugesByRule(t, n.Metrics)[pf.String()]; lacking != 0 || len(n.Kernel.VFs(pf)) != 4 {
		t.Errorf("lacking %v VFs, want none, with %v", lacking, n.Kernel.VFs(pf))
	}
}

// TestPFsDriverComesLate, named by its address or by the interface that the driver makes.
func TestPFsDriverComesLate(t *testing.T) {
	for _, name := range []string{"0000:21:00.0", "eth0"} {
		n := plugintest.New(t)
		pf := addLateHCA(n)
		p := wantsVFs(n, name, 4)
		p.watch.Start(t.Context())
		p.look()
		p.watch.Again(t.Context())
		p.has(name+" without its driver", pf, 0, 4)
		p.said("VF count unchanged", 1)
		if err := n.Kernel.Load(t.Context(), "mlx5_core"); err != nil {
			t.Fatal(err)
		}
		p.look()
		p.has(name+" with it", pf, 4, 0)
		p.said("VFs provisioned", 1)
	}
}

// TestPFsDriverIsReloaded: its VFs go with it, and come again.
func TestPFsDriverIsReloaded(t *testing.T) {
	n := plugintest.New(t)
	pf := addLateHCA(n)
	if err := n.Kernel.Load(t.Context(), "mlx5_core"); err != nil {
		t.Fatal(err)
	}
	p := wantsVFs(n, "eth0", 4)
	p.watch.Start(t.Context())
	p.look()
	p.has("at first", pf, 4, 0)
	for _, between := range []func(){func() {}, p.look} { // the reload may take less time than a scan
		n.Kernel.UnloadDriver("mlx5_core")
		between()
		if err := n.Kernel.Load(t.Context(), "mlx5_core"); err != nil {
			t.Fatal(err)
		}
		p.look()
		p.has("after the reload", pf, 4, 0)
	}
}

// TestVFsThatTakeLongerThanOtherWrites are waited for.
func TestVFsThatTakeLongerThanOtherWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := plugintest.New(t)
		pf, _ := n.Kernel.AddNIC(0x21, 0)
		n.Kernel.SlowVFs(pf, 25*time.Second/4)
		p := wantsVFs(n, pf.String(), 4)
		p.watch.Start(t.Context())
		p.look()
		p.has("after 25 seconds", pf, 4, 0)
	})
}

// TestChangeThatFailsIsTriedAgain, later and later, and told once.
func TestChangeThatFailsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := plugintest.New(t)
		pf, _ := n.Kernel.AddNIC(0x21, 0)
		answer, tries := error(unix.ENOMEM), 0
		n.Kernel.OnWrite(func(path, _ string) error {
			if strings.HasSuffix(path, "sriov_numvfs") {
				tries++
				return answer
			}
			return nil
		})
		p := wantsVFs(n, pf.String(), 4)
		p.watch.Start(t.Context())
		for range 60 {
			p.look()
			p.watch.Again(t.Context())
			time.Sleep(time.Minute)
		}
		if tries < 5 || tries > 12 {
			t.Errorf("tried %d times within an hour", tries)
		}
		p.said("change of the VF count failed", 1)
		if lacking := gaugesByRule(t, p.Metrics)[pf.String()]; lacking != 4 {
			t.Errorf("lacking: %v; want all 4, because the former VFs may be gone", lacking)
		}
		answer = nil
		for range 9 {
			time.Sleep(time.Minute)
			p.watch.Again(t.Context())
		}
		p.look()
		p.has("once the kernel has room", pf, 4, 0)
	})
}

// TestProvisionKeepsAdministratorsVFs while the plugin runs: a newer instance in a rolling update may want another number, and VFs are not taken away from claims that are on their way.
func TestProvisionKeepsAdministratorsVFs(t *testing.T) {
	for _, count := range []string{"2", "6"} {
		n := plugintest.New(t)
		pf, _ := n.Kernel.AddNIC(0x21, 0)
		p := wantsVFs(n, pf.String(), 4)
		p.watch.Start(t.Context())
		p.look()
		for _, value := range []string{"0", count} {
			if err := n.Kernel.Write("sys/bus/pci/devices/"+pf.String()+"/sriov_numvfs", []byte(value)); err != nil {
				t.Fatal(err)
			}
		}
		p.look()
		p.watch.Again(t.Context())
		if got := len(n.Kernel.VFs(pf)); got != int(count[0]-'0') {
			t.Errorf("%d VFs, want the %s that somebody set", got, count)
		}
		p.said("VF count unchanged", 1)
		p.watch.Start(t.Context())
		p.said("VFs provisioned", 1)
	}
}

// TestProvisionKeepsAdministratorsFreeVFs: free VFs stay until the next start, which applies the rule.
func TestProvisionKeepsAdministratorsFreeVFs(t *testing.T) {
	for count, why := range map[int]string{2: "was changed later", 6: "removes VFs only when it starts"} {
		n := plugintest.New(t)
		pf, _ := n.Kernel.AddNIC(0x21, 0)
		p := configured(n, &v1alpha1.NodeConfig{VirtualFunctions: []v1alpha1.VFRule{{PF: pf.String(), Count: new(4)}}})
		p.watch.Start(t.Context())
		p.look()
		for _, value := range []int{0, count} {
			if err := n.Kernel.Write("sys/bus/pci/devices/"+pf.String()+"/sriov_numvfs", []byte(strconv.Itoa(value))); err != nil {
				t.Fatal(err)
			}
		}
		p.look()
		p.watch.Again(t.Context())
		if got := len(n.Kernel.VFs(pf)); got != count {
			t.Errorf("%d VFs, want the %d that somebody set", got, count)
		}
		p.said(why, 1)
		p.watch.Start(t.Context())
		if got := len(n.Kernel.VFs(pf)); got != 4 {
			t.Errorf("%d VFs after a start, want the 4 of the rule", got)
		}
	}
}

// TestPFsInterfaceIsNamedLate, as udev renames it: nothing else of the PF changes.
func TestPFsInterfaceIsNamedLate(t *testing.T) {
	n := plugintest.New(t)
	pf, _ := n.Kernel.AddNIC(0x21, 0)
	p := wantsVFs(n, "ens1f0", 4)
	p.watch.Start(t.Context())
	p.look()
	p.has("before", pf, 0, 4)
	net := n.Kernel.Path("sys/bus/pci/devices/" + pf.String() + "/net/")
	if err := os.Rename(filepath.Join(net, "eth0"), filepath.Join(net, "ens1f0")); err != nil {
		t.Fatal(err)
	}
	p.look()
	p.has("after", pf, 4, 0)
}

// TestFunctionAppearsLate: it is bound by its policy as those that were there at the start, one that can't be bound is tried again, and the log says so once.
func TestFunctionAppearsLate(t *testing.T) {
	n := plugintest.New(t)
	p := configured(n, &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}, Policy: v1alpha1.PolicyBound}}})
	p.watch.Start(t.Context())
	p.look()
	answer := error(unix.EIO)
	n.Kernel.OnWrite(func(path, value string) error {
		if strings.HasSuffix(path, "driver_override") && value == "vfio-pci" {
			return answer
		}
		return nil
	})
	gpu := n.Kernel.AddGPU(0x3b)
	for range 3 {
		p.look()
		p.watch.Again(t.Context())
	}
	p.said("not bound by policy", 1)
	answer = nil
	p.watch.Again(t.Context())
	if driver := n.Driver(gpu); driver != "vfio-pci" {
		t.Errorf("GPU is on %q; log:\n%s", driver, p.log.String())
	}
	for _, between := range []func(){p.look, func() {}} { // both may happen between two scans
		n.Kernel.Remove(gpu)
		between()
		again := sysfstest.GPU(gpu)
		again.Driver = ""
		n.Kernel.Add(again)
		p.look()
		if driver := n.Driver(gpu); driver != "vfio-pci" {
			t.Errorf("GPU that was plugged in again is on %q; log:\n%s", driver, p.log.String())
		}
	}
}

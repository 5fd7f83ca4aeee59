//go:build lab

package inventory_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// updateLimit is how long an update may take in a machine without hardware.
const updateLimit = 30 * time.Second

func live(t *testing.T) *sysfs.FS {
	t.Helper()
	fs, err := sysfs.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	return fs
}

// The scan says of every function what the kernel's files say.
func TestLabScan(t *testing.T) {
	node.VFs(t, topology.PF0, "2")
	snap := scan(t, live(t))
	entries, err := os.ReadDir("/sys/bus/pci/devices")
	if err != nil {
		t.Fatal(err)
	}
	if len(snap.Functions) != len(entries) {
		t.Errorf("%d functions, the kernel has %d", len(snap.Functions), len(entries))
	}
	for _, e := range entries {
		a := e.Name()
		f := function(t, snap, addr(t, a))
		if got := node.Read(t, node.Path(a, "vendor")); got != "0x"+f.Vendor.String() {
			t.Errorf("%s: vendor %v, the kernel says %s", a, f.Vendor, got)
		}
		if got := node.Read(t, node.Path(a, "class")); got != "0x"+f.Class.String() {
			t.Errorf("%s: class %v, the kernel says %s", a, f.Class, got)
		}
		if got := node.Driver(t, a); got != f.Driver {
			t.Errorf("%s: driver %q, the kernel says %q", a, f.Driver, got)
		}
		if f.Capabilities.Truncated || f.ConfigDead || f.Locked {
			t.Errorf("%s: dead %v, locked %v, capabilities %+v", a, f.ConfigDead, f.Locked, f.Capabilities)
		}
		g, ok := snap.GroupWith(f)
		if number := node.Group(t, a); ok != (number != "") || ok && !slices.Contains(g.Members, f.Address) {
			t.Errorf("%s: group %+v, the kernel says %q", a, g, number)
		}
	}
	vf := function(t, snap, addr(t, filepath.Base(mustLink(t, node.Path(topology.PF0, "virtfn1")))))
	if vf.VF == nil || vf.VF.Index != 1 || vf.VF.PF != addr(t, topology.PF0) || vf.Type != device.VFType {
		t.Errorf("second VF of %s: %+v", topology.PF0, vf)
	}
	below := function(t, snap, addr(t, topology.GPU4))
	if below.Switch == nil || *below.Switch != addr(t, topology.Switch0) {
		t.Errorf("switch above %s is %v, want %s", topology.GPU4, below.Switch, topology.Switch0)
	}
	if h := snap.Host; h.BootID == "" || len(h.IOMMUs) == 0 || !slices.ContainsFunc(h.IRQChips, func(c string) bool { return strings.HasPrefix(c, "IR-") }) {
		t.Errorf("host: %+v", h)
	}
}

func mustLink(t *testing.T, path string) string {
	t.Helper()
	target, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// The node's way out and its root are in use, what is free is not.
func TestLabUses(t *testing.T) {
	snap := scan(t, live(t))
	kinds := map[device.UseKind]bool{}
	for i := range snap.Functions {
		for _, u := range snap.Functions[i].Uses {
			kinds[u.Kind] = true
		}
	}
	if !kinds[device.UseAddress] || !kinds[device.UseRoute] || !kinds[device.UseMount] {
		t.Errorf("uses of the machine: %v; want an address, a route and a mount", kinds)
	}
	for _, a := range []string{topology.GPU0, topology.GPU3, topology.NVMe0, topology.BigBAR} {
		if f := function(t, snap, addr(t, a)); len(f.Uses) > 0 {
			t.Errorf("%s is free, but is used: %v", a, f.Uses)
		}
	}
	gpu := function(t, snap, addr(t, topology.GPU0))
	if !slices.ContainsFunc(gpu.Children.Nodes, func(n string) bool { return strings.HasPrefix(n, "dri/card") }) {
		t.Errorf("device nodes of %s: %v", topology.GPU0, gpu.Children.Nodes)
	}
	nvme := function(t, snap, addr(t, topology.NVMe0))
	if len(nvme.Children.NVMe) != 1 {
		t.Errorf("NVMe controllers of %s: %v", topology.NVMe0, nvme.Children.NVMe)
	}
}

// The kernel's uevents bring the snapshot up to date.
func TestLabWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w, err := inventory.Watch(ctx, live(t))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	snapshots, unsubscribe := w.Subscribe()
	defer unsubscribe()

	pf := addr(t, topology.PF0)
	t.Run("bind", func(t *testing.T) {
		node.Bind(t, topology.GPU0, "vfio-pci")
		until(t, snapshots, "the GPU on vfio-pci", func(s *device.Snapshot) bool {
			f, ok := s.Function(addr(t, topology.GPU0))
			return ok && f.Driver == "vfio-pci" && len(f.Children.DRM) == 0
		})
	})
	until(t, snapshots, "the GPU back on its driver", func(s *device.Snapshot) bool {
		f, ok := s.Function(addr(t, topology.GPU0))
		return ok && f.Driver != "" && f.Driver != "vfio-pci" && len(f.Children.DRM) > 0
	})
	t.Run("VFs", func(t *testing.T) {
		node.VFs(t, topology.PF0, "3")
		until(t, snapshots, "three VFs", func(s *device.Snapshot) bool { return vfs(s, pf) == 3 })
	})
	until(t, snapshots, "no VFs", func(s *device.Snapshot) bool { return vfs(s, pf) == 0 })
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run ended with %v", err)
	}
}

// vfs counts the VFs that both the PF and they themselves know of.
func vfs(s *device.Snapshot, pf pci.Address) int {
	f, ok := s.Function(pf)
	if !ok || f.PF == nil {
		return -1
	}
	n := 0
	for i := range s.Functions {
		if vf := &s.Functions[i]; vf.VF != nil && vf.VF.PF == pf && vf.Group != nil {
			n++
		}
	}
	if n != f.PF.NumVFs || n != len(f.PF.VFs) {
		return -1
	}
	return n
}

func until(t *testing.T, snapshots <-chan *device.Snapshot, what string, good func(*device.Snapshot) bool) {
	t.Helper()
	limit := time.NewTimer(updateLimit)
	defer limit.Stop()
	for {
		select {
		case s := <-snapshots:
			if s.Stale != "" {
				t.Errorf("stale while waiting for %s: %s", what, s.Stale)
			}
			if good(s) {
				return
			}
		case <-limit.C:
			t.Fatalf("no snapshot with %s within %v", what, updateLimit)
		}
	}
}

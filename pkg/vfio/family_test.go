package vfio_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// TestFamily: a process and what descends from it, however the PIDs are ordered.
func TestFamily(t *testing.T) {
	k := sysfstest.New(t)
	const shim, child, grandchild, other = 900, 800, 950, 700
	k.Run(sysfstest.Process{PID: shim, Comm: "shim", Group: shim})
	k.Run(sysfstest.Process{PID: child, Comm: "sh", Parent: shim, Group: shim})
	k.Run(sysfstest.Process{PID: grandchild, Comm: "qemu", Parent: child, Group: grandchild})
	k.Run(sysfstest.Process{PID: other, Comm: "bash", Group: other})
	fs, err := sysfs.Open(k.Root())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fs.Close() }()
	check := func(when string, start uint64, want ...int) {
		t.Helper()
		family, err := vfio.Family(t.Context(), fs, shim, start)
		if err != nil || len(family) != len(want) {
			t.Fatalf("%s: Family = %v, %v; want PIDs %v", when, family, err, want)
		}
		for i, h := range family {
			if h.PID != want[i] || h.StartTime != sysfstest.StartTime(want[i]) {
				t.Errorf("%s: %+v, want process %d", when, h, want[i])
			}
		}
	}
	check("all run", sysfstest.StartTime(shim), child, shim, grandchild)
	check("another process has the PID", 1)
	k.Kill(shim)
	check("the first has ended", sysfstest.StartTime(shim), child, grandchild)
	k.Kill(child)
	check("its group has ended", sysfstest.StartTime(shim))
}

// TestShims: a sandbox's shim is known by its bundle or its arguments, and what descends
// from it goes with it.
func TestShims(t *testing.T) {
	const id, shim, qemu = "1f2e3d4c", 900, 901
	for name, c := range map[string]struct {
		process sysfstest.Process
		want    bool
	}{
		"containerd's bundle":        {sysfstest.Process{Dir: "/run/containerd/io.containerd.runtime.v2.task/k8s.io/" + id}, true},
		"CRI-O's bundle":             {sysfstest.Process{Dir: "/run/containers/storage/overlay-containers/" + id + "/userdata"}, true},
		"a bundle that is removed":   {sysfstest.Process{Dir: "/run/containerd/io.containerd.runtime.v2.task/k8s.io/" + id + " (deleted)"}, true},
		"its arguments":              {sysfstest.Process{Args: []string{"containerd-shim-kata-v2", "-namespace", "k8s.io", "-id", id}}, true},
		"its arguments in one":       {sysfstest.Process{Args: []string{"containerd-shim-kata-v2", "-id=" + id}}, true},
		"another sandbox's bundle":   {sysfstest.Process{Dir: "/run/containerd/io.containerd.runtime.v2.task/k8s.io/0" + id}, false},
		"another's, with its prefix": {sysfstest.Process{Args: []string{"containerd-shim-kata-v2", "-id", id + "0"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := sysfstest.New(t)
			c.process.PID, c.process.Comm = shim, "shim"
			k.Run(c.process)
			k.Run(sysfstest.Process{PID: qemu, Comm: "qemu", Parent: shim})
			k.Run(sysfstest.Process{PID: 700, Comm: "bash"})
			fs, err := sysfs.Open(k.Root())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = fs.Close() }()
			shims, err := vfio.Shims(t.Context(), fs, id)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case !c.want && len(shims) > 0:
				t.Errorf("shims %v, want none", shims)
			case c.want && (len(shims) != 2 || shims[0].PID != shim || shims[1].PID != qemu):
				t.Errorf("shims %v, want processes %d and %d", shims, shim, qemu)
			}
		})
	}
}

// TestAbandoned: a VMM is without its shim once no process names its sandbox any more.
func TestAbandoned(t *testing.T) {
	const id, shim, vmm = "1f2e3d4c", 900, 901
	qemu := []string{"/opt/kata/bin/qemu-system-x86_64", "-name", "sandbox-" + id + ",debug-threads=on", "-device", "vfio-pci,host=0000:3b:00.0"}
	rust := []string{"qemu-system-x86_64", "-name", "sandbox-" + id, "-m", "2048M"}
	hypervisor := []string{"/opt/kata/bin/cloud-hypervisor", "--api-socket", "/run/vc/vm/" + id + "/clh-api.sock"}
	for name, c := range map[string]struct {
		vmm   []string
		shim  *sysfstest.Process
		alone bool
	}{
		"QEMU with its shim":       {qemu, &sysfstest.Process{Args: []string{"containerd-shim-kata-v2", "-namespace", "k8s.io", "-id", id}}, false},
		"the clean-up after it":    {qemu, &sysfstest.Process{Args: []string{"containerd-shim-kata-v2", "-id=" + id, "delete"}}, false},
		"QEMU without":             {qemu, nil, true},
		"runtime-rs's without":     {rust, nil, true},
		"another sandbox's shim":   {qemu, &sysfstest.Process{Args: []string{"containerd-shim-kata-v2", "-id", id + "0"}}, true},
		"its file system daemon":   {qemu, &sysfstest.Process{Args: []string{"virtiofsd", "--shared-dir=/run/kata-containers/shared/sandboxes/" + id + "/shared"}}, true},
		"cloud-hypervisor without": {hypervisor, nil, true},
		"QEMU of no sandbox":       {[]string{"qemu-system-x86_64", "-name", "vm1"}, nil, false},
		"another program":          {[]string{"fio"}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := sysfstest.New(t)
			// QEMU is started in the bundle's directory, as its shim is.
			k.Run(sysfstest.Process{PID: vmm, Comm: "vmm", Args: c.vmm, Dir: "/run/containerd/io.containerd.runtime.v2.task/k8s.io/" + id})
			k.Run(sysfstest.Process{PID: 700, Comm: "bash"})
			if c.shim != nil {
				c.shim.PID, c.shim.Comm = shim, "shim"
				k.Run(*c.shim)
			}
			want := map[int]string{}
			if c.alone {
				want[vmm] = id
			}
			got, err := vfio.NewProcesses(open(t, k.Root())).Abandoned(t.Context(), []vfio.Holder{{PID: vmm}, {PID: 4711}})
			if err != nil {
				t.Fatal(err)
			}
			if got == nil {
				got = map[int]string{}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("abandoned (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEnding: the recorded process of a VM counts while it ends, and no later process with its number.
func TestEnding(t *testing.T) {
	c := newCaptured(t)
	c.process("4711", "qemu", "/")
	c.put("proc/4711/stat", "4711 (qemu) Z 1 1 1 0 -1 4194572 1 1 1 1 1 1 1 1 20 0 7 0 8675309 1 1\n")
	c.process("4712", "qemu", "/")
	p := vfio.NewProcesses(open(t, c.root))
	for _, tt := range []struct {
		pid   int
		start uint64
		want  bool
	}{{4711, 8675309, true}, {4711, 8675310, false}, {4712, 8675309, false}, {4713, 8675309, false}} {
		found, err := p.Ending(t.Context(), tt.pid, tt.start)
		if is := len(found) == 1 && found[0].PID == tt.pid; err != nil || is != tt.want {
			t.Errorf("process %d of %d: %v, %v; want it ending: %t", tt.pid, tt.start, found, err, tt.want)
		}
	}
}

package vfio_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

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

package device_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
)

func TestMachineOf(t *testing.T) {
	const (
		intel = "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu vmx\n"
		guest = "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu vmx hypervisor\n"
		arm   = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n"
	)
	for _, row := range []struct {
		name  string
		files map[string]string
		want  device.Machine
	}{
		{"a partial copy of a node", nil, device.Machine{}},
		{"bare metal of x86", map[string]string{"proc/cpuinfo": intel, "proc/sys/kernel/arch": "x86_64\n"}, device.Machine{Arch: device.X86}},
		{"x86 before Linux 6.1", map[string]string{"proc/cpuinfo": intel}, device.Machine{Arch: device.X86}},
		{"a VM", map[string]string{"proc/cpuinfo": guest}, device.Machine{Arch: device.X86, Hypervisor: device.VM}},
		{"the word hypervisor elsewhere", map[string]string{"proc/cpuinfo": "model name\t: hypervisor\n" + intel}, device.Machine{Arch: device.X86}},
		{"a guest of Xen", map[string]string{"proc/cpuinfo": guest, "sys/hypervisor/type": "xen\n", "sys/hypervisor/properties/features": "00002705\n"}, device.Machine{Arch: device.X86, Hypervisor: device.XenGuest}},
		{"Xen's dom0 by xenfs", map[string]string{"proc/cpuinfo": guest, "sys/hypervisor/type": "xen\n", "proc/xen/capabilities": "control_d\n"}, device.Machine{Arch: device.X86, Hypervisor: device.XenDom0}},
		{"Xen's dom0 by its features", map[string]string{"sys/hypervisor/type": "xen\n", "sys/hypervisor/properties/features": "00002f05\n"}, device.Machine{Hypervisor: device.XenDom0}},
		{"bare metal of Arm", map[string]string{"proc/sys/kernel/arch": "aarch64\n", "sys/class/dmi/id/sys_vendor": "NVIDIA\n"}, device.Machine{Arch: device.Arm}},
		{"Arm before Linux 6.1", map[string]string{"proc/cpuinfo": arm}, device.Machine{Arch: device.Arm}},
		{"a VM of QEMU on Arm", map[string]string{"proc/cpuinfo": arm, "sys/class/dmi/id/sys_vendor": "QEMU\n", "sys/class/dmi/id/product_name": "KVM Virtual Machine\n"}, device.Machine{Arch: device.Arm, Hypervisor: device.VM}},
		{"a VM of Amazon on Arm", map[string]string{"proc/cpuinfo": arm, "sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "sys/class/dmi/id/product_name": "g5g.xlarge\n"}, device.Machine{Arch: device.Arm, Hypervisor: device.VM}},
		{"bare metal of Amazon on Arm", map[string]string{"proc/cpuinfo": arm, "sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "sys/class/dmi/id/product_name": "g5g.metal\n"}, device.Machine{Arch: device.Arm}},
		{"a VM of Azure on Arm", map[string]string{"proc/cpuinfo": arm, "sys/class/dmi/id/sys_vendor": "Microsoft Corporation\n", "sys/class/dmi/id/product_name": "Virtual Machine\n"}, device.Machine{Arch: device.Arm, Hypervisor: device.VM}},
		{"another architecture", map[string]string{"proc/sys/kernel/arch": "ppc64le\n"}, device.Machine{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := device.DetectMachine(func(file string) string { return row.files[file] }); got != row.want {
				t.Errorf("got %+v, want %+v", got, row.want)
			}
		})
	}
}

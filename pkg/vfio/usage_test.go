package vfio_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// whole makes the tree one that shows all processes of its node.
func (c captured) whole() captured {
	c.link("proc/1/ns/pid", "pid:[4026531836]")
	return c
}

// more adds what a survey reads of a process and a search for holders does not.
func (c captured) more(pid, maps string) {
	c.put("proc/"+pid+"/status", "Name:\tx\nPPid:\t17\nUid:\t1000\t1001\t1000\t1000\n")
	c.put("proc/"+pid+"/cmdline", "vmm\x00-device\x00a b\x00")
	c.put("proc/"+pid+"/maps", maps)
	c.link("proc/"+pid+"/exe", "/opt/kata/bin/vmm")
}

const firstMap = "7f0000000000-7f0000100000 rw-s 00000000 00:15 4711  "

func TestUsages(t *testing.T) {
	c := newCaptured(t).whole()
	c.put("sys/class/vfio/15/dev", "235:15\n")
	pod := "/kubepods.slice/kubepods-pod0f8f_ad5b.slice/cri-containerd-" + containerID + ".scope"
	c.process("4711", "vmm", pod, "/dev/vfio/vfio", "/dev/vfio/15", "/dev/vfio/devices/vfio3 (deleted)", "anon_inode:kvm-vm", "anon_inode:[vfio-device]", "anon_inode:[vfio-device]")
	c.more("4711", "")
	c.put("proc/4711/fdinfo/7", "pos:\t0\nvfio-device-syspath: /sys/devices/pci0000:3a/0000:3a:01.0/0000:3b:00.0\n")
	c.put("proc/4711/fdinfo/8", "pos:\t0\n")
	c.process("900", "flash", "/", "/dev/null")
	c.more("900", "55000-56000 r-xp 0 08:01 12 /usr/bin/resource0\n"+firstMap+"/sys/devices/pci0000:3a/0000:3a:01.0/0000:3b:00.1/resource2_wc\n"+firstMap+"/home/x/resource0\n")
	c.process("4712", "bash", "/", "/dev/vfio/vfio", "/dev/null", "/dev/vfio/readme")
	c.put("proc/4713/comm", "gone\n")
	address := func(function uint8) pci.Address { return pci.Address{Bus: 0x3b, Function: function} }
	about := func(pid int, comm string) vfio.Process {
		return vfio.Process{
			PID: pid, Comm: comm, StartTime: 8675309, Parent: 17, UID: 1001, Cgroup: "0::/",
			Exe: "/opt/kata/bin/vmm", Arguments: []string{"vmm", "-device", "a b"},
		}
	}
	vmm := vfio.Usage{
		Process: about(4711, "vmm"), Nodes: []string{"/dev/vfio/15", "/dev/vfio/devices/vfio3"},
		Devices: []pci.Address{address(0)}, Unnamed: 1, VM: true,
	}
	vmm.Container, vmm.Cgroup = containerID, "0::"+pod
	want := []vfio.Usage{{Process: about(900, "flash"), Registers: []pci.Address{address(1)}}, vmm}
	got, err := vfio.Usages(t.Context(), open(t, c.root))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("usages (-want +got):\n%s", diff)
	}
	if !got[1].InPod("0f8f-ad5b") || got[1].InPod("") {
		t.Error("the VMM is in the pod 0f8f-ad5b, and in none without a UID")
	}
	if want := "vmm (pid 4711, container 3f2c01234567, /opt/kata/bin/vmm)"; got[1].String() != want {
		t.Errorf("%q, want %q", got[1].String(), want)
	}
}

// What is not seen is never "nobody", and what was seen is told all the same.
func TestUsagesCannotSee(t *testing.T) {
	for name, change := range map[string]func(captured){
		"no process 1":            func(captured) {},
		"a container's processes": func(c captured) { c.link("proc/1/ns/pid", "pid:[4026532621]") },
		"a process like no other": func(c captured) {
			c.whole()
			c.process("5000", "x", "/", "/dev/vfio/16")
			c.put("proc/5000/stat", "5000 (x) S 1\n")
		},
		"a map without an end": func(c captured) {
			c.whole()
			c.put("proc/6000/comm", "x\n")
			c.link("proc/6000/fd/0", "/dev/null")
			c.put("proc/6000/maps/is-a-directory", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCaptured(t)
			c.process("4711", "vmm", "/", "/dev/vfio/15")
			change(c)
			found, err := vfio.Usages(t.Context(), open(t, c.root))
			if want := !strings.Contains(name, "no other") && !strings.Contains(name, "an end"); err == nil || errors.Is(err, vfio.ErrCannotSee) != want {
				t.Errorf("%v, %v; for lack of privilege: want %v", found, err, want)
			}
		})
	}
	c := newCaptured(t).whole()
	c.process("4711", "vmm", "/", "/dev/vfio/15")
	c.process("5000", "x", "/", "/dev/vfio/16")
	c.put("proc/5000/stat", "5000 (x) S 1\n")
	if found, err := vfio.Usages(t.Context(), open(t, c.root)); len(found) != 1 || err == nil {
		t.Errorf("%v, %v; want process 4711 and an error", found, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if found, err := vfio.Usages(ctx, open(t, c.root)); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v, %v", found, err)
	}
}

package runtimes_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
)

// TestVMMsAreOfTheNode: a process of a container can have the name and the command line of a sandbox's VMM.
func TestVMMsAreOfTheNode(t *testing.T) {
	const cmdline = "/usr/bin/qemu-system-x86_64\x00-name\x00sandbox-a\x00"
	vmm := process("951", "qemu-system-x86", onNode(), cmdline)
	pod := process("952", "qemu-system-x86", inPod(), cmdline)
	for about, tt := range map[string]struct {
		of   files
		want int
	}{
		"the node's":              {vmm, 951},
		"the node's and a pod's":  {vmm.and(pod), 951},
		"a pod's":                 {pod, 0},
		"no namespace is known":   {files{"proc/953/comm": "qemu-system-x86\n", "proc/953/cmdline": cmdline}, 953},
		"the node's is not known": {without(pod, "proc/1/ns/pid"), 952},
	} {
		got := 0
		vmms := runtimes.VMMs(node(t, tt.of))
		for i := range vmms {
			got += vmms[i].PID
		}
		if got != tt.want {
			t.Errorf("%s: VMMs are %+v, want PID %d", about, vmms, tt.want)
		}
	}
}

// TestFileDaemonsAreOfTheNode: the one that serves has a PID namespace of its own, as a container's processes have.
func TestFileDaemonsAreOfTheNode(t *testing.T) {
	daemon := func(pid, parent string, in namespaces) files {
		f := process(pid, "virtiofsd", in, "/opt/kata/libexec/virtiofsd\x00--fd=3\x00")
		f["proc/"+pid+"/status"] = "Name:\tvirtiofsd\nPPid:\t" + parent + "\nCapEff:\t00000000800000db\n"
		return f
	}
	waits := daemon("903", "1", onNode())
	for about, tt := range map[string]struct {
		of   files
		want int
	}{
		"in a sandbox":              {waits.and(daemon("904", "903", inPod())), 904},
		"without a sandbox":         {waits, 903},
		"beside a pod's":            {waits.and(daemon("904", "903", inPod())).and(daemon("907", "800", inPod())), 904},
		"a pod's and its child":     {daemon("907", "800", inPod()).and(daemon("908", "907", inPod())), 0},
		"of unknown PID namespaces": {without(waits.and(daemon("904", "903", inPod())), "proc/1/ns/pid"), 904},
	} {
		got := 0
		for _, d := range runtimes.FileDaemons(node(t, tt.of)) {
			got += d.PID
		}
		if got != tt.want {
			t.Errorf("%s: PIDs add up to %d, want %d", about, got, tt.want)
		}
	}
}

// without returns the files but one.
func without(of files, name string) files {
	left := of.and(nil)
	delete(left, name)
	return left
}

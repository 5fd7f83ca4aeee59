package runtimes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
)

const sandboxID = "39fd281908cdf8f78d0461cedc8b13789c3e3a5c6873d545594c0d8f117e9794"

// recordedVMM is the process that Kata started, and its bundle.
func recordedVMM(tb testing.TB) files {
	tb.Helper()
	text := testFile(tb, "testdata/qemu-go.txt")
	return files{
		"proc/951/comm":    "qemu-system-x86\n",
		"proc/951/cmdline": strings.ReplaceAll(text, "\n", "\x00"),
		"run/containerd/io.containerd.runtime.v2.task/k8s.io/" + sandboxID + "/config.json": `{"annotations": {
			"io.kubernetes.cri.sandbox-namespace": "team-a", "io.kubernetes.cri.sandbox-name": "train"}}`,
	}
}

func testFile(tb testing.TB, name string) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// where says of a sandbox's devices where they are.
func where(s *runtimes.Sandbox) string {
	var all []string
	for _, d := range s.Kata.Devices {
		all = append(all, fmt.Sprintf("%s=%s@%s", d.Address, d.GuestPath, d.Bus))
	}
	return strings.Join(all, " ")
}

func TestSandboxIsItsStateItsVMMAndItsBundle(t *testing.T) {
	of := recordedVMM(t).and(files{"run/vc/sbs/" + sandboxID + "/persist.json": testFile(t, "testdata/persist.json")})
	found, _ := runtimes.Sandboxes(node(t, of))
	if len(found) != 1 {
		t.Fatalf("there are %+v", found)
	}
	s := found[0]
	if s.Namespace != "team-a" || s.Pod != "train" || s.Kata.PID != 951 || s.VMM == nil || s.VMM.PID != 951 {
		t.Errorf("the sandbox is %+v", s)
	}
	if want := "0000:21:10.0=05/00@rp0 0000:22:00.0=06/00@rp1 0000:21:10.2=@"; where(&s) != want {
		t.Errorf("its devices are at %s, want %s: Kata logged these paths", where(&s), want)
	}
}

func TestVMMWithoutAStateIsASandbox(t *testing.T) {
	found, _ := runtimes.Sandboxes(node(t, recordedVMM(t)))
	if len(found) != 1 || found[0].Kata.File != "" || found[0].Kata.PID != 951 || where(&found[0]) != "0000:21:10.0=05/00@rp0 0000:22:00.0=06/00@rp1" {
		t.Errorf("there are %+v", found)
	}
}

func TestGuestPathsAreToldOnlyWhereTheCommandLineTellsThem(t *testing.T) {
	for about, c := range map[string]struct{ args, want string }{
		"a port with an address":       {"-device\x00pcie-root-port,id=rp0,bus=pcie.0,addr=0x10", "10/00"},
		"the first free slot":          {"-device\x00virtio-scsi-pci\x00-device\x00pcie-root-port,id=rp0,bus=pcie.0", "02/00"},
		"a taken slot":                 {"-device\x00pci-bridge,bus=pcie.0,addr=1\x00-device\x00pcie-root-port,id=rp0", "02/00"},
		"devices of other buses":       {"-device\x00virtconsole,id=c\x00-device\x00virtio-net-pci,bus=br0\x00-device\x00pcie-root-port,id=rp0", "01/00"},
		"driver= before the model":     {"-device\x00driver=virtio-net-pci,bus=pcie.0\x00-device\x00pcie-root-port,id=rp0", "02/00"},
		"no such port":                 {"-device\x00pcie-root-port,id=rp1", ""},
		"an address that is not known": {"-device\x00virtio-scsi-pci,addr=x\x00-device\x00pcie-root-port,id=rp0", ""},
	} {
		of := files{"proc/7/comm": "qemu-system-x86\n", "proc/7/cmdline": "/usr/bin/qemu-system-x86_64\x00" + c.args + "\x00"}
		vmms := runtimes.VMMs(node(t, of))
		if len(vmms) != 1 {
			t.Fatalf("%s: there are %+v", about, vmms)
		}
		if got := vmms[0].GuestPath("rp0"); got != c.want {
			t.Errorf("%s: the path is %q, want %q", about, got, c.want)
		}
	}
}

package check_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/test/board"
)

func confidentialFaults() []fault {
	return []fault{
		{rule: "CC-001", about: "off in the firmware", board: board.Server, plant: func(t *board.Tree) {
			t.Put("sys/module/kvm_intel/parameters/tdx", "N\n")
		}},
		{rule: "CC-001", about: "unknown to the kernel", board: board.Server, plant: func(t *board.Tree) {
			t.Delete("sys/module/kvm_intel/parameters/tdx")
		}},
	}
}

const confidentialGuest = "[hypervisor.qemu]\nconfidential_guest = true\n"

// withConfidential plants on a server whose handler's VMs are confidential.
func withConfidential(rule, about string, state finding.State, plant func(*board.Tree)) fault {
	return fault{rule: rule, about: about, board: board.Server, state: state, plant: func(t *board.Tree) {
		t.AddToKata(confidentialGuest)
		plant(t)
	}}
}

func confidentialGuestFaults() []fault {
	nothing := func(*board.Tree) {}
	return []fault{
		withConfidential("IOM-022", "no iommufd", "", nothing),
		withConfidential("IOM-022", "iommufd, and VFIO without nodes for functions", "", func(t *board.Tree) { t.Put("sys/class/misc/iommu/dev", "10:125\n") }),
		{rule: "IOM-022", about: "iommufd", board: board.New, state: finding.Pass, plant: func(t *board.Tree) {
			t.AddToKata(confidentialGuest)
			t.Put("sys/class/misc/iommu/dev", "10:125\n")
		}},
		{rule: "IOM-022", about: "a file that Kata can't parse", board: board.New, state: finding.Unknown, plant: func(t *board.Tree) { t.AddToKata("[hypervisor\n") }},

		{rule: "GPU-007", about: "set up for confidential guests", board: board.Server, state: finding.Manual, plant: nothing},
		withConfidential("GPU-007", "by Kata alone", finding.Manual, func(t *board.Tree) {
			t.Delete("etc/modprobe.d/tdx.conf")
			t.Delete("sys/module/kvm_intel/parameters/tdx")
		}),
		{rule: "GPU-007", about: "not set up for confidential guests", board: board.Server, state: finding.NotApplicable, plant: func(t *board.Tree) {
			t.Delete("etc/modprobe.d/tdx.conf")
			t.Delete("sys/module/kvm_intel/parameters/tdx")
		}},

		{rule: "RT-023", about: "no init data", board: board.New, plant: func(t *board.Tree) { confidentialPod(t, "") }},
		{rule: "RT-023", about: "init data without a policy", board: board.New, plant: func(t *board.Tree) { confidentialPod(t, initData(t.TB, "[data]\n'aa.toml' = ''\n")) }},
		{rule: "RT-023", about: "init data with a policy", board: board.New, state: finding.Pass, plant: func(t *board.Tree) {
			confidentialPod(t, initData(t.TB, "[data]\n'policy.rego' = '''\npackage agent_policy\n'''\n"))
		}},
		{rule: "RT-023", about: "init data that are none", board: board.New, state: finding.Unknown, plant: func(t *board.Tree) { confidentialPod(t, "%%%") }},
		{rule: "RT-023", about: "a bomb", board: board.New, state: finding.Unknown, plant: func(t *board.Tree) {
			confidentialPod(t, initData(t.TB, string(make([]byte, 5<<20))))
		}},
		{rule: "RT-023", about: "a VM of which nobody can tell whose it is", board: board.New, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Start(board.Process{Comm: "qemu-system-x86", Arguments: []string{"/opt/kata/bin/qemu-system-x86_64", "-machine", "q35,confidential-guest-support=tdx"}})
		}},

		withConfidential("CC-003", "no TDISP", "", nothing),
		withConfidential("CC-003", "TDISP", finding.Pass, func(t *board.Tree) {
			for _, f := range t.Scan().Functions {
				if f.PF != nil || f.VF == nil && f.Class.Base() != pci.BaseBridge {
					withTEE(t, f.Address)
				}
			}
		}),
		{rule: "CC-003", about: "no confidential guests", board: board.Server, state: finding.NotApplicable, plant: nothing},
	}
}

// withTEE has a function say that it is fit for TDISP.
func withTEE(t *board.Tree, a pci.Address) {
	t.TB.Helper()
	fsys, _ := t.Read()
	defer func() { _ = fsys.Close() }()
	registers, err := fsys.ConfigSpace(a)
	if err != nil {
		t.TB.Fatal(err)
	}
	chain, err := pci.Chain(registers)
	if err != nil {
		t.TB.Fatal(err)
	}
	for _, c := range chain {
		if !c.Extended && c.ID == 0x10 {
			t.SetConfig(a, c.Offset+7, registers[c.Offset+7]|0x40)
		}
	}
}

// confidentialPod runs a confidential VM, with init data in its sandbox's bundle.
func confidentialPod(t *board.Tree, data string) {
	t.TB.Helper()
	id := board.SandboxID("confidential")
	t.Start(board.Process{Comm: "qemu-system-x86", Container: id, Pod: "c0", Arguments: []string{
		"/opt/kata/bin/qemu-system-x86_64", "-name", "sandbox-" + id + ",debug-threads=on", "-machine", "q35,accel=kvm,confidential-guest-support=tdx",
	}})
	annotations := map[string]string{"io.kubernetes.cri.sandbox-namespace": "t1", "io.kubernetes.cri.sandbox-name": "secret"}
	if data != "" {
		annotations["io.katacontainers.config.hypervisor.cc_init_data"] = data
	}
	text, err := json.Marshal(specs.Spec{Annotations: annotations})
	if err != nil {
		t.TB.Fatal(err)
	}
	t.Put("run/containerd/io.containerd.runtime.v2.task/k8s.io/"+id+"/config.json", string(text))
}

func initData(tb testing.TB, text string) string {
	tb.Helper()
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write([]byte(text)); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(zipped.Bytes())
}

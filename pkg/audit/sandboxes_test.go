package audit_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/test/board"
)

func sandboxes(t *testing.T, tree *board.Tree, namespace, pod string) *audit.Sandboxes {
	t.Helper()
	fsys, s := tree.Read()
	defer func() { _ = fsys.Close() }()
	return audit.NewSandboxes(facts.New(fsys, s), namespace, pod)
}

// withPod gives the sandbox of t1's claim a bundle and a root port.
func withPod(t *testing.T) *board.Tree {
	t.Helper()
	tree := board.Server(t)
	id := board.SandboxID("t1-train-0000-4000-8000-000000000000")
	tree.Put("run/containerd/io.containerd.runtime.v2.task/k8s.io/"+id+"/config.json",
		`{"annotations": {"io.kubernetes.cri.sandbox-namespace": "t1", "io.kubernetes.cri.sandbox-name": "train"}}`)
	tree.Put("proc/902/comm", "qemu-system-x86\n")
	tree.Put("proc/902/cmdline", "/opt/kata/bin/qemu-system-x86_64\x00-name\x00sandbox-"+id+"\x00-device\x00pcie-root-port,id=rp0,bus=pcie.0\x00")
	return tree
}

func TestPodsSandboxSaysWhereItsDevicesAre(t *testing.T) {
	all := sandboxes(t, withPod(t), "t1", "train")
	if len(all.Sandboxes) != 1 || len(all.Sandboxes[0].Devices) != 1 {
		t.Fatalf("there are %+v", all)
	}
	s := all.Sandboxes[0]
	if d := s.Devices[0]; !s.Running || s.PID == 0 || s.Runtime != "go" || d.GuestPath != "01/00" || strings.Join(d.Claims, " ") != "t1/train" {
		t.Errorf("the sandbox is %+v", s)
	}
	for format, want := range map[string]string{"table": "01/00", "json": `"guestPath": "01/00"`, "yaml": "guestPath: 01/00"} {
		var out strings.Builder
		if err := all.Write(&out, format, 0); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v: %s", format, err, out.String())
		}
	}
}

func TestStateThatCannotBeReadIsSaid(t *testing.T) {
	tree := board.Server(t)
	tree.Put("run/vc/sbs/x/persist.json", "{")
	if all := sandboxes(t, tree, "", ""); len(all.Sandboxes) != 2 || len(all.Unread) != 1 || !strings.Contains(all.Unread[0], "/run/vc/sbs/x/persist.json") {
		t.Errorf("there are %+v", all)
	}
}

func TestNoSandboxIsSaid(t *testing.T) {
	var text strings.Builder
	if err := sandboxes(t, withPod(t), "t1", "other").Write(&text, "table", 80); err != nil || text.String() != "No sandbox of Kata was found.\n" {
		t.Errorf("got %q and error %v, want a sentence instead of a bare header", text.String(), err)
	}
}

package runtimes_test

import (
	"bytes"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/archive"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/test/tree"
)

// A copy tells whose processes are the node's own, one of before that does not.
func TestCopyIsJudgedAsTheNodeWas(t *testing.T) {
	of := files{"var/lib/kubelet/config.yaml": "readOnlyPort: 10255\n"}.and(process("8", "kubelet", onNode(), kubelet)).and(process("9", "kubelet", inPod(), kubelet+"--read-only-port=0\x00"))
	for _, c := range []struct {
		about   string
		ask     func(*facts.Node)
		damaged int
	}{
		{"of now", func(n *facts.Node) { runtimes.FindKubelet(n) }, 0},
		{"of before", func(n *facts.Node) {
			n.List("proc")
			for _, name := range []string{"var/lib/kubelet/config.yaml", "proc/8/comm", "proc/8/cmdline", "proc/9/comm", "proc/9/cmdline"} {
				n.Read(name)
			}
		}, 2},
	} {
		fsys, recorder := archive.Record(tree.Open(t, of))
		c.ask(facts.New(fsys, &device.Snapshot{}))
		var out bytes.Buffer
		if err := recorder.Write(&out, archive.Manifest{}); err != nil {
			t.Fatal(err)
		}
		copied, err := archive.Read(&out, "x.tgz")
		if err != nil {
			t.Fatal(err)
		}
		k, ok := runtimes.FindKubelet(facts.New(copied.FS, &device.Snapshot{}))
		if !ok || len(k.Damaged) != c.damaged || c.damaged == 0 && k.ReadOnlyPort != 10255 {
			t.Errorf("%s: %t, %+v", c.about, ok, k)
		}
		if err := copied.Close(); err != nil {
			t.Error(err)
		}
	}
}

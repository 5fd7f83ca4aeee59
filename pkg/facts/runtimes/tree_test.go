package runtimes_test

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/test/tree"
)

// files are a node's, by path; one that begins with "-> " is a link.
type files map[string]string

// and returns the files with others over them.
func (f files) and(others files) files {
	all := maps.Clone(f)
	maps.Copy(all, others)
	return all
}

// namespaces are what links of a process say: of its processes and its mounts.
type namespaces struct{ pid, mnt string }

// onNode are the node's, inPod those of a pod, inHostPID those of a pod with hostPID.
func onNode() namespaces    { return namespaces{"pid:[1]", "mnt:[1]"} }
func inPod() namespaces     { return namespaces{"pid:[2]", "mnt:[2]"} }
func inHostPID() namespaces { return namespaces{"pid:[1]", "mnt:[2]"} }

// process is a process of root's beside the node's first.
func process(pid, comm string, in namespaces, cmdline string) files {
	dir := "proc/" + pid
	return files{
		"proc/1/ns/pid": "-> " + onNode().pid, "proc/1/ns/mnt": "-> " + onNode().mnt, dir + "/ns/pid": "-> " + in.pid, dir + "/ns/mnt": "-> " + in.mnt,
		dir + "/comm": comm + "\n", dir + "/cmdline": cmdline, dir + "/status": "Name:\tx\nUid:\t0\t0\t0\t0\n",
	}
}

// node is a node that has the files.
func node(tb testing.TB, of files) *facts.Node {
	tb.Helper()
	return facts.New(tree.Open(tb, of), &device.Snapshot{})
}

// fragment is one of the files of runtimeclass/.
func fragment(tb testing.TB, name string) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("../../../runtimeclass", name))
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

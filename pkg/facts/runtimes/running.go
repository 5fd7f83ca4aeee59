package runtimes

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/link"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// RunningFile is the file in which a copy of a node keeps the answer of its containerd. The node itself has no such file.
const RunningFile = "kata-vfio/containerd.json"

type runningKey struct{}

type answer struct {
	running *facts.RunningContainerd
	seen    facts.Fact
}

// Ask asks the containerd that serves a socket of the node. Only the command kata-vfio-audit implements it, so that no other
// program links containerd's client.
type Ask func(ctx context.Context, fsys *sysfs.FS, socket string) (*facts.RunningContainerd, error)

// AskRunning asks the containerd that serves the node's kubelet, if the node is a running node and not a copy. Call it before the
// first [Running]; otherwise, Running answers from the file of a copy. If containerd does not answer, the fact of Running has the
// error.
func AskRunning(ctx context.Context, n *facts.Node, ask Ask) {
	_, live, err := link.Live(n.FS())
	if !live && err == nil {
		return
	}
	socket := findSocket(n)
	if socket == "" {
		return // no containerd is set up
	}
	facts.Memo(n, runningKey{}, func() answer {
		seen := facts.Fact{Path: "containerd: " + socket, How: "containerd"}
		r, err := ask(ctx, n.FS(), socket)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			seen.Status = facts.Absent
		case errors.Is(err, fs.ErrPermission):
			seen.Status, seen.Err = facts.Denied, err.Error()
		case err != nil:
			seen.Status, seen.Err = facts.Broken, err.Error()
		default:
			seen.Value = r.Version
		}
		return answer{r, seen}
	})
}

// Running returns the answer of the node's containerd. It is nil if containerd was not asked or does not answer; the fact has the reason.
func Running(n *facts.Node) (*facts.RunningContainerd, facts.Fact) {
	a := facts.Memo(n, runningKey{}, func() answer {
		seen := n.Read(RunningFile)
		if seen.Status == facts.Absent {
			seen.Path, seen.How = "containerd", "containerd" // the node has no such file, only copies do
		}
		if !seen.OK() {
			return answer{seen: seen}
		}
		r := &facts.RunningContainerd{}
		if err := json.Unmarshal([]byte(seen.Value), r); err != nil {
			seen.Status, seen.Err, seen.Value = facts.Broken, err.Error(), ""
			return answer{seen: seen}
		}
		seen.Path, seen.How, seen.Value = "containerd: "+r.Socket, "containerd", r.Version
		return answer{r, seen}
	})
	return a.running, a.seen
}

// Sockets returns the usual sockets of all container runtimes that the node may have.
func Sockets(n *facts.Node) []string {
	return append(facts.ContainerdSockets(onNode{n}), facts.CRIOSocket)
}

// findSocket returns the socket of the containerd that serves the kubelet: the one in its command line, the one in its
// configuration, or the first usual socket that exists. It is empty if the node has no containerd.
func findSocket(n *facts.Node) string {
	own, _ := daemons(n, "containerd")
	for i := range own {
		if socket, ok := own[i].option("--address", "-a"); ok && path.IsAbs(socket) {
			return path.Clean(socket)
		}
	}
	names, _ := containerdConfigs(n)
	_, loaded := (&Runtimes{}).chooseContainerd(n, names)
	if loaded != nil && loaded.Socket() != "" {
		return loaded.Socket()
	}
	all := facts.ContainerdSockets(onNode{n})
	if i := slices.IndexFunc(all, func(s string) bool { return n.Exists(s).OK() }); i >= 0 {
		return all[i]
	}
	return ""
}

// Package host says what a node needs beside its kernel's command line: modules and
// their options, udev rules, huge pages, locked memory, network managers that leave
// VFs alone; and what no file can mend, which is told before anything is changed.
package host

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/platform"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// header stands above each file of ours.
const header = "# Written by kata-vfio-bootstrap, which writes it anew when it differs. `kata-vfio-bootstrap revert` takes it away.\n"

// Wanted returns the node's files and settings as they should be.
func Wanted(tree state.Tree, b *blueprint.Blueprint, p *platform.Platform) state.Wanted {
	n := &node{tree: tree, blueprint: b, platform: p}
	n.preflight()
	n.observed()
	if p.Loader.Kind == platform.Talos {
		return n.wanted // its files are nobody's to change
	}
	n.modules()
	n.options()
	pfs := n.physicalFunctions()
	n.udev(pfs)
	n.earlyBinding()
	n.hugePages()
	n.lockedMemory()
	n.network()
	return n.wanted
}

// node collects what is wanted of one node.
type node struct {
	tree      state.Tree
	blueprint *blueprint.Blueprint
	platform  *platform.Platform
	wanted    state.Wanted
}

func (n *node) file(f state.File) {
	if f.Mode == 0 {
		f.Mode = 0o644
	}
	n.wanted.Files = append(n.wanted.Files, f)
}

// setting asks for a running setting. An image has none.
func (n *node) setting(s state.Setting) {
	if n.platform.Live {
		n.wanted.Settings = append(n.wanted.Settings, s)
	}
}

func (n *node) problem(p state.Problem) { n.wanted.Problems = append(n.wanted.Problems, p) }

func (n *node) fact(part, name, value, source string) {
	n.wanted.Facts = append(n.wanted.Facts, state.Fact{Part: part, Name: name, Value: value, Source: source})
}

// text returns a file without the space behind it; false where it is not there. Links
// are followed below the root, and one to /dev/null leads to nothing. One that can't be
// read is a problem.
func (n *node) text(part, name string) (string, bool) {
	real := n.real(name)
	if real == "dev/null" {
		return "", true
	}
	data, err := n.tree.ReadAtMost(real, 1<<20)
	if err == nil {
		return strings.TrimRight(string(data), " \t\r\n"), true
	}
	if !errors.Is(err, fs.ErrNotExist) {
		n.problem(state.Problem{Part: part, Fatal: true, Path: name, Text: err.Error(), Fix: "make it readable, and a file below the node's root"})
	}
	return "", false
}

// real returns where a path leads to below the root.
func (n *node) real(name string) string {
	tree, ok := n.tree.(interface{ ReadLink(string) (string, error) })
	if !ok {
		return name
	}
	return facts.Follow(name, func(at string) string {
		target, err := tree.ReadLink(at)
		if err != nil {
			return "" // it is no link, or not there
		}
		return target
	})
}

// observed are facts for who sets up the cluster. Labels are set from where there is a kubeconfig; a node has no right to its own.
func (n *node) observed() {
	if len(n.blueprint.Labels) == 0 {
		return
	}
	n.fact("labels", "command", labelCommand(n.blueprint.Labels), "the blueprint")
}

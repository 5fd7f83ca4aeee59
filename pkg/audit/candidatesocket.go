package audit

import (
	"io/fs"
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// socketWants is the directory of links to the socket units that systemd starts at each boot.
const socketWants = "etc/systemd/system/sockets.target.wants/"

// withSockets adds to an outlook the socket files that systemd creates for the units that the changes enable. Bootstrap starts
// these units, and so does each boot.
func withSockets(node *sysfs.FS, o *bootstrap.Outlook) *bootstrap.Outlook {
	all := *o
	for i := range o.Files {
		link := &o.Files[i]
		if link.Kind != state.Link || !strings.HasPrefix(link.Path, socketWants) {
			continue
		}
		for _, name := range listens(unitText(node, o, link.Target)) {
			socket := state.Image{Kind: state.Other, Mode: fs.ModeSocket | 0o600}
			all.Files = append(all.Files, bootstrap.FileOutlook{Path: strings.TrimPrefix(name, "/"), Parts: link.Parts, Image: socket})
		}
	}
	return &all
}

// unitText returns a unit as it is after the changes, or "" if it can't be read.
func unitText(node *sysfs.FS, o *bootstrap.Outlook, name string) string {
	name = strings.TrimPrefix(path.Clean(name), "/")
	for i := range o.Files {
		if o.Files[i].Path == name {
			return string(o.Files[i].Content)
		}
	}
	const enough = 1 << 16
	text, err := node.ReadAtMost(name, enough)
	if err != nil {
		return ""
	}
	return string(text)
}

// listens returns the files of a socket unit's streams (systemd.socket(5)).
func listens(unit string) []string {
	var all []string
	for line := range strings.Lines(unit) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if value = strings.TrimSpace(value); strings.TrimSpace(key) == "ListenStream" && strings.HasPrefix(value, "/") {
			all = append(all, value)
		}
	}
	return all
}

package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// maxLog is how much of the end of one log is read, and maxLogs how many logs.
const (
	maxLog  = 2 << 20
	maxLogs = 200
)

// noJournald says why logs may be missing.
const noJournald = "the journal of systemd is not in the bundle, since no other program is run to read it: " +
	"journalctl -b -k and journalctl -u containerd -u crio -u kubelet print it"

// ownLogs are those of kata-vfio's own pods and programs, which are taken whole;
// nodeLogs those in which only some lines concern devices.
func ownLogs() []string {
	return []string{"var/log/pods/*_kata-vfio-*/*/*.log", "var/log/kata-vfio/*", "var/log/kata-vfio*.log"}
}

func nodeLogs() []string {
	return []string{
		"var/log/kern.log", "var/log/dmesg", "var/log/syslog", "var/log/messages", "var/log/daemon.log",
		"var/log/containerd.log", "var/log/crio.log", "var/log/kubelet.log",
	}
}

// concerning finds the lines of a node's log that have to do with devices in VMs.
var concerning = regexp.MustCompile(`(?i)\b(vfio|iommu|dmar|amd-vi|pcieport|aer|pci|kata|nri|cdi|mlx5|nvidia|sr-?iov|vfs?)\b|kata-vfio|resourceclaim`)

// Logs adds the ends of the node's logs, as far as they lie in files.
func (b *Bundle) Logs(ctx context.Context, node *sysfs.FS) error {
	b.Note(noJournald)
	left := maxLogs
	for _, pattern := range append(ownLogs(), nodeLogs()...) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read logs: %w", err)
		}
		for _, name := range matching(node, pattern) {
			if left--; left < 0 {
				b.Note(fmt.Sprintf("logs behind the first %d are left out", maxLogs))
				return nil
			}
			b.log(node, name)
		}
	}
	return nil
}

// log adds one.
func (b *Bundle) log(node *sysfs.FS, name string) {
	data, err := node.ReadTail(name, maxLog)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		b.Note(fmt.Sprintf("%s could not be read: %v", name, err))
		return
	}
	if len(data) == maxLog {
		b.Note(fmt.Sprintf("of %s the last %d MiB are read", name, maxLog>>20))
		_, data, _ = bytes.Cut(data, []byte("\n")) // the first line is a part of one
	}
	if slices.Contains(nodeLogs(), name) {
		data = linesConcerning(data)
	}
	b.Add(path.Join("logs", name), data)
}

func linesConcerning(data []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(data) {
		if concerning.Match(line) {
			out.Write(line)
		}
	}
	return out.Bytes()
}

// matching returns the files that match a pattern, element by element.
func matching(node *sysfs.FS, pattern string) []string {
	found := []string{"."}
	for element := range strings.SplitSeq(pattern, "/") {
		var next []string
		for _, dir := range found {
			next = append(next, matchingIn(node, dir, element)...)
			if len(next) > maxFiles {
				return nil
			}
		}
		found = next
	}
	return found
}

func matchingIn(node *sysfs.FS, dir, element string) []string {
	if !strings.ContainsAny(element, "*?[") {
		return []string{path.Join(dir, element)}
	}
	names, err := node.ReadDir(dir)
	if err != nil {
		return nil // there is none, or it is not for us to read: so its files
	}
	var found []string
	for _, name := range names {
		if ok, err := path.Match(element, name); err == nil && ok {
			found = append(found, path.Join(dir, name))
		}
	}
	return found
}

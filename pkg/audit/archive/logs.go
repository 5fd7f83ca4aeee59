package archive

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

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// maxLog is the number of bytes that are read from the end of one log, and maxLogs the number of logs.
const (
	maxLog  = 2 << 20
	maxLogs = 200
	// maxLogNames is the number of files that a pattern of names may match.
	maxLogNames = 4096
)

// noJournald is the note that says why logs may be missing.
const noJournald = "the journal of systemd is not in the bundle, since no other program is run to read it: " +
	"journalctl -b -k and journalctl -u containerd -u crio -u kubelet print it"

// podLogs is the kubelet's directory of logs. It has a directory <namespace>_<pod>_<uid> for each pod.
const podLogs = "var/log/pods"

// ownLogs are the logs of kata-vfio's own pods, which are in its namespace, and programs. They are included
// completely. nodeLogs are logs in which only some lines concern devices.
func ownLogs(namespace string) []string {
	return []string{podLogs + "/" + namespace + "_kata-vfio-*/*/*.log", "var/log/kata-vfio/*", "var/log/kata-vfio*.log"}
}

func nodeLogs() []string {
	return []string{
		"var/log/kern.log", "var/log/dmesg", "var/log/syslog", "var/log/messages", "var/log/daemon.log",
		"var/log/containerd.log", "var/log/crio.log", "var/log/kubelet.log",
	}
}

// concerning matches the lines of a node's log that concern devices in VMs.
var concerning = regexp.MustCompile(`(?i)\b(vfio|iommu|dmar|amd-vi|pcieport|aer|pci|kata|nri|cdi|mlx5|nvidia|sr-?iov|vfs?)\b|kata-vfio|resourceclaim`)

// kernels matches lines of the kernel in a log to which other programs write, too.
var kernels = regexp.MustCompile(`^(?:\S+\s+){0,4}kernel: `)

// ofKernel reports whether a log has only lines of the kernel.
func ofKernel(name string) bool { return name == "var/log/kern.log" || name == "var/log/dmesg" }

// hideLogged hides the names of pods in the node's logs, except for kata-vfio's own namespace, and the names in
// kata-vfio's own log.
func hideLogged(m *output.Mask, node *sysfs.FS, namespace string) {
	names, err := node.ReadDir(podLogs)
	if err != nil {
		return // there are none
	}
	for _, name := range names {
		if parts := strings.Split(name, "_"); len(parts) == 3 && parts[0] != namespace {
			m.Hide(parts[0], parts[1])
		}
	}
}

// AddLogs adds the ends of the node's logs, if they are in files. namespace is that of kata-vfio's own pods. With a mask, it leaves
// out the logs of runtimes, and all lines of shared logs that are not the kernel's. These name every pod, and not all names are
// known, so they can't be hidden.
func AddLogs(ctx context.Context, b *output.Bundle, node *sysfs.FS, namespace string, mask *output.Mask) error {
	b.Note(noJournald)
	if mask != nil {
		hideLogged(mask, node, namespace)
		b.Note("logs of containerd, CRI-O and the kubelet are left out, and of the node's other logs what is not the kernel's: they name every pod")
	}
	if len(matching(node, ownLogs(namespace)[0])) == 0 {
		b.Note("no pod kata-vfio-* of the namespace " + namespace + " has logs on the node (--namespace)")
	}
	left := maxLogs
	for _, pattern := range append(ownLogs(namespace), nodeLogs()...) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read logs: %w", err)
		}
		for _, name := range matching(node, pattern) {
			if left--; left < 0 {
				b.Note(fmt.Sprintf("logs after the first %d are left out", maxLogs))
				return nil
			}
			addLog(b, node, name, mask)
		}
	}
	return nil
}

// addLog adds the end of one log.
func addLog(b *output.Bundle, node *sysfs.FS, name string, mask *output.Mask) {
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
		_, data, _ = bytes.Cut(data, []byte("\n")) // the first line may be incomplete
	}
	switch isNodes := slices.Contains(nodeLogs(), name); {
	case isNodes && mask != nil && isRuntimes(name):
		return
	case isNodes:
		data = linesConcerning(data, mask != nil && !ofKernel(name))
	case mask != nil:
		mask.HideLogged(data)
	}
	b.Add(path.Join("logs", name), data)
}

// isRuntimes reports whether a log belongs to a program that runs the node's pods.
func isRuntimes(name string) bool {
	return slices.Contains([]string{"containerd.log", "crio.log", "kubelet.log"}, path.Base(name))
}

// linesConcerning returns the lines that concern devices, or only those of the kernel if kernelOnly is set.
func linesConcerning(data []byte, kernelOnly bool) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(data) {
		if concerning.Match(line) && (!kernelOnly || kernels.Match(line)) {
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
			if len(next) > maxLogNames {
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
		return nil // it does not exist, or can't be read, and neither can its files
	}
	var found []string
	for _, name := range names {
		if ok, err := path.Match(element, name); err == nil && ok {
			found = append(found, path.Join(dir, name))
		}
	}
	return found
}

// leftOutLine replaces a line of a ledger that is neither an event of a known version nor a checkpoint, because names in it can't be
// found and hidden.
const leftOutLine = "(a line that is not an event is left out)\n"

// Readable returns a ledger's segment without the lines that do not belong in a ledger.
func Readable(segment []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(segment) {
		if isLedgers(bytes.TrimSuffix(line, []byte("\n"))) {
			out.Write(line)
		} else {
			out.WriteString(leftOutLine)
		}
	}
	return out.Bytes()
}

// isLedgers reports whether a line is an event of a known version, whose names can be found, or a checkpoint, which has no names.
func isLedgers(line []byte) bool {
	e, err := ledger.DecodeEvent(line)
	return err == nil && e.Version <= ledger.Version || bytes.HasPrefix(line, []byte(`{"checkpoint":`))
}

// ListNames returns the tenants' names in an event.
func ListNames(e *ledger.Event) []string {
	var names []string
	if e.Claim != nil {
		names = append(names, e.Claim.Namespace, e.Claim.Name)
	}
	for _, p := range e.Pods {
		names = append(names, p.Name)
	}
	if e.Sanitize != nil && e.Sanitize.After != nil {
		names = append(names, e.Sanitize.After.Namespace, e.Sanitize.After.Name)
	}
	return names
}

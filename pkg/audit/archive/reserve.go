package archive

import (
	"bytes"
	"path"
	"regexp"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// ReserveNode reserves the words of a node's archive that its checks need: kata-vfio's own words and patterns, names,
// links and contents of kernel files, flags of processes, and keys of configurations. Other words of processes and
// configurations may be tenants' names.
func ReserveNode(m *output.Mask, r *Recorder) {
	if m == nil {
		return
	}
	m.ReserveVocabulary()
	m.Reserve([]byte(strings.Join(Patterns(), "\n")))
	r.Each(func(place, target string, names []string, data []byte) {
		switch {
		case isKernels(place):
			m.Reserve([]byte(place + "\n" + target + "\n" + strings.Join(names, "\n")))
			m.Reserve(data)
		case strings.HasPrefix(place, "proc/"): // of a process
			m.Reserve([]byte(place + "\n" + kernelsTarget(target) + "\n" + strings.Join(names, "\n")))
			m.Reserve(wordsOfProcess(path.Base(place), data))
		case path.Ext(place) == ".json":
			m.ReserveKeys(data)
		default:
			m.Reserve(bytes.Join(settings.FindAll(data, -1), []byte("\n")))
		}
	})
}

// isKernels reports whether a file is the kernel's, and not a process's.
func isKernels(place string) bool {
	top, rest, _ := strings.Cut(place, "/")
	switch top {
	case "sys", "dev", "boot":
		return true
	case "proc":
		first, _, _ := strings.Cut(rest, "/")
		return rest == "" || first != "self" && strings.Trim(first, "0123456789") != ""
	}
	return false
}

// kernelsTarget returns the target of a process's link, if it is a device.
func kernelsTarget(target string) string {
	if strings.HasPrefix(target, "/dev/") || strings.HasPrefix(target, "/sys/") || !strings.HasPrefix(target, "/") {
		return target
	}
	return ""
}

var (
	// flag is one of a command line.
	flag = regexp.MustCompile(`(?:^|\x00)-{1,2}[A-Za-z][\w.-]*`)
	// settings are the keys of a configuration, and the titles of its tables except for quoted parts.
	settings = regexp.MustCompile(`(?m)^[ \t]*(?:- )?["']?[\w.-]+["']?[ \t]*[:=]|^[ \t]*\[+[\w.-]+`)
)

// wordsOfProcess returns the words in a process's file that the process can't choose.
func wordsOfProcess(file string, data []byte) []byte {
	switch file {
	case "comm", "status", "limits", "stat", "maps":
		return data
	case "cmdline":
		return bytes.Join(flag.FindAll(data, -1), []byte("\n"))
	}
	return nil
}

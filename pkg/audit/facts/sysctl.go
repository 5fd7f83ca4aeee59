package facts

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// Sysctl returns a kernel setting, "kernel.dmesg_restrict", as it runs and as
// sysctl.d(5) has it for later boots.
func (n *Node) Sysctl(name string) Setting {
	s := Setting{Name: name, Running: n.Read(path.Join("proc/sys", strings.ReplaceAll(name, ".", "/")))}
	for _, file := range n.sysctlFiles() {
		for line := range strings.Lines(file.Value) {
			key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
			key = strings.TrimPrefix(strings.TrimSpace(key), "-")
			if ok && strings.ReplaceAll(key, "/", ".") == name {
				s.Configured = append(s.Configured, Fact{Path: file.Path, Value: strings.TrimSpace(value), How: "read"})
			}
		}
	}
	return s
}

// sysctlFiles returns the files in the order in which they count: by name, whatever
// directory they are in, one in /etc in place of one of the same name elsewhere.
func (n *Node) sysctlFiles() []Fact {
	var files []Fact
	for _, dir := range []string{"etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d"} {
		for _, file := range n.Glob(dir, "*.conf") {
			hidden := slices.ContainsFunc(files, func(f Fact) bool { return path.Base(f.Path) == path.Base(file.Path) })
			if !hidden {
				files = append(files, file)
			}
		}
	}
	slices.SortStableFunc(files, func(a, b Fact) int { return cmp.Compare(path.Base(a.Path), path.Base(b.Path)) })
	return append(files, n.Read("etc/sysctl.conf"))
}

// BootArgument returns a parameter of the kernel itself ("mitigations") as the
// running kernel was told and as later ones will be. A word without a value has the
// empty one; Running is absent where the command line does not have it.
func (n *Node) BootArgument(name string) Setting {
	s := Setting{Name: name, Running: n.Cmdline()}
	if s.Running.OK() {
		values := n.Arguments(name)
		if len(values) == 0 {
			s.Running.Status = Absent
		} else {
			s.Running.Value = values[len(values)-1]
		}
	}
	for _, file := range n.BootFiles() {
		for _, value := range kernelargs.Values(file.Value, name) {
			s.Configured = append(s.Configured, Fact{Path: file.Path, Value: value, How: "read"})
		}
	}
	return s
}

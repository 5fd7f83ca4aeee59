package facts

import (
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

func isVFIO(f *device.Function) bool { return device.IsVFIO(f.Driver) }

// Cmdline returns the running kernel's command line.
func (n *Node) Cmdline() Fact { return n.Read("proc/cmdline") }

// Arguments returns the values that the command line gives a parameter, in order
// ("intremap=off" for intremap is "off"; a bare word is ""). As in the kernel "-"
// and "_" are one in names, and what is behind "--" is init's.
func (n *Node) Arguments(name string) []string { return kernelargs.Values(n.Cmdline().Value, name) }

// Setting is a module's parameter as it is now and as the node is configured to
// have it after the next boot.
type Setting struct {
	Name string
	// Running is /sys/module/<module>/parameters/<parameter>: absent where the
	// module is not loaded, or the parameter not readable in any way.
	Running Fact
	// Configured are the places that set it, the last of which counts: lines of
	// modprobe.d, and the command lines of the boot loader's files. Value is what
	// they give it.
	Configured []Fact
}

// Next returns what the parameter is configured to be; false where nothing says
// so and the kernel's default holds.
func (s *Setting) Next() (string, bool) {
	if len(s.Configured) == 0 {
		return "", false
	}
	return s.Configured[len(s.Configured)-1].Value, true
}

// Parameter returns a module's parameter.
func (n *Node) Parameter(module, name string) Setting {
	s := Setting{Name: module + "." + name, Running: n.Read(path.Join("sys/module", strings.ReplaceAll(module, "-", "_"), "parameters", name))}
	for _, file := range n.modprobeFiles() {
		s.Configured = append(s.Configured, options(file, module, name)...)
	}
	for _, file := range n.BootFiles() {
		for _, value := range kernelargs.Values(file.Value, module+"."+name) {
			s.Configured = append(s.Configured, Fact{Path: file.Path, Value: value, How: "read"})
		}
	}
	return s
}

// modprobeFiles returns modprobe's configuration in the order in which it counts. A
// link may lead anywhere below the root; one to /dev/null only hides others.
func (n *Node) modprobeFiles() []Fact {
	var files []Fact
	for _, name := range kernelargs.ModprobeFiles(func(dir string) []string {
		names, _ := n.List(n.Real(dir))
		return names
	}) {
		if real := n.Real(name); real != "dev/null" {
			file := n.Read(real)
			file.Path = "/" + name
			files = append(files, file)
		}
	}
	return files
}

// options returns the values that a file of modprobe.d gives a parameter
// (modprobe.d(5): "options module name=value ...").
func options(file Fact, module, name string) []Fact {
	var found []Fact
	for _, line := range kernelargs.ModprobeLines(file.Value) {
		fields := strings.Fields(line.Text)
		if len(fields) < 3 || fields[0] != "options" || !device.SameDriver(fields[1], module) {
			continue
		}
		for _, value := range kernelargs.Values(strings.Join(fields[2:], " "), name) {
			found = append(found, Fact{Path: file.Path, Value: value, How: "read"})
		}
	}
	return found
}

// BootFiles returns the kernel command lines that are configured for later boots:
// one fact for each line that has one, whose value is the line. Where the files
// are depends on the boot loader: GRUB's defaults, entries of the Boot Loader
// Specification, /etc/kernel/cmdline, extlinux.
func (n *Node) BootFiles() []Fact {
	var lines []Fact
	for _, file := range append(append([]Fact{n.Read("etc/default/grub")}, n.Glob("etc/default/grub.d", "*.cfg")...), n.Read("etc/kernel/cmdline")) {
		if strings.HasSuffix(file.Path, "cmdline") && file.OK() {
			lines = append(lines, file)
			continue
		}
		lines = append(lines, assignments(file, "GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT")...)
	}
	entries := slices.Concat(n.Glob("boot/loader/entries", "*.conf"), n.Glob("efi/loader/entries", "*.conf"), n.Glob("boot/efi/loader/entries", "*.conf"))
	for _, file := range append(entries, n.Read("boot/extlinux/extlinux.conf")) {
		lines = append(lines, directives(file, "options", "append")...)
	}
	return lines
}

// assignments returns the values that a shell fragment assigns to variables.
func assignments(file Fact, names ...string) []Fact {
	var found []Fact
	for line := range strings.Lines(file.Value) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && slices.Contains(names, strings.TrimSpace(name)) {
			found = append(found, Fact{Path: file.Path, Value: strings.Trim(strings.TrimSpace(value), `"'`), How: "read"})
		}
	}
	return found
}

// directives returns what stands behind the keywords at the beginning of lines.
func directives(file Fact, keywords ...string) []Fact {
	var found []Fact
	for line := range strings.Lines(file.Value) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if slices.Contains(keywords, strings.ToLower(word)) {
			found = append(found, Fact{Path: file.Path, Value: strings.TrimSpace(rest), How: "read"})
		}
	}
	return found
}

package facts

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

func isVFIO(f *device.Function) bool { return device.IsVFIO(f.Driver) }

// Cmdline returns the running kernel's command line.
func (n *Node) Cmdline() Fact { return n.Read(kernelargs.Running) }

// Arguments returns the values that the command line gives a parameter, in order ("intremap=off" for intremap is "off"; a bare word
// is ""). As in the kernel, "-" and "_" are the same in names, and everything after "--" is for init and is ignored.
func (n *Node) Arguments(name string) []string { return kernelargs.Values(n.Cmdline().Value, name) }

// Setting is a setting of the kernel, such as a module's parameter: its value now, and its configured value for the next boot.
type Setting struct {
	Name string
	// Running is the present value. For a module's parameter, it is /sys/module/<module>/parameters/<parameter>, which is absent if
	// the module is not loaded, or if the module does not show the parameter.
	Running Fact
	// Configured are the places that set the value for the next boot; the last one applies. They are lines of modprobe.d or sysctl.d,
	// or command lines in the boot loader's files. The Value of each is the configured value.
	Configured []Fact
}

// Next returns the configured value for the next boot. It returns false if nothing sets it, so that the kernel's default applies.
func (s *Setting) Next() (string, bool) {
	if len(s.Configured) == 0 {
		return "", false
	}
	return s.Configured[len(s.Configured)-1].Value, true
}

// Parameter returns a module's parameter.
func (n *Node) Parameter(module, name string) Setting {
	// sysfs has the module's name with underscores, whatever the name of its file.
	s := Setting{Name: module + "." + name, Running: n.Read(path.Join("sys/module", strings.ReplaceAll(module, "-", "_"), "parameters", name))}
	for _, file := range n.modprobeFiles() {
		s.Configured = append(s.Configured, options(file, module, name)...)
	}
	s.Configured = append(s.Configured, optionsIn(n.Read(kernelargs.InitramfsModules), kernelargs.LoadedModules, module, name)...)
	for _, file := range n.BootFiles() {
		// modprobe appends the options on the kernel's command line to the options in its files (modprobe(8)), and the kernel uses the last.
		for _, value := range kernelargs.Values(file.Value, module+"."+name) {
			s.Configured = append(s.Configured, Fact{Path: file.Path, Value: value, How: "read"})
		}
	}
	return s
}

// modprobeFiles returns the files of modprobe's configuration, in the order in which they apply. It follows links within the node's
// root. A link to /dev/null is left out, because it only hides files of the same name.
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
	return optionsIn(file, kernelargs.ModprobeLines, module, name)
}

func optionsIn(file Fact, lines func(string) []kernelargs.ModprobeLine, module, name string) []Fact {
	var found []Fact
	for _, line := range lines(file.Value) {
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

// InstallLine is a line of modprobe.d(5) that runs a command in place of loading a module.
type InstallLine struct {
	File    Fact
	Number  int
	Command string
}

// InstallLines returns the commands that modprobe runs in place of loading a module.
func (n *Node) InstallLines(module string) []InstallLine {
	var found []InstallLine
	for _, file := range n.modprobeFiles() {
		for _, line := range kernelargs.ModprobeLines(file.Value) {
			fields := strings.Fields(line.Text)
			if len(fields) > 2 && fields[0] == "install" && device.SameDriver(fields[1], module) {
				found = append(found, InstallLine{File: file, Number: line.Number, Command: strings.Join(fields[2:], " ")})
			}
		}
	}
	return found
}

// BootFiles returns the kernel command lines that are configured for later boots. Each fact is one line of a file, and its value is
// the part of a command line in that line. Lines of GRUB's settings that a later line replaces are left out. See
// [kernelargs.AllSources] for the files.
func (n *Node) BootFiles() []Fact {
	var lines []Fact
	for _, l := range n.nextBoot() {
		lines = append(lines, Fact{Path: "/" + l.Path, Value: l.Value, How: "read"})
	}
	return lines
}

func (n *Node) readNextBoot() []kernelargs.Line {
	files := bootFiles{n}
	return kernelargs.AllSources(files).Read(files)
}

// bootFiles are the node's files as package kernelargs reads them.
type bootFiles struct{ node *Node }

// Text implements [kernelargs.Files]. It does not use [Node.Read], which removes leading empty lines and so changes the numbers of lines.
func (f bootFiles) Text(name string) string {
	data, err := f.node.fs.ReadAtMost(name, maxFile)
	if err != nil {
		return ""
	}
	return string(data)
}

// Names implements [kernelargs.Files].
func (f bootFiles) Names(dir string) []string {
	names, _ := f.node.List(dir)
	return names
}

// Argument is one value that a kernel command line gives a parameter.
type Argument struct {
	Value string
	// Line is the command line with the value: that of the running kernel, or one that is configured for later boots.
	Line Fact
	// Number is the line's number in a file for later boots.
	Number int
}

// Place names the file, and the line if there are several.
func (a *Argument) Place() string {
	if a.Number == 0 {
		return a.Line.Path
	}
	return fmt.Sprintf("%s line %d", a.Line.Path, a.Number)
}

// RunningArguments returns the values that the running kernel's command line gives
// a parameter, in order.
func (n *Node) RunningArguments(name string) []Argument {
	return listArguments(n.Cmdline(), name)
}

// NextArguments returns the values that the command lines of later boots give a
// parameter; see [Node.BootFiles].
func (n *Node) NextArguments(name string) []Argument {
	var all []Argument
	for _, l := range n.nextBoot() {
		for _, value := range kernelargs.Values(l.Value, name) {
			all = append(all, Argument{value, Fact{Path: "/" + l.Path, Value: l.Value, How: "read"}, l.Number})
		}
	}
	return all
}

// NextBootsWithout returns the files whose command lines lack an argument, each with its first command line, among the files that
// the boot loader reads. If none of these files is known, it returns all of [Node.BootFiles] if none of them has the argument.
func (n *Node) NextBootsWithout(name string) []Fact {
	files := bootFiles{n}
	loaded := kernelargs.AllSources(files).Loaded(files)
	if len(loaded) == 0 {
		if len(n.NextArguments(name)) > 0 {
			return nil
		}
		return n.BootFiles()
	}
	var without []Fact
	for _, file := range loaded {
		has := func(l kernelargs.Line) bool { return len(kernelargs.Values(l.Value, name)) > 0 }
		if !slices.ContainsFunc(file.Parts, has) {
			without = append(without, Fact{Path: "/" + file.Path, Value: file.Parts[0].Value, How: "read"})
		}
	}
	return without
}

func listArguments(line Fact, name string) []Argument {
	var all []Argument
	for _, value := range kernelargs.Values(line.Value, name) {
		all = append(all, Argument{Value: value, Line: line})
	}
	return all
}

// Sysctl returns a kernel setting such as "kernel.dmesg_restrict": its present value, and its values in sysctl.d(5) for later boots.
func (n *Node) Sysctl(name string) Setting {
	s := Setting{Name: name, Running: n.Read(path.Join("proc/sys", strings.ReplaceAll(name, ".", "/")))}
	for _, file := range n.sysctlFiles() {
		for line := range strings.Lines(file.Value) {
			key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
			// With "-" in front, systemd-sysctl ignores a failure to set it (sysctl.d(5)).
			key = strings.TrimPrefix(strings.TrimSpace(key), "-")
			if ok && strings.ReplaceAll(key, "/", ".") == name {
				s.Configured = append(s.Configured, Fact{Path: file.Path, Value: strings.TrimSpace(value), How: "read"})
			}
		}
	}
	return s
}

// sysctlFiles returns the files in the order in which they apply: sorted by name, regardless of the directory. Of several files
// with one name, it returns the one in the first directory of the list below.
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
	// `sysctl --system` reads this file last (sysctl(8)).
	return append(files, n.Read("etc/sysctl.conf"))
}

// BootArgument returns a parameter of the kernel itself ("mitigations"): its value for the running kernel, and its values for later
// boots. A word without a value has the empty value. Running is absent if the command line does not have it.
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

// UdevRule is one rule of udev (udev(7)).
type UdevRule struct {
	// File has the rule's line as its value.
	File  Fact
	Terms []UdevTerm
}

// UdevTerm is a condition or an assignment: KERNEL=="vfio", MODE="0666".
type UdevTerm struct{ Key, Operator, Value string }

// Matches reports whether the rule has a condition KEY=="PATTERN|PATTERN..." for the key with a pattern for which is returns true.
func (r *UdevRule) Matches(key string, is func(pattern string) bool) bool {
	return slices.ContainsFunc(r.Terms, func(t UdevTerm) bool {
		return t.Key == key && t.Operator == "==" && slices.ContainsFunc(strings.Split(t.Value, "|"), is)
	})
}

// Assigned returns the values that the rule gives a key.
func (r *UdevRule) Assigned(key string) []string {
	var values []string
	for _, t := range r.Terms {
		if t.Key == key && (t.Operator == "=" || t.Operator == ":=" || t.Operator == "+=") {
			values = append(values, t.Value)
		}
	}
	return values
}

// UdevDirs returns the directories with udev's rules, the one with the highest precedence first (udev(7)).
func UdevDirs() []string {
	return []string{"etc/udev/rules.d", "run/udev/rules.d", "usr/local/lib/udev/rules.d", "usr/lib/udev/rules.d", "lib/udev/rules.d"}
}

// UdevRules returns the rules in force: a file hides files of the same name in later directories.
func (n *Node) UdevRules() []UdevRule {
	var rules []UdevRule
	hidden := map[string]bool{}
	for _, dir := range UdevDirs() {
		for _, file := range n.Glob(dir, "*.rules") {
			name := path.Base(file.Path)
			if !hidden[name] {
				rules = append(rules, parseUdev(file)...)
			}
			// An empty file or a link to /dev/null also hides others: this is how an administrator disables a packaged file (udev(7)).
			hidden[name] = true
		}
	}
	return rules
}

var udevTerm = regexp.MustCompile(`([A-Z]+(?:\{[^}"]*\})?)\s*(==|!=|:=|\+=|-=|=)\s*i?e?"([^"]*)"`)

func parseUdev(file Fact) []UdevRule {
	var rules []UdevRule
	for line := range strings.Lines(strings.ReplaceAll(file.Value, "\\\n", " ")) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		var terms []UdevTerm
		for _, m := range udevTerm.FindAllStringSubmatch(line, -1) {
			terms = append(terms, UdevTerm{Key: m[1], Operator: m[2], Value: m[3]})
		}
		if len(terms) > 0 {
			rules = append(rules, UdevRule{File: Fact{Path: file.Path, Value: line, How: "read"}, Terms: terms})
		}
	}
	return rules
}

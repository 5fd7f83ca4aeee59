package kernelargs

import (
	"path"
	"slices"
	"strings"
)

// Files are a node's files. Names have no leading slash. A missing or unreadable file is empty.
type Files interface {
	Text(name string) string
	Names(dir string) []string
}

// Sources are the files that give later boots their command line. The zero value has none.
type Sources struct {
	// Settings are in shell syntax, in the order in which they are read, and set Variables.
	Settings, Variables []string
	// Environment are GRUB's environment blocks, and Scripts its configuration. Entries use their variables.
	Environment, Scripts []string
	// Entries have lines that begin with one of [Keywords].
	Entries []string
	// Lines are files that contain nothing but the command line.
	Lines []string
	// Quoted are files whose lines have a title and a command line, both in quotes.
	Quoted []string
}

// Keywords begin the lines with a command line in entries of the Boot Loader Specification, in extlinux.conf, in
// GRUB's own configuration, in limine.conf and in armbianEnv.txt.
func Keywords() []string {
	return []string{"options", "append", "linux", "linuxefi", "linux16", "cmdline:", "kernel_cmdline:", "extraargs="}
}

// SettingsVariables are the variables of boot loaders' settings, in the order in which they are joined: GRUB's,
// u-boot-menu's, Flatcar's, Elemental's, tuned's, Limine's, Garden Linux' and update-extlinux'.
func SettingsVariables() []string {
	return []string{
		"GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT", "U_BOOT_PARAMETERS", "linux_append", "kernelcmd", "TUNED_BOOT_CMDLINE",
		"KERNEL_CMDLINE", "CMDLINE_LINUX", "default_kernel_opts",
	}
}

// AllSources returns the files of every boot loader that the node may have.
func AllSources(f Files) *Sources {
	in := func(dir, suffix string) []string {
		var names []string
		for _, name := range f.Names(dir) {
			if strings.HasSuffix(name, suffix) {
				names = append(names, path.Join(dir, name))
			}
		}
		return names
	}
	s := &Sources{Variables: SettingsVariables()}
	s.Settings = slices.Concat([]string{GRUBDefaults}, in(GRUBDropIns, ".cfg"), []string{UBootDefaults}, in(UBootDropIns, ".conf"),
		[]string{VendorOEM, OEM, BootArguments, LimineDefaults}, in(KernelFragments, ".cfg"), []string{UpdateExtlinux, Tuned}) // tuned adds to the loader's, which it may use
	s.Environment, s.Scripts = Environments(f), GRUBConfigs()
	for _, partition := range Partitions() {
		s.Entries = append(s.Entries, in(path.Join(partition, Entries), ".conf")...)
	}
	s.Entries = append(append(s.Entries, ExtlinuxConfig, SyslinuxConfig, LimineConfig, ArmbianConfig), GRUBConfigs()...)
	s.Lines = append([]string{KernelInstall, firmwareConfig}, in(dracutFragments, ".conf")...)
	s.Quoted = []string{REFIndConfig}
	if f.Text(KernelInstall) == "" {
		// The site's file replaces the vendor's (kernel-install(8)).
		s.Lines = append(s.Lines, VendorKernelInstall)
	}
	return s
}

// Environments returns GRUB's environment blocks.
func Environments(f Files) []string {
	names := []string{grubEnvironment, GRUB2Environment, OEMEnvironment, kairosVariables}
	for _, vendor := range f.Names(efiVendors) {
		names = append(names, path.Join(efiVendors, vendor, environmentBlock))
	}
	return names
}

// Read returns the command lines that the files give to later boots, with the lines that they come from. If a variable
// is set several times, only its final value counts. Words after "--" are for init, and are left out.
func (s *Sources) Read(f Files) []Line {
	env := s.environment(f)
	var all []Line
	settings := s.Evaluate(f)
	for _, variable := range s.Variables {
		all = append(all, commandLine(env, settings.Value(variable))...)
	}
	for _, name := range s.Entries {
		all = append(all, entryLines(env, name, f.Text(name))...)
	}
	for _, name := range s.Lines {
		all = append(all, numbered(name, f.Text(name))...)
	}
	for _, name := range s.Quoted {
		all = append(all, quoted(name, f.Text(name))...)
	}
	return all
}

// LoadedFile is a file that a boot loader reads at boot, with the lines that its command lines come from.
type LoadedFile struct {
	Path  string
	Parts []Line
}

// Loaded returns the files with command lines that boot loaders themselves read. Tools write most of these files from
// settings, and the next boot does not read the settings.
func (s *Sources) Loaded(f Files) []LoadedFile {
	env := s.environment(f)
	var all []LoadedFile
	add := func(name string, parts []Line) {
		if len(parts) > 0 {
			all = append(all, LoadedFile{name, parts})
		}
	}
	for _, name := range s.Entries {
		add(name, entryLines(env, name, f.Text(name)))
	}
	add(firmwareConfig, numbered(firmwareConfig, f.Text(firmwareConfig)))
	for _, name := range s.Quoted {
		add(name, quoted(name, f.Text(name)))
	}
	return all
}

// entryLines returns the command lines of a file of entries.
func entryLines(env *Settings, name, text string) []Line {
	var all []Line
	for _, line := range directives(name, text, Keywords()) {
		all = append(all, commandLine(env, []Line{line})...)
	}
	return all
}

// quoted returns the second quoted text of each line. Two quotes in a row inside a text stand for one quote
// (rodsbooks.com/refind/linux.html).
func quoted(name, text string) []Line {
	var all []Line
	for _, line := range numbered(name, text) {
		_, rest := cutQuoted(line.Value)
		line.Value, _ = cutQuoted(rest)
		if line.Value != "" {
			all = append(all, line)
		}
	}
	return all
}

// cutQuoted returns the first text in quotes, or the first word if it has none, and the rest.
func cutQuoted(text string) (first, rest string) {
	text = strings.TrimLeft(text, " \t")
	if !strings.HasPrefix(text, `"`) {
		first, rest, _ = strings.Cut(text, " ")
		return first, rest
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] != '"':
			b.WriteByte(text[i])
		case strings.HasPrefix(text[i:], `""`):
			b.WriteByte('"')
			i++
		default:
			return b.String(), text[i+1:]
		}
	}
	return b.String(), ""
}

// Evaluate returns the variables that the settings set.
func (s *Sources) Evaluate(f Files) *Settings {
	settings := NewSettings(f.Text)
	for _, name := range s.Environment {
		settings.load(name, f.Text(name))
	}
	for _, name := range s.Settings {
		settings.Source(name, f.Text(name))
	}
	return settings
}

// environment returns the variables of GRUB's environment.
func (s *Sources) environment(f Files) *Settings {
	env := NewSettings(nil)
	for _, name := range s.Environment {
		env.load(name, f.Text(name))
	}
	for _, name := range s.Scripts {
		env.Source(name, f.Text(name))
	}
	return env
}

// load sets the variables of an environment block.
func (s *Settings) load(name, text string) {
	for _, line := range numbered(name, text) {
		if variable, value, ok := strings.Cut(line.Value, "="); ok && isName(variable) {
			s.values[variable] = []Line{{line.Path, line.Number, value}}
		}
	}
}

// numbered returns the lines of a file that are not comments.
func numbered(name, text string) []Line {
	var all []Line
	number := 0
	for line := range strings.Lines(text) {
		number++
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, Line{name, number, line})
		}
	}
	return all
}

// directives returns the rest of the lines that begin with a keyword.
func directives(name, text string, keywords []string) []Line {
	var all []Line
	for _, line := range numbered(name, text) {
		// numbered returns no empty line, so there is a first word.
		first := strings.Fields(line.Value)[0]
		if key, value, ok := strings.Cut(line.Value, "="); ok && slices.Contains(keywords, key+"=") {
			all = append(all, Line{name, line.Number, value})
			continue
		}
		if slices.ContainsFunc(keywords, func(k string) bool { return strings.EqualFold(k, first) }) {
			all = append(all, Line{name, line.Number, strings.TrimSpace(line.Value[len(first):])})
		}
	}
	return all
}

// commandLine returns a command line by the lines that its words are from. GRUB replaces the variables in it.
func commandLine(env *Settings, parts []Line) []Line {
	var all []Line
	for _, word := range splitWords(parts) {
		if word.Value == "--" {
			break
		}
		expanded := []Line{word}
		if name := strings.Trim(word.Value, "${}"); strings.HasPrefix(word.Value, "$") && len(env.Value(name)) > 0 {
			expanded = splitWords(env.Value(name))
		}
		for _, w := range expanded {
			last := len(all) - 1
			if last >= 0 && all[last].Path == w.Path && all[last].Number == w.Number {
				all[last].Value += " " + w.Value
				continue
			}
			all = append(all, w)
		}
	}
	return all
}

// splitWords returns the words of a text in parts. A word is from the line of its first byte.
func splitWords(parts []Line) []Line {
	var words []Line
	inside, quoted := false, false
	for _, p := range parts {
		for i := range len(p.Value) {
			c := p.Value[i]
			space := !quoted && (c == ' ' || c == '\t' || c == '\n')
			if c == '"' {
				quoted = !quoted
			}
			switch {
			case space:
				inside = false
			case inside:
				words[len(words)-1].Value += string(c)
			default:
				words, inside = append(words, Line{p.Path, p.Number, string(c)}), true
			}
		}
	}
	return words
}

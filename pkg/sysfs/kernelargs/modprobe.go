package kernelargs

import (
	"path"
	"slices"
	"strings"
)

// Bool reads a boolean parameter as the kernel does: by its first letter, and "on" and "off" by their second too
// (lib/kstrtox.c kstrtobool). A bare parameter, whose value is empty, is true. ok is false if the kernel refuses the
// value.
func Bool(value string) (on, ok bool) {
	value = strings.ToLower(value)
	switch {
	case value == "", strings.HasPrefix(value, "on"), strings.ContainsRune("yt1e", rune(value[0])):
		return true, true
	case strings.HasPrefix(value, "of"), strings.ContainsRune("nf0d", rune(value[0])):
		return false, true
	}
	return false, false
}

// ModprobeSite is the directory of the site's own configuration of modprobe.
const ModprobeSite = "etc/modprobe.d"

// ModprobeDirs are where modprobe looks for configuration, below the root.
func ModprobeDirs() []string {
	return []string{ModprobeSite, "run/modprobe.d", "usr/local/lib/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d"}
}

// ModprobeFiles returns modprobe's files in the order in which it reads them: by name, regardless of the directory.
// If several directories have a name, only the first one's file is read (modprobe.d(5)). List returns the names in a
// directory.
func ModprobeFiles(list func(dir string) []string) []string {
	byName := map[string]string{}
	var names []string
	for _, dir := range ModprobeDirs() {
		for _, name := range list(dir) {
			if _, hidden := byName[name]; !hidden && strings.HasSuffix(name, ".conf") {
				byName[name] = path.Join(dir, name)
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	files := make([]string, len(names))
	for i, name := range names {
		files[i] = byName[name]
	}
	return files
}

// InitramfsModules is the list of modules that initramfs-tools loads at boot, each with its options.
const InitramfsModules = "etc/initramfs-tools/modules"

// LoadedModules returns the lines of a list of modules that give options, as modprobe.d(5) would have them: "vfio_pci
// ids=1" is "options vfio_pci ids=1".
func LoadedModules(text string) []ModprobeLine {
	var lines []ModprobeLine
	for _, line := range ModprobeLines(text) {
		if len(strings.Fields(line.Text)) > 1 {
			lines = append(lines, ModprobeLine{line.Number, "options " + strings.TrimSpace(line.Text)})
		}
	}
	return lines
}

// ModprobeLine is a line of modprobe's.
type ModprobeLine struct {
	// Number is the line's number in the file: of the first line if it continues over several.
	Number int
	Text   string
}

// ModprobeLines returns the lines of a file without comments, each joined with the lines that continue it after a
// backslash.
func ModprobeLines(text string) []ModprobeLine {
	var lines []ModprobeLine
	number, first, whole := 0, 0, ""
	for line := range strings.Lines(text) {
		number++
		if whole == "" {
			first = number
		}
		body, goesOn := strings.CutSuffix(strings.TrimSuffix(line, "\n"), `\`)
		whole += body
		if goesOn {
			continue
		}
		// kmod joins lines before it looks for comments, so a backslash continues a comment too (libkmod-config.c).
		if !strings.HasPrefix(whole, "#") && strings.TrimSpace(whole) != "" {
			lines = append(lines, ModprobeLine{first, whole})
		}
		whole = ""
	}
	if whole != "" && !strings.HasPrefix(whole, "#") {
		lines = append(lines, ModprobeLine{first, whole})
	}
	return lines
}

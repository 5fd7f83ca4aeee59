package device

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// aliasPrefix begins the aliases of drivers that match by driver_override
// only and serve user space through VFIO (PCI_DRIVER_OVERRIDE_DEVICE_VFIO,
// scripts/mod/file2alias.c).
const aliasPrefix = "vfio_pci:"

// ParseAliases reads the "vfio_pci:" lines of a modules.alias file, in the
// file's order: "alias vfio_pci:v000015B3d0000101Esv*sd*bc*sc*i* mlx5_vfio_pci".
// All other lines are passed over.
func ParseAliases(r io.Reader) ([]Alias, error) {
	var aliases []Alias
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == "alias" && strings.HasPrefix(fields[1], aliasPrefix) {
			aliases = append(aliases, Alias{Pattern: fields[1], Module: fields[2]})
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read modules.alias: %w", err)
	}
	return aliases, nil
}

// ModuleFor returns the module that a modules.alias file names for a function
// with the modalias "pci:v...", the most specific one, and "" where it names
// none. VFIO's are left out.
func ModuleFor(r io.Reader, modalias string) (string, error) {
	module, best := "", -1
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 || fields[0] != "alias" || !strings.HasPrefix(fields[1], "pci:") {
			continue
		}
		a := Alias{Pattern: fields[1], Module: fields[2]}
		if score := a.Specificity(); score > best && a.Match(modalias) {
			module, best = a.Module, score
		}
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("read modules.alias: %w", err)
	}
	return module, nil
}

// Match reports whether the alias serves a function with the modalias
// "pci:v...": the patterns differ in the prefix alone, and "*" stands for any
// text, as in modprobe's fnmatch.
func (a Alias) Match(modalias string) bool {
	_, pattern, ok := strings.Cut(a.Pattern, ":")
	_, text, ok2 := strings.Cut(modalias, ":")
	return ok && ok2 && matchStars(pattern, text)
}

// Specificity ranks patterns that match the same function: the more of it is
// said outright, the higher.
func (a Alias) Specificity() int {
	return len(a.Pattern) - strings.Count(a.Pattern, "*")
}

// matchStars matches text against a pattern in which "*" stands for any text.
func matchStars(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	text, ok := strings.CutPrefix(text, parts[0])
	if !ok || len(parts) == 1 {
		return ok && text == ""
	}
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = after
	}
	return strings.HasSuffix(text, last)
}

package output

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// shownNames is the maximum number of names in a folded text besides its first.
const shownNames = 3

// Fold merges texts that differ only in a device, by its PCI address or its name, and equal texts. The first line of a merged
// text ends with the first few of the other devices and their number. Texts about the same device that differ, as in a
// second device, stay apart. The order is that of the first texts.
func Fold(texts []string) []string {
	var all []*merged
	alike := map[string][]*merged{}
	for _, text := range texts {
		names := device.FindAllString(text, -1)
		form := textForm(text, names)
		if slices.ContainsFunc(alike[form], func(m *merged) bool { return m.take(text, names) }) {
			continue
		}
		m := &merged{text: text, of: map[string]string{}}
		m.take(text, names)
		all, alike[form] = append(all, m), append(alike[form], m)
	}
	folded := make([]string, len(all))
	for i, m := range all {
		folded[i] = withOthers(m.text, m.names[min(1, len(m.names)):])
	}
	return folded
}

// device is a device's address or name. A pair of devices has two.
var device = regexp.MustCompile(`(?:[a-z]+-)?\b[0-9a-f]{4,8}(?::[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|-[0-9a-f]{2}-[0-9a-f]{2}-[0-7])\b`)

// textForm returns a text with a number instead of each device in it: the same one wherever the text has the same device. So
// the texts about the first and the second device of a pair differ.
func textForm(text string, names []string) string {
	numbers := map[string]int{}
	for _, name := range names {
		if _, ok := numbers[bare(name)]; !ok {
			numbers[bare(name)] = len(numbers)
		}
	}
	return device.ReplaceAllStringFunc(text, func(name string) string { return fmt.Sprintf("\x00%d", numbers[bare(name)]) })
}

// bare returns the address in a device's name.
func bare(name string) string {
	fields := strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune(":.-", r) })
	return strings.Join(fields[len(fields)-4:], "-")
}

// merged is a text that others were merged into.
type merged struct {
	text string
	// names are the devices, and of has the text of each.
	names []string
	of    map[string]string
}

// take merges a text with these devices, if no other text of its first device was merged. It reports whether it did.
func (m *merged) take(text string, names []string) bool {
	first := ""
	if len(names) > 0 {
		first = names[0]
	}
	if was, ok := m.of[first]; ok {
		return was == text
	}
	m.names, m.of[first] = append(m.names, first), text
	return true
}

// withOthers adds the other names of a text to its first line.
func withOthers(text string, names []string) string {
	if len(names) == 0 {
		return text
	}
	also := strings.Join(names[:min(len(names), shownNames)], ", ")
	if more := len(names) - shownNames; more > 0 {
		also = fmt.Sprintf("%s and %d more", also, more)
	}
	line, rest, _ := strings.Cut(text, "\n")
	line = fmt.Sprintf("%s (%s: also %s)", line, Count(1+len(names), "device"), also)
	if rest == "" {
		return line
	}
	return line + "\n" + rest
}

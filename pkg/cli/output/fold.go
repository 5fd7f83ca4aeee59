package output

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// shownNames is the maximum number of names in a folded text besides its first.
const shownNames = 3

// Fold merges texts that differ only in a device, by its PCI address or its name. The first line of a merged text ends
// with the first few of the other devices and their number. The order is that of the first texts.
func Fold(texts []string) []string {
	device := regexp.MustCompile(`(?:[a-z]+-)?\b[0-9a-f]{4,8}(?::[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|-[0-9a-f]{2}-[0-9a-f]{2}-[0-7])\b`)
	var order []string
	first, others := map[string]string{}, map[string][]string{}
	for _, text := range texts {
		key := device.ReplaceAllString(text, "\x00")
		if _, ok := first[key]; !ok {
			order, first[key] = append(order, key), text
			continue
		}
		if name := device.FindString(text); name != "" && name != device.FindString(first[key]) && !slices.Contains(others[key], name) {
			others[key] = append(others[key], name)
		}
	}
	folded := make([]string, len(order))
	for i, key := range order {
		folded[i] = withOthers(first[key], others[key])
	}
	return folded
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

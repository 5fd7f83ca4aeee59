// Package kernelargs reads and extends kernel command lines as the kernel
// understands them (parse_args and next_arg in kernel/params.c), and reads the
// options of modules as modprobe does.
package kernelargs

import (
	"slices"
	"strings"
)

// Split returns the words of a command line. Spaces in double quotes split nothing.
func Split(line string) []string {
	quoted := false
	return strings.FieldsFunc(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return !quoted && (r == ' ' || r == '\t' || r == '\n')
	})
}

// Values returns the values of a parameter in a command line, in order ("off" for intremap in "intremap=off"; a bare
// word is ""). As in the kernel, "-" and "_" are equal in names, and words after "--" belong to init.
func Values(line, name string) []string {
	var values []string
	for _, word := range Split(line) {
		if word == "--" {
			break
		}
		key, value, _ := strings.Cut(word, "=")
		if Same(key, name) {
			values = append(values, strings.Trim(value, `"`))
		}
	}
	return values
}

// Same reports whether two names mean the same parameter.
func Same(a, b string) bool {
	return strings.ReplaceAll(a, "-", "_") == strings.ReplaceAll(b, "-", "_")
}

// Has reports whether a command line has a word, such as "intel_iommu=on", or a group of words that belong together,
// such as "hugepagesz=1G hugepages=4": the second parameter applies to the nearest first one before it.
func Has(line, group string) bool {
	words := Split(group)
	if len(words) == 0 {
		return true
	}
	next := 0
	for _, word := range Split(line) {
		switch {
		case word == "--":
			return false
		case equal(word, words[next]):
			next++
		case next > 0 && equal(word, words[0]):
			next = 1
		// Another hugepagesz= comes between, so a hugepages= after it is for that size.
		case next > 0 && slices.ContainsFunc(words, func(w string) bool { return sameName(word, w) }):
			next = 0
		}
		if next == len(words) {
			return true
		}
	}
	return false
}

func sameName(a, b string) bool {
	a, _, _ = strings.Cut(a, "=")
	b, _, _ = strings.Cut(b, "=")
	return Same(a, b)
}

func equal(a, b string) bool {
	_, va, _ := strings.Cut(a, "=")
	_, vb, _ := strings.Cut(b, "=")
	return sameName(a, b) && strings.Trim(va, `"`) == strings.Trim(vb, `"`)
}

// Closed reports whether all quotes of a command line are closed. Nothing can be added after an open one.
func Closed(line string) bool { return strings.Count(line, `"`)%2 == 0 }

// Add returns the line with the missing words, or groups of words, added at its end, but before the words of init. It
// does not change the rest of the line.
func Add(line string, words ...string) string {
	body, end := line, ""
	if at := indexOfInit(line); at >= 0 {
		body, end = line[:at], line[at:]
	}
	for _, word := range words {
		if Has(line, word) {
			continue
		}
		if body != "" && !strings.HasSuffix(body, " ") {
			body += " "
		}
		body += word
		if end != "" {
			body += " "
		}
	}
	return body + end
}

// indexOfInit returns where the word "--" begins, or -1.
func indexOfInit(line string) int {
	start, quoted := 0, false
	// The added space ends the last word.
	for i, r := range line + " " {
		if r == '"' {
			quoted = !quoted
		}
		if quoted || r != ' ' && r != '\t' && r != '\n' {
			continue
		}
		if line[start:i] == "--" {
			return start
		}
		start = i + 1
	}
	return -1
}

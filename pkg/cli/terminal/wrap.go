package terminal

import (
	"strings"
	"unicode/utf8"
)

// PageWidth is the width in characters that text for people keeps to.
const PageWidth = 100

// Wrap breaks text into lines of at most width characters. A command between
// backticks stays on one line however long it is, so that it can be copied; so
// does a single long word.
func Wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range words(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// words splits text at spaces outside of backticks.
func words(text string) []string {
	quoted := false
	return strings.FieldsFunc(text, func(r rune) bool {
		if r == '`' {
			quoted = !quoted
		}
		return r == ' ' && !quoted
	})
}

// Shorten cuts text to width characters, the last an ellipsis where it was
// longer.
func Shorten(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

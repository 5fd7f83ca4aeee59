// Package output writes values as documents for programs (the machine-readable formats of --output), and text for users at
// a terminal: within a width, in colors, and so that text from a node has no effect on the terminal.
package output

import (
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// Is reports whether w is a terminal.
func Is(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Colorful reports whether w is a terminal whose user did not request plain text (https://no-color.org).
func Colorful(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && Is(w)
}

// Color is a terminal color (ECMA-48 SGR).
type Color string

// Colors. The empty one is the default.
const (
	Bold   Color = "1"
	Faint  Color = "2"
	Red    Color = "31"
	Green  Color = "32"
	Yellow Color = "33"
)

// Paint colors a text if on. Pad the text first, because escapes have no width.
func Paint(on bool, c Color, text string) string {
	if !on || c == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// PageWidth is the width in characters of text that is not written to a terminal.
const PageWidth = 100

// The minimum and maximum width of texts. Narrower ones have one word on a line, and wider ones are hard to read.
const (
	minWidth = 60
	maxWidth = 200
)

// Width returns the width in characters of text for users: that of the terminal w, or $COLUMNS, but between 60 and 200.
// It returns [PageWidth] if w is not a terminal.
func Width(w io.Writer) int {
	if columns := readColumns(w); columns > 0 {
		return min(max(columns, minWidth), maxWidth)
	}
	return PageWidth
}

// TableWidth is [Width] for tables. It returns 0, which means no limit, if w is not a terminal, because rows in a pipe or
// file must not be wrapped.
func TableWidth(w io.Writer) int {
	if readColumns(w) == 0 {
		return 0
	}
	return Width(w)
}

// readColumns returns the terminal's columns, or 0 if w is not a terminal or its size is unknown.
func readColumns(w io.Writer) int {
	if !Is(w) {
		return 0
	}
	// COLUMNS is the user's own word, and overrides what the terminal says, as in other programs.
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && columns > 0 {
		return columns
	}
	columns, _, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// Wrap breaks text into lines of at most width characters. A long word, and a command between backticks, stay on one
// line, so that the command can be copied.
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

// Count returns a number with its noun: "1 device", "2 devices". Plural is for words whose plural is not the word and an s.
func Count(n int, what string, plural ...string) string {
	return strconv.Itoa(n) + " " + Plural(n, what, plural...)
}

// Plural is [Count] without the number: "device", "devices".
func Plural(n int, what string, plural ...string) string {
	switch {
	case n == 1:
		return what
	case len(plural) > 0:
		return plural[0]
	}
	return what + "s"
}

// Shorten cuts text to width characters. The last character of a cut text is an ellipsis.
func Shorten(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

// ShortenWords is [Shorten] that cuts between words, unless that would leave less than half of the width: half a name, such
// as "CAP_SYS_…", is one to look for in vain.
func ShortenWords(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	kept := string([]rune(text)[:width]) // a word may end right before the ellipsis
	if at := strings.LastIndexFunc(kept, unicode.IsSpace); at > 0 && utf8.RuneCountInString(kept[:at]) >= width/2 {
		return strings.TrimRightFunc(kept[:at], unicode.IsSpace) + "…"
	}
	return Shorten(text, width)
}

// Visible returns text with escapes in place of the characters that a terminal or a viewer would obey rather than show:
// "\x1b", "\n", "\u202e". Those are control characters (escape sequences begin with one), marks that turn the direction of
// writing, and invalid UTF-8. All text from a node, such as a pod's name or a file's content, is printed through it.
func Visible(text string) string {
	if !strings.ContainsFunc(text, Obeyed) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			writeHex(&b, `\x`, uint32(text[i]), 2)
		case !Obeyed(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x100:
			writeHex(&b, `\x`, uint32(r), 2)
		case r > 0xffff:
			writeHex(&b, `\U`, uint32(r), 8)
		default:
			writeHex(&b, `\u`, uint32(r), 4)
		}
	}
	return b.String()
}

// VisibleLines is [Visible] for a text of several lines, such as a whole document or
// an error that joins others: its line breaks stay.
func VisibleLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = Visible(lines[i])
	}
	return strings.Join(lines, "\n")
}

// Obeyed reports whether a terminal, an editor or a browser acts on the character
// in place of showing it: the categories Cc, Cf (among them the bidirectional marks
// and zero-width characters), Zl and Zp.
func Obeyed(r rune) bool {
	if ' ' <= r && r <= '~' { // most characters
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

func writeHex(b *strings.Builder, prefix string, value uint32, digits int) {
	const hex = "0123456789abcdef"
	b.WriteString(prefix)
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		b.WriteByte(hex[value>>shift&0xf])
	}
}

package terminal

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible returns text with everything that a terminal or a viewer would obey,
// rather than show, written out: "\x1b", "\n", "\u202e". Those are control characters
// (escape sequences begin with one), marks that turn the direction of writing, and
// invalid UTF-8. It is the one place for that: whatever comes from a node, from a
// pod's name to a file's content, goes through it on its way to people.
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
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

func writeHex(b *strings.Builder, prefix string, value uint32, digits int) {
	const hex = "0123456789abcdef"
	b.WriteString(prefix)
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		b.WriteByte(hex[value>>shift&0xf])
	}
}

package page

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// spellOut replaces the characters that change what a reader sees without being
// seen: controls, and the marks that turn the direction of writing or hide in it.
// They come from the node; the page's own parts have none but line ends and tabs.
// It is the last step, so that no part of the page is forgotten.
func spellOut(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			out = fmt.Appendf(out, `\x%02x`, text[0])
		case r == '\n' || r == '\t':
			out = append(out, text[0])
		case unicode.Is(unicode.Cc, r):
			out = fmt.Appendf(out, `\x%02x`, r)
		case unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp):
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	return out
}

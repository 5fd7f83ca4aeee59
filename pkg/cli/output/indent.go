package output

import "bytes"

// indented returns a JSON document with the line breaks and spaces of [json.Indent]. The document is as the encoder
// wrote it, without any. Knowing that, and copying strings whole, it takes a quarter of the time: reports have megabytes.
func indented(document []byte, indent string) []byte {
	out := indenting{line: []byte("\n"), indent: indent}
	out.text.Grow(len(document) + len(document)/2)
	for rest := document; len(rest) > 0; {
		rest = out.token(rest)
	}
	return out.text.Bytes()
}

// indenting is the text so far, and the start of a line at the current depth.
type indenting struct {
	text   bytes.Buffer
	line   []byte
	indent string
}

// token writes the first token, and returns the rest.
func (o *indenting) token(rest []byte) []byte {
	n := 1
	switch c := rest[0]; c {
	case '{', '[':
		if n = emptyValue(rest); n > 0 {
			break
		}
		o.line = append(o.line, o.indent...)
		o.text.WriteByte(c)
		o.text.Write(o.line)
		return rest[1:]
	case '}', ']':
		o.line = o.line[:len(o.line)-len(o.indent)]
		o.text.Write(o.line)
	case ',':
		o.text.WriteByte(c)
		o.text.Write(o.line)
		return rest[1:]
	case ':':
		o.text.WriteString(": ")
		return rest[1:]
	case '"':
		n = stringLength(rest)
	}
	o.text.Write(rest[:n])
	return rest[n:]
}

// emptyValue returns the length of the empty object or list that the text begins with, 0 for another value.
func emptyValue(text []byte) int {
	if len(text) > 1 && text[1] == text[0]+2 { // "{}" and "[]" in ASCII
		return 2
	}
	return 0
}

// stringLength returns the length of the string that the text begins with, in bytes and with its quotes.
func stringLength(text []byte) int {
	for n := 1; n < len(text); n++ {
		switch text[n] {
		case '"':
			return n + 1
		case '\\':
			n++ // the escaped character may be a quote
		}
	}
	return len(text)
}

package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Forms of a value behind the key of a credential.
var (
	// secretBefore is a key that ends in a word for a credential, up to its value.
	secretBefore = regexp.MustCompile(`(?i)[\w.-]*(?:password|passwd|passphrase|secret|token|auth|authorization|api[_-]?key|` +
		`(?:access|secret)[_-]?key|private[_-]?key|key-data|certificate-data)\\?["']?[ \t]*[=:][ \t]*`)
	// lineStart precedes the first key of a line: the mark of a comment or of a list's item, a shell's or a unit's word, and a quote.
	lineStart = regexp.MustCompile(`^(?:[ \t#;+]|-[ \t]|export[ \t]|Environment=)*["']?$`)
	// structure is the begin of an object or a list. Other brackets are parts of credentials.
	structure = regexp.MustCompile(`^[{\[][ \t]*(?:\r?\n?$|[}\]](?:[\s,;}\]"'\\]|$)|["'{\[]|\\["'nrt]|[\w./-]+[ \t]*[:=](?:[ \t"'{\[]|\\"))`)
	// quoted is a value in quotes, which are escaped if the line itself is in a string. The last form has no end.
	quoted = regexp.MustCompile(`^(?:"""[^\r\n]*?"""+|'''[^\r\n]*?'''+|\\"(?:[^"\\\n]|\\\\\\[\\"]|\\[^"])*\\?"|` +
		`"(?:[^"\\\n]|\\.)*"|'(?:[^'\n]|'')*'|\\?["'][^\s\x00][^\r\n\x00]*)`)
	// inPairs is a value among other pairs, and ofFlag one behind a flag.
	inPairs = regexp.MustCompile(`^(?:[^\s"',;}\]\x00\\]|\\[^nrt"])+`)
	ofFlag  = regexp.MustCompile(`^(?:[^\s"'\x00\\]|\\[^nrt"])+`)
	// behindValue follows a value that takes the rest of its line, or of its variable in an environment.
	behindValue = regexp.MustCompile(`[ \t]+#|[ \t]*(?:[\r\n\x00]|$)`)
)

// scrubValues replaces the values of keys for credentials in a line. A NUL separates variables of an environment.
func scrubValues(line []byte) []byte {
	var out bytes.Buffer
	for part := range bytes.SplitAfterSeq(line, []byte{0}) {
		scrubPairs(&out, part)
	}
	return out.Bytes()
}

func scrubPairs(out *bytes.Buffer, line []byte) {
	for at := 0; ; {
		key := secretBefore.FindIndex(line[at:])
		if key == nil {
			out.Write(line[at:])
			return
		}
		begin, end := at+key[0], at+key[1]
		alone := at == 0 && lineStart.Match(line[:begin])
		value := findValue(line[begin:end], line[end:], alone)
		out.Write(line[at:end])
		out.Write(scrubValue(value))
		at = end + len(value)
	}
}

// findValue returns the value that rest begins with, behind a key. If the key is alone before the value, a bare value takes the
// rest of the line. It returns nothing for a structure, because the keys in it say what is a credential.
func findValue(key, rest []byte, alone bool) []byte {
	switch {
	case structure.Match(rest):
		return nil
	case quoted.Match(rest):
		return quoted.Find(rest)
	case key[0] == '-':
		return ofFlag.Find(rest)
	case alone:
		return rest[:behindValue.FindIndex(rest)[0]]
	}
	return inPairs.Find(rest)
}

// scrubValue returns a dash instead of a value, unless it only says whether there is one. Of an object in quotes, it scrubs the content.
func scrubValue(value []byte) []byte {
	if isAnonymous(strings.Trim(strings.TrimRight(string(value), " \t,;}]"), `\"'`)) {
		return value
	}
	if text := unquote(value); isObject(text) {
		return quoteLike(value, ScrubJSON([]byte(text)))
	}
	return []byte(`"-"`)
}

// unquote returns the text in quotes, and nothing if the value has others or none.
func unquote(value []byte) (text string) {
	if value[0] == '\'' {
		return string(bytes.Trim(value, "'"))
	}
	if json.Unmarshal(value, &text) != nil {
		return ""
	}
	return text
}

// quoteLike returns a text in the quotes of a value.
func quoteLike(value, text []byte) []byte {
	if value[0] == '\'' {
		return fmt.Appendf(nil, "'%s'", text)
	}
	literal, _ := json.Marshal(string(text)) // a string always can be encoded
	return literal
}

// isAnonymous reports whether a value is not a credential, but a word that says whether there is one.
func isAnonymous(value string) bool {
	switch strings.ToLower(value) {
	case "", "true", "false", "null", "-":
		return true
	}
	return false
}

// isObject reports whether a text is an object of JSON. A list is none, because its strings have no keys of their own.
func isObject(text string) bool {
	return strings.HasPrefix(strings.TrimSpace(text), "{") && json.Valid([]byte(text))
}

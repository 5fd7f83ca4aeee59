package output

import (
	"bytes"
	"encoding/json"
	"slices"
)

// String is a string value in a JSON document.
type String struct {
	Text string
	// Key is the string's key, or that of the list that contains it. Parent is the key of the object with Key.
	Key, Parent string
	// Before is the preceding string in a list.
	Before string
}

// RewriteStrings returns one or more JSON documents with strings replaced, and everything else unchanged, including the
// order of keys. It calls key for each key. Invalid data is kept from its first invalid byte on.
func RewriteStrings(data []byte, with func(*String) string, key func(string)) []byte {
	r := rewriting{data: data, in: json.NewDecoder(bytes.NewReader(data)), levels: []level{{list: true}}, with: with, key: key}
	r.in.UseNumber() // a number that is too large for a float64 is valid JSON
	for r.next() {
	}
	r.out.Write(data[r.kept:])
	return r.out.Bytes()
}

type rewriting struct {
	data   []byte
	in     *json.Decoder
	out    bytes.Buffer
	kept   int
	levels []level
	with   func(*String) string
	key    func(string)
}

// level is an object or list that contains the current value.
type level struct {
	list, value bool // value: the next string is not a key
	key, before string
}

// next reads the next token. It returns false if there is none.
func (r *rewriting) next() bool {
	begin := int(r.in.InputOffset())
	token, err := r.in.Token()
	if err != nil {
		return false
	}
	at := &r.levels[len(r.levels)-1]
	text, isString := token.(string)
	switch delim, isDelim := token.(json.Delim); {
	case isDelim:
		r.enter(delim)
	case isString && !at.list && !at.value:
		at.key, at.value = text, true
		r.key(text)
	default:
		if isString {
			r.replace(begin, &String{Text: text, Key: r.keyAt(1), Parent: r.keyAt(2), Before: at.before})
		}
		at.value, at.before = false, text
	}
	return true
}

// replace writes the replacement of the string after begin.
func (r *rewriting) replace(begin int, s *String) {
	with := r.with(s)
	if with == s.Text {
		return
	}
	// The offset is where the last token ended. Commas, colons and spaces come before the string.
	begin += bytes.IndexByte(r.data[begin:], '"')
	r.out.Write(r.data[r.kept:begin])
	r.kept = int(r.in.InputOffset())
	text, _ := json.Marshal(with) // a string always can be encoded
	r.out.Write(text)
}

// enter enters or leaves an object or list.
func (r *rewriting) enter(d json.Delim) {
	if d == '{' || d == '[' {
		r.levels = append(r.levels, level{list: d == '['})
		return
	}
	if len(r.levels) > 1 {
		r.levels = r.levels[:len(r.levels)-1]
	}
	last := &r.levels[len(r.levels)-1]
	last.value, last.before = false, ""
}

// keyAt returns the n-th key from the current value outwards, without lists.
func (r *rewriting) keyAt(n int) string {
	for _, l := range slices.Backward(r.levels) {
		if l.list {
			continue
		}
		if n--; n == 0 {
			return l.key
		}
	}
	return ""
}

package encode

import (
	"bytes"
	"encoding/json"
	"slices"
)

// String is a string in a JSON document, except keys.
type String struct {
	Text string
	// Key is its own, or that of the list that it is in; Parent the one of the object with Key.
	Key, Parent string
	// Before is the string before it in a list.
	Before string
}

// RewriteStrings returns JSON, one or more documents, with strings replaced and everything else as it is: decoding
// would lose the order of keys. Key is called for each key. From the first invalid byte on the data stays as it
// is.
func RewriteStrings(data []byte, with func(*String) string, key func(string)) []byte {
	r := rewriting{data: data, in: json.NewDecoder(bytes.NewReader(data)), levels: []level{{list: true}}, with: with, key: key}
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

// level is an object or a list on the way to a value.
type level struct {
	list, value bool // value: what comes next is no key
	key, before string
}

// next takes the next token; false where there is none.
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

// replace writes the replacement of the string that follows begin.
func (r *rewriting) replace(begin int, s *String) {
	with := r.with(s)
	if with == s.Text {
		return
	}
	begin += bytes.IndexByte(r.data[begin:], '"')
	r.out.Write(r.data[r.kept:begin])
	r.kept = int(r.in.InputOffset())
	text, _ := json.Marshal(with) // a string always can
	r.out.Write(text)
}

// enter goes into an object or list, or out of it.
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

// keyAt returns the n-th key on the way back from a value, lists left out.
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

package v1alpha1

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
)

// decode fills the struct that dst points to from one JSON object, strictly:
// an unknown, repeated or mistyped field, another apiVersion or kind, and
// anything after the object are problems. Names are case-sensitive; null
// means "not said", as in all Kubernetes APIs. It returns every problem.
//
// It goes by the struct's json tags and knows the types that this package's
// structs are made of. encoding/json alone stops at the first mistyped field,
// names no list index, and takes names in any case.
func decode(raw []byte, kind string, dst any) problems {
	_, p := readMeta(raw, kind)
	d := decoder{problems: p}
	if len(p) == 0 {
		d.value("", raw, reflect.ValueOf(dst).Elem())
	}
	return d.problems
}

// decoder is one run of decode.
type decoder struct{ problems problems }

// value decodes one JSON value into dst.
func (d *decoder) value(path string, raw json.RawMessage, dst reflect.Value) {
	if isNull(raw) {
		return
	}
	if text, ok := reflect.TypeAssert[encoding.TextUnmarshaler](dst.Addr()); ok {
		d.text(path, raw, text)
		return
	}
	if verbatim, ok := reflect.TypeAssert[*json.RawMessage](dst.Addr()); ok {
		d.verbatim(path, raw, verbatim)
		return
	}
	switch dst.Kind() {
	case reflect.Pointer:
		v := reflect.New(dst.Type().Elem())
		d.value(path, raw, v.Elem())
		dst.Set(v)
	case reflect.Struct:
		d.object(path, raw, dst)
	case reflect.Slice:
		d.list(path, raw, dst)
	default:
		d.scalar(path, raw, dst)
	}
}

// object decodes a JSON object into the struct dst.
func (d *decoder) object(path string, raw json.RawMessage, dst reflect.Value) {
	fields, ok := split(raw)
	if !ok {
		d.problems.add(path, "%s is not an object", literal(raw))
		return
	}
	seen := map[string]bool{}
	for _, f := range fields {
		at := join(path, f.name)
		index, known := indexOf(dst.Type(), f.name)
		switch {
		case !known:
			d.problems.add(at, "no such field; the fields here are %s", strings.Join(names(dst.Type()), ", "))
		case seen[f.name]:
			d.problems.add(at, "given twice; keep one")
		default:
			d.value(at, f.value, dst.FieldByIndex(index))
		}
		seen[f.name] = true
	}
}

// list decodes a JSON array into the slice dst, which is not nil afterwards.
func (d *decoder) list(path string, raw json.RawMessage, dst reflect.Value) {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		d.problems.add(path, "%s is not a list", literal(raw))
		return
	}
	dst.Set(reflect.MakeSlice(dst.Type(), len(items), len(items)))
	for i, item := range items {
		at := index(path, i)
		if isNull(item) {
			d.problems.add(at, "null is not a list entry; remove it")
			continue
		}
		d.value(at, item, dst.Index(i))
	}
}

// verbatim takes a JSON object that is somebody else's to understand.
func (d *decoder) verbatim(path string, raw json.RawMessage, dst *json.RawMessage) {
	if _, ok := split(raw); !ok {
		d.problems.add(path, "%s is not an object", literal(raw))
		return
	}
	*dst = bytes.Clone(raw)
}

// text decodes a JSON string by the value's own parser.
func (d *decoder) text(path string, raw json.RawMessage, dst encoding.TextUnmarshaler) {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		d.problems.add(path, "%s is not a text; put it in quotes", literal(raw))
		return
	}
	if err := dst.UnmarshalText([]byte(s)); err != nil {
		d.problems.add(path, "%v", err)
	}
}

// scalar decodes a string, a boolean or a number.
func (d *decoder) scalar(path string, raw json.RawMessage, dst reflect.Value) {
	if err := json.Unmarshal(raw, dst.Addr().Interface()); err == nil {
		return
	}
	want := "a whole number"
	switch dst.Kind() {
	case reflect.String:
		want = "a text; put it in quotes"
	case reflect.Bool:
		want = "true or false"
	}
	d.problems.add(path, "%s is not %s", literal(raw), want)
}

package v1alpha1

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// decode fills the struct that dst points to from one JSON object, strictly: an unknown, repeated or mistyped field,
// another apiVersion or kind, and anything after the object are problems. Names are case-sensitive. Null means unset, as
// in all Kubernetes APIs. It returns all problems.
//
// It uses the struct's json tags and knows the types of this package's structs. encoding/json alone stops at the first
// mistyped field, names no list index, and accepts names in any case.
func decode(raw []byte, kind string, dst any) problems {
	_, p := readMeta(raw, kind)
	d := decoder{problems: p}
	// Most fields of another kind would be unknown, and hide this one problem among many.
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
	// Before the kind: a pci.Address is a struct and a pci.ID a number, but both are strings in JSON.
	if text, ok := reflect.TypeAssert[encoding.TextUnmarshaler](dst.Addr()); ok {
		d.text(path, raw, text)
		return
	}
	if verbatim, ok := reflect.TypeAssert[*json.RawMessage](dst.Addr()); ok {
		d.verbatim(path, raw, verbatim)
		return
	}
	if share, ok := reflect.TypeAssert[*Share](dst.Addr()); ok {
		if err := share.UnmarshalJSON(raw); err != nil {
			d.problems.add(path, "%v", err)
		}
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
		index, known := findField(dst.Type(), f.name)
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
			// Decoded, it would be a zero value with a meaning, such as the address 0000:00:00.0.
			d.problems.add(at, "null is not a list entry; remove it")
			continue
		}
		d.value(at, item, dst.Index(i))
	}
}

// verbatim takes a JSON object as it is. The component that uses it decodes it.
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
		d.problems.add(path, "%s is not a string; put it in quotes", literal(raw))
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
		want = "a string; put it in quotes"
	case reflect.Bool:
		want = "true or false"
	}
	d.problems.add(path, "%s is not %s", literal(raw), want)
}

// names returns the JSON names of a struct's fields in declaration order,
// those of embedded structs included.
func names(t reflect.Type) []string {
	var all []string
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous {
			all = append(all, jsonName(f))
		}
	}
	return all
}

// findField finds the field of a struct with a JSON name.
func findField(t reflect.Type, name string) ([]int, bool) {
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous && jsonName(f) == name {
			return f.Index, true
		}
	}
	return nil, false
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// said returns the JSON names of the parameters that c sets, in declaration order. The fields of the embedded
// [TypeMeta] are not parameters.
func said[T any](c *T) []string {
	var set []string
	v := reflect.ValueOf(c).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		if len(f.Index) == 1 && !f.Anonymous && !v.FieldByIndex(f.Index).IsZero() {
			set = append(set, jsonName(f))
		}
	}
	return set
}

// lay replaces base's parameters with those that over sets.
func lay[T any](base, over *T) {
	b, o := reflect.ValueOf(base).Elem(), reflect.ValueOf(over).Elem()
	for _, name := range said(over) {
		if index, ok := findField(b.Type(), name); ok {
			b.FieldByIndex(index).Set(o.FieldByIndex(index))
		}
	}
}

// loosens returns a [WeakensIsolationError] that names every parameter that a DeviceClass sets and a claim sets to
// another value. tighter names the parameters whose value in the claim is allowed, because it is stricter.
func loosens[T any](kind string, class, claim *T, tighter map[string]bool) error {
	w := weakening{kind: kind}
	c, own := reflect.ValueOf(class).Elem(), reflect.ValueOf(claim).Elem()
	for _, name := range said(claim) {
		index, _ := findField(c.Type(), name)
		is, may := own.FieldByIndex(index), c.FieldByIndex(index)
		// The tenant may choose what the class leaves open. Weakens has refused what no claim may set.
		if may.IsZero() || tighter[name] || reflect.DeepEqual(is.Interface(), may.Interface()) {
			continue
		}
		w.add(true, name, fmt.Sprintf("%v, where the DeviceClass says %v", reflect.Indirect(is), reflect.Indirect(may)))
	}
	return w.err()
}

// emptyLists returns the JSON names of c's lists that are set but
// empty.
func emptyLists[T any](c *T) []string {
	var empty []string
	v := reflect.ValueOf(c).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		list := v.FieldByIndex(f.Index)
		if list.Kind() == reflect.Slice && !list.IsNil() && list.Len() == 0 {
			empty = append(empty, jsonName(f))
		}
	}
	return empty
}

// field is one member of a JSON object.
type field struct {
	name  string
	value json.RawMessage
}

// split returns the members of a JSON object in its order, including repeated names. It returns false if the value is not
// an object.
func split(raw json.RawMessage) ([]field, bool) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return nil, false
	}
	var fields []field
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, false
		}
		var f field
		f.name, _ = name.(string)
		if err := dec.Decode(&f.value); err != nil {
			return nil, false
		}
		fields = append(fields, f)
	}
	return fields, true
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

// join appends a member's name to a path. A name that is not a plain word is quoted, so that a path has one line.
func join(path, name string) string {
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') {
			return path + "[" + show(name) + "]"
		}
	}
	switch {
	case name == "" || len(name) > 64:
		return path + "[" + show(name) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}

// literal returns a JSON value as written, shortened for a message.
func literal(raw json.RawMessage) string {
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return show(string(raw))
	}
	const most = 64
	if compact.Len() > most {
		return strconv.Quote(compact.String()[:most]) + "..."
	}
	return compact.String()
}

// index appends a list index to a path.
func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// YAMLToJSON converts a text with one YAML document (JSON is YAML) to JSON. A repeated key and a second document are
// errors. All files from users are read with it. The packages then decode the JSON strictly.
func YAMLToJSON(text []byte) ([]byte, error) {
	if err := oneDocument(text); err != nil {
		return nil, err
	}
	return yaml.YAMLToJSONStrict(text)
}

// oneDocument returns an error unless text has exactly one YAML document. Empty documents after it, as from a closing
// "---", don't count. The conversion alone would ignore further documents silently.
func oneDocument(text []byte) error {
	dec := yamlv3.NewDecoder(bytes.NewReader(text))
	for n := 0; ; n++ {
		var doc yamlv3.Node
		err := dec.Decode(&doc)
		switch {
		case errors.Is(err, io.EOF) && n == 0:
			return errors.New("the document is empty; want one object with apiVersion and kind")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("parse YAML: %w", err)
		case n > 0 && len(doc.Content) > 0 && doc.Content[0].Tag != "!!null":
			return errors.New("more than one YAML document; want one")
		}
	}
}

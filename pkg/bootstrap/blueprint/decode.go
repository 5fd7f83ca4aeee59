package blueprint

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// MaxSize is the maximum size of a document in bytes.
const MaxSize = 1 << 20

// Parse decodes a blueprint from YAML or JSON, strictly, and sets defaults. The error is an [InvalidError] that names
// each wrong line.
func Parse(text []byte) (*Blueprint, error) {
	if len(text) > MaxSize {
		return nil, &InvalidError{Problems: []v1alpha1.Problem{{Text: fmt.Sprintf("larger than %d bytes", MaxSize)}}}
	}
	top, err := only(text)
	if err != nil {
		return nil, &InvalidError{Problems: []v1alpha1.Problem{{Text: plain(err)}}}
	}
	b := &Blueprint{}
	d := decoder{lines: v1alpha1.Lines{}}
	d.value("", top, reflect.ValueOf(b).Elem())
	if len(d.problems) == 0 {
		d.validate(b)
	}
	if len(d.problems) > 0 {
		return nil, &InvalidError{Problems: d.problems}
	}
	// After validation, because a default has no line for a problem to name.
	b.fill()
	return b, nil
}

// only returns the root value of a text with exactly one document.
func only(text []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var document, more yaml.Node
	if err := dec.Decode(&document); errors.Is(err, io.EOF) {
		return nil, errors.New("the document is empty; want one object with apiVersion and kind")
	} else if err != nil {
		return nil, err
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one YAML document; want one")
	}
	return document.Content[0], nil
}

// decoder fills a struct from YAML by its json tags. The library's strict mode needs yaml tags, which the types of other
// packages don't have.
type decoder struct {
	// lines are the line numbers of the fields, by path.
	lines    v1alpha1.Lines
	problems []v1alpha1.Problem
}

func (d *decoder) add(line int, path, format string, args ...any) {
	d.problems = append(d.problems, v1alpha1.Problem{Line: line, Path: path, Text: fmt.Sprintf(format, args...)})
}

func (d *decoder) value(path string, n *yaml.Node, dst reflect.Value) {
	d.lines[path] = n.Line
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return // null means unset, as in all Kubernetes APIs
	}
	if n.Kind == yaml.AliasNode {
		// A problem would be reported at the anchor's line, and nested aliases grow exponentially.
		d.add(n.Line, path, "aliases are not supported; write the value")
		return
	}
	if text, ok := reflect.TypeAssert[encoding.TextUnmarshaler](dst.Addr()); ok {
		if err := text.UnmarshalText([]byte(n.Value)); err != nil {
			d.add(n.Line, path, "%v", err)
		}
		return
	}
	switch dst.Kind() {
	case reflect.Pointer:
		dst.Set(reflect.New(dst.Type().Elem()))
		d.value(path, n, dst.Elem())
	case reflect.Struct:
		d.object(path, n, dst)
	case reflect.Slice:
		d.list(path, n, dst)
	default:
		if err := n.Decode(dst.Addr().Interface()); err != nil {
			d.add(n.Line, path, "%s", plain(err))
		}
	}
}

func (d *decoder) object(path string, n *yaml.Node, dst reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.add(n.Line, path, "want fields and their values")
		return
	}
	fields, seen := listFields(dst.Type()), map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		index, known := fields[key.Value]
		switch {
		case seen[key.Value]:
			d.add(key.Line, at, "given twice; keep one")
		case known:
			d.value(at, value, dst.Field(index))
		case at == "vfio.ids":
			d.add(key.Line, at, "no such field: IDs match every function of the model, including ones that are added later; list addresses in vfio.keepOff instead, or set vfio.keepOffMatching")
		default:
			d.add(key.Line, at, "no such field; the fields here are %s", strings.Join(names(dst.Type()), ", "))
		}
		seen[key.Value] = true
	}
}

func (d *decoder) list(path string, n *yaml.Node, dst reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.add(n.Line, path, "want a list")
		return
	}
	dst.Set(reflect.MakeSlice(dst.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		if item.Kind == yaml.ScalarNode && item.Tag == "!!null" {
			d.add(item.Line, fmt.Sprintf("%s[%d]", path, i), "null is not an item; remove it") // the zero value would have a meaning
			continue
		}
		d.value(fmt.Sprintf("%s[%d]", path, i), item, dst.Index(i))
	}
}

// names returns the JSON names of a struct's fields in order.
func names(t reflect.Type) []string {
	var all []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		all = append(all, name)
	}
	return all
}

func listFields(t reflect.Type) map[string]int {
	fields := map[string]int{}
	for i, name := range names(t) {
		fields[name] = i
	}
	return fields
}

// yamlError matches the library's message for a wrong type: "yaml: unmarshal errors:\n  line 3: cannot unmarshal !!str
// `x` into int".
var yamlError = regexp.MustCompile("(?s)^.*line \\d+: cannot unmarshal !!\\w+ (`[^`]*` )?into \\[?\\]?(?:\\w+\\.)?(\\w+).*$")

// plain rewrites an error of the YAML library for people.
func plain(err error) string {
	if m := yamlError.FindStringSubmatch(err.Error()); m != nil {
		kinds := map[string]string{"int": "a whole number", "bool": "true or false"}
		want, ok := kinds[m[2]]
		if !ok {
			want = "a string"
		}
		return fmt.Sprintf("%sis not %s", m[1], want)
	}
	return strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n", " ")
}

// InvalidError refuses a blueprint. It lists all problems in the document's order.
type InvalidError struct{ Problems []v1alpha1.Problem }

func (e *InvalidError) Error() string {
	var texts []string
	for _, p := range e.Problems {
		texts = append(texts, p.String())
	}
	return Kind + ": " + strings.Join(texts, "; ")
}

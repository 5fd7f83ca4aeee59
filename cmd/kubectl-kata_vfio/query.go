package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// Formats of -o with an argument, as in kubectl.
const (
	jsonPath      = "jsonpath"
	customColumns = "custom-columns"
)

// query finds fields by a JSONPath template.
type query struct{ *jsonpath.JSONPath }

// newQuery parses a template, or a field as --sort-by and custom-columns name it: ".node", "{.node}".
func newQuery(text string, field bool) (*query, error) {
	if field && !strings.HasPrefix(text, "{") {
		text = "{." + strings.TrimPrefix(text, ".") + "}"
	}
	path := jsonpath.New("query").AllowMissingKeys(true)
	if err := path.Parse(text); err != nil {
		return nil, command.Usagef("JSONPath %q: %w", text, err)
	}
	return &query{path}, nil
}

// fields returns the values of a row, each as text.
func (q *query) fields(value any) ([]string, error) {
	value, err := plain(value)
	if err != nil {
		return nil, err
	}
	found, err := q.FindResults(value)
	if err != nil {
		return nil, fmt.Errorf("find fields: %w", err)
	}
	var texts []string
	for _, values := range found {
		for _, v := range values {
			texts = append(texts, fmt.Sprint(v.Interface()))
		}
	}
	return texts, nil
}

// print writes the template's output for a document.
func (q *query) print(w io.Writer, document any) error {
	value, err := plain(document)
	if err != nil {
		return err
	}
	// A template may fail in its middle. Then nothing is printed.
	var text bytes.Buffer
	if err := q.Execute(&text, value); err != nil {
		return fmt.Errorf("find fields: %w", err)
	}
	if _, err := w.Write(text.Bytes()); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// plain returns a value's JSON form, with [output.Visible] applied to texts.
func plain(value any) (any, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode fields: %w", err)
	}
	var decoded any
	// Unlike encoding/json, it decodes whole numbers as int64, so that a count is not printed as 1e+06.
	if err := utiljson.Unmarshal(data, &decoded); err != nil {
		return nil, fmt.Errorf("decode fields: %w", err)
	}
	return visible(decoded), nil
}

func visible(value any) any {
	switch value := value.(type) {
	case string:
		return output.Visible(value)
	case []any:
		for i := range value {
			value[i] = visible(value[i])
		}
	case map[string]any:
		for key := range value {
			value[key] = visible(value[key])
		}
	}
	return value
}

// columns are the columns of -o custom-columns.
type columns struct {
	titles []string
	fields []*query
}

// newColumns parses NODE:.node,NAME:.name.
func newColumns(text string) (*columns, error) {
	c := &columns{}
	for part := range strings.SplitSeq(text, ",") {
		title, path, ok := strings.Cut(part, ":")
		if !ok || title == "" || path == "" {
			return nil, command.Usagef("--output %s=%s: want HEADER:FIELD[,HEADER:FIELD], such as NODE:.node,NAME:.name", customColumns, text)
		}
		field, err := newQuery(path, true)
		if err != nil {
			return nil, err
		}
		c.titles, c.fields = append(c.titles, title), append(c.fields, field)
	}
	return c, nil
}

// of returns the picture with these columns.
func (c *columns) of(p *picture) (*picture, error) {
	shown := *p
	shown.titles, shown.drawing, shown.rows = c.titles, nil, nil
	for _, r := range p.rows {
		r.cells = nil
		for _, field := range c.fields {
			texts, err := field.fields(r.value)
			if err != nil {
				return nil, err
			}
			text := strings.Join(texts, ",")
			if len(texts) == 0 {
				text = "<none>" // as in kubectl
			}
			r.cells = append(r.cells, cells(text)...)
		}
		shown.rows = append(shown.rows, r)
	}
	return &shown, nil
}

// sortRows sorts rows by a field: numbers by value, all else as text.
func sortRows(rows []row, by *query) error {
	keys := make(map[string]string, len(rows))
	var failed error
	for i := range rows {
		texts, err := by.fields(rows[i].value)
		failed = errors.Join(failed, err)
		keys[rows[i].key] = strings.Join(texts, ",")
	}
	slices.SortStableFunc(rows, func(a, b row) int { return compareValues(keys[a.key], keys[b.key]) })
	return failed
}

// compareValues compares numbers by value, and all else as text.
func compareValues(a, b string) int {
	var x, y float64
	if json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil {
		return cmp.Compare(x, y)
	}
	return strings.Compare(a, b)
}

// names returns the names of the rows' objects, each once, as kubectl and the command explain take them as arguments.
func (p *picture) names() []string {
	var all []string
	for i := range p.rows {
		if name := p.rows[i].name; name != "" && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

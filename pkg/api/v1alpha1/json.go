package v1alpha1

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// field is one member of a JSON object.
type field struct {
	name  string
	value json.RawMessage
}

// split returns the members of a JSON object in its order, repeated names
// included, and false when the value is no object.
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

// join appends a member's name to a path; a name that is no plain word is
// quoted, so that a path stays one line.
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

// literal returns a JSON value as it was written, cut to a length that fits a
// message.
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

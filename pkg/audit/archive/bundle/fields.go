package bundle

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/cli/encode"
)

// Fields returns JSON documents, one or a line each, with the names replaced in the fields that
// hold names of namespaces, claims and pods, those included that [Mask.Reserve] keeps elsewhere.
// What is no JSON stays as it is.
func (m *Mask) Fields(data []byte) []byte {
	if m == nil || len(m.reserved) == 0 {
		return data
	}
	if json.Valid(data) {
		return m.fields(data)
	}
	var out bytes.Buffer
	for line := range bytes.Lines(data) {
		if json.Valid(line) {
			line = m.fields(line)
		}
		out.Write(line)
	}
	return out.Bytes()
}

func (m *Mask) fields(data []byte) []byte {
	return encode.RewriteStrings(data, m.field, func(string) {})
}

// field returns what stands in the place of a string.
func (m *Mask) field(s *encode.String) string {
	pseudonym := func(name string) string {
		if p := m.names[name]; p != "" {
			return p
		}
		return name
	}
	switch s.Key {
	case "namespace", "tenants":
		return pseudonym(s.Text)
	case "name":
		if slices.Contains([]string{"claim", "claims", "pods", "metadata", "ownerReferences", "reservedFor", "involvedObject"}, s.Parent) {
			return pseudonym(s.Text)
		}
	case "claim", "object": // "team-a/train", "claim team-a/train"
		kind, name, _ := cutLast(s.Text, " ")
		parts := strings.Split(name, "/")
		for i := range parts {
			parts[i] = pseudonym(parts[i])
		}
		return kind + strings.Join(parts, "/")
	}
	return s.Text
}

// cutLast cuts behind the last separator.
func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator) + len(separator)
	if i < len(separator) {
		return "", text, false
	}
	return text[:i], text[i:], true
}

// reserveKeys reserves the keys of a document, or of those in its lines, but for paths, by
// which something is listed.
func (m *Mask) reserveKeys(data []byte) {
	encode.RewriteStrings(data, func(s *encode.String) string { return s.Text }, func(key string) {
		if !strings.Contains(key, "/") {
			m.Reserve([]byte(key))
		}
	})
}

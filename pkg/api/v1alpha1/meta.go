package v1alpha1

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// APIVersion is the apiVersion of every kind of this package.
const APIVersion = "resource.kata-vfio.dev/v1alpha1"

// DriverName is the name of our DRA driver: in ResourceSlices, in opaque
// parameters, and as the domain of our device attributes.
const DriverName = "kata-vfio.dev"

// Kinds.
const (
	KindVFIOConfig = "VFIOConfig"
	KindVFConfig   = "VFConfig"
	KindNodeConfig = "NodeConfig"
)

// TypeMeta is apiVersion and kind.
type TypeMeta struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// readMeta returns apiVersion and kind of a JSON object that is of this API
// version and one of the kinds. Nothing else is worth reporting on an object
// that is not.
func readMeta(raw []byte, kinds ...string) (TypeMeta, problems) {
	var m TypeMeta
	fields, p := document(raw)
	if len(p) > 0 {
		return m, p
	}
	m.APIVersion = metaField(&p, fields, "apiVersion", APIVersion)
	m.Kind = metaField(&p, fields, "kind", strings.Join(kinds, " or "))
	if m.APIVersion != "" && m.APIVersion != APIVersion {
		p.add("apiVersion", "%s is not a version that this plugin reads; it reads %s", show(m.APIVersion), APIVersion)
	}
	if m.Kind != "" && !slices.Contains(kinds, m.Kind) {
		p.add("kind", "%s is not %s", show(m.Kind), strings.Join(kinds, " or "))
	}
	return m, p
}

// document splits a text that is to be one JSON object and nothing after it.
func document(raw []byte) ([]field, problems) {
	var p problems
	if len(bytes.TrimSpace(raw)) == 0 {
		p.add("", "the document is empty")
		return nil, p
	}
	var text json.RawMessage
	if err := json.Unmarshal(raw, &text); err != nil {
		p.add("", "not one JSON object: %v", err)
		return nil, p
	}
	fields, ok := split(text)
	if !ok {
		p.add("", "%s is not an object", literal(text))
	}
	return fields, p
}

// metaField returns the text of a field that every document must have.
func metaField(p *problems, fields []field, name, want string) string {
	for _, f := range fields {
		if f.name != name {
			continue
		}
		var text string
		if err := json.Unmarshal(f.value, &text); err != nil || text == "" {
			p.add(name, "%s is not %s", literal(f.value), want)
		}
		return text
	}
	p.add(name, "missing; want %s", want)
	return ""
}

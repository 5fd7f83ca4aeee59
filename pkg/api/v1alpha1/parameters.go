// Package v1alpha1 is the API of kata-vfio for users, group resource.kata-vfio.dev, version v1alpha1: the opaque
// parameters VFIOConfig and VFConfig of a DeviceClass or ResourceClaim, the NodeConfig file of a node, and the Sanitizers of a cluster. It decodes
// strictly (an unknown or mistyped field is an error that names it), sets defaults, and validates.
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
	KindSanitizers = "Sanitizers"
)

// TypeMeta is apiVersion and kind.
type TypeMeta struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// readMeta returns apiVersion and kind of a JSON object, which must have this API version and one of the kinds. For any
// other object it reports only that.
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

// document splits a text into the fields of its only JSON object.
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
	// split reads one object and stops. Unmarshal has refused a text with more behind it.
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
		// Only the first counts here: decode refuses a repeated field.
		return text
	}
	p.add(name, "missing; want %s", want)
	return ""
}

// Parameters are the opaque parameters of one config entry: exactly one field
// is set.
type Parameters struct {
	VFIO *VFIOConfig
	VF   *VFConfig
}

// DecodeParameters reads the opaque parameters of a DeviceClass or a claim, of either kind, strictly and without
// defaults. Its error is an [InvalidError].
func DecodeParameters(raw []byte) (Parameters, error) {
	m, p := readMeta(raw, KindVFIOConfig, KindVFConfig)
	if err := p.err("parameters"); err != nil {
		return Parameters{}, err
	}
	if m.Kind == KindVFConfig {
		c, err := DecodeVF(raw)
		return Parameters{VF: c}, err
	}
	c, err := DecodeVFIO(raw)
	return Parameters{VFIO: c}, err
}

// Weakens returns a [WeakensIsolationError] that names the parameters that a claim must not set, or nil if there are
// none.
func (p Parameters) Weakens() error {
	if p.VFIO != nil {
		return p.VFIO.Weakens()
	}
	if p.VF != nil {
		return p.VF.Weakens()
	}
	return nil
}

// AnnotationNamespaces is the annotation of a DeviceClass that names the namespaces whose claims may use the
// DeviceClass: "team-a,team-b", or [AllNamespaces] for all.
const AnnotationNamespaces = DriverName + "/namespaces"

// AllNamespaces grants a DeviceClass to every namespace.
const AllNamespaces = "*"

// Grants reports whether claims of a namespace may use a DeviceClass with the annotations. Without
// [AnnotationNamespaces] no namespace may. Names are separated by commas and compared literally; the only pattern
// is [AllNamespaces]. The chart's policy tenant-classes states the same rule in CEL.
func Grants(annotations map[string]string, namespace string) bool {
	// Without the annotation, or with one such as "a,,b", Split returns an empty name, which would match.
	if namespace == "" {
		return false
	}
	return slices.ContainsFunc(strings.Split(annotations[AnnotationNamespaces], ","), func(name string) bool {
		name = strings.TrimSpace(name)
		return name == AllNamespaces || name == namespace
	})
}

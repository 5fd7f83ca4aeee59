package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// ClassesConfigMap is the ConfigMap in the chart's namespace, and ClassesKey its key, with the [ClassView].
const (
	ClassesConfigMap = "kata-vfio-classes"
	ClassesKey       = "classes.json"
)

// annotationAllowAll is the annotation of a DeviceClass whose claims may get all devices of a node. The chart's policy tenant-classes
// requires it for such claims.
const annotationAllowAll = v1alpha1.DriverName + "/allow-all"

// ClassView is what tenants may read about the DeviceClasses of kata-vfio. kata-vfio-controller publishes it in [ClassesConfigMap]. It
// names no namespace, node, device or claim. The JSON form is stable: names are added, never changed.
type ClassView struct {
	// Updated is when the counts were made, in RFC 3339.
	Updated string       `json:"updated"`
	Classes []ClassOffer `json:"classes"`
	// Grants are the grants to single namespaces, by [GrantKey], sorted.
	Grants []string `json:"grants"`
}

// ClassOffer is what a DeviceClass gives.
type ClassOffer struct {
	Name string `json:"name"`
	// Kinds and Models are the kinds and models of the devices that the class selects, whether free or not: "gpu", "NVIDIA H100". If there
	// are many models, only the first in alphabetical order are listed.
	Kinds  []string `json:"kinds"`
	Models []string `json:"models"`
	// ExtendedResource is the resource by which a pod's limits can ask for a device of the class.
	ExtendedResource string `json:"extendedResource,omitempty"`
	// Sets are the parameters that the class sets. Weakens are those of them that a claim may not set, because only the admin may.
	Sets    []string `json:"sets"`
	Weakens []string `json:"weakens"`
	// Everyone says that the class is granted to each namespace, and AllDevices that a claim may have all devices of a node.
	Everyone   bool `json:"everyone,omitempty"`
	AllDevices bool `json:"allDevices,omitempty"`
	// Free is how many devices new claims can get at the same time, rounded down above [ExactlyFree]; AtLeast says that it is rounded.
	Free    int  `json:"free"`
	AtLeast bool `json:"atLeast,omitempty"`
	// SelectorFails says that a selector of the class fails on a device, which fails the scheduling of all its claims.
	SelectorFails bool `json:"selectorFails,omitempty"`
}

// ExactlyFree is the largest number of free devices that is not rounded. A tenant needs to know whether its next pods can start, but not
// how full the cluster is.
const ExactlyFree = 8

// mostModels is the number of models that an offer names.
const mostModels = 8

// DecodeClassView reads a view.
func DecodeClassView(text string) (*ClassView, error) {
	v := &ClassView{}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return nil, fmt.Errorf("read the view of DeviceClasses: %w", err)
	}
	return v, nil
}

// Encode returns the view as it is published.
func (v *ClassView) Encode() (string, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	return string(text), err
}

// GrantKey returns a key that stands for the grant of a DeviceClass to a namespace. A namespace's UID is random, and users who may not read
// the namespace can't read its UID, so the key doesn't tell them which namespace it is.
func GrantKey(class, namespaceUID string) string {
	// No name contains NUL, so two grants never have the same text.
	sum := sha256.Sum256([]byte("kata-vfio class grant\x00" + class + "\x00" + namespaceUID))
	return hex.EncodeToString(sum[:16])
}

// Granted reports whether a class is granted to the namespace with the UID.
func (v *ClassView) Granted(c *ClassOffer, namespaceUID string) bool {
	return c.Everyone || namespaceUID != "" && slices.Contains(v.Grants, GrantKey(c.Name, namespaceUID))
}

// NewClassOffer returns what a class says by itself, without devices.
func NewClassOffer(class *resourceapi.DeviceClass) ClassOffer {
	o := ClassOffer{
		Name: class.Name, Kinds: []string{}, Models: []string{}, Sets: []string{}, Weakens: []string{}, ExtendedResource: deref(class.Spec.ExtendedResourceName),
		Everyone:   slices.ContainsFunc(strings.Split(class.Annotations[v1alpha1.AnnotationNamespaces], ","), func(s string) bool { return strings.TrimSpace(s) == v1alpha1.AllNamespaces }),
		AllDevices: class.Annotations[annotationAllowAll] == "true",
	}
	for i := range class.Spec.Config {
		if opaque := class.Spec.Config[i].Opaque; opaque != nil && opaque.Driver == v1alpha1.DriverName {
			o.addParameters(opaque.Parameters.Raw)
		}
	}
	return o
}

// Class returns a DeviceClass with the fields that the policies read. It is granted to the namespace, or to none if namespace is empty.
func (o *ClassOffer) Class(namespace string) *resourceapi.DeviceClass {
	c := &resourceapi.DeviceClass{}
	c.Name, c.Annotations = o.Name, map[string]string{v1alpha1.AnnotationNamespaces: namespace}
	if o.AllDevices {
		c.Annotations[annotationAllowAll] = "true"
	}
	if o.ExtendedResource != "" {
		c.Spec.ExtendedResourceName = &o.ExtendedResource
	}
	return c
}

// addParameters adds the names of the class's parameters. It ignores parameters that the plugin would refuse.
func (o *ClassOffer) addParameters(raw []byte) {
	p, err := v1alpha1.DecodeParameters(raw)
	if err != nil {
		return
	}
	if p.VFIO != nil {
		o.Sets = append(o.Sets, p.VFIO.Fields()...)
	}
	if p.VF != nil {
		o.Sets = append(o.Sets, p.VF.Fields()...)
	}
	if w, ok := errors.AsType[*v1alpha1.WeakensIsolationError](p.Weakens()); ok {
		for _, setting := range w.Settings {
			name, _, _ := strings.Cut(setting, ":")
			o.Weakens = append(o.Weakens, name)
		}
	}
}

// Matching adds the kind and the model of a device that the class selects.
func (o *ClassOffer) Matching(d *Device) {
	if !slices.Contains(o.Kinds, d.Details.Kind) && d.Details.Kind != "" {
		o.Kinds = append(o.Kinds, d.Details.Kind)
		slices.Sort(o.Kinds)
	}
	if !slices.Contains(o.Models, d.Details.Model) && d.Details.Model != "" {
		o.Models = append(o.Models, d.Details.Model)
		slices.Sort(o.Models)
		// Cut after sorting, so that the offer does not depend on the order of the slices.
		o.Models = o.Models[:min(len(o.Models), mostModels)]
	}
}

// SetFree sets the count of free devices.
func (o *ClassOffer) SetFree(free int) {
	o.Free, o.AtLeast = free, false
	if free > ExactlyFree {
		o.Free, o.AtLeast = free/ExactlyFree*ExactlyFree, true
	}
}

// FreeAtOnce returns how many of a pool's devices new claims can get at the same time: devices that no claim has, that no taint keeps
// claims from, and that don't share hardware with a device that uses all of it. A device in the exclusive domain of a tenant is not free,
// because only that tenant can get it.
func (c *Cluster) FreeAtOnce(p *Pool, eligible func(*Device) bool) int {
	// The devices are tried in the order of the slices. The largest number that fits is a packing problem, which the scheduler doesn't
	// solve either: it allocates the claims of one pod at a time.
	left, free := c.counters(p), 0
	for _, d := range p.Devices {
		if c.holders[d.ID] == nil && !d.KeepsClaimsAway() && eligible(d) && consume(left, d) {
			free++
		}
	}
	return free
}

// KeepsClaimsAway reports whether a taint keeps claims from the device.
func (d *Device) KeepsClaimsAway() bool {
	return slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool { return KeepsAway(&t) })
}

// consume takes what a device needs from the counters. If one counter has too little left, it takes nothing and returns false.
func consume(left map[counter]*taken, d *Device) bool {
	for _, uses := range d.Details.consumes {
		for name, need := range uses.Counters {
			if t := left[counter{uses.CounterSet, name}]; t != nil && t.left.Value.Cmp(need.Value) < 0 {
				return false
			}
		}
	}
	for _, uses := range d.Details.consumes {
		for name, need := range uses.Counters {
			if t := left[counter{uses.CounterSet, name}]; t != nil {
				t.left.Value.Sub(need.Value)
			}
		}
	}
	return true
}

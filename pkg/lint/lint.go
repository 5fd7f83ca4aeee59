// Package lint says what the cluster would refuse of a tenant's manifests before they are sent to it: claims, claim templates, pods, and
// the pod templates of any object that makes pods. It has no rules of its own. It asks the chart's admission policies, in the API server's
// implementation of CEL, and the decoder by which the plugin reads parameters.
package lint

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Problem is one fault of a document. Its JSON form is stable: names are added, never changed.
type Problem struct {
	File string `json:"file"`
	// Document counts the documents of the file from 1; 0 is the file as a whole.
	Document int `json:"document,omitempty"`
	// Line is the line of the field, or of the closest field around it that the document contains; 0 if there is none.
	Line int `json:"line,omitempty"`
	// Object is the document's: "Pod/gpu".
	Object string `json:"object,omitempty"`
	// Field is the path of the field without which nothing would be refused: "spec.volumes[0].hostPath"; empty for the object as a whole.
	Field string `json:"field,omitempty"`
	// Code is a code that `explain` knows. It is empty if the text is not an object that can be judged, which has no Object either, and for
	// faults that no rule of kata-vfio is about, such as an unknown field.
	Code rule.Code `json:"code,omitempty"`
	Text string    `json:"text"`
	Fix  string    `json:"fix,omitempty"`
}

// Report is what was found. Its JSON form is stable.
type Report struct {
	// Checked is the number of objects that were judged. PassedOver has the kinds of objects to which no rule applies, with their numbers.
	Checked    int            `json:"checked"`
	PassedOver map[string]int `json:"passedOver"`
	Problems   []Problem      `json:"problems"`
}

// Linter collects documents, and then judges all of them: a DeviceClass may be in another file than the claim that names it.
type Linter struct {
	// Policies are the admission policies that requests would meet.
	Policies *Policies
	// Namespace is the namespace of the objects; nil if nothing but its name is known. It then counts as a tenant's.
	Namespace *corev1.Namespace
	// NamespaceName is the name of a namespace about which nothing else is known; empty means "default". Objects that name none are judged
	// in it.
	NamespaceName string
	// OneNamespace says that an object that names another namespace is a problem, as it is with kubectl's -n. Otherwise such an object is
	// judged in its own namespace, of which only the name is known. It counts as set if Namespace is.
	OneNamespace bool
	// Classes are the cluster's DeviceClasses. AllClasses says that kata-vfio has no other classes there.
	Classes    []*resourceapi.DeviceClass
	AllClasses bool

	documents []*document
	report    Report
}

// Add reads a file with any number of YAML or JSON documents, and returns their number, including documents that can't be read.
func (l *Linter) Add(name string, text []byte) (documents int) {
	for n, part := range split(text) {
		d, err := parse(part)
		switch {
		case err != nil:
			documents++
			l.report.Problems = append(l.report.Problems, Problem{File: name, Document: n + 1, Line: cmp.Or(err.Line, part.line), Field: err.Path, Text: err.Text})
		case d != nil:
			d.file, d.number = name, n+1
			l.documents = append(l.documents, d)
			documents++
		}
	}
	return documents
}

// Report judges the documents.
func (l *Linter) Report(ctx context.Context) (*Report, error) {
	l.report.PassedOver = map[string]int{}
	var subjects []*subject
	for _, d := range l.documents {
		found := d.subjects()
		if len(found) == 0 {
			l.report.PassedOver[d.kind]++
		}
		l.report.Checked += min(len(found), 1)
		subjects = append(subjects, found...)
	}
	// All classes come first, because a claim may be in a file before its class.
	for _, s := range subjects {
		if class, ok := s.object.(*resourceapi.DeviceClass); ok {
			l.Classes = append(l.Classes, class)
		}
	}
	for _, s := range l.ofOtherNamespaces(subjects) {
		if err := l.add(s, s.misfits...); err != nil {
			return nil, err
		}
	}
	for _, s := range subjects {
		if err := l.judge(ctx, s); err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", s.in.file, s.in.number, err)
		}
	}
	// In JSON, no problems are an empty list and not null.
	l.report.Problems = append([]Problem{}, l.report.Problems...)
	slices.SortStableFunc(l.report.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Document, b.Document), cmp.Compare(a.Line, b.Line))
	})
	return &l.report, nil
}

// judge adds the problems of an object. If the plugin's reader and a policy refuse it for the same reason, only the reader's problem is
// added, because it names the field.
func (l *Linter) judge(ctx context.Context, s *subject) error {
	found := slices.Concat(s.misfits, parameters(s))
	found = append(found, l.unknownClasses(s)...)
	found = append(found, unusedClaims(s)...)
	refused, err := l.Policies.refusals(ctx, s.object, l.namespace(s.in), l.Classes)
	if err != nil {
		return err
	}
	refused = slices.DeleteFunc(refused, func(r fault) bool {
		return slices.ContainsFunc(found, func(f fault) bool { return f.code != "" && f.code == r.code })
	})
	return l.add(s, append(found, refused...)...)
}

// add adds the problems of an object. Two policies may refuse it for one reason, which is added once.
func (l *Linter) add(s *subject, faults ...fault) error {
	said := map[fault]bool{}
	for _, f := range faults {
		if said[f] {
			continue
		}
		said[f] = true
		p, err := s.problem(f)
		if err != nil {
			return err
		}
		l.report.Problems = append(l.report.Problems, p)
	}
	return nil
}

// fault is why an object is refused.
type fault struct {
	code      rule.Code
	path      string
	text, fix string
}

// unknownClasses are the faults of a claim that names DeviceClasses of ours that don't exist.
func (l *Linter) unknownClasses(s *subject) (faults []fault) {
	spec := s.devices()
	if !l.AllClasses || spec == nil {
		return nil
	}
	check := func(path, name string) {
		known := slices.ContainsFunc(l.Classes, func(c *resourceapi.DeviceClass) bool { return c.Name == name })
		if !known && (&cluster.Cluster{}).IsOurClass(name) {
			faults = append(faults, fault{
				code: rule.ClassUnknown, path: path + ".deviceClassName", text: "the cluster has no DeviceClass " + name,
				fix: "name one of those that `kubectl kata-vfio classes` shows",
			})
		}
	}
	for i := range spec.Requests {
		path := fmt.Sprintf("%s.requests[%d]", s.devicesPath(), i)
		if e := spec.Requests[i].Exactly; e != nil {
			check(path+".exactly", e.DeviceClassName)
		}
		for j := range spec.Requests[i].FirstAvailable {
			check(fmt.Sprintf("%s.firstAvailable[%d]", path, j), spec.Requests[i].FirstAvailable[j].DeviceClassName)
		}
	}
	return faults
}

// unusedClaims returns the faults of a pod with claims that no container names. Kubernetes accepts such pods.
func unusedClaims(s *subject) (faults []fault) {
	pod, ok := s.object.(*corev1.Pod)
	if !ok {
		return nil
	}
	for i, ref := range pod.Spec.ResourceClaims {
		if cluster.NamesClaim(&pod.Spec, ref.Name) {
			continue
		}
		faults = append(faults, fault{
			path: fmt.Sprintf("spec.resourceClaims[%d]", i), text: fmt.Sprintf("no container of the pod names the claim %s, so none gets its devices", ref.Name),
			fix: fmt.Sprintf("add `resources: {claims: [{name: %s}]}` to the container that is to have the devices", ref.Name),
		})
	}
	return faults
}

// subject is an object that requests would create: a document, or a pod template in it.
type subject struct {
	in *document
	// at leads to a pod template in the document; empty for the document as a whole.
	at     string
	object runtime.Object
	// misfits are the fields that the type does not have.
	misfits []fault
}

// problem returns a fault for the user.
func (s *subject) problem(f fault) (Problem, error) {
	field := f.path
	if s.at != "" {
		field = s.at + "." + f.path
	}
	fix := f.fix
	if texts, err := rule.Texts(); err != nil {
		return Problem{}, err
	} else if text, ok := rule.Find(texts, string(f.code)); ok && fix == "" && f.code != "" {
		fix = text.Fix
	}
	return Problem{
		File: s.in.file, Document: s.in.number, Line: s.in.lineAt(field), Object: s.in.name, Field: field, Code: f.code, Text: f.text, Fix: fix,
	}, nil
}

// devices is what a claim, or a template of claims, asks for; nil for another object.
func (s *subject) devices() *resourceapi.DeviceClaim {
	switch o := s.object.(type) {
	case *resourceapi.ResourceClaim:
		return &o.Spec.Devices
	case *resourceapi.ResourceClaimTemplate:
		return &o.Spec.Spec.Devices
	}
	return nil
}

// devicesPath leads to [subject.devices].
func (s *subject) devicesPath() string {
	if _, ok := s.object.(*resourceapi.ResourceClaimTemplate); ok {
		return "spec.spec.devices"
	}
	return "spec.devices"
}

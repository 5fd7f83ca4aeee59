package lint

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// namespace returns the namespace in which a document's objects are judged. If only its name is known, namespace returns one with the labels
// for which the policies for tenants look.
func (l *Linter) namespace(of *document) *corev1.Namespace {
	if l.Namespace != nil {
		return l.Namespace
	}
	name := cmp.Or(l.NamespaceName, metav1.NamespaceDefault)
	if !l.OneNamespace {
		name = cmp.Or(of.namespace(), name)
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: l.Policies.tenantLabels()}}
}

// namespace returns the namespace that the document names; empty if it names none.
func (d *document) namespace() string {
	meta, _ := d.value["metadata"].(map[string]any)
	name, _ := meta["namespace"].(string)
	return name
}

// ofOtherNamespaces returns a subject with a misfit for each document of another namespace than the one in which it is judged. DeviceClasses
// have no namespace.
func (l *Linter) ofOtherNamespaces(subjects []*subject) (all []*subject) {
	seen := map[*document]bool{} // a document may have several pod templates
	for _, s := range subjects {
		own, judged := s.in.namespace(), l.namespace(s.in).Name
		if _, isClass := s.object.(*resourceapi.DeviceClass); isClass || own == "" || own == judged || seen[s.in] {
			continue
		}
		seen[s.in] = true
		all = append(all, &subject{in: s.in, misfits: []fault{{
			path: "metadata.namespace", text: fmt.Sprintf("the object is in namespace %s, and namespace %s was asked about", own, judged),
			fix: fmt.Sprintf("ask about the objects of its namespace by `-n %s`, or correct metadata.namespace", own),
		}}})
	}
	return all
}

package cluster

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// Policy is a ValidatingAdmissionPolicy with its bindings.
type Policy struct {
	// Object is nil if only bindings were added.
	Object   *admissionv1.ValidatingAdmissionPolicy
	Bindings []*admissionv1.ValidatingAdmissionPolicyBinding
}

// policy returns the policy of a name, which it makes if there is none.
func (c *Cluster) policy(name string) *Policy {
	if c.policies[name] == nil {
		put(&c.policies, name, &Policy{})
	}
	return c.policies[name]
}

// Policy returns a policy; nil if there is none of the name.
func (c *Cluster) Policy(name string) *Policy {
	if p := c.policies[name]; p != nil && p.Object != nil {
		return p
	}
	return nil
}

// Policies returns the policies, by name.
func (c *Cluster) Policies() []*Policy {
	return slices.DeleteFunc(inOrder(c.policies), func(p *Policy) bool { return p.Object == nil })
}

// Denying returns the bindings by which the policy refuses requests.
func (p *Policy) Denying() []*admissionv1.ValidatingAdmissionPolicyBinding {
	return slices.DeleteFunc(slices.Clone(p.Bindings), func(b *admissionv1.ValidatingAdmissionPolicyBinding) bool {
		return !slices.Contains(b.Spec.ValidationActions, admissionv1.Deny)
	})
}

// Denies reports whether there is a policy of the name, and a binding by which it refuses requests.
func (c *Cluster) Denies(name string) bool {
	p := c.Policy(name)
	return p != nil && len(p.Denying()) > 0
}

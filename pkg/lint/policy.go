package lint

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	celpolicy "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Policies are the chart's admission policies about what tenants create.
type Policies struct {
	all      []*policy
	bindings []*admissionv1.ValidatingAdmissionPolicyBinding
}

// ParsePolicies reads the policies and bindings among the documents of a text, such as the output of `helm template` or of
// `kubectl get -o yaml`. It passes over everything else, also policies that are not the chart's.
func ParsePolicies(text []byte) (*Policies, error) {
	p := &Policies{}
	for _, part := range split(text) {
		if _, problem := part.node(); problem != nil {
			return nil, fmt.Errorf("document of line %d: %s", part.line, problem)
		}
		var list struct {
			Kind  string                 `json:"kind"`
			Items []runtime.RawExtension `json:"items"`
		}
		if err := yaml.Unmarshal(part.text, &list); err != nil {
			return nil, fmt.Errorf("document of line %d: %w", part.line, err)
		}
		items := [][]byte{part.text}
		if len(list.Items) > 0 {
			items = nil
		}
		for i := range list.Items {
			items = append(items, list.Items[i].Raw)
		}
		for _, item := range items {
			if err := p.read(item, strings.TrimSuffix(list.Kind, "List")); err != nil {
				return nil, fmt.Errorf("document of line %d: %w", part.line, err)
			}
		}
	}
	return p, nil
}

// read adds the object of a text, if it is one of the chart's. An item of a list may leave its kind to the list.
func (p *Policies) read(text []byte, kind string) error {
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal(text, &meta); err != nil {
		return err
	}
	switch cmp.Or(meta.Kind, kind) {
	case "ValidatingAdmissionPolicy":
		var one admissionv1.ValidatingAdmissionPolicy
		if err := yaml.Unmarshal(text, &one); err != nil {
			return err
		}
		p.Add(&one)
	case "ValidatingAdmissionPolicyBinding":
		var one admissionv1.ValidatingAdmissionPolicyBinding
		if err := yaml.Unmarshal(text, &one); err != nil {
			return err
		}
		p.Add(&one)
	}
	return nil
}

// Add adds a policy or a binding of the chart.
func (p *Policies) Add(object runtime.Object) {
	switch o := object.(type) {
	case *admissionv1.ValidatingAdmissionPolicy:
		if strings.HasSuffix(o.Name, "."+v1alpha1.DriverName) {
			p.all = append(p.all, &policy{object: o})
		}
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		p.bindings = append(p.bindings, o)
	}
}

// Names are the names of the policies, which their bindings have, too.
func (p *Policies) Names() (names []string) {
	for _, one := range p.all {
		names = append(names, one.object.Name)
	}
	slices.Sort(names)
	return names
}

// tenantLabels are the labels by whose presence the policies know a tenant's namespace.
func (p *Policies) tenantLabels() map[string]string {
	found := map[string]string{}
	for _, b := range p.bindings {
		if m := b.Spec.MatchResources; m != nil && m.NamespaceSelector != nil {
			for _, e := range m.NamespaceSelector.MatchExpressions {
				if e.Operator == metav1.LabelSelectorOpExists {
					found[e.Key] = ""
				}
			}
		}
	}
	return found
}

// refusals are the faults that the policies find in a new object of a namespace.
func (p *Policies) refusals(ctx context.Context, object runtime.Object, namespace *corev1.Namespace, classes []*resourceapi.DeviceClass) (faults []fault, err error) {
	for _, one := range p.all {
		applies, err := p.applies(one, object, namespace)
		if err != nil {
			return nil, err
		}
		if !applies {
			continue
		}
		for _, parameter := range one.parameters(classes) {
			found, err := one.refusals(ctx, &request{object, namespace, parameter})
			if err != nil {
				return nil, fmt.Errorf("ask policy %s: %w", one.object.Name, err)
			}
			faults = append(faults, found...)
		}
	}
	return faults, nil
}

// applies reports whether the policy is about new objects of the kind, and a binding has it refuse them in the namespace. A binding that
// only warns or audits refuses nothing.
func (p *Policies) applies(one *policy, object runtime.Object, namespace *corev1.Namespace) (bool, error) {
	_, resource := kindAndResource(object)
	if c := one.object.Spec.MatchConstraints; c == nil || !slices.ContainsFunc(c.ResourceRules, func(r admissionv1.NamedRuleWithOperations) bool { return covers(&r, resource) }) {
		return false, nil
	}
	for _, b := range p.bindings {
		if b.Spec.PolicyName != one.object.Name || !slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) {
			continue
		}
		m := b.Spec.MatchResources
		if m == nil || m.NamespaceSelector == nil {
			return true, nil
		}
		selector, err := metav1.LabelSelectorAsSelector(m.NamespaceSelector)
		if err != nil {
			return false, fmt.Errorf("read the namespaces of binding %s: %w", b.Name, err)
		}
		if selector.Matches(labels.Set(namespace.Labels)) {
			return true, nil
		}
	}
	return false, nil
}

func covers(r *admissionv1.NamedRuleWithOperations, resource schema.GroupVersionResource) bool {
	return slices.Contains(r.APIGroups, resource.Group) && slices.Contains(r.Resources, resource.Resource) && slices.Contains(r.Operations, admissionv1.Create)
}

// policy is a policy, compiled when the first object asks for it.
type policy struct {
	object   *admissionv1.ValidatingAdmissionPolicy
	compiled *compiled
}

// compiled has the expressions of a policy: the conditions for it to apply, then those of the validations, and their messages.
type compiled struct{ conditions, messages celpolicy.ConditionEvaluator }

// parameters are the objects with each of which the policy is asked: none, as nil, or the DeviceClasses. What other policies are given is
// in the cluster only: they are not asked.
func (p *policy) parameters(classes []*resourceapi.DeviceClass) []runtime.Object {
	switch kind := p.object.Spec.ParamKind; {
	case kind == nil:
		return []runtime.Object{nil}
	case kind.Kind == "DeviceClass":
		all := make([]runtime.Object, len(classes))
		for i := range classes {
			all[i] = classes[i]
		}
		return all
	}
	return nil
}

// expression is one of a policy's, with the type that the API server wants of it.
type expression struct {
	name, text string
	kind       *cel.Type
}

func (e expression) GetName() string          { return e.name }
func (e expression) GetExpression() string    { return e.text }
func (e expression) ReturnTypes() []*cel.Type { return []*cel.Type{e.kind} }

// compile compiles the policy as the oldest API server does that the chart takes.
func (p *policy) compile() (*compiled, error) {
	if p.compiled != nil {
		return p.compiled, nil
	}
	compiler, err := celpolicy.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 34)))
	if err != nil {
		return nil, err
	}
	spec, with := &p.object.Spec, celpolicy.OptionalVariableDeclarations{HasParams: p.object.Spec.ParamKind != nil}
	for _, v := range spec.Variables {
		if result := compiler.CompileAndStoreVariable(expression{v.Name, v.Expression, cel.AnyType}, with, environment.NewExpressions); result.Error != nil {
			return nil, fmt.Errorf("variable %s: %w", v.Name, result.Error)
		}
	}
	var conditions, messages []celpolicy.ExpressionAccessor
	for _, c := range spec.MatchConditions {
		// A match condition has no message. Both lists have the same indexes.
		conditions, messages = append(conditions, expression{"", c.Expression, cel.BoolType}), append(messages, nil)
	}
	for _, v := range spec.Validations {
		conditions = append(conditions, expression{"", v.Expression, cel.BoolType})
		var message celpolicy.ExpressionAccessor
		if v.MessageExpression != "" {
			message = expression{"", v.MessageExpression, cel.StringType}
		}
		messages = append(messages, message)
	}
	c := &compiled{compiler.CompileCondition(conditions, with, environment.NewExpressions), compiler.CompileCondition(messages, with, environment.NewExpressions)}
	for _, err := range append(c.conditions.CompilationErrors(), c.messages.CompilationErrors()...) {
		return nil, err
	}
	p.compiled = c
	return c, nil
}

// request is a request that creates an object. The parameter is nil for most policies.
type request struct {
	object    runtime.Object
	namespace *corev1.Namespace
	parameter runtime.Object
}

// evaluate evaluates expressions for a request.
func (r *request) evaluate(ctx context.Context, of celpolicy.ConditionEvaluator) ([]celpolicy.EvaluationResult, error) {
	kind, resource := kindAndResource(r.object)
	attributes := admission.NewAttributesRecord(r.object, nil, kind, r.namespace.Name, "", resource, "", admission.Create, nil, false, &user.DefaultInfo{})
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedObject: admission.NewLazyObject(r.object), VersionedKind: kind}
	results, _, err := of.ForInput(ctx, versioned, celpolicy.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(kind)),
		celpolicy.OptionalVariableBindings{VersionedParams: r.parameter}, celpolicy.CreateNamespaceObject(r.namespace), celconfig.RuntimeCELCostBudget)
	return results, err
}

// refusals are what the policy refuses, each with its field. An expression that fails refuses, as in the API server.
func (p *policy) refusals(ctx context.Context, r *request) (faults []fault, err error) {
	c, err := p.compile()
	if err != nil {
		return nil, err
	}
	results, err := r.evaluate(ctx, c.conditions)
	if err != nil || !p.isAsked(results) {
		return nil, err
	}
	var messages []celpolicy.EvaluationResult
	first := len(p.object.Spec.MatchConditions)
	for i := range p.object.Spec.Validations {
		if result := results[first+i]; result.Error == nil && result.EvalResult == types.True {
			continue
		}
		if messages == nil {
			if messages, err = r.evaluate(ctx, c.messages); err != nil {
				return nil, err
			}
		}
		f := p.fault(i, results[first+i], messages[first+i])
		if f.path, err = p.locate(ctx, r, i); err != nil {
			return nil, err
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// isAsked reports whether the conditions of the policy hold.
func (p *policy) isAsked(results []celpolicy.EvaluationResult) bool {
	return !slices.ContainsFunc(results[:len(p.object.Spec.MatchConditions)], func(r celpolicy.EvaluationResult) bool { return r.Error == nil && r.EvalResult != types.True })
}

// codeAtEnd finds the code at the end of a policy's message.
var codeAtEnd = regexp.MustCompile(`\s*\((\w+)\)$`)

// fault is a refusal in the policy's words. A code that stands at the end of the message is the fault's.
func (p *policy) fault(validation int, result, message celpolicy.EvaluationResult) fault {
	text := p.object.Spec.Validations[validation].Message
	if message.EvalResult != nil && message.Error == nil {
		text = fmt.Sprint(message.EvalResult.Value())
	}
	if result.Error != nil {
		return fault{text: fmt.Sprintf("policy %s can't be evaluated: %v", p.object.Name, result.Error)}
	}
	f := fault{text: strings.TrimSpace(text)}
	if found := codeAtEnd.FindStringSubmatch(f.text); found != nil {
		f.code, f.text = rule.Code(found[1]), strings.TrimSuffix(f.text, found[0])
	}
	return f
}

// kindAndResource returns the kind and the resource of an object.
func kindAndResource(object runtime.Object) (schema.GroupVersionKind, schema.GroupVersionResource) {
	of := func(v schema.GroupVersion, kind string) (schema.GroupVersionKind, schema.GroupVersionResource) {
		// A plural with an s, as all kinds here have it but DeviceClass.
		return v.WithKind(kind), v.WithResource(strings.ToLower(kind) + "s")
	}
	switch object.(type) {
	case *corev1.Pod:
		return of(corev1.SchemeGroupVersion, "Pod")
	case *resourceapi.ResourceClaim:
		return of(resourceapi.SchemeGroupVersion, "ResourceClaim")
	case *resourceapi.ResourceClaimTemplate:
		return of(resourceapi.SchemeGroupVersion, "ResourceClaimTemplate")
	case *resourceapi.DeviceClass:
		return resourceapi.SchemeGroupVersion.WithKind("DeviceClass"), resourceapi.SchemeGroupVersion.WithResource("deviceclasses")
	}
	gvk := object.GetObjectKind().GroupVersionKind()
	return of(gvk.GroupVersion(), gvk.Kind)
}

func sortedKeys[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }

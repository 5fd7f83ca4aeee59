package chart

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	group "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	celpolicy "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// policy is one of the chart's, compiled as the oldest API server that the chart takes compiles it.
type policy struct {
	validations          []admissionv1.Validation
	conditions, messages celpolicy.ConditionEvaluator
	// parameter is the object that the policy's binding names, and namespace that of the requests; nil for most policies.
	parameter runtime.Object
	namespace *corev1.Namespace
}

// expression is one of the policy's, with the type that the API server wants of it.
type expression struct {
	name, text string
	kind       *cel.Type
}

func (e expression) GetName() string          { return e.name }
func (e expression) GetExpression() string    { return e.text }
func (e expression) ReturnTypes() []*cel.Type { return []*cel.Type{e.kind} }

func parametersPolicy(t *testing.T) policy { return compiled(t, "admission/parameters.yaml") }

// compiled is a file with variables and validations of a policy.
func compiled(t *testing.T, name string) policy {
	t.Helper()
	return compiledText(t, read(t, name))
}

func compiledText(t *testing.T, text string) policy {
	t.Helper()
	return compiledWith(t, text, celpolicy.OptionalVariableDeclarations{})
}

// compiledWith is the same for expressions with more variables than the request and the objects.
func compiledWith(t *testing.T, text string, with celpolicy.OptionalVariableDeclarations) policy {
	t.Helper()
	var spec admissionv1.ValidatingAdmissionPolicySpec
	if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	compiler, err := celpolicy.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 34)))
	if err != nil {
		t.Fatal(err)
	}
	var variables []celpolicy.NamedExpressionAccessor
	for _, v := range spec.Variables {
		variables = append(variables, expression{v.Name, v.Expression, cel.AnyType})
	}
	var conditions, messages []celpolicy.ExpressionAccessor
	for _, v := range spec.Validations {
		conditions = append(conditions, expression{"", v.Expression, cel.BoolType})
		var message celpolicy.ExpressionAccessor
		if v.MessageExpression != "" {
			message = expression{"", v.MessageExpression, cel.StringType}
		}
		messages = append(messages, message)
	}
	for _, v := range variables {
		if result := compiler.CompileAndStoreVariable(v, with, environment.NewExpressions); result.Error != nil {
			t.Errorf("variable %s: %v", v.GetName(), result.Error)
		}
	}
	p := policy{
		validations: spec.Validations,
		conditions:  compiler.CompileCondition(conditions, with, environment.NewExpressions), messages: compiler.CompileCondition(messages, with, environment.NewExpressions),
	}
	for _, err := range append(p.conditions.CompilationErrors(), p.messages.CompilationErrors()...) {
		t.Error(err)
	}
	return p
}

// refusals are the policy's messages about a new object.
func (p policy) refusals(t *testing.T, object runtime.Object) (messages []string) {
	t.Helper()
	return p.refusalsBy(t, object, &user.DefaultInfo{})
}

// refusalsBy are the policy's messages about a new object of a user.
func (p policy) refusalsBy(t *testing.T, object runtime.Object, by user.Info) (messages []string) {
	t.Helper()
	return p.refusalsOf(t, object, nil, "", by)
}

// refusalsOf are the policy's messages about a change of an object, or about a new one if old is nil.
func (p policy) refusalsOf(t *testing.T, object, old runtime.Object, subresource string, by user.Info) (messages []string) {
	t.Helper()
	kind, resource := kindOf(object)
	operation := admission.Create
	if old != nil {
		operation = admission.Update
	}
	attributes := admission.NewAttributesRecord(object, old, kind, "team-a", "one", resource, subresource, operation, nil, false, by)
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedObject: admission.NewLazyObject(object), VersionedKind: kind}
	if old != nil {
		versioned.VersionedOldObject = admission.NewLazyObject(old)
	}
	request := celpolicy.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(kind))
	evaluate := func(evaluator celpolicy.ConditionEvaluator, budget int64) ([]celpolicy.EvaluationResult, int64) {
		results, rest, err := evaluator.ForInput(t.Context(), versioned, request, celpolicy.OptionalVariableBindings{VersionedParams: p.parameter}, celpolicy.CreateNamespaceObject(p.namespace), budget)
		if err != nil {
			t.Errorf("%T: %v", object, err)
		}
		return results, rest
	}
	results, rest := evaluate(p.conditions, celconfig.RuntimeCELCostBudget)
	texts, _ := evaluate(p.messages, rest)
	for i, result := range results {
		switch {
		case result.Error != nil:
			t.Errorf("%s: %v", p.validations[i].Expression, result.Error)
		case result.EvalResult != types.True && p.validations[i].MessageExpression == "":
			messages = append(messages, p.validations[i].Message)
		case result.EvalResult != types.True:
			messages = append(messages, fmt.Sprint(texts[i].EvalResult.Value(), texts[i].Error))
		}
	}
	return messages
}

func kindOf(object runtime.Object) (group.GroupVersionKind, group.GroupVersionResource) {
	of := func(kind, resource string) (group.GroupVersionKind, group.GroupVersionResource) {
		return resourcev1.SchemeGroupVersion.WithKind(kind), resourcev1.SchemeGroupVersion.WithResource(resource)
	}
	switch object.(type) {
	case *eventsv1.Event:
		return eventsv1.SchemeGroupVersion.WithKind("Event"), eventsv1.SchemeGroupVersion.WithResource("events")
	case *corev1.Pod:
		return corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	case *resourcev1.ResourceClaim:
		return of("ResourceClaim", "resourceclaims")
	case *resourcev1.ResourceClaimTemplate:
		return of("ResourceClaimTemplate", "resourceclaimtemplates")
	case *resourcev1.ResourceSlice:
		return of("ResourceSlice", "resourceslices")
	}
	return of("DeviceClass", "deviceclasses")
}

// withParameters are a claim, a claim template and a DeviceClass with parameters of a driver.
func withParameters(driver string, all ...string) []runtime.Object {
	claim := resourcev1.ResourceClaimSpec{}
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	for _, one := range all {
		config := resourcev1.DeviceConfiguration{Opaque: &resourcev1.OpaqueDeviceConfiguration{
			Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(one)},
		}}
		claim.Devices.Config = append(claim.Devices.Config, resourcev1.DeviceClaimConfiguration{DeviceConfiguration: config})
		class.Spec.Config = append(class.Spec.Config, resourcev1.DeviceClassConfiguration{DeviceConfiguration: config})
	}
	return []runtime.Object{
		&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: claim},
		&resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: claim}},
		class,
	}
}

// document is a text of parameters with more fields, which may be empty.
func document(kind, fields string) string {
	text := fmt.Sprintf(`{"apiVersion":%q,"kind":%q`, v1alpha1.APIVersion, kind)
	if fields != "" {
		text += "," + fields
	}
	return text + "}"
}

// agree checks that the policy and the plugin's decoder have one opinion about parameters, in all objects.
func agree(t *testing.T, p policy, text string) (refused bool) {
	t.Helper()
	_, err := v1alpha1.DecodeParameters([]byte(text))
	for _, object := range withParameters(v1alpha1.DriverName, text) {
		if messages := p.refusals(t, object); (len(messages) > 0) != (err != nil) {
			t.Errorf("%T with %s: the decoder says %v, the policy %q", object, text, err, messages)
		}
	}
	return err != nil
}

// Each field with values of each type, and at the ends of each range: the admission policy refuses what the plugin would.
func TestPolicyForParametersIsTheDecoder(t *testing.T) {
	p := parametersPolicy(t)
	accepted, refused := 0, 0
	for _, one := range append(fieldsWithValues(), parameterTexts()...) {
		if agree(t, p, one) {
			refused++
		} else {
			accepted++
		}
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if accepted < 100 || refused < 300 {
		t.Errorf("%d are accepted and %d refused: the table has lost its sense", accepted, refused)
	}
}

// fieldsWithValues are parameters with one field each, known or misspelled.
func fieldsWithValues() (texts []string) {
	for _, of := range []struct {
		kind, format string
		fields       reflect.Type
	}{
		{v1alpha1.KindVFIOConfig, "%s", reflect.TypeFor[v1alpha1.VFIOConfig]()},
		{v1alpha1.KindVFConfig, "%s", reflect.TypeFor[v1alpha1.VFConfig]()},
		{v1alpha1.KindVFConfig, `"network":{%s}`, reflect.TypeFor[v1alpha1.GuestNetwork]()},
		{v1alpha1.KindVFConfig, `"network":{"routes":[{"to":"192.0.2.0/24",%s}]}`, reflect.TypeFor[v1alpha1.GuestRoute]()},
		{v1alpha1.KindVFConfig, `"network":{"routes":[{%s}]}`, reflect.TypeFor[v1alpha1.GuestRoute]()},
	} {
		for _, name := range fieldNames(of.fields) {
			if name == "to" && strings.Contains(of.format, `"to"`) {
				continue // twice, which CEL can't see
			}
			for _, value := range values() {
				texts = append(texts, document(of.kind, fmt.Sprintf(of.format, fmt.Sprintf("%q:%s", name, value))))
			}
			for _, misspelled := range []string{strings.ToUpper(name[:1]) + name[1:], name + "s"} {
				texts = append(texts, document(of.kind, fmt.Sprintf(of.format, fmt.Sprintf("%q:null", misspelled))))
			}
		}
	}
	return texts
}

func fieldNames(of reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(of) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !f.Anonymous && name != "" && name != "apiVersion" && name != "kind" {
			names = append(names, name)
		}
	}
	return names
}

// values are JSON values of all types, and those that one field or another takes, or just not.
func values() []string {
	all := []string{
		"null", "true", "false", "0", "-1", "1.5", "1.0", "1e3", "99999999999999999999", "[]", "{}", "[null]", "[1]", `[""]`, `{"a":1}`,
	}
	for _, n := range []int{1, 7, 8, 67, 68, 252, 253, 255, 256, 4094, 4095, 65535, 65536, 1<<31 - 1, 1 << 31} {
		all = append(all, fmt.Sprint(n))
	}
	for _, text := range []string{
		"", "?", "true", "5", "Auto", "auto", "Group", "IOMMUFD", "Required", "Skip", "Withhold", "Give", "802.1Q", "802.1ad", "802.1q",
		"Enable", "Disable", "VFIO", "PhysicalEndpoint", "02:00:5E:10:00:01", "01:00:5e:00:00:01", "00:00:00:00:00:00", "2:0:5e:10:0:1",
		"02:00:5e:10:00:01\n", "02:00:5e:10:00:00:00:01", "00:00:00:00:00:00:00:00", "ff:FF:ff:ff:ff:ff:ff:ff", "net1", "eth0.100",
		"sixteen-letters-", "fifteen-letters", "bönd0", "ööööööööö", "a b", "a/b", "a:b", "net%d", "a\u00a0b", "\ufffd", "😀", ".", "..", "...",
		"all", "default", "tenants", "Tenants", "-a", "a-", strings.Repeat("a", 63), strings.Repeat("a", 64),
		"192.0.2.0/24", "192.0.2.1/24", "192.0.2.1", "0.0.0.0/0", "::/0", "2001:db8::/32", "2001:db8::1", "fe80::1%eth0", "fe80::1%eth0/64",
		"192.0.2.0/33", "192.0.2.0/024", "192.0.02.1", "192.0.2.1%a", "fe80::1%",
	} {
		quoted, _ := json.Marshal(text)
		all = append(all, string(quoted))
	}
	return all
}

// parameterTexts are parameters that are more than one field.
func parameterTexts() []string {
	texts := []string{
		"null", "1", `"x"`, "[]", "{}", `{"kind":"VFConfig"}`, `{"apiVersion":"resource.kata-vfio.dev/v1alpha1"}`,
		`{"apiVersion":"resource.kata-vfio.dev/v1beta1","kind":"VFConfig"}`, `{"apiVersion":null,"kind":null}`,
		`{"apiVersion":1,"kind":["VFConfig"]}`, document("NodeConfig", ""), document("vfconfig", ""), document("VFConfig", ""),
		document("VFIOConfig", ""), document("VFIOConfig", `"backnd":"Auto","resett":"Skip"`),
		document("VFIOConfig", `"backend":"IOMMUFD","controlNode":true,"reset":"Skip","companions":"Give","allowUnisolated":false`),
		document("VFIOConfig", `"vlan":1`), document("VFConfig", `"reset":"Skip"`),
		document("VFConfig", `"mac":"02:00:5E:10:00:01","vlan":0,"vlanQoS":7,"vlanProtocol":"802.1ad","spoofCheck":true,"trust":false,
			"rssQuery":true,"nodeGUID":"02:00:5E:10:00:00:00:01","portGUID":"02:00:5e:10:00:00:00:02","minTxRate":0,"maxTxRate":2147483647,"linkState":"Auto"`),
	}
	for _, network := range []string{
		`"interface":"net1","mtu":9000,"addresses":["192.0.2.10/24","2001:db8::10/64"],"routes":[{"to":"default","via":"192.0.2.1","metric":100},{"to":"198.51.100.0/24"}],"table":300`,
		`"addresses":["192.0.2.10/24","192.0.2.10/24"]`, `"addresses":["192.0.2.10/24",null]`, `"addresses":["192.0.2.10"]`,
		`"addresses":["192.0.2.10/24","fe80::1%eth0/64"]`,
		`"addressPool":"a","addresses":["192.0.2.10/24"]`, `"addressPool":"a","addresses":[]`, `"addressPool":"a","addresses":null`,
		`"addressPool":"","addresses":["192.0.2.10/24"]`, `"addressPool":"a","addresses":7`, `"addresses":{"192.0.2.10/24":1}`,
		`"routes":[{"to":"default","via":"192.0.2.1"},{}]`, `"routes":[{"to":"default","via":"fe80::1"}]`, `"routes":[null]`,
		`"routes":[{"to":"192.0.2.0/24","via":"fe80::1"}]`, `"routes":[{"to":"2001:db8::/32","via":"fe80::1%eth0"}]`,
		`"routes":[{"to":null,"via":"192.0.2.1"}]`, `"routes":[{"to":7,"via":"192.0.2.1"}]`, `"routes":{"to":"default"}`,
		`"routes":[["to","default"]]`, `"routes":[{"to":"192.0.2.0/24","dev":"eth0"}]`, `"gateway":"192.0.2.1"`,
	} {
		texts = append(texts, document("VFConfig", `"network":{`+network+`}`))
	}
	for _, n := range []int{16, 17} {
		var addresses []string
		for i := range n {
			addresses = append(addresses, fmt.Sprintf(`"192.0.2.%d/24"`, i))
		}
		texts = append(texts, document("VFConfig", `"network":{"addresses":[`+strings.Join(addresses, ",")+`]}`))
	}
	return texts
}

// An author learns which field it is.
func TestPolicyForParametersNamesTheField(t *testing.T) {
	p := parametersPolicy(t)
	for text, want := range map[string]string{
		document("VFIOConfig", `"backnd":"Auto"`):                      "VFIOConfig: no such field: backnd; the fields are backend,",
		document("VFConfig", `"VLAN":100`):                             "VFConfig: no such field: VLAN; the fields are mac, vlan,",
		document("VFConfig", `"vlan":"100"`):                           "VFConfig: vlan is not a whole number from 0 to 4094",
		document("VFConfig", `"network":{"gateway":"192.0.2.1"}`):      "network is not an object with the fields interface,",
		document("VFConfig", `"network":{"routes":[{"dev":"eth0"}]}`):  "network.routes is not a list of objects with the fields to,",
		document("VFIOConfig", `"controlNode":"yes"`):                  "controlNode or allowUnisolated is not true or false",
		`{"apiVersion":"resource.kata-vfio.dev/v1","kind":"VFConfig"}`: "need apiVersion resource.kata-vfio.dev/v1alpha1",
	} {
		for _, object := range withParameters(v1alpha1.DriverName, text) {
			if got := strings.Join(p.refusals(t, object), "; "); !strings.Contains(got, want) {
				t.Errorf("%T with %s: %q, want %q", object, text, got, want)
			}
		}
	}
}

func TestPolicyForParametersJudgesOurs(t *testing.T) {
	p := parametersPolicy(t)
	for _, object := range append(withParameters("other.example.com", `{"trust":1}`), withParameters(v1alpha1.DriverName)...) {
		if messages := p.refusals(t, object); len(messages) > 0 {
			t.Errorf("%T: %q", object, messages)
		}
	}
}

// The API server bounds the cost of each expression, and of all. An object may have 32 entries of 10 KiB each; it stays below
// with the longest routes and with the shortest.
func TestPolicyForParametersIsCheap(t *testing.T) {
	p := parametersPolicy(t)
	const most = 10 * 1024
	for _, route := range []string{
		`{"to":"2001:db8:1111:2222:3333:4444::/96","via":"2001:db8:1111:2222:3333:4444:5555:6666"}`,
		`{"to":"198.51.100.0/24","via":"192.0.2.1"}`,
		`{"to":"::/0"}`,
	} {
		head := document("VFConfig", `"network":{"addresses":["192.0.2.10/24"],"routes":[`+route)
		full := strings.TrimSuffix(head, "}") + strings.Repeat(","+route, (most-len(head)-3)/(len(route)+1)) + "]}}"
		if len(full) > most || len(full) < most-len(route)-4 {
			t.Fatalf("%d bytes are not all that parameters may have", len(full))
		}
		for _, object := range withParameters(v1alpha1.DriverName, slices.Repeat([]string{full}, resourcev1.DeviceConfigMaxSize)...) {
			if messages := p.refusals(t, object); len(messages) > 0 {
				t.Errorf("%T with routes as %s: %q", object, route, messages)
			}
		}
	}
}

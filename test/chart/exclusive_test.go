package chart

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	celpolicy "k8s.io/apiserver/pkg/admission/plugin/cel"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

const (
	ownID, otherID = "0123456789abcdef", "fedcba9876543210"
	ourClass       = "gpu.kata-vfio.dev"
)

// exclusivePolicy is a policy of exclusive domains with the values of a release.
func exclusivePolicy(t *testing.T, name, label string) policy {
	t.Helper()
	text := strings.NewReplacer("@label@", label, "@taint@", v1alpha1.TaintTenant).Replace(read(t, "admission/"+name+".yaml"))
	return compiledWith(t, text, celpolicy.OptionalVariableDeclarations{HasParams: true})
}

// tolerating are a claim and a template whose request of a kind has tolerations.
func tolerating(class string, tolerations ...resourcev1.DeviceToleration) []runtime.Object {
	var all []runtime.Object
	for _, r := range []resourcev1.DeviceRequest{
		{Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, Tolerations: tolerations}},
		{Name: "one", FirstAvailable: []resourcev1.DeviceSubRequest{{Name: "a", DeviceClassName: "gpu.example.com"}, {Name: "b", DeviceClassName: class, Tolerations: tolerations}}},
	} {
		spec := resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{r}}}
		all = append(all, &resourcev1.ResourceClaim{Spec: spec}, &resourcev1.ResourceClaimTemplate{Spec: resourcev1.ResourceClaimTemplateSpec{Spec: spec}})
	}
	return all
}

func ofTenant(id string) resourcev1.DeviceToleration {
	return resourcev1.DeviceToleration{Key: v1alpha1.TaintTenant, Operator: resourcev1.DeviceTolerationOpEqual, Value: id, Effect: resourcev1.DeviceTaintEffectNoSchedule}
}

// TestPolicyForTolerationsOfDomains: a claim of namespace team-a tolerates its own tenant's domains only, and these only as long as the
// namespace is the one that has the entry.
func TestPolicyForTolerationsOfDomains(t *testing.T) {
	const refused, label = "(DomainOfOtherTenant)", "example.com/team"
	exists := resourcev1.DeviceToleration{Key: v1alpha1.TaintTenant, Operator: resourcev1.DeviceTolerationOpExists}
	all := resourcev1.DeviceToleration{Operator: resourcev1.DeviceTolerationOpExists}
	known := map[string]string{"namespace.team-a": ownID, "identity.team-a": "uid-1", "namespace.team-b": otherID, "identity.team-b": "uid-2"}
	joined := map[string]string{"namespace.team-a": ownID, "identity.team-a": "uid-1 red", "label.red": ownID, "tenantLabel": label}
	other := map[string]string{"namespace.team-a": ownID, "identity.team-a": "uid-1 red", "label.red": ownID, "tenantLabel": "example.com/color"}
	for name, c := range map[string]struct {
		data        map[string]string
		label, team string
		class       string
		toleration  resourcev1.DeviceToleration
		want        string
	}{
		"the own ID":                        {known, "", "", ourClass, ofTenant(ownID), ""},
		"another taint":                     {known, "", "", ourClass, resourcev1.DeviceToleration{Key: "kata-vfio.dev/drain", Operator: "Exists"}, ""},
		"another tenant's ID":               {known, "", "", ourClass, ofTenant(otherID), refused},
		"another's, of another driver":      {known, "", "", "gpu.example.com", ofTenant(otherID), refused},
		"no ID":                             {known, "", "", ourClass, ofTenant(""), refused},
		"all IDs":                           {known, "", "", ourClass, exists, refused},
		"all taints":                        {known, "", "", ourClass, all, refused},
		"all taints of another driver":      {known, "", "", "gpu.example.com", all, ""},
		"not registered":                    {nil, "", "", ourClass, ofTenant(ownID), refused},
		"not registered, no ID":             {nil, "", "", ourClass, ofTenant(""), refused},
		"of an earlier namespace":           {map[string]string{"namespace.team-a": ownID, "identity.team-a": "uid-0"}, "", "", ourClass, ofTenant(ownID), refused},
		"without identity":                  {map[string]string{"namespace.team-a": ownID}, "", "", ourClass, ofTenant(ownID), refused},
		"of its team":                       {joined, label, "red", ourClass, ofTenant(ownID), ""},
		"of its former team":                {joined, label, "blue", ourClass, ofTenant(ownID), refused},
		"of a team that it left":            {joined, label, "", ourClass, ofTenant(ownID), refused},
		"before it joined a team":           {known, label, "red", ourClass, ofTenant(ownID), refused},
		"alone beside teams":                {known, label, "", ourClass, ofTenant(ownID), ""},
		"of the same value, another label":  {other, label, "red", ourClass, ofTenant(ownID), refused},
		"of a team, without a label in use": {joined, "", "red", ourClass, ofTenant(ownID), refused},
	} {
		p := exclusivePolicy(t, "exclusive-claims", c.label)
		p.parameter = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantsConfigMap}, Data: c.data}
		p.namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "uid-1"}}
		if c.team != "" {
			p.namespace.Labels = map[string]string{label: c.team}
		}
		for _, o := range tolerating(c.class, c.toleration) {
			wantRefusal(t, fmt.Sprintf("%s, %T", name, o), p.refusals(t, o), c.want)
		}
		for _, o := range append(tolerating(c.class), &resourcev1.ResourceClaim{}) {
			wantRefusal(t, fmt.Sprintf("%s, %T without tolerations", name, o), p.refusals(t, o), "")
		}
	}
}

// TestPolicyForUnknownTenants: a claim for a device of ours needs the toleration that the mutating policy adds for namespaces that are
// registered. The policy sees no ConfigMap, and so nobody tolerates all domains while it is missing.
func TestPolicyForUnknownTenants(t *testing.T) {
	const refused, domains = "has not registered namespace team-a as a tenant yet", "(DomainOfOtherTenant)"
	ofAll := resourcev1.DeviceToleration{Key: v1alpha1.TaintTenant, Operator: resourcev1.DeviceTolerationOpExists}
	drain := resourcev1.DeviceToleration{Key: "kata-vfio.dev/drain", Operator: resourcev1.DeviceTolerationOpExists}
	for name, c := range map[string]struct {
		class       string
		tolerations []resourcev1.DeviceToleration
		want        string
	}{
		"with it":                 {ourClass, []resourcev1.DeviceToleration{drain, ofTenant(ownID)}, ""},
		"without it":              {ourClass, nil, refused},
		"with another":            {ourClass, []resourcev1.DeviceToleration{drain}, refused},
		"with that of all":        {ourClass, []resourcev1.DeviceToleration{ofAll}, domains},
		"with its own and all":    {ourClass, []resourcev1.DeviceToleration{ofTenant(ownID), ofAll}, domains},
		"with that of none":       {ourClass, []resourcev1.DeviceToleration{ofTenant("")}, domains},
		"with no ID":              {ourClass, []resourcev1.DeviceToleration{ofTenant(ownID + "0")}, domains},
		"with a line after it":    {ourClass, []resourcev1.DeviceToleration{ofTenant(ownID + "\n")}, domains},
		"of all, another driver":  {"gpu.example.com", []resourcev1.DeviceToleration{ofAll}, domains},
		"of an extended class":    {"sanitize.kata-vfio.dev", nil, refused},
		"of another driver":       {"gpu.example.com", nil, ""},
		"of a driver named alike": {"gpu.kata-vfio.dev.example.com", nil, ""},
	} {
		p := exclusivePolicy(t, "exclusive-tenants", "")
		for _, o := range tolerating(c.class, c.tolerations...) {
			if _, ok := o.(*resourcev1.ResourceClaim); ok { // templates are not changed, and get no toleration
				wantRefusal(t, name, p.refusals(t, o), c.want)
			}
		}
	}
	wantRefusal(t, "no requests", exclusivePolicy(t, "exclusive-tenants", "").refusals(t, &resourcev1.ResourceClaim{}), "")
}

// TestSchemaHasTheExclusiveDomains: the chart takes the domains that the node config takes.
func TestSchemaHasTheExclusiveDomains(t *testing.T) {
	root := &schema{}
	if err := json.Unmarshal([]byte(read(t, "values.schema.json")), root); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, d := range v1alpha1.ExclusiveDomains() {
		want = append(want, string(d))
	}
	if diff := cmp.Diff(want, root.Defs["DeviceRule"].Properties["exclusive"].Items.Enum); diff != "" {
		t.Errorf("the domains differ (-API +schema):\n%s", diff)
	}
}

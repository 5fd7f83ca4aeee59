package v1alpha1_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// head opens a document of the kind.
func head(kind string) string {
	return `{"apiVersion":"resource.kata-vfio.dev/v1alpha1","kind":"` + kind + `"`
}

func TestDecodeParameters(t *testing.T) {
	meta := func(kind string) v1alpha1.TypeMeta {
		return v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: kind}
	}
	tests := map[string]struct {
		in   string
		want v1alpha1.Parameters
	}{
		"nothing said": {
			head("VFIOConfig") + `}`,
			v1alpha1.Parameters{VFIO: &v1alpha1.VFIOConfig{TypeMeta: meta("VFIOConfig")}},
		},
		"null is not said": {
			head("VFIOConfig") + `,"controlNode":null,"reset":null}`,
			v1alpha1.Parameters{VFIO: &v1alpha1.VFIOConfig{TypeMeta: meta("VFIOConfig")}},
		},
		"every VFIO parameter": {
			" " + head("VFIOConfig") + `,"backend":"IOMMUFD","controlNode":true,"reset":"Skip","companions":"Give","allowUnisolated":false}` + "\n",
			v1alpha1.Parameters{VFIO: &v1alpha1.VFIOConfig{
				TypeMeta: meta("VFIOConfig"), Backend: v1alpha1.BackendIOMMUFD, ControlNode: new(true),
				Reset: v1alpha1.ResetSkip, Companions: v1alpha1.CompanionsGive, AllowUnisolated: new(false),
			}},
		},
		"every VF parameter": {
			head("VFConfig") + `,"mac":"02:00:5E:10:00:01","vlan":0,"vlanQoS":7,"vlanProtocol":"802.1ad","spoofCheck":true,
				"trust":false,"rssQuery":true,"nodeGUID":"02:00:5E:10:00:00:00:01","portGUID":"02:00:5e:10:00:00:00:02","minTxRate":0,"maxTxRate":2147483647,"linkState":"Auto"}`,
			v1alpha1.Parameters{VF: &v1alpha1.VFConfig{
				TypeMeta: meta("VFConfig"), MAC: "02:00:5E:10:00:01", VLAN: new(0), VLANQoS: new(7), VLANProtocol: v1alpha1.VLAN8021ad,
				SpoofCheck: new(true), Trust: new(false), RSSQuery: new(true), NodeGUID: "02:00:5E:10:00:00:00:01", PortGUID: "02:00:5e:10:00:00:00:02",
				MinTxRate: new(0), MaxTxRate: new(2147483647), LinkState: v1alpha1.LinkAuto,
			}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := v1alpha1.DecodeParameters([]byte(test.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeParametersRefuses(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"empty":                {"", "parameters: the document is empty"},
		"blank":                {" \n", "parameters: the document is empty"},
		"cut off":              {`{"kind":`, "parameters: not one JSON object: unexpected end of JSON input"},
		"list":                 {`[1]`, "parameters: [1] is not an object"},
		"null":                 {`null`, "parameters: null is not an object"},
		"trailing data":        {head("VFIOConfig") + `}{}`, "parameters: not one JSON object: invalid character '{' after top-level value"},
		"no meta":              {`{}`, "parameters: apiVersion: missing; want resource.kata-vfio.dev/v1alpha1; kind: missing; want VFIOConfig or VFConfig"},
		"meta of another type": {`{"apiVersion":1,"kind":""}`, `parameters: apiVersion: 1 is not resource.kata-vfio.dev/v1alpha1; kind: "" is not VFIOConfig or VFConfig`},
		"another version": {
			`{"apiVersion":"resource.kata-vfio.dev/v1beta1","kind":"VFIOConfig","new":1}`,
			`parameters: apiVersion: "resource.kata-vfio.dev/v1beta1" is not a version that this plugin reads; it reads resource.kata-vfio.dev/v1alpha1`,
		},
		"another kind": {head("GpuConfig") + `}`, `parameters: kind: "GpuConfig" is not VFIOConfig or VFConfig`},
		"node config":  {head("NodeConfig") + `}`, `parameters: kind: "NodeConfig" is not VFIOConfig or VFConfig`},
		"unknown field": {
			head("VFIOConfig") + `,"backnd":"Group"}`,
			"VFIOConfig: backnd: no such field; the fields here are apiVersion, kind, backend, controlNode, reset, companions, sanitized, allowUnisolated",
		},
		"case counts": {
			head("VFIOConfig") + `,"Reset":"Skip"}`,
			"VFIOConfig: Reset: no such field; the fields here are apiVersion, kind, backend, controlNode, reset, companions, sanitized, allowUnisolated",
		},
		"odd field name":  {head("VFConfig") + `,"a.b\n":1}`, `VFConfig: ["a.b\n"]: no such field;`},
		"repeated field":  {head("VFConfig") + `,"vlan":1,"vlan":2}`, "VFConfig: vlan: given twice; keep one"},
		"repeated kind":   {head("VFConfig") + `,"kind":"VFIOConfig"}`, "VFConfig: kind: given twice; keep one"},
		"number for enum": {head("VFIOConfig") + `,"backend":1}`, "VFIOConfig: backend: 1 is not a string; put it in quotes"},
		"text for bool":   {head("VFIOConfig") + `,"controlNode":"yes"}`, `VFIOConfig: controlNode: "yes" is not true or false`},
		"text for number": {head("VFConfig") + `,"vlan":"5"}`, `VFConfig: vlan: "5" is not a whole number`},
		"half a number":   {head("VFConfig") + `,"vlan":5.5}`, `VFConfig: vlan: 5.5 is not a whole number`},
		"huge number":     {head("VFConfig") + `,"vlan":99999999999999999999}`, `VFConfig: vlan: 99999999999999999999 is not a whole number`},
		"object for text": {head("VFConfig") + `,"mac":{"a":1}}`, `VFConfig: mac: {"a":1} is not a string; put it in quotes`},
		"enum":            {head("VFIOConfig") + `,"backend":"group"}`, `VFIOConfig: backend: "group" is not one of Auto, Group, IOMMUFD`},
		"multicast MAC":   {head("VFConfig") + `,"mac":"01:00:5e:00:00:01"}`, `VFConfig: mac: "01:00:5e:00:00:01" is not a unicast MAC address`},
		"zero MAC":        {head("VFConfig") + `,"mac":"00:00:00:00:00:00"}`, `is not a unicast MAC address`},
		"short MAC":       {head("VFConfig") + `,"mac":"2:0:5e:10:0:1"}`, `is not a unicast MAC address`},
		"short GUID":      {head("VFConfig") + `,"nodeGUID":"02:00:5e:10:00:01"}`, `VFConfig: nodeGUID: "02:00:5e:10:00:01" is not a GUID`},
		"GUID of no port": {head("VFConfig") + `,"portGUID":"ff:ff:ff:ff:ff:ff:ff:ff"}`, `is not a GUID`},
		"zero GUID":       {head("VFConfig") + `,"portGUID":"00:00:00:00:00:00:00:00"}`, `is not a GUID`},
		"long text":       {head("VFConfig") + `,"mac":"` + strings.Repeat("x", 300) + `"}`, `"` + strings.Repeat("x", 64) + `"...`},
		"all at once": {
			head("VFConfig") + `,"vlan":4095,"vlanQoS":8,"vlanProtocol":"q","minTxRate":-1,"maxTxRate":2147483648,"linkState":"up"}`,
			`VFConfig: vlan: 4095 is not a number from 0 to 4094; vlanQoS: 8 is not a number from 0 to 7; ` +
				`vlanProtocol: "q" is not one of 802.1Q, 802.1ad; minTxRate: -1 is not a number from 0 to 2147483647; ` +
				`maxTxRate: 2147483648 is not a number from 0 to 2147483647; linkState: "up" is not one of Auto, Enable, Disable`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := v1alpha1.DecodeParameters([]byte(test.in))
			if _, ok := errors.AsType[*v1alpha1.InvalidError](err); !ok {
				t.Fatalf("got %v, want an InvalidError", err)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got  %s\nwant %s", err, test.want)
			}
		})
	}
}

func TestManyProblemsFitAnEvent(t *testing.T) {
	var b strings.Builder
	b.WriteString(head("VFIOConfig"))
	for range 200 {
		b.WriteString(`,"backend":"Auto"`)
	}
	_, err := v1alpha1.DecodeVFIO([]byte(b.String() + "}"))
	var invalid *v1alpha1.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Problems) != 199 {
		t.Fatalf("got %v, want 199 problems", err)
	}
	if !strings.HasSuffix(err.Error(), "; and 189 more") || len(err.Error()) > 1024 {
		t.Errorf("got %s", err)
	}
}

func TestOverlay(t *testing.T) {
	class := v1alpha1.VFIOConfig{Reset: v1alpha1.ResetSkip, Backend: v1alpha1.BackendGroup, ControlNode: new(true)}
	claim := v1alpha1.VFIOConfig{Reset: v1alpha1.ResetRequired, ControlNode: new(false)}
	if diff := cmp.Diff([]string{"controlNode", "reset"}, claim.Fields()); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	class.Overlay(&claim)
	class.Default()
	want := v1alpha1.VFIOConfig{
		TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindVFIOConfig},
		Backend:  v1alpha1.BackendGroup, ControlNode: new(false), Reset: v1alpha1.ResetRequired,
		Companions: v1alpha1.CompanionsWithhold, Sanitized: v1alpha1.SanitizedAny, AllowUnisolated: new(false),
	}
	if diff := cmp.Diff(want, class); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := class.Validate(); err != nil {
		t.Error(err)
	}
}

func TestOverlayVF(t *testing.T) {
	class := v1alpha1.VFConfig{VLAN: new(7), Trust: new(true)}
	claim := v1alpha1.VFConfig{Trust: new(false), MAC: "02:00:00:00:00:01"}
	class.Overlay(&claim)
	class.Default()
	want := v1alpha1.VFConfig{
		TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindVFConfig},
		MAC:      "02:00:00:00:00:01", VLAN: new(7), VLANProtocol: v1alpha1.VLAN8021Q, Trust: new(false),
	}
	if diff := cmp.Diff(want, class); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"mac", "vlan", "vlanProtocol", "trust"}, class.Fields()); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

func TestValidateWhatParametersSayTogether(t *testing.T) {
	tests := map[string]struct {
		in   interface{ Validate() error }
		want string
	}{
		"companions by the group": {
			&v1alpha1.VFIOConfig{Companions: v1alpha1.CompanionsGive, Backend: v1alpha1.BackendGroup},
			"VFIOConfig: companions: Give needs the IOMMUFD backend, and backend is Group",
		},
		"companions by whatever there is": {&v1alpha1.VFIOConfig{Companions: v1alpha1.CompanionsGive, Backend: v1alpha1.BackendAuto}, ""},
		"qos and protocol without vlan": {
			&v1alpha1.VFConfig{VLANQoS: new(1), VLANProtocol: v1alpha1.VLAN8021Q},
			"VFConfig: vlanQoS: needs vlan, which is not set; vlanProtocol: needs vlan, which is not set",
		},
		"rates crossed":   {&v1alpha1.VFConfig{MinTxRate: new(2), MaxTxRate: new(1)}, "VFConfig: minTxRate: 2 is more than maxTxRate, 1"},
		"rates unlimited": {&v1alpha1.VFConfig{MinTxRate: new(2), MaxTxRate: new(0)}, ""},
		"an endpoint without an address": {
			&v1alpha1.VFConfig{Attachment: v1alpha1.AttachPhysicalEndpoint, Network: &v1alpha1.GuestNetwork{Interface: "net1"}},
			"VFConfig: attachment: PhysicalEndpoint needs network.addresses, or network.addressPool: Kata passes over",
		},
		"an endpoint with a routing table": {
			&v1alpha1.VFConfig{
				Attachment: v1alpha1.AttachPhysicalEndpoint,
				Network:    &v1alpha1.GuestNetwork{Addresses: []string{"192.0.2.10/24"}, Table: new(100)},
			},
			"VFConfig: network.table: a physical endpoint's routes are in the main table",
		},
		"an attachment": {&v1alpha1.VFConfig{Attachment: "Tap"}, `VFConfig: attachment: "Tap" is not one of VFIO, PhysicalEndpoint`},
		"enum":          {&v1alpha1.VFIOConfig{Reset: "Maybe"}, `VFIOConfig: reset: "Maybe" is not one of Required, Skip`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := test.in.Validate(); err != nil {
				got = err.Error()
			}
			if !strings.HasPrefix(got, test.want) || test.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestWeakens(t *testing.T) {
	tests := map[string]struct {
		in   string
		want []string
	}{
		"VFIO harmless":    {head("VFIOConfig") + `,"backend":"Group","controlNode":false,"companions":"Give","reset":"Required","allowUnisolated":false}`, nil},
		"no reset":         {head("VFIOConfig") + `,"reset":"Skip"}`, []string{"reset: Skip"}},
		"a control node":   {head("VFIOConfig") + `,"controlNode":true}`, []string{"controlNode: true"}},
		"unisolated":       {head("VFIOConfig") + `,"allowUnisolated":true}`, []string{"allowUnisolated: true"}},
		"VF harmless":      {head("VFConfig") + `,"mac":"02:00:00:00:00:01","spoofCheck":true,"trust":false,"linkState":"Disable"}`, nil},
		"a minimum rate":   {head("VFConfig") + `,"minTxRate":10}`, []string{"minTxRate: 10"}},
		"no VLAN allowed":  {head("VFConfig") + `,"allowUntagged":true}`, []string{"allowUntagged: true"}},
		"even no VLAN":     {head("VFConfig") + `,"vlan":0}`, []string{"vlan: 0"}},
		"trust and spoof":  {head("VFConfig") + `,"trust":true,"spoofCheck":false}`, []string{"spoofCheck: false", "trust: true"}},
		"a hash key":       {head("VFConfig") + `,"rssQuery":true}`, []string{"rssQuery: true"}},
		"no hash key":      {head("VFConfig") + `,"rssQuery":false}`, nil},
		"GUIDs":            {head("VFConfig") + `,"nodeGUID":"02:00:00:00:00:00:00:01","portGUID":"02:00:00:00:00:00:00:02"}`, []string{"nodeGUID: 02:00:00:00:00:00:00:01", "portGUID: 02:00:00:00:00:00:00:02"}},
		"priority and tag": {head("VFConfig") + `,"vlanQoS":0,"vlanProtocol":"802.1Q"}`, []string{"vlanQoS: 0", "vlanProtocol: 802.1Q"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := v1alpha1.DecodeParameters([]byte(test.in))
			if err != nil {
				t.Fatal(err)
			}
			var (
				weakens *v1alpha1.WeakensIsolationError
				got     []string
			)
			if errors.As(p.Weakens(), &weakens) {
				got = weakens.Settings
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWeakensIsolationErrorSaysWhatToDo(t *testing.T) {
	c := v1alpha1.VFConfig{Trust: new(true)}
	want := "VFConfig: not accepted from a ResourceClaim, since it weakens isolation: trust: true; " +
		"remove it, or have the cluster's admin put it into a DeviceClass"
	if got := c.Weakens().Error(); got != want {
		t.Errorf("got %q", got)
	}
}

func FuzzDecodeParameters(f *testing.F) {
	for _, seed := range []string{
		head("VFIOConfig") + `,"backend":"Auto","controlNode":true,"reset":"Skip"}`,
		head("VFConfig") + `,"mac":"02:00:00:00:00:01","vlan":5,"trust":null}`,
		head("VFConfig") + `,"vlan":1e2,"vlan":[],"\u0000":{}}`,
		`{"apiVersion":{},"kind":[]}`, `null`, `[]`, ``, `{"a":1}{`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := v1alpha1.DecodeParameters(raw)
		if err != nil {
			checkInvalid(t, err)
			return
		}
		again, err := json.Marshal(p.VFIO)
		if p.VF != nil {
			again, err = json.Marshal(p.VF)
		}
		if err != nil {
			t.Fatal(err)
		}
		q, err := v1alpha1.DecodeParameters(again)
		if err != nil {
			t.Fatalf("%s was accepted, its own output %s is not: %v", raw, again, err)
		}
		if diff := cmp.Diff(p, q); diff != "" {
			t.Errorf("%s changes when written and read again:\n%s", raw, diff)
		}
	})
}

// checkInvalid fails unless err is an InvalidError of one line with problems.
func checkInvalid(t *testing.T, err error) {
	t.Helper()
	var invalid *v1alpha1.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Problems) == 0 || strings.ContainsAny(err.Error(), "\n\x00") {
		t.Errorf("got %q, want an InvalidError with problems, in one line", err)
	}
}

func TestGrants(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations map[string]string
		want        bool
	}{
		"no annotation":                {nil, false},
		"another annotation":           {map[string]string{"example.com/namespaces": "*"}, false},
		"an empty one":                 {map[string]string{v1alpha1.AnnotationNamespaces: ""}, false},
		"all":                          {map[string]string{v1alpha1.AnnotationNamespaces: "*"}, true},
		"the namespace":                {map[string]string{v1alpha1.AnnotationNamespaces: "team-a"}, true},
		"the namespace among others":   {map[string]string{v1alpha1.AnnotationNamespaces: "team-b, team-a"}, true},
		"all among others":             {map[string]string{v1alpha1.AnnotationNamespaces: "team-b,*"}, true},
		"others":                       {map[string]string{v1alpha1.AnnotationNamespaces: "team-b,team-c"}, false},
		"a name that begins like it":   {map[string]string{v1alpha1.AnnotationNamespaces: "team-a1,team"}, false},
		"a pattern, which there is no": {map[string]string{v1alpha1.AnnotationNamespaces: "team-*"}, false},
		"other separators":             {map[string]string{v1alpha1.AnnotationNamespaces: "team-b team-a"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := v1alpha1.Grants(tt.annotations, "team-a"); got != tt.want {
				t.Errorf("Grants(%v) = %t", tt.annotations, got)
			}
		})
	}
	if v1alpha1.Grants(map[string]string{v1alpha1.AnnotationNamespaces: "team-a,"}, "") {
		t.Error("a claim without a namespace is granted a class")
	}
}

package claim_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/rule/ruletest"
)

const driver = v1alpha1.DriverName

// claimOf returns an allocated claim with the given results and configs.
func claimOf(results []resourceapi.DeviceRequestAllocationResult, configs ...resourceapi.DeviceAllocationConfiguration) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "ns", UID: "uid-1"},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{Results: results, Config: configs},
		}},
	}
}

func result(request, name string) resourceapi.DeviceRequestAllocationResult {
	return resourceapi.DeviceRequestAllocationResult{Driver: driver, Pool: "node", Request: request, Device: name}
}

func results(rs ...resourceapi.DeviceRequestAllocationResult) []resourceapi.DeviceRequestAllocationResult {
	return rs
}

// config returns a config entry of ours with the parameters' kind and body.
func config(source resourceapi.AllocationConfigSource, kind, body string, requests ...string) resourceapi.DeviceAllocationConfiguration {
	raw := `{"apiVersion":"resource.kata-vfio.dev/v1alpha1","kind":"` + kind + `"` + body + `}`
	return resourceapi.DeviceAllocationConfiguration{
		Source: source, Requests: requests,
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(raw)},
		}},
	}
}

func fromClass(kind, body string, requests ...string) resourceapi.DeviceAllocationConfiguration {
	return config(resourceapi.AllocationConfigSourceClass, kind, body, requests...)
}

func fromClaim(kind, body string, requests ...string) resourceapi.DeviceAllocationConfiguration {
	return config(resourceapi.AllocationConfigSourceClaim, kind, body, requests...)
}

// defaults returns a VFIOConfig of defaults, changed.
func defaults(change func(*v1alpha1.VFIOConfig)) v1alpha1.VFIOConfig {
	var c v1alpha1.VFIOConfig
	if change != nil {
		change(&c)
	}
	c.Default()
	return c
}

func TestDecodeWholeClaim(t *testing.T) {
	text, err := os.ReadFile("testdata/claim.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := claim.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	got, err := claim.Decode(c, driver)
	if err != nil {
		t.Fatal(err)
	}
	want := &claim.Request{
		UID: "9f1c2d3e-4b5a-6978-8796-a5b4c3d2e1f0", Namespace: "team-a", Name: "train-devices-x7k2p",
		Pods: []claim.Pod{{UID: "5d6b6a3f-3c11-4f6c-8f0e-0d6a7a1c2b3e", Name: "train"}},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"worker-1"}}},
		}}},
		Devices: []claim.Device{
			{
				Request: "gpu", Class: "gpu.kata-vfio.dev", Pool: "worker-1/kata-vfio.dev", Name: "gpu-0000-3b-00-0",
				ClassParameters: []json.RawMessage{json.RawMessage(`{"apiVersion":"resource.kata-vfio.dev/v1alpha1","backend":"Group","kind":"VFIOConfig","reset":"Skip"}`)}, Address: pci.Address{Bus: 0x3b},
				VFIO:    defaults(func(c *v1alpha1.VFIOConfig) { c.Backend = v1alpha1.BackendGroup }),
				Origins: map[string]claim.Origin{"vfio.backend": claim.FromClass, "vfio.reset": claim.FromClaim},
			},
			{
				Request: "nic/fast", Class: "vf.kata-vfio.dev",
				ClassParameters: []json.RawMessage{json.RawMessage(`{"apiVersion":"resource.kata-vfio.dev/v1alpha1","kind":"VFConfig","trust":true,"vlan":100}`)},
				Pool:            "worker-1/kata-vfio.dev/pf-0000-5e-00-0", Name: "vf-0000-5e-10-0",
				Address: pci.Address{Bus: 0x5e, Device: 0x10}, VFIO: defaults(nil),
				VF: &v1alpha1.VFConfig{
					TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindVFConfig},
					MAC:      "02:00:5e:10:00:01", VLAN: new(100), VLANProtocol: v1alpha1.VLAN8021Q, Trust: new(true),
				},
				Origins: map[string]claim.Origin{
					"vfio.reset": claim.FromClaim, "vf.mac": claim.FromClaim, "vf.trust": claim.FromClass, "vf.vlan": claim.FromClass,
				},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeSettles(t *testing.T) {
	vfio := v1alpha1.KindVFIOConfig
	gpu := results(result("gpu", "gpu-0000-3b-00-0"))
	tests := map[string]struct {
		configs []resourceapi.DeviceAllocationConfiguration
		want    v1alpha1.VFIOConfig
		origins map[string]claim.Origin
	}{
		"nothing": {nil, defaults(nil), nil},
		"class": {
			[]resourceapi.DeviceAllocationConfiguration{fromClass(vfio, `,"reset":"Skip"`)},
			defaults(func(c *v1alpha1.VFIOConfig) { c.Reset = v1alpha1.ResetSkip }),
			map[string]claim.Origin{"vfio.reset": claim.FromClass},
		},
		"claim tightens class, whatever their order": {
			[]resourceapi.DeviceAllocationConfiguration{
				fromClaim(vfio, `,"reset":"Required","allowUnisolated":false`), fromClass(vfio, `,"reset":"Skip","allowUnisolated":true`),
			},
			defaults(nil),
			map[string]claim.Origin{"vfio.reset": claim.FromClaim, "vfio.allowUnisolated": claim.FromClaim},
		},
		"later wins field by field": {
			[]resourceapi.DeviceAllocationConfiguration{
				fromClaim(vfio, `,"backend":"Group","companions":"Withhold"`), fromClaim(vfio, `,"backend":"IOMMUFD"`),
			},
			defaults(func(c *v1alpha1.VFIOConfig) { c.Backend = v1alpha1.BackendIOMMUFD }),
			map[string]claim.Origin{"vfio.backend": claim.FromClaim, "vfio.companions": claim.FromClaim},
		},
		"another request's": {
			[]resourceapi.DeviceAllocationConfiguration{fromClaim(vfio, `,"backend":"Group"`, "nic")}, defaults(nil), nil,
		},
		"VF parameters of a device that is no VF": {
			[]resourceapi.DeviceAllocationConfiguration{fromClaim(v1alpha1.KindVFConfig, `,"mac":"02:00:00:00:00:01"`)}, defaults(nil), nil,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			req, err := claim.Decode(claimOf(gpu, test.configs...), driver)
			if err != nil {
				t.Fatal(err)
			}
			d := req.Devices[0]
			if diff := cmp.Diff(test.want, d.VFIO); diff != "" || d.VF != nil {
				t.Errorf("VF %v, VFIO (-want +got):\n%s", d.VF, diff)
			}
			if diff := cmp.Diff(test.origins, d.Origins); diff != "" {
				t.Errorf("origins (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeSaysWhichClassARequestNames(t *testing.T) {
	exactly := func(class string) *resourceapi.ExactDeviceRequest {
		return &resourceapi.ExactDeviceRequest{DeviceClassName: class}
	}
	spec := resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
		{Name: "other", Exactly: exactly("other.example.com")},
		{Name: "gpu", Exactly: exactly("gpu.kata-vfio.dev")},
		{Name: "any", FirstAvailable: []resourceapi.DeviceSubRequest{
			{Name: "best", DeviceClassName: "best.example.com"}, {Name: "gpu", DeviceClassName: "good.example.com"},
		}},
	}}
	for request, want := range map[string]string{
		"gpu": "gpu.kata-vfio.dev", "any/best": "best.example.com", "any/gpu": "good.example.com",
		"any": "", "gpu/gpu": "", "any/worst": "", "gone": "", "/gpu": "",
	} {
		c := claimOf(results(result(request, "gpu-0000-3b-00-0")), fromClass("VFIOConfig", `,"reset":"Skip"`, request), fromClaim("VFIOConfig", ""))
		c.Spec.Devices = spec
		req, err := claim.Decode(c, driver)
		if err != nil {
			t.Fatal(err)
		}
		if d := req.Devices[0]; d.Class != want || len(d.ClassParameters) != 1 || !strings.Contains(string(d.ClassParameters[0]), "Skip") {
			t.Errorf("request %s is of class %q with %s, want %q", request, d.Class, d.ClassParameters, want)
		}
	}
}

func TestDecodeNotesAdminAccess(t *testing.T) {
	r := result("look", "gpu-0000-3b-00-0")
	r.AdminAccess = new(true)
	req, err := claim.Decode(claimOf(results(r)), driver)
	if err != nil || !req.Devices[0].AdminAccess {
		t.Errorf("got %+v, %v", req, err)
	}
}

func TestDecodeSentinels(t *testing.T) {
	c := claimOf(results(resourceapi.DeviceRequestAllocationResult{Driver: "other.example.com", Request: "a", Pool: "p", Device: "d"}))
	if _, err := claim.Decode(c, driver); !errors.Is(err, claim.ErrNotOurs) {
		t.Errorf("foreign claim: got %v", err)
	}
	c.Status.Allocation = nil
	if _, err := claim.Decode(c, driver); !errors.Is(err, claim.ErrNotAllocated) {
		t.Errorf("claim without allocation: got %v", err)
	}
}

func TestDecodeRefusesWhatWeakensFromAClaim(t *testing.T) {
	vf := results(result("nic", "vf-0000-5e-10-0"))
	for kind, bodies := range map[string][]string{
		"VFIOConfig": {`,"reset":"Skip"`, `,"allowUnisolated":true`, `,"controlNode":true`},
		"VFConfig":   {`,"trust":true`, `,"spoofCheck":false`, `,"vlan":5`, `,"vlanQoS":1`, `,"vlanProtocol":"802.1ad"`, `,"minTxRate":0`},
	} {
		for _, body := range bodies {
			_, err := claim.Decode(claimOf(vf, fromClaim(kind, body)), driver)
			if _, ok := errors.AsType[*v1alpha1.WeakensIsolationError](err); !ok {
				t.Errorf("%s%s: got %v, want a WeakensIsolationError", kind, body, err)
			}
			ruletest.ErrorAt(t, rule.AtPrepare, err, rule.WeakensIsolation)
			if body == `,"vlanQoS":1` || body == `,"vlanProtocol":"802.1ad"` {
				body += `,"vlan":5`
			}
			if _, err := claim.Decode(claimOf(vf, fromClass(kind, body)), driver); err != nil {
				t.Errorf("%s%s from a class: %v", kind, body, err)
			}
		}
	}
}

// TestDecodeErrorsHaveCodes: the Events and conditions of a claim that can't be decoded say which kind of fault it is.
func TestDecodeErrorsHaveCodes(t *testing.T) {
	gpu := results(result("gpu", "gpu-0000-3b-00-0"))
	grouped := claimOf(gpu)
	grouped.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "g", UID: "2"}}
	for want, in := range map[rule.Code]*resourceapi.ResourceClaim{
		rule.ReservedForPodGroup: grouped,
		rule.InvalidConfig:       claimOf(gpu, fromClass("VFIOConfig", `,"backend":"group"`)),
	} {
		_, err := claim.Decode(in, driver)
		ruletest.ErrorAt(t, rule.AtPrepare, err, want)
	}
}

func TestDecodeRefuses(t *testing.T) {
	gpu := result("gpu", "gpu-0000-3b-00-0")
	with := func(change func(*resourceapi.ResourceClaim)) *resourceapi.ResourceClaim {
		c := claimOf(results(gpu))
		change(c)
		return c
	}
	bare := fromClass("VFIOConfig", "")
	bare.Opaque.Parameters.Raw = nil
	tests := map[string]struct {
		in   *resourceapi.ResourceClaim
		want string
	}{
		"no name":      {with(func(c *resourceapi.ResourceClaim) { c.Name = "" }), "metadata.name or metadata.namespace is missing"},
		"no namespace": {with(func(c *resourceapi.ResourceClaim) { c.Namespace = "" }), "metadata.name or metadata.namespace is missing"},
		"no UID":       {with(func(c *resourceapi.ResourceClaim) { c.UID = "" }), "claim ns/c: metadata.uid is missing"},
		"UID as path":  {with(func(c *resourceapi.ResourceClaim) { c.UID = "../../etc/x" }), `metadata.uid "../../etc/x" is not a UID`},
		"UID as option": {
			with(func(c *resourceapi.ResourceClaim) { c.UID = "-rf" }), `metadata.uid "-rf" is not a UID`,
		},
		"long UID": {with(func(c *resourceapi.ResourceClaim) { c.UID = types.UID(strings.Repeat("a", 65)) }), "is not a UID"},
		"consumer that is not a pod": {
			with(func(c *resourceapi.ResourceClaim) {
				c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{
					{Resource: "pods", Name: "a", UID: "1"},
					{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "g", UID: "2"},
				}
			}),
			`claim ns/c: the pods of PodGroup "g" share it, and a device goes into the VM of one pod: give each pod a claim of its own ` +
				`(resourceClaimTemplateName in the pod's spec.resourceClaims) and recreate the PodGroup without spec.resourceClaims`,
		},
		"consumer of a kind unknown": {
			with(func(c *resourceapi.ResourceClaim) {
				c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{APIGroup: "scheduling.k8s.io", Resource: "workloads", Name: "w"}}
			}),
			`status.reservedFor[0] is workloads "w" in API group "scheduling.k8s.io"; only pods can use a device of kata-vfio`,
		},
		"pods of another group": {
			with(func(c *resourceapi.ResourceClaim) {
				c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{APIGroup: "example.com", Resource: "pods", Name: "a"}}
			}),
			`status.reservedFor[0] is pods "a" in API group "example.com"`,
		},
		"not our name": {
			claimOf(results(result("gpu", "gpu0"))),
			`status.allocation.devices.results[0]: device name "gpu0": want <type>-<domain>-<bus>-<device>-<function>`,
		},
		"bridge": {claimOf(results(result("gpu", "bridge-0000-00-1c-0"))), `device name "bridge-0000-00-1c-0": "bridge" is not a device type`},
		"other spelling": {
			claimOf(results(result("gpu", "gpu-0000-3B-00-0"))), `device name "gpu-0000-3B-00-0": want it as ResourceSlices have it, gpu-0000-3b-00-0`,
		},
		"no pool": {
			with(func(c *resourceapi.ResourceClaim) { c.Status.Allocation.Devices.Results[0].Pool = "" }),
			"device gpu-0000-3b-00-0: request or pool is missing",
		},
		"twice": {
			claimOf(results(gpu, result("more", "gpu-0000-3b-00-0"))),
			`status.allocation.devices.results[1]: gpu-0000-3b-00-0 is allocated twice, to requests "gpu" and "more"`,
		},
		"twice by two names": {
			claimOf(results(gpu, result("more", "vf-0000-3b-00-0"))), `vf-0000-3b-00-0 is allocated twice, to requests "gpu" and "more"`,
		},
		"parameters": {
			claimOf(results(gpu), fromClass("VFIOConfig", ""), fromClass("VFIOConfig", `,"backend":"x"`)),
			`claim ns/c: status.allocation.devices.config[1] (from the DeviceClass): VFIOConfig: backend: "x" is not one of Auto, Group, IOMMUFD`,
		},
		"parameters of a request that got no device": {
			claimOf(results(gpu), fromClaim("VFConfig", `,"vlan":"x"`, "nic")), `config[0] (from the claim): VFConfig: vlan: "x" is not a whole number`,
		},
		"no parameters":  {claimOf(results(gpu), bare), "config[0] (from the DeviceClass): opaque.parameters is missing"},
		"unknown source": {claimOf(results(gpu), config("FromNode", "VFIOConfig", "")), `config[0]: source "FromNode" is neither FromClass nor FromClaim`},
		"VF parameters for a GPU by name": {
			claimOf(results(gpu), fromClass("VFConfig", `,"vlan":5`, "gpu")),
			"device gpu-0000-3b-00-0: status.allocation.devices.config[0]: a VFConfig names request gpu, which was given a device that is no VF",
		},
		"contradiction of class and claim": {
			claimOf(results(gpu), fromClass("VFIOConfig", `,"companions":"Give"`), fromClaim("VFIOConfig", `,"backend":"Group"`)),
			"companions: Withhold, or backend: IOMMUFD (backend is set by the claim, companions is set by the class)",
		},
		"half a VLAN": {
			claimOf(results(result("nic", "vf-0000-5e-10-0")), fromClass("VFConfig", `,"vlanQoS":5`)),
			"device vf-0000-5e-10-0: VFConfig: vlanQoS: needs vlan, which is not set (vlanQoS is set by the class)",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := claim.Decode(test.in, driver)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}

func TestDecodeLeavesTheClaimAlone(t *testing.T) {
	c := claimOf(results(result("gpu", "gpu-0000-3b-00-0")), fromClaim("VFIOConfig", `,"backend":"Group"`), fromClass("VFIOConfig", ""))
	before := c.DeepCopy()
	if _, err := claim.Decode(c, driver); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, c); diff != "" {
		t.Errorf("the claim changed:\n%s", diff)
	}
}

// TestClaimMayOnlyLowerItsClassesRate, whatever it says of it before.
func TestClaimMayOnlyLowerItsClassesRate(t *testing.T) {
	vf := results(result("nic", "vf-0000-5e-10-0"))
	for name, tt := range map[string]struct {
		class  string
		claims []string
		want   int // 0 where it is refused
	}{
		"lower":                        {`,"maxTxRate":1000`, []string{`,"maxTxRate":500`}, 500},
		"the same":                     {`,"maxTxRate":1000`, []string{`,"maxTxRate":1000`}, 1000},
		"lower, then within the class": {`,"maxTxRate":1000`, []string{`,"maxTxRate":500`, `,"maxTxRate":800`}, 800},
		"where the class says nothing": {`,"trust":true`, []string{`,"maxTxRate":500`}, 500},
		"where the class has none":     {`,"maxTxRate":0`, []string{`,"maxTxRate":500`}, 500},
		"higher":                       {`,"maxTxRate":1000`, []string{`,"maxTxRate":1001`}, 0},
		"none":                         {`,"maxTxRate":1000`, []string{`,"maxTxRate":0`}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			// The claim's entries come first in the list, and are laid over the class's all the same.
			var configs []resourceapi.DeviceAllocationConfiguration
			for _, body := range tt.claims {
				configs = append(configs, fromClaim(v1alpha1.KindVFConfig, body))
			}
			req, err := claim.Decode(claimOf(vf, append(configs, fromClass(v1alpha1.KindVFConfig, tt.class))...), driver)
			if tt.want == 0 {
				if _, ok := errors.AsType[*v1alpha1.WeakensIsolationError](err); !ok || !strings.Contains(err.Error(), "the DeviceClass says 1000") {
					t.Errorf("got %v, want that it weakens isolation", err)
				}
				return
			}
			if err != nil || *req.Devices[0].VF.MaxTxRate != tt.want {
				t.Errorf("got %+v, %v; want %d", req, err, tt.want)
			}
			if classSays := strings.Contains(tt.class, "maxTxRate"); req.Devices[0].OwnMaxTxRate == classSays {
				t.Errorf("the claim's own: %t, where the class says one: %t", req.Devices[0].OwnMaxTxRate, classSays)
			}
		})
	}
}

// TestClaimMayNotLoosenItsClass: neither be another than the class says, nor switch on what it switched off.
func TestClaimMayNotLoosenItsClass(t *testing.T) {
	vf := results(result("nic", "vf-0000-5e-10-0"))
	for name, tt := range map[string]struct{ class, claim, refused string }{
		"another's address":            {`,"mac":"02:00:5e:10:00:01"`, `,"mac":"02:00:5e:10:00:02"`, "the DeviceClass says 02:00:5e:10:00:01"},
		"the same, written otherwise":  {`,"mac":"02:00:5e:10:00:0a"`, `,"mac":"02:00:5E:10:00:0A"`, ""},
		"where the class gives none":   {`,"trust":true`, `,"mac":"02:00:5e:10:00:02"`, ""},
		"the link on":                  {`,"linkState":"Disable"`, `,"linkState":"Enable"`, "linkState: Enable, where the DeviceClass says Disable"},
		"the link as the PF's":         {`,"linkState":"Disable"`, `,"linkState":"Auto"`, "linkState: Auto, where the DeviceClass says Disable"},
		"the link stays off":           {`,"linkState":"Disable"`, `,"linkState":"Disable"`, ""},
		"the link off":                 {`,"linkState":"Enable"`, `,"linkState":"Disable"`, ""},
		"a word on something else":     {`,"linkState":"Disable","mac":"02:00:5e:10:00:01"`, `,"maxTxRate":5`, ""},
		"the link where none was said": {`,"trust":true`, `,"linkState":"Enable"`, ""},
		"the link on again":            {`,"linkState":"Auto"`, `,"linkState":"Enable"`, "linkState: Enable, where the DeviceClass says Auto"},
		"another way into the VM":      {`,"attachment":"VFIO"`, `,"attachment":"PhysicalEndpoint"`, "attachment: PhysicalEndpoint, where the DeviceClass says VFIO"},
		"more spoof check, less trust": {`,"spoofCheck":false,"trust":true,"rssQuery":true`, `,"spoofCheck":true,"trust":false,"rssQuery":false`, ""},
		"the guest's own network":      {`,"network":{"mtu":1500}`, `,"network":{"mtu":9000}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			configs := []resourceapi.DeviceAllocationConfiguration{
				fromClaim(v1alpha1.KindVFConfig, tt.claim), fromClass(v1alpha1.KindVFConfig, tt.class),
			}
			_, err := claim.Decode(claimOf(vf, configs...), driver)
			_, weakens := errors.AsType[*v1alpha1.WeakensIsolationError](err)
			if weakens != (tt.refused != "") || err != nil && !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("got %v, want refused for %q", err, tt.refused)
			}
		})
	}
}

// TestClaimMayNotUndoItsClass: neither the backend nor what becomes of companions is for the tenant to decide where the
// class says it. Saying less is allowed.
func TestClaimMayNotUndoItsClass(t *testing.T) {
	gpu := results(result("gpu", "gpu-0000-3b-00-0"))
	for name, tt := range map[string]struct{ class, claim, refused string }{
		"companions":                   {`,"companions":"Withhold"`, `,"companions":"Give"`, "companions: Give, where the DeviceClass says Withhold"},
		"no companions":                {`,"companions":"Give"`, `,"companions":"Withhold"`, ""},
		"where the class says nothing": {`,"backend":"IOMMUFD"`, `,"companions":"Give"`, ""},
		"the group's node":             {`,"backend":"IOMMUFD"`, `,"backend":"Group"`, "backend: Group, where the DeviceClass says IOMMUFD"},
		"iommufd":                      {`,"backend":"Group"`, `,"backend":"IOMMUFD"`, "backend: IOMMUFD, where the DeviceClass says Group"},
		"any backend":                  {`,"backend":"IOMMUFD"`, `,"backend":"Auto"`, "backend: Auto, where the DeviceClass says IOMMUFD"},
		"one of either":                {`,"backend":"Auto"`, `,"backend":"Group"`, ""},
		"the same":                     {`,"backend":"Group","companions":"Withhold"`, `,"backend":"Group","companions":"Withhold"`, ""},
		"a reset":                      {`,"reset":"Skip"`, `,"reset":"Required"`, ""},
		"isolation, no control node":   {`,"allowUnisolated":true,"controlNode":true`, `,"allowUnisolated":false,"controlNode":false`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			configs := []resourceapi.DeviceAllocationConfiguration{
				fromClaim(v1alpha1.KindVFIOConfig, tt.claim), fromClass(v1alpha1.KindVFIOConfig, tt.class),
			}
			_, err := claim.Decode(claimOf(gpu, configs...), driver)
			_, weakens := errors.AsType[*v1alpha1.WeakensIsolationError](err)
			if weakens != (tt.refused != "") || err != nil && !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("got %v, want refused for %q", err, tt.refused)
			}
		})
	}
}

// TestAllocated: what is allocated is told apart from nothing, and from what other drivers have.
func TestAllocated(t *testing.T) {
	foreign := result("other", "gpu-0")
	foreign.Driver = "gpu.example.com"
	for name, tt := range map[string]struct {
		in   *resourceapi.ResourceClaim
		want []string
		err  error
	}{
		"a device and another driver's": {in: claimOf(results(result("gpu", "gpu-0000-3b-00-0"), foreign)), want: []string{"node gpu-0000-3b-00-0"}},
		"nothing":                       {in: &resourceapi.ResourceClaim{}, err: claim.ErrNotAllocated},
		"another driver's":              {in: claimOf(results(foreign)), err: claim.ErrNotOurs},
	} {
		t.Run(name, func(t *testing.T) {
			devices, err := claim.Allocated(tt.in, driver)
			if !errors.Is(err, tt.err) {
				t.Fatalf("Allocated: %v, want %v", err, tt.err)
			}
			var got []string
			for _, d := range devices {
				got = append(got, d.Pool+" "+d.Name)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDecodeKeepsTheNodeSelector of the allocation.
func TestDecodeKeepsTheNodeSelector(t *testing.T) {
	c := claimOf(results(result("gpu", "gpu-0000-3b-00-0")))
	c.Status.Allocation.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node"}}},
	}}}
	req, err := claim.Decode(c, driver)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.Status.Allocation.NodeSelector, req.NodeSelector); diff != "" {
		t.Errorf("node selector (-want +got):\n%s", diff)
	}
}

const pair = "gpu-0000-3b-00-0-vf-0000-3d-10-1"

func TestPairIsItsTwoFunctions(t *testing.T) {
	c := claimOf(results(result("pair", pair), result("gpu", "gpu-0000-4b-00-0")),
		fromClass("VFIOConfig", `,"reset":"Skip"`, "pair"), fromClaim("VFConfig", `,"maxTxRate":100`, "pair"))
	got, err := claim.Decode(c, driver)
	if err != nil {
		t.Fatal(err)
	}
	skip := defaults(func(c *v1alpha1.VFIOConfig) { c.Reset = v1alpha1.ResetSkip })
	rate := v1alpha1.VFConfig{MaxTxRate: new(100)}
	rate.Default()
	said := []json.RawMessage{json.RawMessage(`{"apiVersion":"resource.kata-vfio.dev/v1alpha1","kind":"VFIOConfig","reset":"Skip"}`)}
	want := []claim.Device{
		{
			Request: "pair", ClassParameters: said, Pool: "node", Pair: pair, Name: "gpu-0000-3b-00-0", Address: pci.Address{Bus: 0x3b}, VFIO: skip,
			Origins: map[string]claim.Origin{"vfio.reset": claim.FromClass},
		},
		{
			Request: "pair", ClassParameters: said, Pool: "node", Pair: pair, Name: "vf-0000-3d-10-1", Address: pci.Address{Bus: 0x3d, Device: 0x10, Function: 1}, VFIO: skip, VF: &rate, OwnMaxTxRate: true,
			Origins: map[string]claim.Origin{"vfio.reset": claim.FromClass, "vf.maxTxRate": claim.FromClaim},
		},
		{Request: "gpu", Pool: "node", Name: "gpu-0000-4b-00-0", Address: pci.Address{Bus: 0x4b}, VFIO: defaults(nil)},
	}
	if diff := cmp.Diff(want, got.Devices); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPairAndOneOfItsFunctionsAreNotForOneClaim(t *testing.T) {
	for _, other := range []string{"gpu-0000-3b-00-0", "vf-0000-3d-10-1", pair, "gpu-0000-3b-00-0-vf-0000-3d-10-2"} {
		_, err := claim.Decode(claimOf(results(result("a", pair), result("b", other))), driver)
		if err == nil || !strings.Contains(err.Error(), `is allocated twice, to requests "a" and "b"`) {
			t.Errorf("%s beside its pair: %v", other, err)
		}
	}
}

func TestPairsNameIsAsSlicesHaveIt(t *testing.T) {
	for name, want := range map[string]string{
		"gpu-0000-3B-00-0-vf-0000-3d-10-1": "want it as ResourceSlices have it, gpu-0000-3b-00-0",
		"gpu-0000-3b-00-0-vf-0000-3d-1f":   "want <type>-<domain>",
		"vf-0000-3b-00-0-vf-0000-3d-10-1":  "the first function of a pair is a GPU",
	} {
		if _, err := claim.Decode(claimOf(results(result("a", name))), driver); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// TestClassParametersWithoutRequests: a scheduler that loses for which requests a DeviceClass's parameters are would give one
// tenant's VF the VLAN of another class.
func TestClassParametersWithoutRequests(t *testing.T) {
	blue, red := fromClass("VFConfig", `,"vlan":100`), fromClass("VFConfig", `,"vlan":200`)
	blueOnly, redOnly := fromClass("VFConfig", `,"vlan":100`, "blue"), fromClass("VFConfig", `,"vlan":200`, "red")
	other := *blue.DeepCopy()
	other.Opaque.Driver = "other.example.com"
	const lost = "is from a DeviceClass and names no requests, and the claim has requests of DeviceClasses"
	for name, test := range map[string]struct {
		classes [2]string
		configs []resourceapi.DeviceAllocationConfiguration
		want    string // no error if empty
	}{
		"two classes, both lost":      {[2]string{"blue-vf", "red-vf"}, []resourceapi.DeviceAllocationConfiguration{blue, red}, "config[0] " + lost + " blue-vf, red-vf"},
		"two classes, one lost":       {[2]string{"blue-vf", "red-vf"}, []resourceapi.DeviceAllocationConfiguration{blueOnly, red}, "config[1] " + lost},
		"two classes, none lost":      {[2]string{"blue-vf", "red-vf"}, []resourceapi.DeviceAllocationConfiguration{blueOnly, redOnly}, ""},
		"two classes, another driver": {[2]string{"blue-vf", "red-vf"}, []resourceapi.DeviceAllocationConfiguration{other}, ""},
		"two classes, by the claim":   {[2]string{"blue-vf", "red-vf"}, []resourceapi.DeviceAllocationConfiguration{fromClaim("VFConfig", `,"maxTxRate":50`)}, ""},
		"one class":                   {[2]string{"blue-vf", "blue-vf"}, []resourceapi.DeviceAllocationConfiguration{blue}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := claimOf(results(result("blue", "vf-0000-5e-00-3"), result("red", "vf-0000-5e-00-6")), test.configs...)
			c.Spec.Devices.Requests = []resourceapi.DeviceRequest{
				{Name: "blue", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: test.classes[0]}},
				{Name: "red", FirstAvailable: []resourceapi.DeviceSubRequest{{Name: "a", DeviceClassName: test.classes[1]}}},
			}
			_, err := claim.Decode(c, driver)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("Decode = %v; want %q", err, test.want)
			}
		})
	}
}

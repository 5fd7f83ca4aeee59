package dra_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/rule/ruletest"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// trusting are parameters that only a class may have.
const trusting = `{"apiVersion":"resource.kata-vfio.dev/v1alpha1","kind":"VFConfig","trust":true,"vlan":100}`

// of is a request for a VF by a class, allocated with parameters of that class.
func of(class string, parameters ...string) *claim.Request {
	req := request()
	d := claim.Device{
		Request: "nic", Class: class, Pool: "worker-1/kata-vfio.dev/pf-0000-5e-00-0", Name: "vf-0000-5e-10-0", VF: &v1alpha1.VFConfig{VLAN: new(100)},
	}
	for _, text := range parameters {
		d.ClassParameters = append(d.ClassParameters, json.RawMessage(text))
	}
	req.Devices = []claim.Device{d}
	return req
}

func TestGateHoldsDevicesAgainstTheirClasses(t *testing.T) {
	const reordered = `{"vlan":100,"kind":"VFConfig","apiVersion":"resource.kata-vfio.dev/v1alpha1", "trust":true}`
	const vlan = `{"apiVersion":"resource.kata-vfio.dev/v1alpha1","kind":"VFConfig","vlan":100}`
	for name, tt := range map[string]struct {
		classes []runtime.Object
		request *claim.Request
		code    rule.Code // empty: admitted
		words   []string
	}{
		"granted to all":           {[]runtime.Object{plugintest.DeviceClass("other.kata-vfio.dev", "*")}, of("other.kata-vfio.dev"), "", nil},
		"granted to the namespace": {[]runtime.Object{plugintest.DeviceClass("fast", "team-b,team-a", trusting)}, of("fast", trusting), "", nil},
		"in another order":         {[]runtime.Object{plugintest.DeviceClass("fast", "team-a", reordered)}, of("fast", trusting), "", nil},
		"granted to another": {
			[]runtime.Object{plugintest.DeviceClass("fast", "team-b", trusting)},
			of("fast", trusting), rule.ClassNotGranted,
			[]string{"DeviceClass fast of request nic is not granted to namespace team-a", "kata-vfio.dev/namespaces"},
		},
		"granted to nobody":             {[]runtime.Object{plugintest.DeviceClass("fast", "", trusting)}, of("fast", trusting), rule.ClassNotGranted, nil},
		"of our name and not annotated": {[]runtime.Object{plugintest.DeviceClass("other.kata-vfio.dev", "")}, of("other.kata-vfio.dev"), rule.ClassNotGranted, nil},
		"without parameters, to nobody": {[]runtime.Object{plugintest.DeviceClass("all", "")}, of("all"), rule.ClassNotGranted, nil},
		"deleted since": {
			nil, of("fast", trusting), rule.ClassGone,
			[]string{"DeviceClass fast of request nic was deleted after device vf-0000-5e-10-0 was allocated by it"},
		},
		"tightened since": {
			[]runtime.Object{plugintest.DeviceClass("fast", "team-a", vlan)},
			of("fast", trusting), rule.ClassChanged,
			[]string{"has other parameters now than when device vf-0000-5e-10-0 was allocated", "delete the pod"},
		},
		"without parameters since":   {[]runtime.Object{plugintest.DeviceClass("fast", "team-a")}, of("fast", trusting), rule.ClassChanged, nil},
		"with parameters since":      {[]runtime.Object{plugintest.DeviceClass("fast", "team-a", vlan)}, of("fast"), rule.ClassChanged, nil},
		"with more parameters since": {[]runtime.Object{plugintest.DeviceClass("fast", "team-a", trusting, vlan)}, of("fast", trusting), rule.ClassChanged, nil},
		"of a request that is not in the spec": {
			[]runtime.Object{plugintest.DeviceClass("fast", "*")}, of(""), rule.ClassUnknown, []string{"request nic, which the claim's spec does not have"},
		},
		"the second device's": {
			[]runtime.Object{plugintest.DeviceClass("other.kata-vfio.dev", "*"), plugintest.DeviceClass("fast", "team-b", trusting)},
			func() *claim.Request {
				req := of("other.kata-vfio.dev")
				req.Devices = append(req.Devices, of("fast", trusting).Devices...)
				return req
			}(), rule.ClassNotGranted,
			[]string{"DeviceClass fast"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := plugintest.Gate(plugintest.Cluster(tt.classes...)).Admit(t.Context(), tt.request)
			if tt.code == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			refused, ok := errors.AsType[*rule.RefusedError](err)
			if !ok || refused.Code() != tt.code {
				t.Fatalf("Admit = %v, want code %s", err, tt.code)
			}
			ruletest.VerdictsAt(t, rule.AtPrepare, refused.Verdicts)
			for _, word := range append(tt.words, "claim team-a/gpu") {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
		})
	}
}

// TestGateGivesNoVFWithoutAVLAN unless its class says so: two tenants without one
// are in one segment.
func TestGateGivesNoVFWithoutAVLAN(t *testing.T) {
	const device = "vf-0000-5e-10-0"
	for name, tt := range map[string]struct {
		device string
		vf     *v1alpha1.VFConfig
		code   rule.Code
	}{
		"in a VLAN":              {device, &v1alpha1.VFConfig{VLAN: new(100)}, ""},
		"in none, as said":       {device, &v1alpha1.VFConfig{VLAN: new(0)}, ""},
		"in none, as allowed":    {device, &v1alpha1.VFConfig{AllowUntagged: new(true)}, ""},
		"in none, as it happens": {device, nil, rule.NoVLAN},
		"with another setting":   {device, &v1alpha1.VFConfig{MaxTxRate: new(100)}, rule.NoVLAN},
		"in none, as forbidden":  {device, &v1alpha1.VFConfig{AllowUntagged: new(false)}, rule.NoVLAN},
		"a GPU":                  {"gpu-0000-3b-00-0", nil, ""},
		"a PF":                   {"pf-0000-5e-00-0", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			req := of("fast")
			req.Devices[0].Name, req.Devices[0].VF = tt.device, tt.vf
			err := plugintest.Gate(plugintest.Cluster(plugintest.DeviceClass("fast", "team-a"))).Admit(t.Context(), req)
			refused, decided := errors.AsType[*rule.RefusedError](err)
			ruletest.RefusedAt(t, rule.AtPrepare, tt.code)
			if tt.code == "" && err != nil || tt.code != "" && (!decided || refused.Code() != tt.code || !strings.Contains(err.Error(), "DeviceClass fast does not allow that")) {
				t.Errorf("Admit = %v, want code %q", err, tt.code)
			}
		})
	}
}

// TestGateReadsAClassOnce: eight GPUs of one class are one request to the API server.
func TestGateReadsAClassOnce(t *testing.T) {
	client, req := plugintest.Cluster(plugintest.DeviceClass("fast", "*")), of("fast")
	for range 7 {
		req.Devices = append(req.Devices, req.Devices[0])
	}
	asked := 0
	client.PrependReactor("get", "deviceclasses", func(clienttesting.Action) (bool, runtime.Object, error) {
		asked++
		return false, nil, nil
	})
	if err := plugintest.Gate(client).Admit(t.Context(), req); err != nil || asked != 1 {
		t.Errorf("Admit = %v after %d requests, want 1", err, asked)
	}
}

// TestGateWithoutTheRightToReadClasses: a plugin with a chart's older permissions admits nobody.
func TestGateWithoutTheRightToReadClasses(t *testing.T) {
	client := plugintest.Cluster(plugintest.DeviceClass("fast", "*"))
	client.PrependReactor("get", "deviceclasses", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(resourceapi.Resource("deviceclasses"), "fast", errors.New("no"))
	})
	err := plugintest.Gate(client).Admit(t.Context(), of("fast"))
	if _, decided := errors.AsType[*rule.RefusedError](err); err == nil || decided || !strings.Contains(err.Error(), "look at DeviceClass fast") {
		t.Errorf("Admit = %v, want an error that names the DeviceClass, and no decision", err)
	}
}

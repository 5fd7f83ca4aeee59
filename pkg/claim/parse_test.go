package claim_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
)

func readClaim(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("testdata/claim.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestParseTakesTheVersionBeforeAsIs(t *testing.T) {
	text := readClaim(t)
	want, err := claim.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	got, err := claim.Parse([]byte("---\n" + strings.Replace(text, "resource.k8s.io/v1", "resource.k8s.io/v1beta2", 1) + "\n---\n"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	text := readClaim(t)
	unallocated, _, _ := strings.Cut(text, "status:")
	tests := map[string]struct{ in, want string }{
		"empty":           {"", "the document is empty"},
		"no YAML":         {"a: [", "parse YAML: "},
		"a text":          {"claim.yaml", "it is not an object with apiVersion and kind"},
		"two documents":   {text + "---\n" + text, "more than one YAML document; want one"},
		"repeated key":    {text + "kind: ResourceClaim\n", `key "kind" already set`},
		"another kind":    {"apiVersion: v1\nkind: ConfigMap\n", `kind is "ConfigMap", want one ResourceClaim`},
		"list":            {"apiVersion: v1\nkind: List\nitems: []\n", `kind is "List", want one ResourceClaim; name the claim: kubectl get resourceclaim NAME -o yaml`},
		"template":        {"apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\n", "the claim made for the pod is named in the pod's status.resourceClaimStatuses"},
		"another version": {strings.Replace(text, "k8s.io/v1", "k8s.io/v1beta1", 1), `apiVersion is "resource.k8s.io/v1beta1", want resource.k8s.io/v1; get it with: kubectl get resourceclaims.v1.resource.k8s.io -o yaml NAME`},
		"unknown field":   {strings.Replace(text, "reservedFor:", "reservdFor:", 1), `unknown field "status.reservdFor"`},
		"another case":    {strings.Replace(text, "reservedFor:", "ReservedFor:", 1), `unknown field "status.ReservedFor"`},
		"mistyped field":  {strings.Replace(text, "request: gpu", "request: [gpu]", 1), "cannot unmarshal array into Go struct field"},
		"not allocated": {
			unallocated,
			"claim team-a/train-devices-x7k2p: status.allocation is missing: it is not allocated, or this is not what the API server has; " +
				"once its pod is scheduled, get it with: kubectl get resourceclaim -n team-a train-devices-x7k2p -o yaml",
		},
		"hardly anything": {"apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\n", "kubectl get resourceclaim -n NAMESPACE NAME -o yaml"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := claim.Parse([]byte(test.in))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
			if got := errors.Is(err, claim.ErrNotAllocated); got != strings.Contains(test.want, "kubectl get resourceclaim -n") {
				t.Errorf("is ErrNotAllocated: %t", got)
			}
		})
	}
}

func FuzzParseAndDecode(f *testing.F) {
	f.Add([]byte(readClaim(f)))
	f.Add([]byte("apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a, namespace: b, uid: c}\n" +
		"status: {allocation: {devices: {results: [{driver: kata-vfio.dev, request: r/s, pool: p, device: vf-0000-5e-10-0}]}}}\n"))
	f.Add([]byte(`{"kind":"ResourceClaim","apiVersion":"resource.k8s.io/v1beta2","status":{"allocation":{"devices":{"config":[{"source":"FromClaim","opaque":{"driver":"kata-vfio.dev","parameters":null}}]}}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := claim.Parse(text)
		if err != nil {
			return
		}
		req, err := claim.Decode(c, driver)
		if err != nil {
			return
		}
		if req.UID == "" || len(req.Devices) == 0 {
			t.Errorf("%q gives a request without UID or devices: %+v", text, req)
		}
		for _, d := range req.Devices {
			if err := d.VFIO.Validate(); err != nil || d.VFIO.Reset == "" {
				t.Errorf("%q gives unsettled parameters %+v: %v", text, d.VFIO, err)
			}
		}
		again, err := claim.Decode(c, driver)
		if diff := cmp.Diff(req, again); diff != "" || err != nil {
			t.Errorf("%q gives another request the second time: %v\n%s", text, err, diff)
		}
	})
}

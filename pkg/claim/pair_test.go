package claim_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

const pair = "gpu-0000-3b-00-0-vf-0000-3d-10-1"

func TestAPairIsItsTwoFunctions(t *testing.T) {
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

func TestAPairAndOneOfItsFunctionsAreNotForOneClaim(t *testing.T) {
	for _, other := range []string{"gpu-0000-3b-00-0", "vf-0000-3d-10-1", pair, "gpu-0000-3b-00-0-vf-0000-3d-10-2"} {
		_, err := claim.Decode(claimOf(results(result("a", pair), result("b", other))), driver)
		if err == nil || !strings.Contains(err.Error(), `is allocated twice, to requests "a" and "b"`) {
			t.Errorf("%s beside its pair: %v", other, err)
		}
	}
}

func TestAPairsNameIsAsSlicesHaveIt(t *testing.T) {
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

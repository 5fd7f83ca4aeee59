package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// pooled asks for a VF with addresses from a pool, of a node that has two.
func pooled(pool, ifname string) (*claim.Request, plan.Node) {
	s := fixture()
	req := asking(s, nicVF)
	req.UID, req.Namespace, req.Pods = "0f8fad5b", "team-a", []claim.Pod{{UID: "7c9e", Name: "train"}}
	req.Devices[0].VF = &v1alpha1.VFConfig{Network: &v1alpha1.GuestNetwork{AddressPool: pool, Interface: ifname}}
	n := node(s)
	for _, name := range []string{"tenants", "storage"} {
		n.AddressPools = append(n.AddressPools, v1alpha1.AddressPool{Name: name, CNIVersion: "1.0.0", IPAM: []byte(`{"type":"host-local"}`)})
	}
	return req, n
}

// TestAPoolsAddressesAreAStep: the plan has all that its plugin is told.
func TestAPoolsAddressesAreAStep(t *testing.T) {
	req, n := pooled("storage", "net1")
	got, err := plan.Make(req, n)
	if err != nil {
		t.Fatal(err)
	}
	container := "0f8fad5b-" + req.Devices[0].Name
	want := &plan.Lease{
		Pool: "storage", Plugin: "host-local", Config: []byte(`{"cniVersion":"1.0.0","ipam":{"type":"host-local"},"name":"kata-vfio-storage"}`),
		Container: container, Interface: "net1",
		Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=team-a;K8S_POD_NAME=train;K8S_POD_UID=7c9e;K8S_POD_INFRA_CONTAINER_ID=" + container,
	}
	if diff := cmp.Diff(want, got.Devices[0].Lease); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if last := got.Steps[len(got.Steps)-1]; last.String() != "take addresses for "+nicVF.String()+" from pool storage" {
		t.Errorf("the last step is %s", last)
	}
	release := got.StepsOf(plan.AtPrepared, slices.Concat(plan.Cleaning(), plan.GivingBack())...)
	if last := release[len(release)-1]; last.String() != "give the addresses of "+nicVF.String()+" back to pool storage" {
		t.Errorf("the last step of the way back is %s", last)
	}
}

// TestWhatAPluginIsToldOfAClaimByHand: no pod, no name of an interface, and
// nothing that could be read as one more argument.
func TestWhatAPluginIsToldOfAClaimByHand(t *testing.T) {
	req, n := pooled("tenants", "")
	req.Namespace, req.Pods[0].Name = "a;IP=192.0.2.1", "x=y"
	got, err := plan.Make(req, n)
	if err != nil {
		t.Fatal(err)
	}
	l := got.Devices[0].Lease
	if want := "IgnoreUnknown=1;K8S_POD_UID=7c9e;K8S_POD_INFRA_CONTAINER_ID=" + l.Container; l.Args != want || l.Interface != "vf" {
		t.Errorf("the arguments are %q of interface %q, want %q", l.Args, l.Interface, want)
	}
}

func TestAPoolThatTheNodeHasNot(t *testing.T) {
	for pools, want := range map[int]string{2: "has tenants, storage", 0: "has no addressPools"} {
		req, n := pooled("tenant", "net1")
		n.AddressPools = n.AddressPools[:pools]
		_, err := plan.Make(req, n)
		refused, ok := errors.AsType[*plan.RefusedError](err)
		if !ok || !refused.Has(plan.NoAddressPool) || !strings.Contains(err.Error(), want) {
			t.Errorf("Make = %v, want a refusal that says %q", err, want)
		}
	}
}

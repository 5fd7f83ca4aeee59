package dra_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics/metricstest"
)

// pairs makes the node publish a pair of a GPU and a VF, and returns its name and its VF.
func (n *node) pairs() (string, pci.Address) {
	_, _, vfs := n.k.AddGPUAndNIC(0x39, 2)
	config := &v1alpha1.NodeConfig{Pairing: v1alpha1.PairingSwitch}
	config.Default()
	planned := func(snap *device.Snapshot) (plan.Node, error) {
		known, err := n.claims.PlanNode(snap)
		known.Selection = nodeconfig.Select(config, snap)
		return known, err
	}
	n.publisher = dra.NewPublisher("worker-1", planned, n.records.List, n.health, n.metrics)
	return "gpu-0000-3b-00-0-vf-" + vfs[1].Label(), vfs[1]
}

// TestAPairThroughTheSocket: the kubelet has one device with two CDI names, and the
// container one file that says of both functions what is to know.
func TestAPairThroughTheSocket(t *testing.T) {
	n := newNode(t)
	pair, vf := n.pairs()
	r := &recorder{}
	n.publish(r)
	c := allocated("uid-1", pair)
	k := serve(t, n, n.claims, "", c)
	answer := k.prepare(c)["uid-1"]
	if answer.Error != "" || len(answer.Devices) != 1 || answer.Devices[0].DeviceName != pair {
		t.Fatalf("answer %v", answer)
	}
	want := []string{"kata-vfio.dev/vfio=uid-1-gpu-0000-3b-00-0", "kata-vfio.dev/vfio=uid-1-vf-" + vf.Label(), "kata-vfio.dev/metadata=uid-1_gpu"}
	if got := answer.Devices[0].CdiDeviceIds; !slices.Equal(got, want) {
		t.Errorf("CDI devices %v, want %v", got, want)
	}
	data, err := os.ReadFile(filepath.Join(k.dir, "plugin/dra-device-metadata/team-a_claim-uid-1/gpu/metadata.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{`"type":{"string":"gpu-vf"}`, `"resource.kubernetes.io/pciBusID":{"string":"0000:3b:00.0"}`, `"hardwareAddress":"`} {
		if !strings.Contains(strings.Join(strings.Fields(string(data)), ""), word) {
			t.Errorf("metadata lacks %s:\n%s", word, data)
		}
	}
	spec, err := n.specs.Read("uid-1")
	if err != nil || len(spec.Devices) != 2 {
		t.Errorf("spec %+v, %v; want a CDI device for each function", spec, err)
	}
	before := r.devices()
	n.publish(r)
	if diff := cmp.Diff(before, r.devices()); diff != "" {
		t.Errorf("what is published changes with the claim (-before +after):\n%s", diff)
	}
	if problem := k.unprepare(c)["uid-1"].Error; problem != "" {
		t.Error(problem)
	}
}

// TestAPairsStatus: the claim has one entry, with what there is to say of both.
func TestAPairsStatus(t *testing.T) {
	n := newNode(t)
	pair, vf := n.pairs()
	n.publish(&recorder{})
	c := allocated("uid-1", pair)
	k := serve(t, n, n.claims, "", c)
	if answer := k.prepare(c)["uid-1"]; answer.Error != "" {
		t.Fatal(answer.Error)
	}
	devices := k.status(c)
	if len(devices) != 1 || devices[0].Device != pair || devices[0].NetworkData == nil || devices[0].NetworkData.HardwareAddress == "" {
		t.Fatalf("status.devices = %+v", devices)
	}
	want := []string{"Ready=True (Prepared)", "Isolated=True (Isolated)", "Reset=True (ResetBetweenTenants)", "LinkUp=True (PFHasCarrier)"}
	if diff := cmp.Diff(want, conditions(devices[0])); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	var data dra.DeviceData
	if err := json.Unmarshal(devices[0].Data.Raw, &data); err != nil {
		t.Fatal(err)
	}
	if data.Address != "0000:3b:00.0" || !slices.Equal(data.Functions, []string{"0000:3b:00.0", vf.String()}) {
		t.Errorf("data %+v, want the GPU and %s", data, vf)
	}
	k.events.want(t, "ResourceClaim team-a/claim-uid-1 Normal Prepared Prepare: gpu 0000:3b:00.0, vf 0000:", "Pod team-a/train Normal Prepared Prepare: gpu 0000:3b:00.0, vf 0000:")
}

// TestAnUncleanVFTaintsThePair, and the GPU with it, which is of the same record, until the reset is proven.
func TestAnUncleanVFTaintsThePair(t *testing.T) {
	n, r := newNode(t), &recorder{}
	pair, vf := n.pairs()
	n.prepared("uid-1", pair)
	n.publish(r)
	if got, ok := r.devices()[pair]; !ok || len(got) != 0 {
		t.Fatalf("published %v, want %s well", r.devices(), pair)
	}
	n.k.SetConfig(vf, 0x10, 0xde, 0xad)
	n.k.OnReset(vf, ignored)
	if _, err := n.claims.Unprepare(t.Context(), "uid-1"); err == nil {
		t.Fatal("no quarantine")
	}
	n.publish(r)
	if got := r.devices()[pair]; !slices.Contains(got, "quarantined") {
		t.Errorf("the pair's taints are %v", got)
	}
	devices, _ := metricstest.Gauges(t, n.metrics.Registry, "kata_vfio_devices")
	if diff := cmp.Diff(map[string]float64{"unhealthy gpu": 1, "unhealthy gpu-vf": 1, "healthy vf": 1}, devices); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

package dra_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics/metricstest"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// pairs makes the node publish a pair of a GPU and a VF, and returns its name and its VF.
func pairs(n *plugintest.Node) (string, pci.Address) {
	_, _, vfs := n.Kernel.AddGPUAndNIC(0x39, 2)
	config := &v1alpha1.NodeConfig{Pairing: v1alpha1.PairingSwitch}
	config.Default()
	n.Facts.Selects = config
	return "gpu-0000-3b-00-0-vf-" + vfs[1].Label(), vfs[1]
}

// TestPairThroughTheSocket: the kubelet has one device with two CDI names, and the
// container one file that says of both functions what is to know.
func TestPairThroughTheSocket(t *testing.T) {
	n := plugintest.New(t)
	pair, vf := pairs(n)
	r := &plugintest.Recorder{}
	n.Publish(r)
	c := plugintest.Allocated("uid-1", pair)
	k := plugintest.Serve(t, n, n.Claims, "", c)
	answer := k.Prepare(c)["uid-1"]
	if answer.Error != "" || len(answer.Devices) != 1 || answer.Devices[0].DeviceName != pair {
		t.Fatalf("answer %v", answer)
	}
	want := []string{"kata-vfio.dev/vfio=uid-1-gpu-0000-3b-00-0", "kata-vfio.dev/vfio=uid-1-vf-" + vf.Label(), "kata-vfio.dev/metadata=uid-1_gpu"}
	if got := answer.Devices[0].CdiDeviceIds; !slices.Equal(got, want) {
		t.Errorf("CDI devices %v, want %v", got, want)
	}
	data, err := os.ReadFile(filepath.Join(k.Dir, "plugin/dra-device-metadata/team-a_claim-uid-1/gpu/metadata.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{`"type":{"string":"gpu-vf"}`, `"resource.kubernetes.io/pciBusID":{"string":"0000:3b:00.0"}`, `"hardwareAddress":"`} {
		if !strings.Contains(strings.Join(strings.Fields(string(data)), ""), word) {
			t.Errorf("metadata lacks %s:\n%s", word, data)
		}
	}
	spec, err := n.Specs.Read("uid-1")
	if err != nil || len(spec.Devices) != 2 {
		t.Errorf("spec %+v, %v; want a CDI device for each function", spec, err)
	}
	before := r.Devices()
	n.Publish(r)
	if diff := cmp.Diff(before, r.Devices()); diff != "" {
		t.Errorf("what is published changes with the claim (-before +after):\n%s", diff)
	}
	if problem := k.Unprepare(c)["uid-1"].Error; problem != "" {
		t.Error(problem)
	}
}

// TestPairsStatus: the claim has one entry, with what there is to say of both.
func TestPairsStatus(t *testing.T) {
	n := plugintest.New(t)
	pair, vf := pairs(n)
	n.Publish(&plugintest.Recorder{})
	c := plugintest.Allocated("uid-1", pair)
	k := plugintest.Serve(t, n, n.Claims, "", c)
	if answer := k.Prepare(c)["uid-1"]; answer.Error != "" {
		t.Fatal(answer.Error)
	}
	devices := k.Status(c)
	if len(devices) != 1 || devices[0].Device != pair || devices[0].NetworkData == nil || devices[0].NetworkData.HardwareAddress == "" {
		t.Fatalf("status.devices = %+v", devices)
	}
	want := []string{"Ready=True (Prepared)", "Isolated=True (Isolated)", "Reset=True (MemoryNotChecked)", "LinkUp=True (PFHasCarrier)"}
	if diff := cmp.Diff(want, plugintest.Conditions(devices[0])); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	var data dra.DeviceData
	if err := json.Unmarshal(devices[0].Data.Raw, &data); err != nil {
		t.Fatal(err)
	}
	if data.Address != "0000:3b:00.0" || !slices.Equal(data.Functions, []string{"0000:3b:00.0", vf.String()}) {
		t.Errorf("data %+v, want the GPU and %s", data, vf)
	}
	k.Events.Want(t, "ResourceClaim team-a/claim-uid-1 Normal Prepared Prepare: gpu 0000:3b:00.0, vf 0000:", "Pod team-a/train Normal Prepared Prepare: gpu 0000:3b:00.0, vf 0000:")
}

// TestQuarantinedPairsStatus: a pair that is lost between two sandboxes has one entry, with the pair's name. The API server refuses the
// status if it names a device that is not allocated.
func TestQuarantinedPairsStatus(t *testing.T) {
	n := plugintest.New(t)
	pair, vf := pairs(n)
	n.Publish(&plugintest.Recorder{})
	c := plugintest.Allocated("uid-1", pair)
	k := &plugintest.Kubelet{T: t, Client: plugintest.Cluster(c), Events: &plugintest.EventLog{}}
	r := dra.NewReporter(dra.ReporterConfig{Client: k.Client, Recorder: k.Events, Log: plugintest.Quiet()})
	go func() { _ = r.Run(t.Context()) }() // it has no error to return
	n.Prepare("uid-1", pair)
	n.Kernel.SetConfig(vf, 0x10, 0xde, 0xad)
	n.Kernel.OnReset(vf, ignored)
	_, err := n.Claims.Unprepare(t.Context(), "uid-1")
	q, ok := errors.AsType[*prepare.QuarantinedError](err)
	if !ok {
		t.Fatalf("Unprepare = %v, want a quarantine", err)
	}
	r.Lost(q)
	devices := k.Status(c)
	if len(devices) != 1 || devices[0].Pool != c.Status.Allocation.Devices.Results[0].Pool || devices[0].Device != pair {
		t.Fatalf("status.devices = %+v, want %s only", devices, pair)
	}
	if diff := cmp.Diff([]string{"Ready=False (Quarantined)", "Reset=False (Quarantined)"}, plugintest.Conditions(devices[0])); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

// TestUncleanVFTaintsThePair, and the GPU with it, which is of the same record, until the reset is proven.
func TestUncleanVFTaintsThePair(t *testing.T) {
	n, r := plugintest.New(t), &plugintest.Recorder{}
	pair, vf := pairs(n)
	n.Prepare("uid-1", pair)
	n.Publish(r)
	if got, ok := r.Devices()[pair]; !ok || len(got) != 0 {
		t.Fatalf("published %v, want %s well", r.Devices(), pair)
	}
	n.Kernel.SetConfig(vf, 0x10, 0xde, 0xad)
	n.Kernel.OnReset(vf, ignored)
	if _, err := n.Claims.Unprepare(t.Context(), "uid-1"); err == nil {
		t.Fatal("no quarantine")
	}
	n.Publish(r)
	if got := r.Devices()[pair]; !slices.Contains(got, "quarantined") {
		t.Errorf("the pair's taints are %v", got)
	}
	devices, _ := metricstest.Gauges(t, n.Metrics.Registry, "kata_vfio_devices")
	if diff := cmp.Diff(map[string]float64{"unhealthy gpu": 1, "unhealthy gpu-vf": 1, "healthy vf": 1}, devices); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

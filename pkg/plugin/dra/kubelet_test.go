package dra_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	drahealthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics/metricstest"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// TestRegistration: the kubelet finds the plugin where it looks, with the
// services it needs.
func TestRegistration(t *testing.T) {
	n := plugintest.New(t)
	k := plugintest.Serve(t, n, n.Claims, "")
	info, err := registerapi.NewRegistrationClient(k.Dial(filepath.Join(k.Dir, "registry/kata-vfio.dev-reg.sock"))).
		GetInfo(t.Context(), &registerapi.InfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if info.Type != registerapi.DRAPlugin || info.Name != "kata-vfio.dev" || info.Endpoint != filepath.Join(k.Dir, "plugin/dra.sock") {
		t.Errorf("registered as %v", info)
	}
	for _, service := range []string{drapb.DRAPluginService, drahealthv1.DRAResourceHealthService} {
		if !slices.Contains(info.SupportedVersions, service) {
			t.Errorf("services %v lack %s", info.SupportedVersions, service)
		}
	}
}

// TestClaimsThroughTheSocket: prepare, again, and back, as the kubelet asks.
func TestClaimsThroughTheSocket(t *testing.T) {
	n := plugintest.New(t)
	gpu := n.Kernel.AddGPU(0x3b)
	claim := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
	k := plugintest.Serve(t, n, n.Claims, "", claim)
	first := k.Prepare(claim)["uid-1"]
	if first.Error != "" || len(first.Devices) != 1 {
		t.Fatalf("prepared: %v", first)
	}
	dev := first.Devices[0]
	got := []string{dev.PoolName, dev.DeviceName, dev.RequestNames[0], dev.CdiDeviceIds[0]}
	if diff := cmp.Diff([]string{"worker-1/kata-vfio.dev", "gpu-0000-3b-00-0", "gpu", "kata-vfio.dev/vfio=uid-1-gpu-0000-3b-00-0"}, got); diff != "" {
		t.Errorf("device (-want +got):\n%s", diff)
	}
	if driver := n.Driver(gpu); driver != "vfio-pci" {
		t.Errorf("bound to %s", driver)
	}
	writes := len(n.Kernel.Writes())
	if again := k.Prepare(claim)["uid-1"]; again.String() != first.String() || len(n.Kernel.Writes()) != writes {
		t.Errorf("again: %v after %d writes, first %v after %d", again, len(n.Kernel.Writes()), first, writes)
	}
	for range 2 {
		if answer, ok := k.Unprepare(claim)["uid-1"]; !ok || answer.Error != "" {
			t.Fatalf("unprepared: %v", answer)
		}
		if driver := n.Driver(gpu); driver != "nvidia" {
			t.Errorf("bound to %s", driver)
		}
	}
	if len(k.Changed) != 4 {
		t.Errorf("the publisher was woken %d times, want once for each call", len(k.Changed))
	}
	if told := k.Events.Count("Unprepared"); told != 1 {
		t.Errorf("told %d times that it was taken back, want once: the second time nothing was", told)
	}
}

// TestErrorsAreOfTheirClaim: one claim's failure is its own, with the reason
// for its event, and its pod's other claim is prepared.
func TestErrorsAreOfTheirClaim(t *testing.T) {
	n := plugintest.New(t)
	n.Kernel.AddGPU(0x3b)
	good, absent, foreign := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0"), plugintest.Allocated("uid-2", "gpu-0000-ee-00-0"), plugintest.Allocated("uid-3", "gpu-0000-3b-00-0")
	foreign.Status.Allocation.Devices.Results[0].Driver = "gpu.example.com"
	k := plugintest.Serve(t, n, n.Claims, "", good, absent, foreign)
	answers := k.Prepare(good, absent, foreign)
	for uid, want := range map[string]string{
		"uid-1": "", "uid-2": "this node has no PCI function 0000:ee:00.0", "uid-3": "kata-vfio.dev",
	} {
		got := answers[uid]
		if got == nil || (got.Error == "") != (want == "") || !strings.Contains(got.Error, want) {
			t.Errorf("%s: %v, want error %q", uid, got, want)
		}
	}
}

// TestClaimOfAnotherNode: the claim is allocated on worker-2, and a second pod of it was
// bound to this node by spec.nodeName. This node has a GPU at the same address, which
// stays where it is.
func TestClaimOfAnotherNode(t *testing.T) {
	for name, pool := range map[string]string{
		"its pool": "worker-2", "a PF's pool": "worker-2/pf-0000-21-00-0", "a pool that does not hold it": "worker-1/kata-vfio.dev/pf-0000-21-00-0",
	} {
		t.Run(name, func(t *testing.T) {
			n := plugintest.New(t)
			gpu := n.Kernel.AddGPU(0x3b)
			claim := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
			claim.Status.Allocation.Devices.Results[0].Pool = pool
			k := plugintest.Serve(t, n, n.Claims, "", claim)
			answer := k.Prepare(claim)["uid-1"]
			if !strings.Contains(answer.Error, "allocated from pool "+pool) || len(answer.Devices) > 0 {
				t.Errorf("prepared: %v", answer)
			}
			rec, err := n.Records.Load("uid-1")
			if driver := n.Driver(gpu); err != nil || rec != nil || driver != "nvidia" {
				t.Errorf("record %v (%v), driver %s; want nothing done", rec, err, driver)
			}
		})
	}
}

// TestClaimOfAPodGroup is refused in words that say what to do.
func TestClaimOfAPodGroup(t *testing.T) {
	n := plugintest.New(t)
	n.Kernel.AddGPU(0x3b)
	claim := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "ring", UID: "group-uid"}}
	k := plugintest.Serve(t, n, n.Claims, "", claim)
	if answer := k.Prepare(claim)["uid-1"]; !strings.Contains(answer.Error, `PodGroup "ring"`) || !strings.Contains(answer.Error, "resourceClaimTemplateName") ||
		!strings.Contains(answer.Error, "recreate the PodGroup without spec.resourceClaims") {
		t.Errorf("prepared: %v", answer)
	}
}

// TestClaimThatIsAllocatedAgainThroughTheSocket: the kubelet has forgotten the claim's first
// allocation. Its next one is prepared, and the former device goes back.
func TestClaimThatIsAllocatedAgainThroughTheSocket(t *testing.T) {
	n := plugintest.New(t)
	former, next := n.Kernel.AddGPU(0x3b), n.Kernel.AddGPU(0x3c)
	n.Prepare("uid-1", "gpu-0000-3b-00-0")
	again := plugintest.Allocated("uid-1", "gpu-0000-3c-00-0")
	k := plugintest.Serve(t, n, n.Claims, "", again)
	group, _ := n.Kernel.Group(former)
	h := n.Kernel.Hold("/dev/vfio/"+itoa(group), 1<<22+1, "qemu-system-x86", "")
	if answer := k.Prepare(again)["uid-1"]; !strings.Contains(answer.Error, "in use by qemu-system-x86") || len(n.Kernel.Resets()) > 0 {
		t.Errorf("prepared while a VM has the former device: %v", answer)
	}
	h.Release()
	answer := k.Prepare(again)["uid-1"]
	if answer.Error != "" || len(answer.Devices) != 1 || answer.Devices[0].DeviceName != "gpu-0000-3c-00-0" {
		t.Fatalf("prepared: %v", answer)
	}
	if n.Driver(former) != "nvidia" || n.Driver(next) != "vfio-pci" {
		t.Errorf("drivers %s and %s", n.Driver(former), n.Driver(next))
	}
}

// TestQuarantineLetsThePodGo: the claim's pod ends although the device could
// not be proven clean; the next claim for it is refused.
func TestQuarantineLetsThePodGo(t *testing.T) {
	n := plugintest.New(t)
	gpu := n.Kernel.AddGPU(0x3b)
	claim, next := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0"), plugintest.Allocated("uid-2", "gpu-0000-3b-00-0")
	k := plugintest.Serve(t, n, n.Claims, "", claim, next)
	k.Prepare(claim)
	n.Kernel.SetConfig(gpu, 0, []byte(strings.Repeat("\xff", 256))...)
	if answer := k.Unprepare(claim)["uid-1"]; answer.Error != "" {
		t.Errorf("unprepared: %v", answer)
	}
	if answer := k.Prepare(next)["uid-2"]; !strings.Contains(answer.Error, "all ones") && !strings.Contains(answer.Error, "quarantined") {
		t.Errorf("the next tenant: %v", answer)
	}
}

// TestUnprepareInUseIsAnError: the pod stays until its VM is gone.
func TestUnprepareInUseIsAnError(t *testing.T) {
	n := plugintest.New(t)
	gpu := n.Kernel.AddGPU(0x3b)
	claim := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
	k := plugintest.Serve(t, n, n.Claims, "", claim)
	k.Prepare(claim)
	group, _ := n.Kernel.Group(gpu)
	h := n.Kernel.Hold("/dev/vfio/"+itoa(group), 1<<22+1, "qemu-system-x86", "")
	var age float64
	for range 2 { // an alert is on how long that goes on, which no try begins again
		if answer := k.Unprepare(claim)["uid-1"]; !strings.Contains(answer.Error, "in use by qemu-system-x86") {
			t.Errorf("unprepared: %v", answer)
		}
		failing, _ := metricstest.Gauges(t, n.Metrics.Registry, "kata_vfio_unprepare_failing_seconds")
		if len(failing) != 1 || failing["prepared"] <= age {
			t.Errorf("failing for %v, before %v", failing, age)
		}
		age = failing["prepared"]
	}
	h.Release()
	if answer := k.Unprepare(claim)["uid-1"]; answer.Error != "" {
		t.Errorf("unprepared: %v", answer)
	}
	if failing, _ := metricstest.Gauges(t, n.Metrics.Registry, "kata_vfio_unprepare_failing_seconds"); len(failing) > 0 {
		t.Errorf("failing still: %v", failing)
	}
}

// TestMetadata: the pod's container gets a file about its device.
func TestMetadata(t *testing.T) {
	n := plugintest.New(t)
	n.Kernel.AddGPU(0x3b)
	if err := n.Publisher.Publish(t.Context(), &plugintest.Recorder{}, n.Snapshot()); err != nil {
		t.Fatal(err)
	}
	claim := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
	k := plugintest.Serve(t, n, n.Claims, "", claim)
	before := k.Files()
	dev := k.Prepare(claim)["uid-1"].Devices[0]
	if want := []string{"kata-vfio.dev/vfio=uid-1-gpu-0000-3b-00-0", "kata-vfio.dev/metadata=uid-1_gpu"}; !slices.Equal(dev.CdiDeviceIds, want) {
		t.Errorf("CDI devices %v, want %v", dev.CdiDeviceIds, want)
	}
	file := "plugin/dra-device-metadata/team-a_claim-uid-1/gpu/metadata.json"
	data, err := os.ReadFile(filepath.Join(k.Dir, file))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{`"resource.kubernetes.io/pciBusID"`, `"0000:3b:00.0"`, `"gpu-0000-3b-00-0"`, "metadata.resource.k8s.io/v1beta1"} {
		if !strings.Contains(string(data), word) {
			t.Errorf("metadata lacks %s:\n%s", word, data)
		}
	}
	versions := metadataObjects(t, data)
	if got, want := []any{versions[0]["apiVersion"], versions[1]["apiVersion"]}, []any{"metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1"}; !slices.Equal(got, want) {
		t.Errorf("metadata has versions %v, want %v: programs take the first that they know", got, want)
	}
	delete(versions[0], "apiVersion")
	delete(versions[1], "apiVersion")
	if diff := cmp.Diff(versions[0], versions[1]); diff != "" {
		t.Errorf("the versions differ (-v1beta1 +v1alpha1):\n%s", diff)
	}
	k.Unprepare(claim)
	if diff := cmp.Diff(before, k.Files()); diff != "" {
		t.Errorf("files (-before +after):\n%s", diff)
	}
}

// metadataObjects are the two objects of a metadata file.
func metadataObjects(t *testing.T, data []byte) (versions [2]map[string]any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	for i := range versions {
		if err := d.Decode(&versions[i]); err != nil {
			t.Fatalf("object %d of the metadata: %v\n%s", i, err, data)
		}
	}
	if d.More() {
		t.Errorf("the metadata has more than two objects:\n%s", data)
	}
	return versions
}

// TestCallsRunSideBySide: two pods' calls are in the kernel at once. With the
// helper's own lock the second would wait for the first forever.
func TestCallsRunSideBySide(t *testing.T) {
	for name, podUID := range map[string]string{"alone": "", "in a rolling update": "pod-uid"} {
		t.Run(name, func(t *testing.T) {
			n := plugintest.New(t)
			n.Kernel.AddGPU(0x3b)
			n.Kernel.AddGPU(0x3c)
			both := make(chan struct{}, 2)
			meet := make(chan struct{})
			n.Kernel.OnWrite(func(path, _ string) error {
				if strings.HasSuffix(path, "/unbind") {
					both <- struct{}{}
					<-meet
				}
				return nil
			})
			one, two := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0"), plugintest.Allocated("uid-2", "gpu-0000-3c-00-0")
			k := plugintest.Serve(t, n, n.Claims, podUID, one, two)
			socket := filepath.Join(k.Dir, "plugin/dra.sock")
			if podUID != "" {
				socket = filepath.Join(k.Dir, "plugin/dra-"+podUID+".sock")
			}
			plugin := drapb.NewDRAPluginClient(k.Dial(socket))
			var wg sync.WaitGroup
			for _, c := range []*resourceapi.ResourceClaim{one, two} {
				wg.Go(func() {
					resp, err := plugin.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{Claims: plugintest.Refs([]*resourceapi.ResourceClaim{c})})
					if err != nil || resp.Claims[string(c.UID)].Error != "" {
						t.Errorf("%s: %v, %v", c.UID, resp, err)
					}
				})
			}
			for range 2 {
				select {
				case <-both:
				case <-time.After(20 * time.Second):
					t.Error("the calls wait for each other")
				}
			}
			close(meet)
			wg.Wait()
		})
	}
}

// TestStopRemovesTheSockets: after SIGTERM the kubelet finds no dead sockets,
// and a call that was under way has come to its end when Drain returns.
func TestStopRemovesTheSockets(t *testing.T) {
	n := plugintest.New(t)
	gpu := n.Kernel.AddGPU(0x3b)
	claim := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
	k := plugintest.Serve(t, n, n.Claims, "", claim)
	entered, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	n.Kernel.OnWrite(func(string, string) error {
		once.Do(func() {
			close(entered)
			<-leave
		})
		return nil
	})
	answered := make(chan error)
	plugin := k.Service()
	go func() {
		_, err := plugin.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{Claims: plugintest.Refs([]*resourceapi.ResourceClaim{claim})})
		answered <- err
	}()
	<-entered
	k.Helper.Stop()
	if err := <-answered; err == nil {
		t.Error("the call that was cut off reports success")
	}
	close(leave)
	k.Plugin.Wait()
	if files := k.Files(); len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
	rec, err := n.Records.Load("uid-1")
	if driver := n.Driver(gpu); err != nil || rec != nil || driver != "nvidia" {
		t.Errorf("record %v (%v), driver %s; want the claim taken back", rec, err, driver)
	}
	if len(k.Fatal) > 0 {
		t.Errorf("stopping was fatal: %v", <-k.Fatal)
	}
}

package dra_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// TestPreparedClaimsStatus: the tenant reads in the claim what became of it.
func TestPreparedClaimsStatus(t *testing.T) {
	n := plugintest.New(t)
	gpu := n.Kernel.AddGPU(0x3b)
	c := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
	k := plugintest.Serve(t, n, n.Claims, "", c)
	n.Publish(&plugintest.Recorder{})
	if answer := k.Prepare(c)["uid-1"]; answer.Error != "" {
		t.Fatal(answer.Error)
	}
	devices := k.Status(c)
	if len(devices) != 1 || devices[0].Driver != v1alpha1.DriverName || devices[0].Pool != "worker-1/kata-vfio.dev" || devices[0].Device != "gpu-0000-3b-00-0" {
		t.Fatalf("status.devices = %+v", devices)
	}
	want := []string{"Ready=True (Prepared)", "Isolated=True (Isolated)", "Reset=True (MemoryNotChecked)"}
	if diff := cmp.Diff(want, plugintest.Conditions(devices[0])); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	var data dra.DeviceData
	if err := json.Unmarshal(devices[0].Data.Raw, &data); err != nil {
		t.Fatal(err)
	}
	group, _ := n.Kernel.Group(gpu)
	if data.Address != "0000:3b:00.0" || data.VFIODriver != "vfio-pci" || data.IOMMUGroup != group || !strings.HasPrefix(data.Evidence, "sha256:") {
		t.Errorf("data %+v", data)
	}
	k.Events.Want(t, "ResourceClaim team-a/claim-uid-1 Normal Prepared Prepare: gpu 0000:3b:00.0 bound", "Pod team-a/train Normal Prepared Prepare: gpu 0000:3b:00.0 bound")
}

// TestVGPUsStatus: a tenant does not read more of the reset of a vGPU than its vendor says.
func TestVGPUsStatus(t *testing.T) {
	n := plugintest.New(t)
	n.Kernel.WithIOMMUFD()
	_, vfs := n.Kernel.AddVGPUHost(0x3b, 2, sysfstest.VGPUType{ID: 1428, Name: "NVIDIA H200X-35C", GiB: 35, Max: 2})
	n.Reopen(func(c *prepare.Config) {
		c.Parts.Providers = bind.Providers(n.FS, control.New(n.Kernel, n.FS, 10*time.Second), nil)
		c.Node = &v1alpha1.NodeConfig{
			Devices: []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: []string{"gpuvf"}}}},
			GPUSlices: []v1alpha1.GPUSliceRule{{
				Match: v1alpha1.GPUMatch{Vendors: []pci.ID{pci.VendorNVIDIA}}, NVIDIA: &v1alpha1.NVIDIASlices{VGPUType: "NVIDIA H200X-35C", Instances: 2},
			}},
		}
		c.Node.Default()
	})
	n.Publish(&plugintest.Recorder{})
	c := plugintest.Allocated("uid-1", "gpuvf-"+vfs[0].Label())
	k := plugintest.Serve(t, n, n.Claims, "", c)
	if answer := k.Prepare(c)["uid-1"]; answer.Error != "" {
		t.Fatal(answer.Error)
	}
	status := k.Status(c)
	want := []string{"Ready=True (Prepared)", "Isolated=True (Isolated)", "Reset=True (WeakReset)"}
	if diff := cmp.Diff(want, plugintest.Conditions(status[0])); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	reset := meta.FindStatusCondition(status[0].Conditions, "Reset")
	if reset == nil || !strings.Contains(reset.Message, "no vendor says that this clears the memory of "+vfs[0].String()) {
		t.Errorf("condition Reset: got %+v, want the limit of its proof", reset)
	}
}

// TestRefusedClaimsStatus: so does one whose claim is refused, with the
// culprit, on the claim and on the pod.
func TestRefusedClaimsStatus(t *testing.T) {
	n := plugintest.New(t)
	c := plugintest.Allocated("uid-1", "gpu-0000-ee-00-0")
	k := plugintest.Serve(t, n, n.Claims, "", c)
	if answer := k.Prepare(c)["uid-1"]; answer.Error == "" {
		t.Fatal("prepared a device that is not there")
	}
	devices := k.Status(c)
	if diff := cmp.Diff([]string{"Ready=False (Absent)"}, plugintest.Conditions(devices[0])); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if message := devices[0].Conditions[0].Message; !strings.Contains(message, "0000:ee:00.0") {
		t.Errorf("the message %q does not name the device", message)
	}
	k.Events.Want(t, "ResourceClaim team-a/claim-uid-1 Warning Absent Prepare: ", "Pod team-a/train Warning Absent Prepare: ")
}

// TestGateComesFirst: a pod that is not in a VM gets nothing bound.
func TestGateComesFirst(t *testing.T) {
	n := plugintest.New(t)
	gpu := n.Kernel.AddGPU(0x3b)
	c := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
	c.Status.ReservedFor[0].UID = "another"
	k := plugintest.Serve(t, n, n.Claims, "", c)
	if answer := k.Prepare(c)["uid-1"]; !strings.Contains(answer.Error, "no longer exists") {
		t.Errorf("prepared: %v", answer)
	}
	if driver := n.Driver(gpu); driver != "nvidia" {
		t.Errorf("bound to %s", driver)
	}
	k.Events.Want(t, "ResourceClaim team-a/claim-uid-1 Warning PodReplaced", "Pod team-a/train Warning PodReplaced")
}

// TestStatusIsTriedAgain: the API server may be away for a while, and a claim
// that is gone is nobody's loss.
func TestStatusIsTriedAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		answer error
		tries  int
	}{
		"away":  {errors.New("connection refused"), 4},
		"gone":  {apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), "c"), 1},
		"no":    {apierrors.NewForbidden(resourceapi.Resource("resourceclaims"), "c", errors.New("no")), 1},
		"taken": {nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, tried := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0"), 0
				client := plugintest.Cluster(c)
				client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
					tried++
					return tt.answer != nil && tried < 4, nil, tt.answer
				})
				r := dra.NewReporter(dra.ReporterConfig{Client: client, Recorder: &plugintest.EventLog{}, Log: plugintest.Quiet()})
				go func() { _ = r.Run(t.Context()) }() // it has no error to return
				r.Refused(c, errors.New("it is so"), nil)
				time.Sleep(time.Minute)
				synctest.Wait()
				if tried != tt.tries {
					t.Errorf("tried %d times, want %d", tried, tt.tries)
				}
			})
		})
	}
}

// TestRefusalsInALoopAreFewEvents: a tenant makes one refused claim after the other.
func TestRefusalsInALoopAreFewEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &plugintest.EventLog{}
		r, c := dra.NewReporter(dra.ReporterConfig{Client: plugintest.Cluster(), Recorder: log, Log: plugintest.Quiet()}), plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
		go func() { _ = r.Run(t.Context()) }() // it has no error to return
		refused := func(namespace string) int {
			before := len(log.Lines)
			again := *c
			again.Namespace = namespace
			r.Refused(&again, errors.New("a device is in use"), nil)
			return len(log.Lines) - before
		}
		each := refused("another")
		for range 1000 {
			refused("loop")
		}
		if n := len(log.Lines); each == 0 || n > 60*each {
			t.Errorf("%d events of 1000 refusals, want some fifty times %d", n, each)
		}
		if refused("another") != each {
			t.Error("another namespace has no event of its refusal")
		}
		time.Sleep(time.Minute)
		refused("loop")
		if last := log.Lines[len(log.Lines)-1]; !strings.Contains(last, "950 refusals of this namespace") || !strings.Contains(last, "a device is in use") {
			t.Errorf("the next event says %q, want it to count those without one", last)
		}
	})
}

// TestLongNotesAreCut: the API server refuses an event with a note of more
// than 1024 bytes.
func TestLongNotesAreCut(t *testing.T) {
	log := &plugintest.EventLog{}
	dra.NewReporter(dra.ReporterConfig{Client: plugintest.Cluster(), Recorder: log, Log: plugintest.Quiet()}).Refused(plugintest.Allocated("uid-1", "gpu-0000-3b-00-0"), errors.New(strings.Repeat("x", 5000)), nil)
	if _, note, _ := strings.Cut(log.Lines[0], ": "); len(note) != 1024 || !strings.HasSuffix(note, "...") {
		t.Errorf("a note of %d bytes", len(note))
	}
}

// TestLongMessagesAreCutAtACharacter: the API server refuses a condition whose message is longer than 32768 bytes, or no text.
func TestLongMessagesAreCutAtACharacter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, patch := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0"), []byte(nil)
		client := plugintest.Cluster(c)
		client.PrependReactor("patch", "resourceclaims", func(a clienttesting.Action) (bool, runtime.Object, error) {
			patch = a.(clienttesting.PatchAction).GetPatch()
			return true, c, nil
		})
		r := dra.NewReporter(dra.ReporterConfig{Client: client, Recorder: &plugintest.EventLog{}, Log: plugintest.Quiet()})
		go func() { _ = r.Run(t.Context()) }() // it has no error to return
		r.Refused(c, errors.New(strings.Repeat("€", 32768/3)+"€€"), nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		var written resourceapi.ResourceClaim
		if err := json.Unmarshal(patch, &written); err != nil || len(written.Status.Devices) != 1 {
			t.Fatalf("%v: %.200s", err, patch)
		}
		message := written.Status.Devices[0].Conditions[0].Message
		if len(message) > 32768 || strings.ContainsRune(message, '\uFFFD') || !strings.HasSuffix(message, "€...") {
			t.Errorf("a message of %d bytes, which ends in %q", len(message), message[len(message)-9:])
		}
	})
}

// TestRefusalLeavesAHoldersDeviceAlone: a second pod on a claim is refused. The
// status is that of the device, which the first goes on using.
func TestRefusalLeavesAHoldersDeviceAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, log, written := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0"), &plugintest.EventLog{}, 0
		holder := claim.Pod{UID: string(c.Status.ReservedFor[0].UID), Name: c.Status.ReservedFor[0].Name}
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: "second", UID: "2"})
		client := plugintest.Cluster(c)
		client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
			written++
			return false, nil, nil
		})
		r := dra.NewReporter(dra.ReporterConfig{Client: client, Recorder: log, Log: plugintest.Quiet()})
		go func() { _ = r.Run(t.Context()) }() // it has no error to return
		r.Refused(c, errors.New("a device is in one VM only"), []claim.Pod{holder})
		time.Sleep(time.Minute)
		synctest.Wait()
		if written > 0 {
			t.Errorf("the status was written %d times", written)
		}
		log.Want(t, "ResourceClaim team-a/claim-uid-1 Warning", "Pod team-a/second Warning")
	})
}

// TestReserve: a claim goes over to the pod that it is reserved for now, by the
// same gate as ever.
func TestReserve(t *testing.T) {
	n := plugintest.New(t)
	n.Kernel.AddGPU(0x3b)
	c := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
	k := plugintest.Serve(t, n, n.Claims, "", c)
	if answer := k.Prepare(c)["uid-1"]; answer.Error != "" {
		t.Fatal(answer.Error)
	}
	ref := plan.Ref{UID: "uid-1", Namespace: c.Namespace, Name: c.Name}
	next := plugintest.TrainPod()
	next.UID = "next"
	if err := k.Client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), next, next.Namespace); err != nil {
		t.Fatal(err)
	}
	if err := k.Plugin.Reserve(t.Context(), ref); err == nil || !strings.Contains(err.Error(), "no longer exists") {
		t.Errorf("Reserve for the former pod = %v", err)
	}
	got, err := k.Client.ResourceV1().ResourceClaims(c.Namespace).Get(t.Context(), c.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got.Status.ReservedFor[0].UID = "next"
	if _, err := k.Client.ResourceV1().ResourceClaims(c.Namespace).UpdateStatus(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := k.Plugin.Reserve(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	rec, err := n.Records.Load("uid-1")
	if err != nil || rec.Plan.Claim.Pods[0].UID != "next" {
		t.Errorf("record %+v, %v; want the next pod's", rec, err)
	}
	ref.UID = "older"
	if err := k.Plugin.Reserve(t.Context(), ref); err == nil || !strings.Contains(err.Error(), "replaced") {
		t.Errorf("Reserve of another claim = %v", err)
	}
}

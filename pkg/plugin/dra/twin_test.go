package dra_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/rule/ruletest"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
	"github.com/kata-vfio/kata-vfio/test/vendordriver"
)

const (
	sharedPool = "worker-1/kata-vfio.dev/shared"
	sharedName = "gpu-0000-3b-00-0"
)

var sharedGPU, otherGPU = pci.Address{Bus: 0x3b}, pci.Address{Bus: 0x3c}

// sharedRequest asks for the shared GPU.
func sharedRequest() *claim.Request {
	req := request()
	req.Devices = []claim.Device{{Request: "gpu", Pool: sharedPool, Name: sharedName, Address: sharedGPU}}
	return req
}

// sharing lets the API server of the fake look at field selectors, which it ignores.
func sharing(client *fake.Clientset) {
	client.PrependReactor("list", "resourceslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		obj, err := client.Tracker().List(resourceapi.SchemeGroupVersion.WithResource("resourceslices"), resourceapi.SchemeGroupVersion.WithKind("ResourceSlice"), "")
		if err != nil {
			return true, nil, err
		}
		all, fields := obj.(*resourceapi.ResourceSliceList), action.(clienttesting.ListAction).GetListRestrictions().Fields
		match := &resourceapi.ResourceSliceList{}
		for _, s := range all.Items {
			driver, _ := fields.RequiresExactMatch(resourceapi.ResourceSliceSelectorDriver)
			node, _ := fields.RequiresExactMatch(resourceapi.ResourceSliceSelectorNodeName)
			if s.Spec.Driver == driver && *s.Spec.NodeName == node {
				match.Items = append(match.Items, s)
			}
		}
		return true, match, nil
	})
}

// twinsOf returns what looks after the devices of worker-1 that it shares with the vendor's driver.
func twinsOf(client kubernetes.Interface, pods dra.PodLister) *dra.Twins {
	return &dra.Twins{
		Node: "worker-1", Claims: client.ResourceV1().ResourceClaims(metav1.NamespaceAll), Slices: client.ResourceV1().ResourceSlices(), Pods: pods,
		SharedWith: func(_ context.Context, a pci.Address) (string, error) {
			return map[pci.Address]string{sharedGPU: vendordriver.Name}[a], nil
		},
	}
}

// pods is the kubelet's end of pod-resources.
type pods func(context.Context) (*podresourcesv1.ListPodResourcesResponse, error)

func (p pods) List(ctx context.Context, _ *podresourcesv1.ListPodResourcesRequest, _ ...grpc.CallOption) (*podresourcesv1.ListPodResourcesResponse, error) {
	return p(ctx)
}

// preparedPods are those that the driver has prepared claims for.
func preparedPods(d *vendordriver.Driver) pods {
	return func(context.Context) (*podresourcesv1.ListPodResourcesResponse, error) { return d.List(), nil }
}

// vendor returns the vendor's driver on worker-1, which has published the shared GPU in two parts, and another.
func vendor(t *testing.T, client kubernetes.Interface) *vendordriver.Driver {
	t.Helper()
	d := vendordriver.New(vendordriver.Config{
		Client: client, Node: "worker-1", GPUs: []vendordriver.GPU{{Address: sharedGPU, Partitions: 2}, {Address: otherGPU}},
	})
	if err := d.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

// onNode is the selector of an allocation of a node's own device.
func onNode(name string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{name}}},
	}}}
}

// theirs is a claim that has a device of the vendor's driver.
func theirs(device string, selector *corev1.NodeSelector) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "theirs", UID: "theirs"},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
			NodeSelector: selector,
			Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
				{Request: "gpu", Driver: vendordriver.Name, Pool: "worker-1", Device: device},
			}},
		}},
	}
}

// wantRefused checks that an error is a refusal with the code, or none for an empty one.
func wantRefused(t *testing.T, err error, code rule.Code) {
	t.Helper()
	ruletest.RefusedAt(t, rule.AtPrepare, code)
	refused, ok := errors.AsType[*rule.RefusedError](err)
	if ok != (code != "") || ok && (refused.Code() != code || refused.Verdicts[0].Text == "" || refused.Verdicts[0].Fix == "") || err != nil && !ok {
		t.Errorf("got %v, want code %q", err, code)
	}
	if err != nil && (strings.Contains(err.Error(), "team-b") || strings.Contains(err.Error(), "theirs")) {
		t.Errorf("%q names another tenant's claim", err)
	}
}

// TestTwinsOfOtherClaims: a claim that has the same GPU by the other driver, or may have it, comes first.
func TestTwinsOfOtherClaims(t *testing.T) {
	whole, labels := vendordriver.Device, onNode("worker-1")
	labels.NodeSelectorTerms[0] = corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpExists}}}
	own := theirs(whole(sharedGPU, 0), onNode("worker-1"))
	own.UID = types.UID(request().UID)
	byUs := theirs(whole(sharedGPU, 0), onNode("worker-1"))
	byUs.Status.Allocation.Devices.Results[0].Driver = "nic.example.com"
	monitor := theirs(whole(sharedGPU, 0), onNode("worker-1"))
	monitor.Status.Allocation.Devices.Results[0].AdminAccess = new(true)
	gone := theirs("card-new", nil)
	gone.Status.Allocation.Devices.Results[0].AdminAccess = new(true)
	both := theirs(whole(sharedGPU, 0), onNode("worker-1"))
	both.Status.Allocation.Devices.Results = append(monitor.DeepCopy().Status.Allocation.Devices.Results, both.Status.Allocation.Devices.Results...)
	free := theirs("", nil)
	free.Status.Allocation = nil
	for name, test := range map[string]struct {
		claim *resourceapi.ResourceClaim
		code  rule.Code
	}{
		"none":                              {},
		"of the GPU":                        {theirs(whole(sharedGPU, 0), onNode("worker-1")), rule.TwinInUse},
		"of another part of the GPU":        {theirs(whole(sharedGPU, 1), onNode("worker-1")), rule.TwinInUse},
		"of another GPU":                    {theirs(whole(otherGPU, 0), onNode("worker-1")), ""},
		"of another node":                   {theirs(whole(sharedGPU, 0), onNode("worker-2")), ""},
		"of a device that is not published": {theirs("card-new", onNode("worker-1")), rule.TwinInUse},
		"of one that is not published, elsewhere": {theirs("card-new", onNode("worker-2")), ""},
		"of one that is not published, anywhere":  {theirs("card-new", nil), rule.TwinInUse},
		"of one that is not published, by labels": {theirs("card-new", labels), rule.TwinInUse},
		"of both drivers":                         {own, rule.TwinInUse},
		"of a third driver":                       {byUs, ""},
		"not allocated":                           {free, ""},
		"of a monitor":                            {monitor, ""},
		"of a monitor, not published":             {gone, ""},
		"of a monitor that has it itself too":     {both, rule.TwinInUse},
	} {
		t.Run(name, func(t *testing.T) {
			client := plugintest.Cluster()
			sharing(client)
			d := vendor(t, client)
			if test.claim != nil {
				if err := client.Tracker().Add(test.claim); err != nil {
					t.Fatal(err)
				}
			}
			wantRefused(t, twinsOf(client, preparedPods(d)).Free(t.Context(), sharedRequest()), test.code)
		})
	}
}

// TestTwinsOfPods: a claim can be gone while its container runs. The kubelet knows.
func TestTwinsOfPods(t *testing.T) {
	for name, test := range map[string]struct {
		device    string
		withdrawn bool
		admin     bool
		code      rule.Code
	}{
		"with the GPU":                      {device: vendordriver.Device(sharedGPU, 1), code: rule.TwinInUse},
		"with another GPU":                  {device: vendordriver.Device(otherGPU, 0)},
		"with one that isn't published now": {device: vendordriver.Device(otherGPU, 0), withdrawn: true, code: rule.TwinInUse},
		"with the GPU, as a monitor":        {device: vendordriver.Device(sharedGPU, 1), admin: true},
	} {
		t.Run(name, func(t *testing.T) {
			client := plugintest.Cluster()
			sharing(client)
			d := vendor(t, client)
			c := theirs(test.device, nil)
			if err := d.Prepare(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if test.admin {
				c.Status.Allocation.Devices.Results[0].AdminAccess = new(true)
				if err := client.Tracker().Add(c); err != nil {
					t.Fatal(err)
				}
			}
			if test.withdrawn {
				if err := d.Withdraw(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			wantRefused(t, twinsOf(client, preparedPods(d)).Free(t.Context(), sharedRequest()), test.code)
		})
	}
}

// TestTwinsAreReadOnce: a claim of several shared GPUs costs no more requests than one of a single GPU, the slices first.
func TestTwinsAreReadOnce(t *testing.T) {
	client := plugintest.Cluster()
	sharing(client)
	d := vendor(t, client)
	kubelet := 0
	twins := twinsOf(client, pods(func(context.Context) (*podresourcesv1.ListPodResourcesResponse, error) {
		kubelet++
		return d.List(), nil
	}))
	twins.SharedWith = func(context.Context, pci.Address) (string, error) { return vendordriver.Name, nil }
	req := sharedRequest()
	req.Devices = append(req.Devices, claim.Device{Request: "gpu", Pool: sharedPool, Name: "gpu-0000-3c-00-0", Address: otherGPU})
	client.ClearActions()
	if err := twins.Free(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	var asked []string
	for _, action := range client.Actions() {
		asked = append(asked, action.GetVerb()+" "+action.GetResource().Resource)
	}
	if want := []string{"list resourceslices", "list resourceclaims"}; !slices.Equal(asked, want) || kubelet != 1 {
		t.Errorf("requests %q, and %d to the kubelet; want %q and one", asked, kubelet, want)
	}
	// The second GPU is looked at as well as the first.
	if err := client.Tracker().Add(theirs(vendordriver.Device(otherGPU, 0), onNode("worker-1"))); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, twins.Free(t.Context(), req), rule.TwinInUse)
}

// TestTwinsThatAreUnknown: without an answer nothing is known, and that is not a refusal of the claim.
func TestTwinsThatAreUnknown(t *testing.T) {
	away := errors.New("no such socket")
	noServer := func(resource string) func(*fake.Clientset) {
		return func(client *fake.Clientset) {
			client.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(resourceapi.Resource(resource), "", away)
			})
		}
	}
	for name, test := range map[string]struct {
		server  func(*fake.Clientset)
		kubelet error
		config  error
		words   string
	}{
		"the kubelet is away":       {kubelet: away, words: "ask the kubelet which pods have GPU 0000:3b:00.0"},
		"claims can't be listed":    {server: noServer("resourceclaims"), words: "look for claims with GPU 0000:3b:00.0"},
		"slices can't be listed":    {server: noServer("resourceslices"), words: "look for the devices of driver gpu.example.com"},
		"the node can't be scanned": {config: away, words: "look at GPU 0000:3b:00.0"},
	} {
		t.Run(name, func(t *testing.T) {
			client := plugintest.Cluster()
			sharing(client)
			d := vendor(t, client)
			if test.server != nil {
				test.server(client)
			}
			twins := twinsOf(client, pods(func(context.Context) (*podresourcesv1.ListPodResourcesResponse, error) { return d.List(), test.kubelet }))
			if test.config != nil {
				twins.SharedWith = func(context.Context, pci.Address) (string, error) { return "", test.config }
			}
			err := twins.Free(t.Context(), sharedRequest())
			if _, refused := errors.AsType[*rule.RefusedError](err); err == nil || refused || !strings.Contains(err.Error(), test.words) {
				t.Errorf("got %v, want %q", err, test.words)
			}
		})
	}
}

// TestTwinsOfOtherDevicesAreNotLookedFor: a claim without shared devices costs no request.
func TestTwinsOfOtherDevicesAreNotLookedFor(t *testing.T) {
	client := plugintest.Cluster()
	twins := twinsOf(client, pods(func(context.Context) (*podresourcesv1.ListPodResourcesResponse, error) {
		return nil, errors.New("nobody is to ask")
	}))
	for name, change := range map[string]func(*claim.Device){
		"of the node's pool":       func(d *claim.Device) { d.Pool = "worker-1/kata-vfio.dev" },
		"of another node's":        func(d *claim.Device) { d.Pool = "worker-2/shared" },
		"that is not shared today": func(d *claim.Device) { d.Address = otherGPU },
	} {
		req := sharedRequest()
		change(&req.Devices[0])
		err := errors.Join(twins.Reserved(t.Context(), &resourceapi.ResourceClaim{}, req), twins.Free(t.Context(), req))
		if err != nil || len(client.Actions()) > 0 {
			t.Errorf("%s: %v, requests %v", name, err, client.Actions())
		}
	}
}

// TestTwinsOfFormerPoolsAreLookedFor: a claim from before the upgrade shares its GPU as much as one from after it.
func TestTwinsOfFormerPoolsAreLookedFor(t *testing.T) {
	asked := errors.New("the kubelet is asked")
	twins := twinsOf(plugintest.Cluster(), pods(func(context.Context) (*podresourcesv1.ListPodResourcesResponse, error) { return nil, asked }))
	for pool, looked := range map[string]bool{sharedPool: true, "worker-1/shared": true, "worker-2/shared": false, "worker-1": false} {
		req := sharedRequest()
		req.Devices[0].Pool = pool
		if err := twins.Free(t.Context(), req); errors.Is(err, asked) != looked {
			t.Errorf("a device of pool %s: %v, want its twin looked for: %t", pool, err, looked)
		}
	}
}

// reserved is a claim of the shared GPU that the controller has reserved it for.
func reserved(uid string) *resourceapi.ResourceClaim {
	c := plugintest.Allocated(uid, sharedName)
	c.Status.Allocation.Devices.Results[0].Pool = sharedPool
	c.Status.Allocation.AllocationTimestamp = new(metav1.NewTime(time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)))
	c.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
		Driver: v1alpha1.DriverName, Pool: sharedPool, Device: sharedName,
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionTwinReserved, Status: metav1.ConditionTrue, Reason: "Free", LastTransitionTime: *c.Status.Allocation.AllocationTimestamp,
		}},
	}}
	return c
}

func TestReservation(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*resourceapi.ResourceClaim)
		refused bool
	}{
		"of this allocation":    {change: func(*resourceapi.ResourceClaim) {}},
		"of one without a time": {change: func(c *resourceapi.ResourceClaim) { c.Status.Allocation.AllocationTimestamp = nil }},
		"of a former allocation": {func(c *resourceapi.ResourceClaim) {
			c.Status.Devices[0].Conditions[0].LastTransitionTime.Time = time.Unix(1, 0)
		}, true},
		"refused":               {func(c *resourceapi.ResourceClaim) { c.Status.Devices[0].Conditions[0].Status = metav1.ConditionFalse }, true},
		"unknown":               {func(c *resourceapi.ResourceClaim) { c.Status.Devices[0].Conditions[0].Status = metav1.ConditionUnknown }, true},
		"of something else":     {func(c *resourceapi.ResourceClaim) { c.Status.Devices[0].Conditions[0].Type = "Ready" }, true},
		"of another device":     {func(c *resourceapi.ResourceClaim) { c.Status.Devices[0].Device = "gpu-0000-3c-00-0" }, true},
		"of another pool":       {func(c *resourceapi.ResourceClaim) { c.Status.Devices[0].Pool = "worker-1/kata-vfio.dev" }, true},
		"by another driver":     {func(c *resourceapi.ResourceClaim) { c.Status.Devices[0].Driver = vendordriver.Name }, true},
		"none":                  {func(c *resourceapi.ResourceClaim) { c.Status.Devices = nil }, true},
		"without an allocation": {func(c *resourceapi.ResourceClaim) { c.Status.Allocation = nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := reserved("uid-1")
			test.change(c)
			code := rule.Code("")
			if test.refused {
				code = rule.TwinNotReserved
			}
			wantRefused(t, twinsOf(plugintest.Cluster(), nil).Reserved(t.Context(), c, sharedRequest()), code)
		})
	}
}

// sharingNode is a node that shares its GPU, with the vendor's driver, whose claim takes the GPU as soon as it was looked for so often.
type sharingNode struct {
	*plugintest.Node
	kubelet *plugintest.Kubelet
	looks   atomic.Int32
	takenAt int32 // 0: never
}

func newSharingNode(t *testing.T, takenAt int32, objects ...runtime.Object) *sharingNode {
	t.Helper()
	n := &sharingNode{Node: plugintest.New(t), takenAt: takenAt}
	n.Kernel.AddGPU(0x3b)
	n.Reopen(func(c *prepare.Config) {
		c.Node = &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{
			{Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}, SharedWith: vendordriver.Name},
		}, AllowedHandlers: []string{"kata-gpu"}}
	})
	n.Twins = func(client kubernetes.Interface) dra.Exclusion {
		sharing(client.(*fake.Clientset))
		d := vendor(t, client)
		twins := twinsOf(client, preparedPods(d))
		twins.Claims = n
		return twins
	}
	n.kubelet = plugintest.Serve(t, n.Node, n.Claims, "", objects...)
	return n
}

// List implements [dra.ClaimLister].
func (n *sharingNode) List(context.Context, metav1.ListOptions) (*resourceapi.ResourceClaimList, error) {
	list := &resourceapi.ResourceClaimList{}
	if looks := n.looks.Add(1); n.takenAt > 0 && looks >= n.takenAt {
		list.Items = append(list.Items, *theirs(vendordriver.Device(sharedGPU, 0), onNode("worker-1")))
	}
	return list, nil
}

// TestSharedGPUThroughTheSocket: a reserved GPU is prepared and goes back to its host driver; one that the other driver's claim gets
// at any time before the answer is not prepared, or taken back.
func TestSharedGPUThroughTheSocket(t *testing.T) {
	for name, test := range map[string]struct {
		takenAt int32
		change  func(*resourceapi.ResourceClaim)
		words   string
		bound   bool // it was bound meanwhile
	}{
		"free":                    {bound: true},
		"not reserved":            {change: func(c *resourceapi.ResourceClaim) { c.Status.Devices = nil }, words: "kata-vfio-controller has not reserved it"},
		"taken before":            {takenAt: 1, words: "is allocated to a claim"},
		"taken while it is bound": {takenAt: 2, words: "is allocated to a claim", bound: true},
		"allocated before it was shared": {
			change: func(c *resourceapi.ResourceClaim) {
				c.Status.Allocation.Devices.Results[0].Pool = "worker-1/kata-vfio.dev"
			},
			words: "this node publishes it in pool worker-1/kata-vfio.dev/shared",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := reserved("uid-1")
			if test.change != nil {
				test.change(c)
			}
			n := newSharingNode(t, test.takenAt, c)
			answer := n.kubelet.Prepare(c)["uid-1"]
			if (answer.Error == "") != (test.words == "") || !strings.Contains(answer.Error, test.words) {
				t.Fatalf("prepared: %v, want %q", answer, test.words)
			}
			if bound := strings.Contains(fmt.Sprint(n.Kernel.Writes()), "vfio-pci"); bound != test.bound {
				t.Errorf("it was bound: %t, want %t", bound, test.bound)
			}
			driver, want := n.Driver(sharedGPU), "nvidia"
			if test.words == "" {
				want = "vfio-pci"
			}
			if driver != want {
				t.Errorf("bound to %s, want %s", driver, want)
			}
			if rec, err := n.Records.Load("uid-1"); err != nil || (rec != nil) != (test.words == "") {
				t.Errorf("record %v: %v", rec, err)
			}
			if answer := n.kubelet.Unprepare(c)["uid-1"]; answer.Error != "" || n.Driver(sharedGPU) != "nvidia" {
				t.Errorf("unprepared: %v, on %s", answer, n.Driver(sharedGPU))
			}
		})
	}
}

// TestGPUThatWasTakenAfterACrash: the plugin ended between binding the GPU and its second look. The next call takes the GPU back.
func TestGPUThatWasTakenAfterACrash(t *testing.T) {
	c := reserved("uid-1")
	n := newSharingNode(t, 3, c)
	if answer := n.kubelet.Prepare(c)["uid-1"]; answer.Error != "" {
		t.Fatal(answer.Error)
	}
	if answer := n.kubelet.Prepare(c)["uid-1"]; !strings.Contains(answer.Error, "is allocated to a claim") || n.Driver(sharedGPU) != "nvidia" {
		t.Errorf("prepared: %v, on %s", answer, n.Driver(sharedGPU))
	}
	if n.kubelet.Events.Count("TwinInUse") == 0 {
		t.Errorf("no Event of the refusal: %v", n.kubelet.Events.Lines)
	}
}

// TestVMKeepsItsGPU: a VM that runs loses nothing, whatever the other driver's claims say.
func TestVMKeepsItsGPU(t *testing.T) {
	c := reserved("uid-1")
	n := newSharingNode(t, 3, c)
	if answer := n.kubelet.Prepare(c)["uid-1"]; answer.Error != "" {
		t.Fatal(answer.Error)
	}
	group, _ := n.Kernel.Group(sharedGPU)
	n.Kernel.Hold("/dev/vfio/"+itoa(group), 1<<22+1, "qemu-system-x86", "")
	if answer := n.kubelet.Prepare(c)["uid-1"]; !strings.Contains(answer.Error, "qemu-system-x86") || n.Driver(sharedGPU) != "vfio-pci" {
		t.Errorf("prepared: %v, on %s", answer, n.Driver(sharedGPU))
	}
}

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"

	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// viewing is a controller that publishes DeviceClasses only, with what its caches have.
type viewing struct {
	*Controller
	t      *testing.T
	client *fake.Clientset
	now    time.Time
}

func newViewing(t *testing.T) *viewing {
	t.Helper()
	v := &viewing{t: t, client: fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenantsNamespace, Name: cluster.ClassesConfigMap}}), now: time.Unix(0, 0)}
	var err error
	v.Controller, err = New(Config{
		Client: v.client, ClassesNamespace: tenantsNamespace, TaintRules: true,
		Recorder: events.NewFakeRecorder(1), Metrics: NewMetrics(), Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return v.now },
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		v.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("team-%c", 'a'+i), UID: types.UID(fmt.Sprintf("uid-%c", 'a'+i))}})
	}
	return v
}

// put adds an object to the caches, or replaces it.
func (v *viewing) put(object any) {
	v.t.Helper()
	i := &v.informers
	cache := i.claims
	switch object.(type) {
	case *resourceapi.ResourceSlice:
		cache = i.slices[0]
	case *resourceapi.DeviceClass:
		cache = i.classes
	case *corev1.Namespace:
		cache = i.namespaces
	case *resourceapi.DeviceTaintRule:
		cache = i.ruledOut
	}
	if err := cache.GetIndexer().Add(object); err != nil {
		v.t.Fatal(err)
	}
}

// class is a DeviceClass with a selector.
func (v *viewing) class(name, namespaces, selector string) *resourceapi.DeviceClass {
	c := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1", Annotations: map[string]string{"kata-vfio.dev/namespaces": namespaces}}}
	c.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: "device.driver == 'kata-vfio.dev' && " + selector}}}
	v.put(c)
	return c
}

func typeIs(kind string) string {
	return fmt.Sprintf("device.attributes['kata-vfio.dev'].?type.orValue('') == '%s'", kind)
}

// node publishes devices, "gpu-0000-01-00-0", of a model. Those of one counter set share its only unit.
func (v *viewing) node(name, model string, devices ...resourceapi.Device) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}}
	s.Spec = resourceapi.ResourceSliceSpec{Driver: "kata-vfio.dev", NodeName: &name, Pool: resourceapi.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1}, Devices: devices}
	sets := map[string]bool{}
	for i := range devices {
		devices[i].Attributes["model"] = resourceapi.DeviceAttribute{StringValue: &model}
		for _, c := range devices[i].ConsumesCounters {
			if !sets[c.CounterSet] {
				sets[c.CounterSet] = true
				s.Spec.SharedCounters = append(s.Spec.SharedCounters, resourceapi.CounterSet{Name: c.CounterSet, Counters: c.Counters})
			}
		}
	}
	v.put(s)
	return s
}

func gpu(bus int) resourceapi.Device { return deviceOf("gpu", fmt.Sprintf("gpu-0000-%02x-00-0", bus)) }

func deviceOf(kind, name string) resourceapi.Device {
	return resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"type": {StringValue: &kind}}}
}

// sharing takes the only unit of a counter set.
func sharing(set string, d resourceapi.Device) resourceapi.Device {
	d.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: set, Counters: map[string]resourceapi.Counter{"use": {Value: quantity.MustParse("1")}}}}
	return d
}

func tainted(effect resourceapi.DeviceTaintEffect, d resourceapi.Device) resourceapi.Device {
	d.Taints = []resourceapi.DeviceTaint{{Key: "kata-vfio.dev/audit", Value: "IOM-003", Effect: effect}}
	return d
}

// claim gives a device to a claim.
func (v *viewing) claim(node, device string) {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "secret-project-" + device}}
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
		{Request: "one", Driver: "kata-vfio.dev", Pool: node, Device: device},
	}}}
	v.put(c)
}

// offers are the counts of the view, by class.
func (v *viewing) offers() map[string]string {
	all := map[string]string{}
	for _, c := range v.classes.view(v.t.Context()).Classes {
		all[c.Name] = fmt.Sprint(c.Free)
		if c.AtLeast {
			all[c.Name] += "+"
		}
		if c.SelectorFails {
			all[c.Name] += " fails"
		}
	}
	return all
}

// TestFreeDevicesAreCounted: as many as new claims can get at the same time.
func TestFreeDevicesAreCounted(t *testing.T) {
	v := newViewing(t)
	v.class("gpu.kata-vfio.dev", "*", typeIs("gpu"))
	v.class("pair.kata-vfio.dev", "*", typeIs("pair"))
	v.class("any.example.com", "*", "true")
	v.class("broken.kata-vfio.dev", "*", "device.attributes['kata-vfio.dev'].missing == 'a'")
	v.class("gpu.example.com", "", "true")
	other := v.class("theirs.example.com", "", "true")
	other.Annotations, other.Spec.Selectors[0].CEL.Expression = nil, "device.driver == 'gpu.example.com'"
	v.node("a", "NVIDIA L40S", gpu(1), gpu(2), tainted(resourceapi.DeviceTaintEffectNoSchedule, gpu(3)), tainted(resourceapi.DeviceTaintEffectNone, gpu(4)),
		sharing("unit-5", gpu(5)), sharing("unit-5", deviceOf("pair", "pair-0000-05-00-0-0000-06-00-2")))
	want := map[string]string{"gpu.kata-vfio.dev": "4", "pair.kata-vfio.dev": "1", "any.example.com": "4", "broken.kata-vfio.dev": "0 fails", "gpu.example.com": "4"}
	if diff := cmp.Diff(want, v.offers()); diff != "" {
		t.Errorf("at first (-want +got):\n%s", diff)
	}
	v.claim("a", "gpu-0000-01-00-0")
	v.claim("a", "gpu-0000-05-00-0")
	want = map[string]string{"gpu.kata-vfio.dev": "2", "pair.kata-vfio.dev": "0", "any.example.com": "2", "broken.kata-vfio.dev": "0 fails", "gpu.example.com": "2"}
	if diff := cmp.Diff(want, v.offers()); diff != "" {
		t.Errorf("with claims (-want +got):\n%s", diff)
	}
	var many []resourceapi.Device
	for bus := range 21 {
		many = append(many, gpu(bus))
	}
	v.node("b", "NVIDIA H100", many...)
	if got := v.offers()["gpu.kata-vfio.dev"]; got != "16+" {
		t.Errorf("of 23: got %s, want 16+", got)
	}
}

// taintRule is a rule of a pool's devices, of one of them if device has its name.
func taintRule(name, driver, pool, device string, effect resourceapi.DeviceTaintEffect) *resourceapi.DeviceTaintRule {
	r := &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: name}}
	r.Spec.DeviceSelector = &resourceapi.DeviceTaintSelector{}
	if driver != "" {
		r.Spec.DeviceSelector.Driver = &driver
	}
	if pool != "" {
		r.Spec.DeviceSelector.Pool = &pool
	}
	if device != "" {
		r.Spec.DeviceSelector.Device = &device
	}
	r.Spec.Taint = resourceapi.DeviceTaint{Key: "kata-vfio.dev/drained", Value: "ByRule", Effect: effect}
	return r
}

// TestRuledOutDevicesAreNotFree: a device from which anyone's rule keeps claims is not free, and a rule that only informs changes nothing.
func TestRuledOutDevicesAreNotFree(t *testing.T) {
	const noSchedule, ours, first = resourceapi.DeviceTaintEffectNoSchedule, "kata-vfio.dev", "gpu-0000-01-00-0"
	without := taintRule("r", "", "", "", noSchedule)
	without.Spec.DeviceSelector = nil
	for name, c := range map[string]struct {
		rule *resourceapi.DeviceTaintRule
		want string
	}{
		"a drain of a node":           {taintRule("r", ours, "a", "", noSchedule), "1"},
		"a drain that evicts":         {taintRule("r", ours, "a", "", resourceapi.DeviceTaintEffectNoExecute), "1"},
		"a drain of a device":         {taintRule("r", ours, "a", first, noSchedule), "3"},
		"a device of any driver":      {taintRule("r", "", "a", first, noSchedule), "3"},
		"a device's name in any pool": {taintRule("r", ours, "", first, noSchedule), "2"},
		"all devices":                 {taintRule("r", "", "", "", noSchedule), "0"},
		"another driver's devices":    {taintRule("r", otherDriver, "a", first, noSchedule), "4"},
		"no selector":                 {without, "4"},
		"a taint that only informs":   {taintRule("r", ours, "a", "", resourceapi.DeviceTaintEffectNone), "4"},
	} {
		v := newViewing(t)
		v.class("gpu.kata-vfio.dev", "*", typeIs("gpu"))
		v.node("a", "NVIDIA L40S", gpu(1), gpu(2), gpu(3))
		v.node("b", "NVIDIA L40S", gpu(1))
		v.put(c.rule)
		if got := v.offers()["gpu.kata-vfio.dev"]; got != c.want {
			t.Errorf("%s: %s devices are free, want %s", name, got, c.want)
		}
	}
}

// TestViewRevealsNobody: no namespace, node, device or claim, and grants only to those who can get the namespace.
func TestViewRevealsNobody(t *testing.T) {
	v := newViewing(t)
	v.class("gpu.kata-vfio.dev", " team-a , team-c,team-gone", typeIs("gpu")).Spec.Config = []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
		Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: "kata-vfio.dev"},
	}}}
	class := v.class("vf.kata-vfio.dev", "*", typeIs("vf"))
	class.Spec.Config = []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: "kata-vfio.dev"}}}}
	class.Spec.Config[0].Opaque.Parameters.Raw = []byte(`{"apiVersion":"resource.kata-vfio.dev/v1alpha1","kind":"VFConfig","vlan":1234,"trust":true}`)
	v.node("secret-node", "NVIDIA L40S", gpu(1))
	v.claim("secret-node", "gpu-0000-01-00-0")
	view := v.classes.view(t.Context())
	text, err := view.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"team-", "uid-", "secret", "gpu-0000", "1234"} {
		if strings.Contains(text, word) {
			t.Errorf("the view has %q:\n%s", word, text)
		}
	}
	want := []string{cluster.GrantKey("gpu.kata-vfio.dev", "uid-a"), cluster.GrantKey("gpu.kata-vfio.dev", "uid-c")}
	slices.Sort(want)
	if diff := cmp.Diff(want, view.Grants); diff != "" {
		t.Errorf("grants (-want +got):\n%s", diff)
	}
	for uid, granted := range map[string]bool{"uid-a": true, "uid-b": false, "uid-c": true, "": false} {
		if got := view.Granted(&view.Classes[0], uid); got != granted || !view.Granted(&view.Classes[1], uid) {
			t.Errorf("%q has class %s: got %t, want %t; and all have %s", uid, view.Classes[0].Name, got, granted, view.Classes[1].Name)
		}
	}
	offer := view.Classes[1]
	if got := fmt.Sprint(offer.Kinds, offer.Sets, offer.Weakens); got != "[] [vlan trust] [vlan trust]" {
		t.Errorf("got %s, want what the class sets", got)
	}
}

// patches are the writes since the last call, each checked: the field manager, and that only the view's key changes.
func (v *viewing) patches() (written []cluster.ClassView) {
	v.t.Helper()
	for _, a := range v.client.Actions() {
		p, ok := a.(interface {
			GetPatch() []byte
			GetName() string
		})
		if !ok || a.GetVerb() != "patch" || p.GetName() != cluster.ClassesConfigMap {
			v.t.Errorf("got a %s of %s, want patches of the view only", a.GetVerb(), a.GetResource().Resource)
			continue
		}
		var patch map[string]map[string]string
		if err := json.Unmarshal(p.GetPatch(), &patch); err != nil || len(patch) != 1 || len(patch["data"]) != 1 {
			v.t.Errorf("got the patch %s (%v), want one key of data", p.GetPatch(), err)
		}
		view, err := cluster.DecodeClassView(patch["data"][cluster.ClassesKey])
		if err != nil {
			v.t.Error(err)
			continue
		}
		written = append(written, *view)
	}
	v.client.ClearActions()
	return written
}

// TestViewIsWrittenSeldom: when it changes, and at times, so that readers see whether the controller runs.
func TestViewIsWrittenSeldom(t *testing.T) {
	v := newViewing(t)
	v.class("gpu.kata-vfio.dev", "*", typeIs("gpu"))
	v.node("a", "NVIDIA L40S", gpu(1), gpu(2))
	round := func(when string, want ...int) {
		t.Helper()
		v.classes.round(t.Context())
		var got []int
		for _, view := range v.patches() {
			got = append(got, view.Classes[0].Free)
			if view.Updated != v.now.UTC().Format(time.RFC3339) {
				t.Errorf("%s, the view is of %s, want now", when, view.Updated)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s, got the counts %v, want %v", when, got, want)
		}
		v.now = v.now.Add(classesEvery)
	}
	round("at first", 2)
	round("without a change")
	v.claim("a", "gpu-0000-01-00-0")
	round("with a claim", 1)
	v.now = v.now.Add(classesRenewed)
	round("after a while", 1)
	if err := v.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), tenantsNamespace, cluster.ClassesConfigMap); err != nil {
		t.Fatal(err)
	}
	v.claim("a", "gpu-0000-02-00-0")
	round("without the ConfigMap, which is the chart's to create", 0)
	round("as that write failed", 0)
}

// TestLeaderPublishesTheView at fixed times, with no other right than to read what it counts and to patch the view.
func TestLeaderPublishesTheView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newViewing(t)
		v.config.Now = time.Now
		class := v.class("gpu.kata-vfio.dev", "team-a", typeIs("gpu"))
		team := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "uid-a"}}
		for _, o := range []runtime.Object{class, team, v.node("a", "NVIDIA L40S", gpu(1), gpu(2))} {
			if err := v.client.Tracker().Add(o); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { v.Watch(ctx) })
		wg.Go(func() { v.Lead(ctx) })
		defer wg.Wait()
		defer stop()
		written := func() (got []string) {
			for _, a := range v.client.Actions() {
				if verb := a.GetVerb(); verb != "list" && verb != "watch" {
					got = append(got, verb+" "+a.GetResource().Resource)
				}
			}
			v.client.ClearActions()
			return got
		}
		for _, c := range []struct {
			wait time.Duration
			want []string
		}{{soon, []string{"patch configmaps"}}, {classesRenewed - 2*classesEvery, nil}, {2 * classesEvery, []string{"patch configmaps"}}} {
			after(c.wait)
			if got := written(); !slices.Equal(got, c.want) {
				t.Errorf("after %s: got %q, want %q", c.wait, got, c.want)
			}
		}
		if got := v.NotReady(); got != "" {
			t.Errorf("not ready: %q", got)
		}
	})
}

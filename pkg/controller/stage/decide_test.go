package stage_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/controller/stage"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

const (
	namespace = "kata-vfio-sanitizing"
	image     = "registry.example/s@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	second    = stage.Millis(1000)
	minute    = 60 * second
)

// sanitizers has two profiles: memory runs two stages at a time, nvme one.
func sanitizers() *v1alpha1.Sanitizers {
	return &v1alpha1.Sanitizers{Namespace: namespace, DeviceClass: "sanitize.kata-vfio.dev", Profiles: []v1alpha1.Sanitizer{
		{Name: "memory", Image: image, Args: []string{"memory"}, RuntimeClass: "kata-gpu", TimeoutSeconds: 600, MaxParallel: 2},
		{Name: "nvme", Image: image, Args: []string{"nvme"}, RuntimeClass: "kata-vfio", TimeoutSeconds: 7200, MaxParallel: 1, Privileged: true},
	}}
}

// device is the ID of the GPU at a slot of a node.
func device(node string, slot int) cluster.ID {
	return cluster.ID{Driver: v1alpha1.DriverName, Pool: node, Name: fmt.Sprintf("gpu-0000-%02x-00-0", slot)}
}

// gpu publishes the GPU at a slot with taints: "key=value".
func gpu(slot int, taints ...string) resourceapi.Device {
	d := resourceapi.Device{Name: device("", slot).Name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		publish.AttrPCIBusID: {StringValue: new(fmt.Sprintf("0000:%02x:00.0", slot))},
	}}
	for _, t := range taints {
		key, value, _ := strings.Cut(t, "=")
		d.Taints = append(d.Taints, resourceapi.DeviceTaint{Key: key, Value: value, Effect: resourceapi.DeviceTaintEffectNoSchedule})
	}
	return d
}

// pair publishes the GPU at a slot with a VF, as one device.
func pair(slot int, taints ...string) resourceapi.Device {
	d := gpu(slot, taints...)
	d.Name += "-vf-0000-f0-00-1"
	d.Attributes[publish.AttrVF] = resourceapi.DeviceAttribute{StringValue: new("0000:f0:00.1")}
	return d
}

const (
	memory      = v1alpha1.TaintSanitizing + "=memory"
	nvme        = v1alpha1.TaintSanitizing + "=nvme"
	quarantined = publish.TaintQuarantined
)

func slice(node string, devices ...resourceapi.Device) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: v1alpha1.DriverName, NodeName: &node, Devices: devices,
			Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		},
	}
}

// given allocates a device to a claim.
func given(c *resourceapi.ResourceClaim, id cluster.ID) *resourceapi.ResourceClaim {
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Driver: id.Driver, Pool: id.Pool, Device: id.Name}},
	}}
	return c
}

func tenant(id cluster.ID) *resourceapi.ResourceClaim {
	return given(&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "train", UID: "tenant"}}, id)
}

func waitingAt(id cluster.ID, profile string) *stage.Waiting {
	slot := 0
	if _, err := fmt.Sscanf(id.Name, "gpu-0000-%02x", &slot); err != nil {
		panic(err) // a mistake of the test
	}
	d := &cluster.Device{ID: id, Node: id.Node(), Details: &cluster.Details{}}
	d.Details.Address = fmt.Sprintf("0000:%02x:00.0", slot)
	return &stage.Waiting{Device: d, Profile: profile}
}

func claimOf(id cluster.ID, profile string) *resourceapi.ResourceClaim {
	c := stage.Claim(sanitizers(), waitingAt(id, profile))
	c.UID = types.UID("claim of " + id.String())
	return c
}

func podOf(t *testing.T, id cluster.ID, profile string, change ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	p, err := stage.Pod(sanitizers(), waitingAt(id, profile))
	if err != nil {
		t.Fatal(err)
	}
	p.UID = types.UID("pod of " + id.String())
	for _, f := range change {
		f(p)
	}
	return p
}

func scheduled(p *corev1.Pod) { p.Spec.NodeName = "node" }

func started(p *corev1.Pod) {
	scheduled(p)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "sanitizer", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

func ended(p *corev1.Pod) {
	scheduled(p)
	p.Status.Phase = corev1.PodSucceeded
	p.CreationTimestamp = metav1.Unix(100, 0)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "sanitizer", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Unix(190, 0)}}}}
}

func deleted(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }

// everywhere says that the slices of all nodes of the tests are fresh.
func everywhere() map[string]bool { return map[string]bool{"a": true, "b": true, "": true} }

func view(objects ...any) *stage.View {
	v := &stage.View{Sanitizers: sanitizers(), Cluster: &cluster.Cluster{}, Fresh: everywhere()}
	for _, o := range objects {
		v.Cluster.Add(o)
	}
	return v
}

// told are the actions as text: "create a/gpu-0000-01-00-0 memory", "delete a/gpu-0000-01-00-0 needless".
func told(actions []stage.Action) []string {
	texts := []string{}
	for _, a := range actions {
		switch a := a.(type) {
		case stage.Create:
			texts = append(texts, "create "+a.ID.Pool+"/"+a.ID.Name+" "+a.Profile)
		case stage.Delete:
			texts = append(texts, "delete "+a.Device.Pool+"/"+a.Device.Name+" "+string(a.Why))
		}
	}
	return texts
}

func TestDecide(t *testing.T) {
	one, two := device("a", 1), device("a", 2)
	const a1, a2 = "a/gpu-0000-01-00-0", "a/gpu-0000-02-00-0"
	pending, running := podOf(t, one, "memory"), podOf(t, one, "memory", started)
	unfinished := slice("a", gpu(1))
	unfinished.Spec.Pool.ResourceSliceCount = 2
	ignored := gpu(1, memory, publish.TaintAudit)
	ignored.Taints[1].Effect = resourceapi.DeviceTaintEffectNone
	older := claimOf(one, "memory")
	older.DeletionTimestamp = &metav1.Time{}
	foreign := podOf(t, one, "memory")
	foreign.Labels = nil
	for name, c := range map[string]struct {
		objects []any
		want    []string
	}{
		"a device that waits":               {[]any{slice("a", gpu(1, memory), gpu(2))}, []string{"create " + a1 + " memory"}},
		"one per profile and limit":         {[]any{slice("a", gpu(1, memory), gpu(2, memory), gpu(3, memory), gpu(4, nvme), gpu(5, nvme))}, []string{"create " + a1 + " memory", "create " + a2 + " memory", "create a/gpu-0000-04-00-0 nvme"}},
		"a profile that does not exist":     {[]any{slice("a", gpu(1, v1alpha1.TaintSanitizing+"=gone"))}, nil},
		"quarantine":                        {[]any{slice("a", gpu(1, memory, quarantined))}, nil},
		"a drain":                           {[]any{slice("a", gpu(1, memory, publish.TaintDrain))}, nil},
		"a taint without effect":            {[]any{slice("a", ignored)}, []string{"create " + a1 + " memory"}},
		"a domain of its last tenant":       {[]any{slice("a", gpu(1, memory, v1alpha1.TaintTenant+"=0123456789abcdef"))}, []string{"create " + a1 + " memory"}},
		"a device of a tenant":              {[]any{slice("a", gpu(1, memory)), tenant(one)}, nil},
		"a GPU whose pair has a tenant":     {[]any{slice("a", gpu(1, memory), pair(1, memory)), tenant(cluster.ID{Driver: one.Driver, Pool: "a", Name: pair(1).Name})}, nil},
		"a GPU before its pair":             {[]any{slice("a", pair(1, memory), gpu(1, memory))}, []string{"create " + a1 + " memory"}},
		"a pair whose GPU has a stage":      {[]any{slice("a", gpu(1, memory), pair(1, memory)), claimOf(one, "memory"), running}, nil},
		"a pool that is being written":      {[]any{unfinished}, nil},
		"a stage that runs":                 {[]any{slice("a", gpu(1, memory)), given(claimOf(one, "memory"), one), running}, nil},
		"a stage that waits for its node":   {[]any{slice("a", gpu(1, memory)), claimOf(one, "memory"), pending}, nil},
		"a full profile":                    {[]any{slice("a", gpu(4, nvme), gpu(5, nvme)), claimOf(device("a", 4), "nvme"), podOf(t, device("a", 4), "nvme")}, nil},
		"an ended stage leaves its place":   {[]any{slice("a", gpu(4, nvme), gpu(5, nvme)), claimOf(device("a", 4), "nvme"), podOf(t, device("a", 4), "nvme", ended)}, []string{"create a/gpu-0000-05-00-0 nvme"}},
		"an ended stage, undecided":         {[]any{slice("a", gpu(1, memory)), claimOf(one, "memory"), podOf(t, one, "memory", ended)}, nil},
		"a clean device":                    {[]any{slice("a", gpu(1)), claimOf(one, "memory"), podOf(t, one, "memory", ended)}, []string{"delete " + a1 + " decided"}},
		"a dirty device":                    {[]any{slice("a", gpu(1, memory, quarantined)), claimOf(one, "memory"), podOf(t, one, "memory", ended)}, []string{"delete " + a1 + " decided"}},
		"an ended stage of no slice":        {[]any{claimOf(one, "memory"), podOf(t, one, "memory", ended)}, nil},
		"an ended stage, pool rewritten":    {[]any{unfinished, claimOf(one, "memory"), podOf(t, one, "memory", ended)}, nil},
		"an ended stage without its claim":  {[]any{slice("a", gpu(1)), podOf(t, one, "memory", ended)}, []string{"delete " + a1 + " decided"}},
		"a claim without a pod":             {[]any{slice("a", gpu(1, memory)), claimOf(one, "memory")}, []string{"delete " + a1 + " incomplete"}},
		"a pod without a claim":             {[]any{slice("a", gpu(1, memory)), pending}, []string{"delete " + a1 + " incomplete"}},
		"a claim that is being deleted":     {[]any{slice("a", gpu(1, memory)), older}, nil},
		"a pod that a user deleted":         {[]any{slice("a", gpu(1, memory)), claimOf(one, "memory"), podOf(t, one, "memory", started, deleted)}, nil},
		"no longer waiting, no node yet":    {[]any{slice("a", gpu(1)), claimOf(one, "memory"), pending}, []string{"delete " + a1 + " needless"}},
		"another profile, no node yet":      {[]any{slice("a", gpu(1, nvme)), claimOf(one, "memory"), pending}, []string{"delete " + a1 + " needless"}},
		"another image, no node yet":        {[]any{slice("a", gpu(1, memory)), claimOf(one, "memory"), podOf(t, one, "memory", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "old" })}, []string{"delete " + a1 + " needless"}},
		"other arguments, no node yet":      {[]any{slice("a", gpu(1, memory)), claimOf(one, "memory"), podOf(t, one, "memory", func(p *corev1.Pod) { p.Spec.Containers[0].Args = nil })}, []string{"delete " + a1 + " needless"}},
		"a tenant was faster":               {[]any{slice("a", gpu(1, memory)), claimOf(one, "memory"), pending, tenant(one)}, []string{"delete " + a1 + " needless"}},
		"no longer waiting, not started":    {[]any{slice("a", gpu(1)), given(claimOf(one, "memory"), one), podOf(t, one, "memory", scheduled)}, []string{"delete " + a1 + " needless"}},
		"drained before it started":         {[]any{slice("a", gpu(1, memory, publish.TaintDrain)), given(claimOf(one, "memory"), one), podOf(t, one, "memory", scheduled)}, nil},
		"no longer waiting, but running":    {[]any{slice("a", gpu(1)), given(claimOf(one, "memory"), one), running}, nil},
		"the plugin is away":                {[]any{given(claimOf(one, "memory"), one), running}, nil},
		"what is not the controller's own":  {[]any{slice("a", gpu(1)), foreign}, nil},
		"another driver's device":           {[]any{&resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: new("a"), Devices: []resourceapi.Device{gpu(1, memory)}, Pool: resourceapi.ResourcePool{Name: "a", ResourceSliceCount: 1}}}}, nil},
		"a device without a PCI address":    {[]any{slice("a", resourceapi.Device{Name: "x", Taints: gpu(1, memory).Taints})}, nil},
		"another device's stage is nothing": {[]any{slice("a", gpu(1, memory), gpu(2, memory)), given(claimOf(two, "memory"), two), podOf(t, two, "memory", started)}, []string{"create " + a1 + " memory"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := stage.Decide(view(c.objects...), &stage.Memory{}, minute)
			if diff := cmp.Diff(append([]string{}, c.want...), told(got.Actions)); diff != "" {
				t.Errorf("the actions differ (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCountersKeepStagesAway: a PF and its VFs can't be given at the same time.
func TestCountersKeepStagesAway(t *testing.T) {
	set := resourceapi.CounterSet{Name: "pf", Counters: map[string]resourceapi.Counter{"functions": {}}}
	uses := func(d resourceapi.Device, n int64) resourceapi.Device {
		c := resourceapi.Counter{}
		c.Value.Set(n)
		d.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: "pf", Counters: map[string]resourceapi.Counter{"functions": c}}}
		return d
	}
	total := resourceapi.Counter{}
	total.Value.Set(2)
	set.Counters["functions"] = total
	counters := slice("a")
	counters.Name, counters.Spec.SharedCounters, counters.Spec.Pool.ResourceSliceCount = "counters", []resourceapi.CounterSet{set}, 2
	devices := slice("a", uses(gpu(1, memory), 2), uses(gpu(2), 1), uses(gpu(3, memory), 1))
	devices.Spec.Pool.ResourceSliceCount = 2
	got := told(stage.Decide(view(counters, devices, tenant(device("a", 2))), &stage.Memory{}, 0).Actions)
	if want := []string{"create a/gpu-0000-03-00-0 memory"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTimeEndsStages: each row decides at some times, and names the time from which on the stage is deleted.
func TestTimeEndsStages(t *testing.T) {
	one := device("a", 1)
	for name, c := range map[string]struct {
		pod   *corev1.Pod
		after stage.Millis
		why   string
	}{
		"no node":     {podOf(t, one, "memory"), stage.PendingLimit, "overdue"},
		"no end":      {podOf(t, one, "memory", started), 10*minute + stage.LostLimit, "overdue"},
		"no start":    {podOf(t, one, "memory", scheduled), 10*minute + stage.LostLimit, "overdue"},
		"no decision": {podOf(t, one, "memory", ended), stage.DecideLimit, "undecided"},
		"evicted": {podOf(t, one, "memory", ended, func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
		}), stage.DecideLimit, "undecided"},
		"no deadline of its own": {podOf(t, one, "memory", started, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = nil }), 30*minute + stage.LostLimit, "overdue"},
	} {
		t.Run(name, func(t *testing.T) {
			m, v := &stage.Memory{}, view(slice("a", gpu(1, memory)), claimOf(one, "memory"), c.pod)
			const begin = 5 * minute
			first := stage.Decide(v, m, begin)
			if len(first.Actions) > 0 || first.RequeueAfter != c.after {
				t.Errorf("at first: %q, again after %d; want nothing, and %d", told(first.Actions), first.RequeueAfter, c.after)
			}
			if got := stage.Decide(v, m, begin+c.after-1); len(got.Actions) > 0 || got.RequeueAfter != 1 {
				t.Errorf("just before the limit: %q, again after %d", told(got.Actions), got.RequeueAfter)
			}
			got := told(stage.Decide(v, m, begin+c.after).Actions)
			if want := []string{"delete a/gpu-0000-01-00-0 " + c.why}; !slices.Equal(got, want) {
				t.Errorf("at the limit: got %q, want %q", got, want)
			}
		})
	}
}

// TestStuckStageKeepsNoOthersBack: a node that is down keeps its deleted pod for ever.
func TestStuckStageKeepsNoOthersBack(t *testing.T) {
	four := device("a", 4)
	m, v := &stage.Memory{}, view(slice("a", gpu(4, nvme)), slice("b", gpu(5, nvme)), claimOf(four, "nvme"), podOf(t, four, "nvme", started, deleted))
	if got := stage.Decide(v, m, 0); len(got.Actions) > 0 || got.RequeueAfter != stage.StuckLimit {
		t.Errorf("at first: %q, again after %d", told(got.Actions), got.RequeueAfter)
	}
	got := told(stage.Decide(v, m, stage.StuckLimit).Actions)
	if want := []string{"create b/gpu-0000-05-00-0 nvme"}; !slices.Equal(got, want) {
		t.Errorf("at the limit: got %q, want %q", got, want)
	}
}

// TestDevicesTakeTurns: the device that waits longest is next, and one that had a stage comes last.
func TestDevicesTakeTurns(t *testing.T) {
	m, taints := &stage.Memory{}, map[int]string{1: nvme, 2: nvme}
	round := func(now stage.Millis) []string {
		var devices []resourceapi.Device
		for _, slot := range slices.Sorted(maps.Keys(taints)) {
			devices = append(devices, gpu(slot, taints[slot]))
		}
		return told(stage.Decide(view(slice("a", devices...)), m, now).Actions)
	}
	var got []string
	got = append(got, round(0)...)
	taints[3] = nvme
	for now := range 4 {
		got = append(got, round(minute*stage.Millis(now+1))...) // each stage ends at once, without a result
	}
	var want []string
	for _, slot := range []int{1, 2, 1, 3, 2} { // 1 has waited again when 3 comes
		want = append(want, fmt.Sprintf("create a/gpu-0000-%02x-00-0 nvme", slot))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the turns differ (-want +got):\n%s", diff)
	}
}

// TestFailedCreationsPause: the pauses of a profile double, end with a success, and don't concern other profiles.
func TestFailedCreationsPause(t *testing.T) {
	m, v, now := &stage.Memory{}, view(slice("a", gpu(1, memory), gpu(4, nvme))), minute
	fail := func(want stage.Millis) {
		t.Helper()
		m.Created("memory", false, now)
		got := stage.Decide(v, m, now)
		if diff := cmp.Diff([]string{"create a/gpu-0000-04-00-0 nvme"}, told(got.Actions)); diff != "" || got.RequeueAfter != want {
			t.Errorf("after a failure: again after %d, want %d; the actions differ (-want +got):\n%s", got.RequeueAfter, want, diff)
		}
		now += want
		if got := told(stage.Decide(v, m, now).Actions); len(got) != 2 {
			t.Errorf("after the pause: %q", got)
		}
	}
	for _, seconds := range []stage.Millis{5, 10, 20, 40, 80, 160, 300, 300} {
		fail(seconds * second)
	}
	m.Created("memory", true, now)
	fail(5 * second)
}

// TestNothingRestsOnACache: without fresh slices of the node, Decide asks for them.
func TestNothingRestsOnACache(t *testing.T) {
	one := device("b", 1)
	v := view(slice("a", gpu(1, memory)), slice("b", gpu(1)), claimOf(one, "memory"), podOf(t, one, "memory", ended))
	for _, c := range []struct {
		fresh  map[string]bool
		unsure []string
		want   []string
	}{
		{nil, []string{"a", "b"}, []string{}},
		{map[string]bool{"a": true}, []string{"b"}, []string{"create a/gpu-0000-01-00-0 memory"}},
		{map[string]bool{"b": true}, []string{"a"}, []string{"delete b/gpu-0000-01-00-0 decided"}},
	} {
		v.Fresh = c.fresh
		got := stage.Decide(v, &stage.Memory{}, 0)
		if !slices.Equal(got.Unsure, c.unsure) || !slices.Equal(told(got.Actions), c.want) {
			t.Errorf("fresh %v: unsure %q, actions %q; want %q and %q", c.fresh, got.Unsure, told(got.Actions), c.unsure, c.want)
		}
	}
}

func TestDeletionsNameWhatTheyDelete(t *testing.T) {
	one := device("a", 1)
	pod, claim := podOf(t, one, "memory", ended), claimOf(one, "memory")
	pod.ResourceVersion, claim.ResourceVersion = "7", "8"
	a, ok := stage.Decide(view(slice("a", gpu(1)), claim, pod), &stage.Memory{}, 0).Actions[0].(stage.Delete)
	if !ok || !a.HasTime || a.Took != 90*second {
		t.Errorf("the deletion is %+v, want one of a stage of 90 s", a)
	}
	gotPod, gotClaim := a.Objects()
	if diff := cmp.Diff(&stage.Preconditions{Name: stage.Name(one), UID: pod.UID, ResourceVersion: "7"}, gotPod); diff != "" {
		t.Errorf("of the pod, the preconditions differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&stage.Preconditions{Name: stage.Name(one), UID: claim.UID, ResourceVersion: "8"}, gotClaim); diff != "" {
		t.Errorf("of the claim, the preconditions differ (-want +got):\n%s", diff)
	}
	claim.DeletionTimestamp = &metav1.Time{}
	if _, again := (stage.Delete{Stage: a.Stage}).Objects(); again != nil {
		t.Errorf("a claim that is being deleted is deleted again: %+v", again)
	}
}

func TestCounts(t *testing.T) {
	one := device("a", 1)
	v := view(slice("a", gpu(1, memory), gpu(2, memory), gpu(3, memory), gpu(4, nvme, quarantined), gpu(6, v1alpha1.TaintSanitizing+"=gone")),
		claimOf(one, "memory"), podOf(t, one, "memory", started), tenant(device("a", 3)))
	want := map[string]stage.Count{"memory": {Waiting: 1, Running: 1}, "nvme": {}, "gone": {Waiting: 1}}
	if diff := cmp.Diff(want, v.Counts()); diff != "" {
		t.Errorf("the counts differ (-want +got):\n%s", diff)
	}
}

// TestName: a stage outlives releases of the controller, so the name of a device's stage never changes.
func TestName(t *testing.T) {
	got := stage.Name(device("a", 1))
	if want := "sanitize-4f9df9161575f41b"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, other := range []cluster.ID{device("b", 1), device("a", 2), {Driver: "x", Pool: "a", Name: device("a", 1).Name}} {
		if stage.Name(other) == got {
			t.Errorf("%v has the same name", other)
		}
	}
	c := claimOf(device("node/kata-vfio.dev/shared", 1), "memory")
	if id, ok := stage.AnnotatedDevice(c); !ok || id != device("node/kata-vfio.dev/shared", 1) {
		t.Errorf("the device of the claim is %v, %v", id, ok)
	}
	c.Annotations[stage.AnnotationDevice] = device("node", 1).String()
	if id, ok := stage.AnnotatedDevice(c); ok {
		t.Errorf("a claim with the annotation of another device has the device %v", id)
	}
}

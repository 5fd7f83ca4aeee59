package stage_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/controller/stage"
)

// TestModel runs random sequences of tenants, kubelets, plugins, users and controllers that restart, crash in the middle of
// an action and decide on stale caches. KATA_VFIO_STAGE_MODELS says how many, and KATA_VFIO_SEED repeats those from a seed on.
func TestModel(t *testing.T) {
	n, seed := number(t, "KATA_VFIO_STAGE_MODELS", 100), number(t, "KATA_VFIO_SEED", rand.Int64N(1_000_000))
	t.Logf("%d sequences from seed %d on", n, seed)
	stages := 0
	for i := range n {
		w := newWorld(t, seed+i)
		for range 400 {
			w.step()
		}
		w.settle()
		stages += w.made
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed+i, w.log.String())
		}
	}
	if stages < int(n)*5 {
		t.Errorf("%d sequences had %d stages in all", n, stages)
	}
}

func number(t *testing.T, variable string, otherwise int64) int64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// modelDevice is what a node knows of a device.
type modelDevice struct {
	id          cluster.ID
	slot        int
	isPair      bool
	profile     string
	waits       bool
	quarantined bool
	interrupted int
	tenant      bool
}

// modelPod is what a node knows of a pod: whether Prepare gave it the device, whether it runs, and since when it has ended.
type modelPod struct {
	prepared, running bool
	scheduledAt       stage.Millis
	endedAt           stage.Millis
}

// world is a cluster. Its maps are what the API server has.
type world struct {
	t       *testing.T
	random  *rand.Rand
	now     stage.Millis
	devices []*modelDevice
	claims  map[string]*resourceapi.ResourceClaim
	pods    map[string]*corev1.Pod
	nodes   map[types.UID]*modelPod // by the pod's UID
	down    map[string]bool         // nodes that are down
	memory  *stage.Memory
	cached  []any
	version int
	made    int
	log     strings.Builder
}

func newWorld(t *testing.T, seed int64) *world {
	w := &world{
		t: t, random: rand.New(rand.NewPCG(uint64(seed), 1)), claims: map[string]*resourceapi.ResourceClaim{}, pods: map[string]*corev1.Pod{},
		nodes: map[types.UID]*modelPod{}, down: map[string]bool{}, memory: &stage.Memory{},
	}
	for _, node := range []string{"a", "b"} {
		for slot := 1; slot <= 3; slot++ {
			w.devices = append(w.devices, &modelDevice{id: device(node, slot), slot: slot, profile: "memory"})
		}
		w.devices = append(w.devices, &modelDevice{id: device(node, 4), slot: 4, profile: "nvme"})
	}
	both := &modelDevice{id: device("a", 1), slot: 1, profile: "memory", isPair: true} // the GPU of the first device, with a VF
	both.id.Name = pair(1).Name
	w.devices = append(w.devices, both)
	w.refresh()
	return w
}

func (w *world) note(format string, args ...any) {
	fmt.Fprintf(&w.log, "%6d  %s\n", w.now/1000, fmt.Sprintf(format, args...))
}

func (w *world) chance(percent int) bool { return w.random.IntN(100) < percent }

func (w *world) one() *modelDevice { return w.devices[w.random.IntN(len(w.devices))] }

// slices are what the plugins publish.
func (w *world) slices() []any {
	byNode := map[string][]resourceapi.Device{}
	for _, d := range w.devices {
		var taints []string
		if d.waits {
			taints = append(taints, map[string]string{"memory": memory, "nvme": nvme}[d.profile])
		}
		if d.quarantined {
			taints = append(taints, quarantined)
		}
		published := gpu(d.slot, taints...)
		if d.isPair {
			published = pair(d.slot, taints...)
		}
		byNode[d.id.Pool] = append(byNode[d.id.Pool], published)
	}
	var all []any
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		all = append(all, slice(node, byNode[node]...))
	}
	return all
}

// objects are all that the API server has now, as copies.
func (w *world) objects() []any {
	all := w.slices()
	for _, name := range slices.Sorted(maps.Keys(w.claims)) {
		all = append(all, w.claims[name].DeepCopy())
	}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		all = append(all, w.pods[name].DeepCopy())
	}
	for _, d := range w.devices {
		if d.tenant {
			c := tenant(d.id)
			c.Name = d.id.Pool + d.id.Name
			all = append(all, c)
		}
	}
	return all
}

func (w *world) refresh() { w.cached = w.objects() }

func (w *world) step() {
	w.now += stage.Millis(w.random.IntN(20)) * second
	if w.chance(2) {
		w.now += 12 * minute
	}
	d := w.one()
	switch w.random.IntN(12) {
	case 0, 1:
		w.tenantComesOrGoes(d)
	case 2:
		w.userDeletes(stage.Name(d.id))
	case 3:
		if w.chance(20) {
			w.down[d.id.Pool] = !w.down[d.id.Pool]
			w.note("node %s down: %v", d.id.Pool, w.down[d.id.Pool])
		}
	case 4:
		w.memory = &stage.Memory{} // another controller leads
	case 5, 6:
		w.schedule(stage.Name(d.id))
	case 7, 8:
		w.kubelet(d, w.random.IntN(4))
	default:
		if w.chance(60) {
			w.refresh()
		}
		w.control(w.chance(10))
	}
	w.cleanUp()
	w.check()
}

// holder returns whether a tenant or a stage has the function of a device.
func (w *world) isHeld(d *modelDevice) bool {
	for _, other := range w.devices {
		if other.id.Pool == d.id.Pool && other.slot == d.slot {
			c := w.claims[stage.Name(other.id)]
			if other.tenant || c != nil && c.Status.Allocation != nil {
				return true
			}
		}
	}
	return false
}

// tenantComesOrGoes allocates a device, sometimes against its taint, as a scheduler with an old cache does. The plugin marks the
// device before the VM gets it.
func (w *world) tenantComesOrGoes(d *modelDevice) {
	switch {
	case d.tenant:
		d.tenant = false
	case !w.isHeld(d) && !d.quarantined && (!d.waits || w.chance(5)):
		d.tenant, d.waits = true, true
	default:
		return
	}
	w.note("tenant has %s: %v", d.id, d.tenant)
}

func (w *world) userDeletes(name string) {
	p := w.pods[name]
	if p == nil || !w.chance(30) {
		return
	}
	w.note("a user deletes %s", name)
	w.deletePod(p, w.chance(20))
}

func (w *world) touch(o metav1.Object) {
	w.version++
	o.SetResourceVersion(strconv.Itoa(w.version))
}

// deletePod deletes a pod as the API server does: at once if no node has it, it has ended, or by force.
func (w *world) deletePod(p *corev1.Pod, force bool) {
	if force || p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		delete(w.pods, p.Name)
		return
	}
	if p.DeletionTimestamp == nil {
		p.DeletionTimestamp = &metav1.Time{}
		w.touch(p)
	}
}

// schedule gives the pod its device and its node.
func (w *world) schedule(name string) {
	p, c := w.pods[name], w.claims[name]
	if p == nil || c == nil || p.Spec.NodeName != "" || c.DeletionTimestamp != nil || c.Status.Allocation != nil {
		return
	}
	i := slices.IndexFunc(w.devices, func(d *modelDevice) bool { return stage.Name(d.id) == name })
	d := w.devices[i]
	if w.isHeld(d) || d.quarantined || w.down[d.id.Pool] {
		return
	}
	given(c, d.id)
	c.Finalizers = []string{"resource.kubernetes.io/delete-protection"}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: p.UID}}
	p.Spec.NodeName = d.id.Pool
	w.nodes[p.UID].scheduledAt = w.now
	w.touch(c)
	w.touch(p)
	w.note("%s is scheduled", d.id)
}

// kubelet does one thing with the device's stage: how says how it ends: clean, dirty, not yet, interrupted.
func (w *world) kubelet(d *modelDevice, how int) {
	p := w.pods[stage.Name(d.id)]
	if w.down[d.id.Pool] || p == nil || p.Spec.NodeName == "" {
		return
	}
	n := w.nodes[p.UID]
	late := w.now > n.scheduledAt+stage.Millis(*p.Spec.ActiveDeadlineSeconds)*1000
	switch {
	case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		w.decide(d, n, how)
	case !n.prepared && p.DeletionTimestamp == nil && !late:
		if n.prepared = d.waits && !d.quarantined; n.prepared {
			started(p)
			p.Spec.NodeName, n.running = d.id.Pool, true
			w.touch(p)
			w.note("%s runs", d.id)
		}
	case p.DeletionTimestamp != nil:
		n.running = false
		if n.prepared {
			w.interrupt(d)
		}
		delete(w.pods, p.Name)
		w.note("%s was deleted", d.id)
	case how != 2 || late:
		w.end(d, p, n, late)
	}
}

// end ends the pod: a container that ran has a result.
func (w *world) end(d *modelDevice, p *corev1.Pod, n *modelPod, late bool) {
	p.Status.Phase, n.running, n.endedAt = corev1.PodSucceeded, false, w.now
	if n.prepared {
		ended(p)
	}
	p.Spec.NodeName = d.id.Pool
	if late {
		p.Status.Phase = corev1.PodFailed
	}
	w.touch(p)
	w.note("%s ended, late: %v", d.id, late)
}

// decide is the plugin, which reads the pod.
func (w *world) decide(d *modelDevice, n *modelPod, how int) {
	if !n.prepared {
		return
	}
	n.prepared = false
	switch how {
	case 1:
		d.quarantined = true
	case 3:
		w.interrupt(d)
	default:
		d.waits, d.interrupted = false, 0
	}
	w.note("%s is decided: waits %v, quarantined %v", d.id, d.waits, d.quarantined)
}

// interrupt counts a stage without a result.
func (w *world) interrupt(d *modelDevice) {
	if d.interrupted++; d.interrupted >= 3 {
		d.quarantined, d.interrupted = true, 0
	}
}

// cleanUp is the claim controller and the garbage collector: a claim whose pod is gone or has ended is free, once its node let it go.
func (w *world) cleanUp() {
	for _, name := range slices.Sorted(maps.Keys(w.claims)) {
		c, p := w.claims[name], w.pods[name]
		if p != nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			if len(c.Status.ReservedFor) == 0 || c.Status.ReservedFor[0].UID == p.UID {
				if c.DeletionTimestamp != nil && len(c.Status.ReservedFor) == 0 {
					delete(w.claims, name)
				}
				continue
			}
		}
		if c.Status.Allocation != nil {
			c.Status, c.Finalizers = resourceapi.ResourceClaimStatus{}, nil
			w.touch(c)
		}
		if c.DeletionTimestamp != nil {
			delete(w.claims, name)
		}
	}
}

// view has what the caches have, or, for some nodes, what the API server has.
func (w *world) view(fresh []string) *stage.View {
	v := &stage.View{Sanitizers: sanitizers(), Cluster: &cluster.Cluster{}, Fresh: map[string]bool{}}
	for _, node := range fresh {
		v.Fresh[node] = true
	}
	own := func(o metav1.Object) bool { return o.GetNamespace() == namespace }
	add := func(objects []any, isFresh bool) {
		for _, o := range objects {
			switch o := o.(type) {
			case *resourceapi.ResourceSlice:
				if v.Fresh[*o.Spec.NodeName] == isFresh {
					v.Cluster.Add(o)
				}
			case *resourceapi.ResourceClaim:
				if own(o) && len(fresh) > 0 == isFresh || !own(o) && !isFresh {
					v.Cluster.Add(o)
				}
			case *corev1.Pod:
				if len(fresh) > 0 == isFresh {
					v.Cluster.Add(o)
				}
			}
		}
	}
	add(w.cached, false)
	add(w.objects(), true)
	return v
}

// control is the controller: it decides on its caches, then on what it lists, and may crash in the middle.
func (w *world) control(crashes bool) {
	unsure := stage.Decide(w.view(nil), w.memory, w.now).Unsure
	if len(unsure) == 0 {
		return
	}
	for _, a := range stage.Decide(w.view(unsure), w.memory, w.now).Actions {
		w.note("%s", told([]stage.Action{a})[0])
		switch a := a.(type) {
		case stage.Create:
			w.create(&a, crashes)
		case stage.Delete:
			w.delete(&a, crashes)
		}
		if crashes {
			w.note("the controller crashes")
			w.memory = &stage.Memory{}
			return
		}
	}
}

func (w *world) create(a *stage.Create, crashes bool) {
	name := stage.Name(a.ID)
	if w.claims[name] != nil || w.pods[name] != nil {
		w.t.Errorf("%s has a stage, and is to have another", a.ID)
		return
	}
	c := stage.Claim(sanitizers(), &a.Waiting)
	w.touch(c)
	c.UID = types.UID("claim " + c.ResourceVersion)
	w.claims[name] = c
	if crashes {
		return
	}
	p, err := stage.Pod(sanitizers(), &a.Waiting)
	if err != nil {
		w.t.Fatal(err)
	}
	w.touch(p)
	p.UID = types.UID("pod " + p.ResourceVersion)
	w.pods[name], w.nodes[p.UID] = p, &modelPod{}
	w.made++
}

func (w *world) delete(a *stage.Delete, crashes bool) {
	pod, claim := a.Objects()
	if p := w.pods[a.Name]; pod != nil && p != nil && p.UID == pod.UID && p.ResourceVersion == pod.ResourceVersion {
		n := w.nodes[p.UID]
		if ended := p.Status.Phase != ""; ended && n.prepared && w.now < n.endedAt+stage.DecideLimit {
			w.t.Errorf("%s is deleted %d s after its end, and the plugin has not decided", a.Device, (w.now-n.endedAt)/1000)
		}
		if n.running && w.now < n.scheduledAt+stage.Millis(*p.Spec.ActiveDeadlineSeconds)*1000 {
			w.t.Errorf("%s is deleted while it runs", a.Device)
		}
		w.deletePod(p, false)
	}
	if crashes {
		return
	}
	if c := w.claims[a.Name]; claim != nil && c != nil && c.UID == claim.UID && c.ResourceVersion == claim.ResourceVersion {
		if c.DeletionTimestamp = new(metav1.Time{}); len(c.Finalizers) == 0 {
			delete(w.claims, a.Name)
		}
	}
}

// check compares with what must never be.
func (w *world) check() {
	running, places := map[string]int{}, map[string]cluster.ID{}
	for _, d := range w.devices {
		p := w.pods[stage.Name(d.id)]
		if p == nil || p.Status.Phase != "" {
			continue
		}
		if p.DeletionTimestamp == nil {
			running[d.profile]++
		}
		place := fmt.Sprint(d.id.Pool, d.slot)
		if other, taken := places[place]; taken {
			w.t.Errorf("%s and %s have stages at the same time", d.id, other)
		}
		places[place] = d.id
	}
	for _, p := range sanitizers().Profiles {
		if running[p.Name] > p.MaxParallel {
			w.t.Errorf("%d stages of %s run, want at most %d", running[p.Name], p.Name, p.MaxParallel)
		}
	}
}

// settle ends all faults and tenants, and lets stages end clean: each device that waits gets one, and nothing is left.
func (w *world) settle() {
	w.down = map[string]bool{}
	for _, d := range w.devices {
		d.tenant = false
	}
	for i := range 400 {
		if i > 60 && w.isSettled() {
			break
		}
		w.now += minute
		w.refresh()
		w.control(false)
		for _, d := range w.devices {
			w.schedule(stage.Name(d.id))
			w.kubelet(d, 0)
			w.cleanUp()
		}
		w.check()
	}
	for _, d := range w.devices {
		if d.waits && !d.quarantined {
			w.t.Errorf("%s waits for ever", d.id)
		}
	}
	if len(w.pods)+len(w.claims) > 0 {
		w.t.Errorf("left: pods %v, claims %v", slices.Sorted(maps.Keys(w.pods)), slices.Sorted(maps.Keys(w.claims)))
	}
}

// isSettled reports whether no device waits, and no object is left.
func (w *world) isSettled() bool {
	return len(w.pods)+len(w.claims) == 0 && !slices.ContainsFunc(w.devices, func(d *modelDevice) bool { return d.waits && !d.quarantined })
}

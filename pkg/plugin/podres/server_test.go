package podres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/podres"
)

const (
	c1gpu = "kata-vfio.dev/vfio=c1-" + gpu
	c1vf  = "kata-vfio.dev/vfio=c1-" + vf
	c2gpu = "kata-vfio.dev/vfio=c2-" + gpu
)

// noBundle makes the shim one whose bundle can't be read.
func noBundle(w *world) {
	w.shim.sandbox = podres.PeerSandbox{Unknown: errors.New("no OCI bundle")}
}

func TestGetGivesAllOfAPodsDevicesOnce(t *testing.T) {
	for name, c := range map[string]struct {
		node   func(*world)
		want   []string
		handed []string
	}{
		"one device": {
			node: func(w *world) {
				w.prepared(record("c1", "p1", gpu))
				w.lists(dynamic("c1", gpu))
			},
			want: []string{c1gpu}, handed: []string{"c1 to s1"},
		},
		"several claims, by claim UID and then in the claim's order": {
			node: func(w *world) {
				w.prepared(record("c2", "p1", gpu))
				w.prepared(record("c1", "p1", vf, gpu))
				w.lists(dynamic("c2", gpu), dynamic("c1", vf, gpu))
			},
			want: []string{c1vf, c1gpu, c2gpu}, handed: []string{"c1 to s1", "c2 to s1"},
		},
		"listed in two containers and as a device plugin's": {
			node: func(w *world) {
				w.prepared(record("c1", "p1", gpu, vf))
				w.lists(dynamic("c1", gpu, vf))
				w.lists(dynamic("c1", gpu, vf))
				w.kubelet.answer.Containers[1].Devices = []*podresourcesv1.ContainerDevices{
					{ResourceName: "kata-vfio.dev/vfio", DeviceIds: []string{"c1-" + gpu}},
				}
			},
			want: []string{c1gpu, c1vf}, handed: []string{"c1 to s1"},
		},
		"a claim that only an init container refers to, which the kubelet leaves out": {
			node: func(w *world) { w.prepared(record("c1", "p1", gpu)) },
			want: []string{c1gpu}, handed: []string{"c1 to s1"},
		},
		"a pod that follows another of its name": {
			node: func(w *world) {
				w.prepared(record("c1", "p0", gpu))
				w.prepared(record("c2", "p1", gpu))
				w.lists(dynamic("c2", gpu))
			},
			want: []string{c2gpu}, handed: []string{"c2 to s1"},
		},
		"a physical endpoint beside a GPU, which Kata finds by itself": {
			node: func(w *world) {
				w.shim.sandbox.NetNS = "/run/netns/s1"
				w.prepared(asEndpoint(record("c1", "p1", gpu, vf), vf))
				w.lists(dynamic("c1", gpu, vf))
			},
			want: []string{c1gpu}, handed: []string{"c1 to s1 in /run/netns/s1"},
		},
		"a physical endpoint alone": {
			node: func(w *world) {
				w.shim.sandbox.NetNS = "/run/netns/s1"
				w.prepared(asEndpoint(record("c1", "p1", vf), vf))
			},
			handed: []string{"c1 to s1 in /run/netns/s1"},
		},
		"no claims at all": {node: func(*world) {}},
		"no claims and no bundle": {
			node: noBundle,
		},
		"another pod's claims": {
			node: func(w *world) {
				r := record("c1", "p2", gpu)
				r.Plan.Claim.Pods[0].Name = "db-1"
				w.prepared(r)
			},
		},
		"a claim that the kubelet is preparing, of another driver": {
			node: func(w *world) {
				w.lists(&podresourcesv1.DynamicResource{ClaimName: "other", ClaimNamespace: namespace})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.node(w)
			w.startKubelet()
			w.start(w.config())
			for range 2 { // the same again
				answer, err := w.get()
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.want, plugged(answer)); diff != "" {
					t.Errorf("devices (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(c.handed, w.claims.given); diff != "" {
					t.Errorf("handed over (-want +got):\n%s", diff)
				}
				w.claims.given = nil
			}
		})
	}
}

// TestClusterIsAskedOnceWhileTheKubeletAnswers: the kubelet's double answers only when the cluster was asked.
func TestClusterIsAskedOnceWhileTheKubeletAnswers(t *testing.T) {
	w := newWorld(t)
	w.prepared(record("c1", "p1", gpu))
	w.prepared(record("c2", "p2", gpu)) // another pod's
	w.lists(dynamic("c1", gpu))
	asked := make(chan string, 4)
	w.confirm = func(_ context.Context, uid string) error {
		asked <- uid
		return nil
	}
	w.kubelet.before = func(ctx context.Context) error {
		select {
		case uid := <-asked:
			asked <- uid
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	w.startKubelet()
	w.start(w.config())
	if answer, err := w.get(); err != nil || len(plugged(answer)) != 1 {
		t.Fatalf("Get = %v, %v", plugged(answer), err)
	}
	if n, uid := len(asked), <-asked; n != 1 || uid != "c1" {
		t.Errorf("the cluster was asked %d times, first for %s", n, uid)
	}
}

func TestGetRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		node func(*world)
		code codes.Code
		say  []string
	}{
		"a claim that is not prepared": {
			node: func(w *world) {
				r := record("c1", "p1", gpu)
				r.State = journal.Preparing
				w.prepared(r)
				w.lists(dynamic("c1", gpu))
			},
			code: codes.FailedPrecondition, say: []string{"tenant-a/db-0", "tenant-a/claim-c1 (c1)", "it is preparing"},
		},
		"a physical endpoint in the node's own network": {
			node: func(w *world) { w.prepared(asEndpoint(record("c1", "p1", gpu, vf), vf)) },
			code: codes.FailedPrecondition, say: []string{"tenant-a/claim-c1 (c1)", "no network namespace of its own", "hostNetwork"},
		},
		"all of it for one claim that is not prepared": {
			node: func(w *world) {
				w.prepared(record("c1", "p1", gpu))
				r := record("c2", "p1", gpu)
				r.State = journal.Releasing
				w.prepared(r)
			},
			code: codes.FailedPrecondition, say: []string{"(c2)", "releasing"},
		},
		"a quarantined claim": {
			node: func(w *world) {
				r := record("c1", "p1", gpu)
				r.State = journal.Quarantined
				w.prepared(r)
			},
			code: codes.FailedPrecondition, say: []string{"(c1)", "quarantined", "delete the pod"},
		},
		"a claim that is allocated from another node's pool": {
			node: func(w *world) {
				r := record("c1", "p1", gpu)
				r.Plan.Devices[0].Pool = "worker-2"
				w.prepared(r)
			},
			code: codes.FailedPrecondition, say: []string{"(c1)", "pool worker-2, which is not of node worker-1", "delete the pod"},
		},
		"a claim whose allocation was withdrawn": {
			node: func(w *world) {
				w.prepared(record("c1", "p1", gpu))
				w.confirm = func(_ context.Context, uid string) error { return errors.New(uid + ": its allocation was withdrawn") }
			},
			code: codes.FailedPrecondition, say: []string{"tenant-a/db-0", "c1: its allocation was withdrawn"},
		},
		"a device that the kubelet has from another pool": {
			node: func(w *world) {
				w.prepared(record("c1", "p1", gpu))
				d := dynamic("c1", gpu)
				d.ClaimResources[0].PoolName = "worker-1/kata-vfio.dev/pf-0000-21-00-0"
				w.lists(d)
			},
			code: codes.FailedPrecondition, say: []string{"tenant-a/claim-c1"},
		},
		"a claim of an earlier boot": {
			node: func(w *world) {
				r := record("c1", "p1", gpu)
				r.BootID = "earlier"
				w.prepared(r)
				w.lists(dynamic("c1", gpu))
			},
			code: codes.FailedPrecondition, say: []string{"(c1)", "before the node's last reboot"},
		},
		"a claim without a CDI spec": {
			node: func(w *world) {
				w.prepared(record("c1", "p1", gpu))
				if err := w.specs.Remove("c1"); err != nil {
					w.t.Fatal(err)
				}
			},
			code: codes.FailedPrecondition, say: []string{"(c1)", "its CDI spec has no node"},
		},
		"a claim that the journal doesn't have": {
			node: func(w *world) { w.lists(dynamic("c1", gpu)) },
			code: codes.FailedPrecondition, say: []string{"tenant-a/claim-c1", "no such claim is prepared", "delete the pod"},
		},
		"a claim of the same name and another UID": {
			node: func(w *world) {
				w.prepared(record("c1", "p1", gpu))
				r := dynamic("c9", gpu)
				r.ClaimName = "claim-c1"
				w.lists(r)
			},
			code: codes.FailedPrecondition, say: []string{"tenant-a/claim-c1", "no such claim is prepared"},
		},
		"a claim of the same name and UID in another namespace": {
			node: func(w *world) {
				w.prepared(record("c1", "p1", gpu))
				r := dynamic("c1", gpu)
				r.ClaimNamespace = "tenant-b"
				w.lists(r)
			},
			code: codes.FailedPrecondition, say: []string{"tenant-b/claim-c1", "no such claim is prepared"},
		},
		"the second pod on a held claim": {
			node: func(w *world) {
				r := record("c1", "p2", gpu)
				r.Plan.Claim.Pods[0].Name = "db-1"
				w.prepared(r)
				w.lists(dynamic("c1", gpu))
			},
			code: codes.FailedPrecondition, say: []string{"tenant-a/db-0", "claim-c1", "db-1 (UID p2)", "UID p1"},
		},
		"a pod that follows another on the same claim": {
			node: func(w *world) {
				w.prepared(record("c1", "p0", gpu))
				w.lists(dynamic("c1", gpu))
			},
			code: codes.FailedPrecondition, say: []string{"db-0 (UID p0)", "UID p1"},
		},
		"a bundle of another pod": {
			node: func(w *world) {
				w.shim.sandbox.PodName = "db-1"
				w.prepared(record("c1", "p1", gpu))
			},
			code: codes.PermissionDenied, say: []string{"tenant-a/db-0", "tenant-a/db-1", "s1"},
		},
		"a bundle of another namespace's pod": {
			node: func(w *world) { w.shim.sandbox.PodNamespace = "tenant-b" },
			code: codes.PermissionDenied, say: []string{"tenant-b/db-0"},
		},
		"a bundle with another pod's UID": {
			node: func(w *world) {
				r := record("c1", "p1", gpu)
				r.Plan.Claim.Pods[0].Name = "victim"
				w.prepared(r)
			},
			code: codes.PermissionDenied, say: []string{"tenant-a/victim", "p1"},
		},
		"a bundle that contradicts itself": {
			node: func(w *world) { w.shim.err = errors.New("contradiction") },
			code: codes.PermissionDenied, say: []string{"contradiction"},
		},
		"without a bundle, the only pod of its name": {
			node: func(w *world) {
				noBundle(w)
				w.prepared(record("c1", "p1", gpu))
				w.lists(dynamic("c1", gpu))
			},
			code: codes.FailedPrecondition, say: []string{"the sandbox that would get its devices is unknown", "no OCI bundle", "hostPID"},
		},
		"two pods of the name without a bundle": {
			node: func(w *world) {
				noBundle(w)
				w.prepared(record("c1", "p0", gpu))
				w.prepared(record("c2", "p1", gpu))
				w.lists(dynamic("c2", gpu))
			},
			code: codes.Unavailable, say: []string{"2 pods of this name", "p0, p1", "no OCI bundle"},
		},
		"without a bundle, a claim more than the kubelet's": {
			node: func(w *world) {
				noBundle(w)
				w.prepared(record("c1", "p1", gpu))
				w.prepared(record("c2", "p1", gpu))
				w.lists(dynamic("c1", gpu))
			},
			code: codes.FailedPrecondition, say: []string{"(c2)", "the kubelet does not say", "no OCI bundle"},
		},
		"without a bundle, claims that the kubelet says nothing of": {
			node: func(w *world) {
				noBundle(w)
				w.prepared(record("c1", "p0", gpu))
			},
			code: codes.FailedPrecondition, say: []string{"(c1)", "the kubelet does not say"},
		},
		"without a bundle, a claim less than the kubelet's": {
			node: func(w *world) {
				noBundle(w)
				w.lists(dynamic("c1", gpu))
			},
			code: codes.FailedPrecondition, say: []string{"claim-c1", "UID unknown"},
		},
		"a claim whose record may be the damaged one": {
			node: func(w *world) {
				w.prepared(record("c1", "p1", gpu))
				w.write("journal/c9.json", "{")
				w.lists(dynamic("c1", gpu), dynamic("c9", vf))
			},
			code: codes.FailedPrecondition, say: []string{"claim-c9", "can't be read", "c9.json"},
		},
		"a damaged CDI spec": {
			node: func(w *world) {
				w.prepared(record("c1", "p1", gpu))
				w.write("cdi/kata-vfio.dev-vfio_c1.json", "{")
			},
			code: codes.FailedPrecondition, say: []string{"(c1)", "CDI spec can't be read", "restart the plugin"},
		},
		"a journal that can't be read": {
			node: func(w *world) {
				if err := os.RemoveAll(filepath.Join(w.dir, "journal")); err != nil {
					w.t.Fatal(err)
				}
				w.write("journal", "")
			},
			code: codes.Unavailable, say: []string{"journal"},
		},
		"devices that can't be handed over": {
			node: func(w *world) {
				w.prepared(record("c1", "p1", gpu))
				w.prepared(record("c2", "p1", gpu))
				w.prepared(record("c3", "p1", gpu))
				w.claims.fail = map[string]error{
					"c1": errors.New("in use by qemu (pid 7)"), "c3": errors.New("quarantined: not clean"),
				}
			},
			code: codes.FailedPrecondition, say: []string{"tenant-a/db-0", "in use by qemu (pid 7); quarantined: not clean"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.node(w)
			w.startKubelet()
			w.start(w.config())
			answer, err := w.get()
			if answer != nil || status.Code(err) != c.code {
				t.Fatalf("Get = %v, %v; want code %s and nothing else", plugged(answer), err, c.code)
			}
			for _, say := range c.say {
				if !strings.Contains(err.Error(), say) {
					t.Errorf("error %q does not say %q", err, say)
				}
			}
			if n := strings.Count(w.log.String(), "\n"); n != 1 || !strings.Contains(w.log.String(), "pod=tenant-a/db-0") {
				t.Errorf("want one line in the log that names the pod, got:\n%s", &w.log)
			}
			if len(c.say) > 0 && len(w.claims.fail) == 0 && w.claims.given != nil {
				t.Errorf("handed over: %v", w.claims.given)
			}
		})
	}
}

// TestDamagedRecordOfAnotherClaim: the pods of the other claims start, and so do pods without claims.
func TestDamagedRecordOfAnotherClaim(t *testing.T) {
	for name, devices := range map[string][]string{"with a claim": {gpu}, "without a claim": nil} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if devices != nil {
				w.prepared(record("c1", "p1", devices...))
				w.lists(dynamic("c1", devices...))
			}
			w.write("journal/c9.json", `{"version": 99, "sha256": "", "record": {}}`)
			w.startKubelet()
			w.start(w.config())
			if answer, err := w.get(); err != nil || len(plugged(answer)) != len(devices) {
				t.Errorf("Get = %v, %v; want %d devices", plugged(answer), err, len(devices))
			}
		})
	}
}

// A claim that two pods share is prepared for both; package prepare keeps the
// second sandbox out while the first has the devices.
func TestClaimOfTwoPodsIsEachOnes(t *testing.T) {
	w := newWorld(t)
	r := record("c1", "p0", gpu)
	r.Plan.Claim.Pods = append(r.Plan.Claim.Pods, claim.Pod{UID: "p1", Name: "db-0"})
	w.prepared(r)
	w.lists(dynamic("c1", gpu))
	w.startKubelet()
	w.start(w.config())
	if answer, err := w.get(); err != nil || len(plugged(answer)) != 1 {
		t.Errorf("Get = %v, %v; want the device", plugged(answer), err)
	}
}

// What Kata can't resolve fails the sandbox, and what is ours must not come
// twice; the rest of the kubelet's answer is the kubelet's.
func TestGetKeepsWhatElseTheKubeletLists(t *testing.T) {
	w := newWorld(t)
	w.prepared(record("c1", "p1", gpu))
	spec := `{"cdiVersion": "0.5.0", "kind": "vendor.com/gpu", "devices": [{"name": "0", "containerEdits": {"env": ["A=1"]}}]}`
	other := &podresourcesv1.DynamicResource{ClaimName: "other", ClaimNamespace: namespace, ClaimResources: []*podresourcesv1.ClaimResource{
		{DriverName: "other.dev", CdiDevices: []*podresourcesv1.CDIDevice{{Name: c1gpu}, {Name: "other.dev/x=1"}}},
	}}
	preparing := &podresourcesv1.DynamicResource{ClaimName: "preparing", ClaimNamespace: namespace}
	mixed := dynamic("c1", gpu)
	mixed.ClaimResources = append(mixed.ClaimResources, &podresourcesv1.ClaimResource{DriverName: "other.dev", DeviceName: "d"})
	w.kubelet.answer = &podresourcesv1.PodResources{
		Name: "db-0", Namespace: namespace, CpuIds: []int64{3},
		Containers: []*podresourcesv1.ContainerResources{
			{
				Name: "main", CpuIds: []int64{3},
				Devices: []*podresourcesv1.ContainerDevices{
					{ResourceName: "smarter-devices/fuse", DeviceIds: []string{"0"}},
					{ResourceName: "vendor.com/gpu", DeviceIds: []string{"0", "gone"}},
					{ResourceName: "kata-vfio.dev/vfio", DeviceIds: []string{"c1-" + gpu}},
				},
				DynamicResources: []*podresourcesv1.DynamicResource{dynamic("c1", gpu), other, preparing},
			},
			{Name: "side", DynamicResources: []*podresourcesv1.DynamicResource{mixed}},
		},
	}
	w.startKubelet()
	w.start(w.config())
	// The spec comes after the server, which must look again.
	if err := os.WriteFile(filepath.Join(w.dir, "cdi", "vendor.json"), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	answer, err := w.get()
	if err != nil {
		t.Fatal(err)
	}
	want := &podresourcesv1.PodResources{
		Name: "db-0", Namespace: namespace, CpuIds: []int64{3},
		Containers: []*podresourcesv1.ContainerResources{
			{Name: "kata-vfio", Devices: []*podresourcesv1.ContainerDevices{
				{ResourceName: "kata-vfio.dev/vfio", DeviceIds: []string{"c1-" + gpu}},
			}},
			{
				Name: "main", CpuIds: []int64{3},
				Devices: []*podresourcesv1.ContainerDevices{{ResourceName: "vendor.com/gpu", DeviceIds: []string{"0"}}},
				DynamicResources: []*podresourcesv1.DynamicResource{{
					ClaimName: "other", ClaimNamespace: namespace, ClaimResources: []*podresourcesv1.ClaimResource{
						{DriverName: "other.dev", CdiDevices: []*podresourcesv1.CDIDevice{{Name: "other.dev/x=1"}}},
					},
				}, {ClaimName: "preparing", ClaimNamespace: namespace}},
			},
			{Name: "side", DynamicResources: []*podresourcesv1.DynamicResource{{
				ClaimName: "claim-c1", ClaimNamespace: namespace,
				ClaimResources: []*podresourcesv1.ClaimResource{{DriverName: "other.dev", DeviceName: "d"}},
			}}},
		},
	}
	messages := cmpopts.IgnoreUnexported(podresourcesv1.PodResources{}, podresourcesv1.ContainerResources{}, podresourcesv1.ContainerDevices{},
		podresourcesv1.DynamicResource{}, podresourcesv1.ClaimResource{}, podresourcesv1.CDIDevice{})
	if diff := cmp.Diff(want, answer, messages, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestOtherCallsPassThrough(t *testing.T) {
	w := newWorld(t)
	w.kubelet.answer = &podresourcesv1.PodResources{Name: "any"}
	w.startKubelet()
	w.start(w.config())
	client, hangUp := w.dial()
	defer hangUp()
	list, err := client.List(t.Context(), &podresourcesv1.ListPodResourcesRequest{})
	if err != nil || len(list.GetPodResources()) != 1 || list.GetPodResources()[0].GetName() != "any" {
		t.Errorf("List = %v, %v; want the kubelet's answer", list, err)
	}
	all, err := client.GetAllocatableResources(t.Context(), &podresourcesv1.AllocatableResourcesRequest{})
	if err != nil || len(all.GetCpuIds()) != 2 {
		t.Errorf("GetAllocatableResources = %v, %v; want the kubelet's answer", all, err)
	}
}

// requests observes the requests for devices.
type requests func(took time.Duration, err error)

func (r requests) ObserveRequest(_ string, took time.Duration, err error) { r(took, err) }

func TestEachGetIsObserved(t *testing.T) {
	w := newWorld(t)
	var seen []string
	cfg := w.config()
	cfg.Requests = requests(func(took time.Duration, err error) { seen = append(seen, fmt.Sprint(took > 0, status.Code(err))) })
	w.startKubelet()
	w.start(cfg)
	if _, err := w.get(); err != nil {
		t.Fatal(err)
	}
	w.shim.err = errors.New("contradiction")
	if _, err := w.get(); err == nil {
		t.Fatal("want an error")
	}
	if diff := cmp.Diff([]string{"true OK", "true PermissionDenied"}, seen); diff != "" {
		t.Errorf("observed (-want +got):\n%s", diff)
	}
}

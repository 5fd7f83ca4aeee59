package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

const (
	stageDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	stageImage  = "registry.example/sanitizers@" + stageDigest
)

// TestFirmwarePolicies: the watch converts the API's policies to those of the decision, which has the same values.
func TestFirmwarePolicies(t *testing.T) {
	pairs := map[v1alpha1.FirmwarePolicy]sanitize.FirmwarePolicy{v1alpha1.FirmwareRecord: sanitize.Record, v1alpha1.FirmwareRequire: sanitize.Require}
	for want, got := range pairs {
		if string(got) != string(want) {
			t.Errorf("got the decision's policy %q, want the API's %q", got, want)
		}
	}
}

// stagedDevices is a node with one ended stage. It notes what is concluded.
type stagedDevices struct {
	// unsanitized are marks without an ended stage.
	unsanitized []journal.SanitizeMark
	marks       []journal.SanitizeMark
	accepted    []sanitize.Measurement
	err         error
	concluded   []sanitize.Outcome
	images      []string
}

func (d *stagedDevices) StageMarks() ([]journal.SanitizeMark, error) {
	return slices.Concat(d.marks, d.unsanitized), nil
}

func (d *stagedDevices) EndedStages() ([]journal.SanitizeMark, error) { return d.marks, nil }

func (d *stagedDevices) Accepted(*journal.SanitizeMark) (accepted, missing []sanitize.Measurement, err error) {
	return d.accepted, nil, nil
}

func (d *stagedDevices) ConcludeStage(_ context.Context, _ *journal.SanitizeMark, outcome sanitize.Outcome, image string) error {
	d.concluded, d.images = append(d.concluded, outcome), append(d.images, image)
	if d.err == nil {
		d.marks = nil
	}
	return d.err
}

// stagedMark is a mark with an ended stage of a GPU.
func stagedMark() journal.SanitizeMark {
	return journal.SanitizeMark{
		Address: pci.Address{Bus: 0x3b}, Identity: device.Identity{Vendor: 0x10de, Device: 0x2330}, Claim: journal.ClaimName{UID: "first"},
		Stage: &journal.Stage{
			Claim: journal.ClaimName{UID: "57a6e", Namespace: "kata-vfio-sanitizing", Name: "sanitize-1"}, Pod: "sanitize-1", PodUID: "pod-1",
			Profile: "memory", Since: time.Now().Add(-time.Minute).UTC().Format(time.RFC3339),
		},
	}
}

const cleanResult = `{"apiVersion":"kata-vfio.dev/v1alpha1","kind":"SanitizeResult","verdict":"Clean","device":{"vendor":"0x10de","device":"0x2330"},` +
	`"checks":[{"name":"bar0","method":"FillVerifyZeroVerify","verdict":"Clean","bytes":4096,"pattern":"random","seconds":1}],` +
	`"firmware":[{"name":"vbios","algorithm":"version","value":"1.0"}]}`

// stagePod is the pod of a stage that ended clean, changed.
func stagePod(change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kata-vfio-sanitizing", Name: "sanitize-1", UID: "pod-1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "sanitizer", Image: stageImage, Args: []string{"memory"}}}},
		Status: corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "sanitizer", ImageID: stageImage,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", Message: cleanResult}},
		}}},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

// newStageWatch returns the watch of a node and a cluster with the pods, and the log of its Events.
func newStageWatch(devices *stagedDevices, pods ...runtime.Object) (*plugin.StageWatch, *plugintest.EventLog) {
	events := &plugintest.EventLog{}
	client := plugintest.Cluster(pods...)
	return &plugin.StageWatch{
		Devices: devices, Client: client,
		Sanitizers: &v1alpha1.Sanitizers{Profiles: []v1alpha1.Sanitizer{{Name: "memory", Image: stageImage, Args: []string{"memory"}, Firmware: v1alpha1.FirmwareRequire}}},
		Reporter:   dra.NewReporter(dra.ReporterConfig{Client: client, Recorder: events, Log: plugintest.Quiet()}),
		Node:       "worker-1", Log: plugintest.Quiet(), Metrics: metrics.New(plugintest.NoRecords{}, func() int { return 0 }), Changes: plugintest.NewWakes(),
	}, events
}

// TestPodDecidesItsStage also has pods that a tenant or a careless administrator could make.
func TestPodDecidesItsStage(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		gone   bool
		want   sanitize.Verdict // empty: not decided
		reason string
	}{
		"ended clean":                   {nil, false, sanitize.Clean, ""},
		"still runs for the API server": {func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodRunning} }, false, "", ""},
		"deleted by a user":             {nil, true, sanitize.Interrupted, ""},
		"another pod of the name":       {func(p *corev1.Pod) { p.UID = "pod-2" }, false, sanitize.Interrupted, ""},
		"another image ran": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].ImageID = "registry.example/fake@sha256:" + strings.Repeat("f", 64)
		}, false, sanitize.Unknown, "want the image with " + stageDigest},
		"another image in its spec":      {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "registry.example/fake" }, false, sanitize.Interrupted, "its image is"},
		"the image with another command": {func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"/bin/echo", cleanResult} }, false, sanitize.Interrupted, "it runs"},
		"other arguments":                {func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"memory", "--bar", "5"} }, false, sanitize.Interrupted, "it runs"},
		"an environment":                 {func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "LD_PRELOAD"}} }, false, sanitize.Interrupted, "environment"},
		"a volume over the program":      {func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v"}} }, false, sanitize.Interrupted, "volumes"},
		"an init container":              {func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "i"}} }, false, sanitize.Interrupted, "other containers"},
		"a debug container":              {func(p *corev1.Pod) { p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{}} }, false, sanitize.Interrupted, "other containers"},
		"a hook that writes the result":  {func(p *corev1.Pod) { p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{} }, false, sanitize.Interrupted, "hooks"},
		"a result of another file":       {func(p *corev1.Pod) { p.Spec.Containers[0].TerminationMessagePath = "/proc/cmdline" }, false, sanitize.Interrupted, "termination message"},
		"a result that is not one":       {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State.Terminated.Message = "{}" }, false, sanitize.Unknown, ""},
		"clean by its message only":      {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State.Terminated.ExitCode = 3 }, false, sanitize.Unknown, ""},
		"past its deadline":              {func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "DeadlineExceeded"} }, false, sanitize.Unknown, ""},
		"another device": {func(p *corev1.Pod) {
			m := &p.Status.ContainerStatuses[0].State.Terminated.Message
			*m = strings.Replace(*m, "0x2330", "0x20b0", 1)
		}, false, sanitize.Unknown, ""},
		"other firmware than is accepted": {func(p *corev1.Pod) {
			m := &p.Status.ContainerStatuses[0].State.Terminated.Message
			*m = strings.Replace(*m, "1.0", "6.6", 1)
		}, false, sanitize.Dirty, ""},
	} {
		t.Run(name, func(t *testing.T) {
			devices := &stagedDevices{
				marks:    []journal.SanitizeMark{stagedMark()},
				accepted: []sanitize.Measurement{{Name: "vbios", Algorithm: sanitize.Version, Value: "1.0"}},
			}
			var pods []runtime.Object
			if !c.gone {
				pods = append(pods, stagePod(c.change))
			}
			watch, events := newStageWatch(devices, pods...)
			watch.Look(t.Context())
			if c.want == "" {
				if len(devices.concluded) > 0 {
					t.Fatalf("got %+v, want no decision", devices.concluded)
				}
				return
			}
			if len(devices.concluded) != 1 || devices.concluded[0].Verdict != c.want || !strings.Contains(devices.concluded[0].Reason, c.reason) {
				t.Fatalf("got %+v, want %s with %q", devices.concluded, c.want, c.reason)
			}
			if silent := events.Count("Node /worker-1 Warning") == 0; silent != (c.want == sanitize.Clean) {
				t.Errorf("got Events %v, want one unless the device is clean", events.Lines)
			}
		})
	}
}

// TestStageWaitsForItsAnswer: without the API server, or the ledger, nothing is decided, and the next look tries again.
func TestStageWaitsForItsAnswer(t *testing.T) {
	devices := &stagedDevices{marks: []journal.SanitizeMark{stagedMark()}}
	watch, _ := newStageWatch(devices, stagePod(nil))
	client := plugintest.Cluster(stagePod(nil))
	client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	answering := watch.Client
	watch.Client = client
	watch.Look(t.Context())
	if len(devices.concluded) > 0 {
		t.Fatalf("without the API server: got %+v, want no decision", devices.concluded)
	}
	watch.Client, devices.err = answering, fmt.Errorf("the ledger can't be written")
	watch.Look(t.Context())
	devices.err = nil
	watch.Look(t.Context())
	watch.Look(t.Context())
	if len(devices.concluded) != 2 || !slices.Equal(devices.images, []string{stageDigest, stageDigest}) {
		t.Errorf("got %d decisions by %q, want a failed and a successful one by %s", len(devices.concluded), devices.images, stageDigest)
	}
}

// TestChangedMarksArePublished: a command of an operator in another process changes marks, too.
func TestChangedMarksArePublished(t *testing.T) {
	devices := &stagedDevices{}
	watch, _ := newStageWatch(devices)
	changes := plugintest.NewWakes()
	watch.Changes = changes
	watch.Look(t.Context())
	first := len(changes)
	watch.Look(t.Context())
	mark := stagedMark()
	mark.Stage = nil
	devices.unsanitized = []journal.SanitizeMark{mark}
	watch.Look(t.Context())
	watch.Look(t.Context())
	if first > 1 || len(changes) != first+1 {
		t.Errorf("got %d publications, %d of the first look, want one more than that", len(changes), first)
	}
}

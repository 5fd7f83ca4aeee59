package fleet_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/test/docs"
)

// part is a pod of kata-vfio on worker-1, whose readiness is of some time ago.
func part(component string, ready corev1.ConditionStatus) corev1.Pod {
	return partSince(component, ready, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
}

func partSince(component string, ready corev1.ConditionStatus, since time.Time) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/name": "kata-vfio", "app.kubernetes.io/component": component}},
		Spec:       corev1.PodSpec{NodeName: "worker-1"},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(since)}}},
	}
}

// statusWith is the status of a cluster with one node, whose plugin says something of it.
func statusWith(t *testing.T, health string, pods ...corev1.Pod) *fleet.Status {
	t.Helper()
	node := "worker-1"
	s := &fleet.State{Cluster: &cluster.Cluster{}, Missing: map[fleet.Kind]string{}, Components: pods, Now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	slice := &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
		Driver: "kata-vfio.dev", NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}, Devices: []resourceapi.Device{{Name: "gpu-0000-3b-00-0"}},
	}}
	if health != "" {
		slice.Annotations = map[string]string{cluster.AnnotationHealth: health}
	}
	s.Cluster.Add(slice)
	st := s.Status()
	if len(st.Nodes) != 1 {
		t.Fatalf("nodes %+v, want one", st.Nodes)
	}
	return st
}

// TestStatusSaysWhatAPluginSaysOfItsNode, and calls it stale rather than use it when it is old.
func TestStatusSaysWhatAPluginSaysOfItsNode(t *testing.T) {
	const drift = `"bootstrap": {"outcome": "changes needed", "more": 2, "drift": [{"part": "kernel", "path": "/proc/cmdline", "what": "missing", "since": "2026-11-22T11:00:00Z"}, {"part": "modules", "what": "problem"}]}`
	const drifts = "it differs from its blueprint (changes needed): kernel /proc/cmdline missing since 2026-11-22T11:00:00Z, modules problem, and 2 more"
	const fresh, old = `{"updated": "2026-11-22T11:30:00Z", `, `{"updated": "2026-11-22T09:44:59Z", `
	plugin := part("plugin", corev1.ConditionTrue)
	for name, c := range map[string]struct {
		health   string
		pods     []corev1.Pod
		nri      string
		problems []string
	}{
		"well":                         {fresh + `"nri": true}`, []corev1.Pod{plugin}, "connected", nil},
		"no NRI":                       {fresh + `"nri": false}`, []corev1.Pod{plugin}, "disconnected", []string{"the container runtime does not call the plugin (NRI): containers with devices are refused, or not checked"}},
		"an earlier plugin":            {"", []corev1.Pod{plugin}, "", nil},
		"old":                          {old + `"nri": false}`, []corev1.Pod{plugin}, "stale", []string{"the plugin's last report of the node is of 2026-11-22T09:44:59Z: NRI, drift and the causes of alerts are unknown"}},
		"of a clock that is ahead":     {`{"updated": "2026-11-22T12:04:00Z", "nri": true}`, []corev1.Pod{plugin}, "connected", nil},
		"from the future":              {`{"updated": "2099-01-01T00:00:00Z", "nri": true}`, []corev1.Pod{plugin}, "stale", []string{"the plugin's last report of the node is of 2099-01-01T00:00:00Z: NRI, drift and the causes of alerts are unknown"}},
		"without a time":               {`{"nri": true}`, []corev1.Pod{plugin}, "stale", []string{"the plugin's last report of the node is of an unknown time: NRI, drift and the causes of alerts are unknown"}},
		"without a plugin":             {fresh + `"nri": true}`, nil, "stale", []string{"the plugin is missing: pods with devices can't start or end"}},
		"refuses":                      {fresh + `"nri": true, "refuses": "DiskFull: no room"}`, []corev1.Pod{plugin}, "connected", []string{"it refuses all new claims: DiskFull: no room"}},
		"an alert":                     {fresh + `"nri": true, "alerts": [{"name": "KataVFIODiskScarce", "text": "little room"}]}`, []corev1.Pod{plugin}, "connected", []string{"little room"}},
		"drift":                        {fresh + `"nri": true, ` + drift + `}`, []corev1.Pod{plugin}, "connected", []string{drifts}},
		"drift and bootstrap's pod":    {fresh + `"nri": true, ` + drift + `}`, []corev1.Pod{plugin, part("bootstrap", corev1.ConditionFalse)}, "connected", []string{drifts}},
		"drift that ended":             {fresh + `"nri": true, ` + drift + `}`, []corev1.Pod{plugin, partSince("bootstrap", corev1.ConditionTrue, time.Date(2026, 11, 22, 11, 31, 0, 0, time.UTC))}, "connected", nil},
		"drift that is new":            {fresh + `"nri": true, ` + drift + `}`, []corev1.Pod{plugin, part("bootstrap", corev1.ConditionTrue)}, "connected", []string{drifts}},
		"fit, and bootstrap not ready": {fresh + `"nri": true, "bootstrap": {"outcome": "fit"}}`, []corev1.Pod{plugin, part("bootstrap", corev1.ConditionFalse)}, "connected", []string{"bootstrap is not ready: the node does not match its blueprint, or waits for a reboot"}},
	} {
		t.Run(name, func(t *testing.T) {
			st := statusWith(t, c.health, c.pods...)
			var problems []string
			for _, p := range st.Problems {
				problems = append(problems, p.Text)
			}
			if diff := cmp.Diff(c.problems, problems); diff != "" || st.Nodes[0].NRI != c.nri {
				t.Errorf("NRI %q, want %q; problems (-want +got):\n%s", st.Nodes[0].NRI, c.nri, diff)
			}
		})
	}
}

// TestFixesNameEntriesOfTheRunbook, for each alert that a plugin tells of, and for another.
func TestFixesNameEntriesOfTheRunbook(t *testing.T) {
	runbook := docs.Read(t, "deploy/RUNBOOK.md")
	alerts := regexp.MustCompile(`AddAlert\("(\w+)"`).FindAllStringSubmatch(docs.Read(t, "pkg/plugin/health.go"), -1)
	if len(alerts) < 5 {
		t.Fatalf("the plugin tells of %d alerts, want at least 5", len(alerts))
	}
	for _, m := range alerts {
		st := statusWith(t, `{"updated": "2026-11-22T11:30:00Z", "nri": false, "refuses": "x", "bootstrap": {"outcome": "unknown"}, "alerts": [{"name": "`+m[1]+`", "text": "x"}]}`, part("plugin", corev1.ConditionTrue))
		if len(st.Problems) != 4 {
			t.Errorf("%s: problems %+v, want 4", m[1], st.Problems)
		}
		for _, p := range st.Problems {
			title := regexp.MustCompile(`^"(.+)" in the runbook$`).FindStringSubmatch(p.Fix)
			if title == nil || !strings.Contains(runbook, "\n## "+title[1]+"\n") {
				t.Errorf("%s: the fix %q names no entry of the runbook", m[1], p.Fix)
			}
		}
	}
	st := statusWith(t, `{"updated": "2026-11-22T11:30:00Z", "nri": true, "alerts": [{"name": "KataVFIOLater", "text": "x"}]}`, part("plugin", corev1.ConditionTrue))
	if len(st.Problems) != 1 || st.Problems[0].Fix != "KataVFIOLater in the runbook" {
		t.Errorf("an alert of a later plugin: %+v", st.Problems)
	}
}

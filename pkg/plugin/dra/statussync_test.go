package dra_test

import (
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// awayServer is an API server that can be away.
type awayServer struct {
	*fake.Clientset
	away          bool
	asked, writes int
}

func newAwayServer(c *resourceapi.ResourceClaim) *awayServer {
	s := &awayServer{Clientset: plugintest.Cluster(c)}
	s.PrependReactor("*", "resourceclaims", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if s.away {
			return true, nil, errors.New("dial tcp: connection refused")
		}
		switch a.GetVerb() {
		case "patch":
			s.writes++
		case "get":
			s.asked++
		}
		return false, nil, nil
	})
	return s
}

// devices returns what a claim's status says of its devices.
func (s *awayServer) devices(t *testing.T, c *resourceapi.ResourceClaim) []resourceapi.AllocatedDeviceStatus {
	t.Helper()
	got, err := s.ResourceV1().ResourceClaims(c.Namespace).Get(t.Context(), c.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Status.Devices
}

// lookEachMinute looks every minute as the plugin does.
func lookEachMinute(t *testing.T, statuses *dra.StatusSync, minutes int) {
	t.Helper()
	for range minutes {
		time.Sleep(time.Minute)
		statuses.Look(t.Context())
		synctest.Wait()
	}
}

// checkpoint is the latest one of a ledger.
type checkpoint string

func (c checkpoint) Checkpoint() string { return string(c) }

// TestStatusIsWrittenAfterHoursWithoutTheAPIServer, with its anchor, by the instance that prepared the claim and by the next one, once.
func TestStatusIsWrittenAfterHoursWithoutTheAPIServer(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := plugintest.New(t)
			n.Kernel.AddGPU(0x3b)
			c := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
			n.Prepare("uid-1", "gpu-0000-3b-00-0")
			server := newAwayServer(c)
			start := func() (*dra.Reporter, *dra.StatusSync) {
				r := dra.NewReporter(dra.ReporterConfig{Client: server, Recorder: &plugintest.EventLog{}, Log: plugintest.Quiet(), Ledger: checkpoint("checkpoint")})
				go func() { _ = r.Run(t.Context()) }() // it has no error to return
				return r, &dra.StatusSync{Reporter: r, Records: n.Records, Attributes: n.Publisher.Attributes}
			}
			r, statuses := start()
			server.away = true
			rec, err := n.Records.Load("uid-1")
			if err != nil {
				t.Fatal(err)
			}
			r.Prepared(t.Context(), c, rec, n.Publisher.Attributes)
			lookEachMinute(t, statuses, 8*60)
			if restarted {
				_, statuses = start()
			}
			server.away = false
			lookEachMinute(t, statuses, 30)
			devices := server.devices(t, c)
			if len(devices) != 1 || len(devices[0].Conditions) != 3 {
				t.Fatalf("restarted: %t: status %+v", restarted, devices)
			}
			var data dra.DeviceData
			if err := json.Unmarshal(devices[0].Data.Raw, &data); err != nil || data.Ledger != "checkpoint" {
				t.Errorf("data %+v, %v; want the anchor", data, err)
			}
			if server.writes != 1 || server.asked > 4 {
				t.Errorf("restarted: %t: %d writes and %d questions, want one and a few", restarted, server.writes, server.asked)
			}
		})
	}
}

// TestStatusThatNeedsNoWriting: of a claim that was refused later, of one that is gone, and of one that was replaced.
func TestStatusThatNeedsNoWriting(t *testing.T) {
	for name, change := range map[string]func(*resourceapi.ResourceClaim){
		"refused later": func(c *resourceapi.ResourceClaim) {
			c.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
				Driver: "kata-vfio.dev", Pool: "worker-1/kata-vfio.dev", Device: "gpu-0000-3b-00-0",
				Conditions: []metav1.Condition{{
					Type: dra.ConditionReady, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(time.Now().Add(time.Hour)),
				}},
			}}
		},
		"gone":     func(c *resourceapi.ResourceClaim) { c.Name = "other" },
		"replaced": func(c *resourceapi.ResourceClaim) { c.UID = "uid-2" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := plugintest.New(t)
				n.Kernel.AddGPU(0x3b)
				n.Prepare("uid-1", "gpu-0000-3b-00-0")
				c := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
				change(c)
				server := newAwayServer(c)
				r := dra.NewReporter(dra.ReporterConfig{Client: server, Recorder: &plugintest.EventLog{}, Log: plugintest.Quiet()})
				go func() { _ = r.Run(t.Context()) }() // it has no error to return
				lookEachMinute(t, &dra.StatusSync{Reporter: r, Records: n.Records, Attributes: n.Publisher.Attributes}, 10)
				if server.writes != 0 || server.asked > 1 {
					t.Errorf("%d writes and %d questions, want none and one", server.writes, server.asked)
				}
			})
		})
	}
}

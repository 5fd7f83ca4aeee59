package dra_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// anchored gives a reporter a ledger, and returns its checkpoint.
func anchored(t *testing.T) (w *writer.Writer, signed string) {
	t.Helper()
	w, err := writer.Open(t.Context(), writer.Config{Dir: filepath.Join(t.TempDir(), "ledger"), Node: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	signed, err = w.Append(t.Context(), ledger.Event{Type: ledger.Start, Result: ledger.OK})
	if err != nil {
		t.Fatal(err)
	}
	return w, signed
}

// wantAnchor checks that a text has the checkpoint as a reader of it finds it.
func wantAnchor(t *testing.T, where, text, signed string) {
	t.Helper()
	found := ledger.FindCheckpoints([]byte(text))
	if len(found) != 1 || found[0].Signed != signed {
		t.Errorf("%s has the checkpoints %+v, want %q:\n%s", where, found, signed, text)
	}
}

func TestLedgersCheckpointGoesIntoStatusAndEvents(t *testing.T) {
	c, log := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0"), &plugintest.EventLog{}
	client := plugintest.Cluster(c)
	w, signed := anchored(t)
	r := dra.NewReporter(dra.ReporterConfig{Client: client, Recorder: log, Log: plugintest.Quiet(), Ledger: w})
	rec := &journal.Record{Plan: plan.Plan{
		Claim: plan.Ref{UID: "uid-1"}, Devices: []plan.Device{{Name: "gpu-0000-3b-00-0", Pool: "node-1"}},
	}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = r.Run(ctx) }() // it has no error to return
	r.Prepared(t.Context(), c, rec, func(string) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute { return nil })
	r.Unprepared(kubeletplugin.NamespacedObject{}, 1)
	for _, line := range log.Lines {
		wantAnchor(t, "event", line, signed)
	}
	if len(log.Lines) != 3 || !strings.Contains(log.Lines[2], "Unprepared") {
		t.Errorf("events %q", log.Lines)
	}
	k := &plugintest.Kubelet{T: t, Client: client}
	var data dra.DeviceData
	if err := json.Unmarshal(k.Status(c)[0].Data.Raw, &data); err != nil {
		t.Fatal(err)
	}
	wantAnchor(t, "status", data.Ledger, signed)
}

// However much there is to say, the checkpoint is whole.
func TestLongNoteKeepsTheCheckpoint(t *testing.T) {
	log := &plugintest.EventLog{}
	w, signed := anchored(t)
	r := dra.NewReporter(dra.ReporterConfig{Client: plugintest.Cluster(), Recorder: log, Log: plugintest.Quiet(), Ledger: w})
	var devices []plan.Device
	for i := range 90 {
		devices = append(devices, plan.Device{Name: fmt.Sprintf("gpu-0000-%02x-00-0", i), Pool: "worker-1/kata-vfio.dev"})
	}
	c := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
	r.Prepared(t.Context(), c, &journal.Record{Plan: plan.Plan{Claim: plan.Ref{UID: "uid-1"}, Devices: devices}}, func(string) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute { return nil })
	for _, line := range log.Lines {
		wantAnchor(t, "event", line, signed)
		if _, note, _ := strings.Cut(line, ": "); len(note) > 1024 || !strings.Contains(note, "...; ledger ") {
			t.Errorf("the note has %d bytes: %s", len(note), note)
		}
	}
	if len(log.Lines) == 0 {
		t.Error("no event")
	}
}

// refusals has the refusals that the gate records.
type refusals struct {
	*plugintest.Claims
	told []string
}

func (r *refusals) Refused(_ context.Context, req *claim.Request, cause error) error {
	r.told = append(r.told, req.UID+" "+string(rule.Classify(cause)))
	return nil
}

// The gate's refusals are told to the ledger, as those of package prepare are.
func TestGatesRefusalIsToldToTheLedger(t *testing.T) {
	n := plugintest.New(t)
	n.Kernel.AddGPU(0x3b)
	c := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
	claims := &refusals{Claims: n.Claims}
	k := plugintest.Serve(t, n, claims, "", c)
	if err := k.Client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), c.Namespace, c.Status.ReservedFor[0].Name); err != nil {
		t.Fatal(err)
	}
	if answer := k.Prepare(c)["uid-1"]; answer.Error == "" {
		t.Fatal("prepared")
	}
	if len(claims.told) != 1 || !strings.HasPrefix(claims.told[0], "uid-1 ") {
		t.Errorf("told %q", claims.told)
	}
}

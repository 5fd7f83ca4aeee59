package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/fabrictest"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// TestStatusShowsPartitions: which are free, and why there is none.
func TestStatusShowsPartitions(t *testing.T) {
	k := sysfstest.New(t)
	config := "apiVersion: resource.kata-vfio.dev/v1alpha1\nkind: NodeConfig\nfabric: {}\n"
	k.AddGPU(0x86)
	k.AddGPU(0x87)
	putFile(t, filepath.Join(k.Root(), "etc/kata-vfio/node.yaml"), config)
	status := func() string { return invoke(t, "status", "--root", k.Root()).stdout }
	if got, want := status(), "NVLink fabric: no partitions: Fabric Manager has not listed its partitions yet\n  fix: start Fabric Manager"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	list := fabric.List{fabrictest.Partition(3, 1, 3), fabrictest.Partition(7, 1), fabrictest.Partition(9, 3)}
	list[1].Active = true
	for name, v := range map[string]any{
		fabric.StateFile: fabric.State{Partitions: list, Away: "no socket"},
		fabric.MapFile:   fabric.Map{Places: []fabric.Place{fabrictest.Map("", fabrictest.Buses()...).Places[0], fabrictest.Map("", fabrictest.Buses()...).Places[2]}},
	} {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		putFile(t, filepath.Join(k.Root(), name), string(text))
	}
	want := `
NVLink fabric 0000-86-00-0: 3 partitions, 1 active, as listed last
  Fabric Manager can't be asked: no socket
ID  MODULES  DEVICE             USE
3   1 3      gpu-x2-0000-86-87  blocked by active partition 7
7   1        gpu-0000-86-00-0   active: no claim's
9   3        gpu-0000-87-00-0   free
`
	if got := status(); !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	var doc struct{ Fabric plan.FabricState }
	if err := json.Unmarshal([]byte(invoke(t, "status", "--root", k.Root(), "-o", "json").stdout), &doc); err != nil || len(doc.Fabric.Partitions) != 3 {
		t.Errorf("%v; got %+v, want 3 partitions", err, doc.Fabric)
	}
}

// TestStatusNamesThePartition at its first function, as the quarantine's list does: a claim has the partition, not its GPUs. The
// commands for quarantines take this name.
func TestStatusNamesThePartition(t *testing.T) {
	const partition = "gpu-x2-0000-86-87"
	gpu := func(bus uint8) pci.Address { return pci.Address{Bus: bus} }
	rec := &journal.Record{Kind: journal.Claim, State: journal.Prepared, Plan: plan.Plan{
		Claim: plan.Ref{UID: "uid-1", Namespace: "team", Name: "two"},
		Devices: []plan.Device{
			{Name: "gpu-0000-86-00-0", Address: gpu(0x86), Pair: partition},
			{Name: "gpu-0000-87-00-0", Address: gpu(0x87), Pair: partition},
			{Name: "gpu-0000-88-00-0", Address: gpu(0x88)},
		},
		Functions: []plan.Function{{Address: gpu(0x86)}, {Address: gpu(0x87)}, {Address: gpu(0x88)}},
	}}
	v := newView(rec)
	var got []string
	for _, row := range recordRows(&v) {
		got = append(got, row[3])
	}
	if diff := cmp.Diff([]string{partition, "(part of it)", "gpu-0000-88-00-0"}, got); diff != "" {
		t.Errorf("column DEVICE (-want +got):\n%s", diff)
	}
	q := quarantine{Devices: v.Devices}
	if got, want := q.names(), partition+", gpu-0000-88-00-0"; got != want {
		t.Errorf("quarantined %q, want %q", got, want)
	}
	for name, want := range map[string]bool{partition: true, "gpu-0000-88-00-0": true, "uid-1": true, "gpu-x2-0000-88-89": false, "gpu-0000-89-00-0": false} {
		if got := isNamed(rec, name, locations{}); got != want {
			t.Errorf("%s names the quarantine: %t, want %t", name, got, want)
		}
	}
}

package report_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/fabrictest"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// TestPageShowsPartitions has the table of a board's partitions, and no part for a node without a fabric.
func TestPageShowsPartitions(t *testing.T) {
	tree := board.HGX(t)
	page := func() string {
		return render(t, &report.Page{Inventory: audit.NewNodeInventory(read(t, tree), nil, "2026-11-28"), Report: &finding.Report{}})
	}
	const part = `<section id="partitions"`
	if strings.Contains(page(), part) {
		t.Error("a node without a fabric has a table of partitions")
	}
	put := func(name string, v any) {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		tree.Put(name, string(text))
	}
	tree.Put("etc/kata-vfio/node.yaml", "apiVersion: resource.kata-vfio.dev/v1alpha1\nkind: NodeConfig\nfabric: {}\n")
	if got := page(); !strings.Contains(got, "no partitions: Fabric Manager has not listed its partitions yet.") || !strings.Contains(got, "<a href=\"#partitions\">") {
		t.Error("the page does not say why there are no partitions")
	}
	m := &fabric.Map{}
	for i, gpu := range []string{"gpu0", "gpu1", "gpu2", "gpu3", "gpu4", "gpu6", "gpu5", "gpu7"} {
		m.Places = append(m.Places, fabric.Place{Module: i + 1, Address: tree.Devices[gpu]})
	}
	list := fabrictest.H100()
	list[1].Active = true // modules 1 to 4, which t1 has
	put(fabric.MapFile, m)
	put(fabric.StateFile, fabric.State{Partitions: list})
	got := page()
	for _, want := range []string{
		"15 partitions, 1 active.",
		`<th scope="row">1<td>1, 2, 3, 4<td><a href="#d-` + tree.Devices["gpu0"].Label() + `">`,
		"<td>active: t1/train\n", "<td>blocked by t1/train\n", "<td>✗ NOT active, and t2/serve has it\n",
		"<td>blocked by t1/train, t2/serve, " + tree.Devices["gpu6"].String() + " (FailsAudit), ",
		"module 1, partition 1 active",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

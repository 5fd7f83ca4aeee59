package audit_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TestDeviceInItsStage shows a device that a stage keeps from claims, in all views: it is a fault only if something else is
// wrong, too.
func TestDeviceInItsStage(t *testing.T) {
	isolated, shared := at(0x22, 0, 0), at(0x24, 1, 0)
	for name, tt := range map[string]struct {
		device pci.Address
		change func(*plan.Node)
		waits  bool
	}{
		"waits":                        {isolated, func(n *plan.Node) { sanitize(n, isolated, rule.NotSanitized) }, true},
		"its stage failed":             {isolated, func(n *plan.Node) { sanitize(n, isolated, rule.SanitizeFailed) }, false},
		"its firmware changed":         {isolated, func(n *plan.Node) { sanitize(n, isolated, rule.FirmwareChanged) }, false},
		"its sanitizer does not exist": {isolated, func(n *plan.Node) { sanitize(n, isolated, rule.SanitizerUnknown) }, false},
		"waits, and is not isolated":   {shared, func(n *plan.Node) { sanitize(n, shared, rule.NotSanitized) }, false},
		"waits, and reported fatal errors": {isolated, func(n *plan.Node) {
			sanitize(n, isolated, rule.NotSanitized)
			n.FatalErrors = map[pci.Address]bool{isolated: true}
		}, false},
		"waits, and an operator drained it": {isolated, func(n *plan.Node) {
			sanitize(n, isolated, rule.NotSanitized)
			n.Drained = map[pci.Address]string{isolated: "RMA"}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := node()
			n := plan.Node{Snapshot: s, Selection: nodeconfig.Select(nil, s)}
			tt.change(&n)
			inv := audit.NewInventory(n, nil)
			if d := find(t, inv, tt.device); d.Sanitizing != tt.waits || d.Grade() == audit.Bad == tt.waits {
				t.Errorf("sanitizing %t, grade %d, want %t: %+v", d.Sanitizing, d.Grade(), tt.waits, d.Refusals)
			}
			for view, text := range views(t, inv) {
				if got := strings.Contains(text, "sanitizing"); got != tt.waits {
					t.Errorf("%s says sanitizing: %t, want %t:\n%s", view, got, tt.waits, text)
				}
			}
		})
	}
}

// TestStageIsNoReasonToFail: a node whose devices wait for their stages needs nobody, one with a failed stage does.
func TestStageIsNoReasonToFail(t *testing.T) {
	for code, want := range map[rule.Code]int{rule.NotSanitized: 0, rule.SanitizeFailed: 1} {
		s := node()
		n := plan.Node{Snapshot: s, Selection: nodeconfig.Select(nil, s)}
		before := len(audit.NewInventory(n, nil).Unclaimable(rule.High))
		sanitize(&n, at(0x22, 0, 0), code)
		if got := len(audit.NewInventory(n, nil).Unclaimable(rule.High)) - before; got != want {
			t.Errorf("%s: %d more functions can't be claimed, want %d", code, got, want)
		}
	}
}

// sanitize keeps a function from tenants for the reason.
func sanitize(n *plan.Node, a pci.Address, code rule.Code) {
	n.Sanitizing = map[pci.Address]plan.Sanitizing{a: {Code: code, Profile: "memory", Text: "waits for its stage"}}
}

// views returns what people see of an inventory, without the drawing's legend.
func views(t *testing.T, inv *audit.Inventory) map[string]string {
	t.Helper()
	var table, dot, drawing, tree strings.Builder
	if err := inv.WriteTable(&table, audit.Style{}); err != nil {
		t.Fatal(err)
	}
	if err := audit.WriteDOT(&dot, inv, audit.Everything); err != nil {
		t.Fatal(err)
	}
	if err := audit.WriteSVG(&drawing, audit.Arrange(inv, audit.Everything)); err != nil {
		t.Fatal(err)
	}
	if err := output.WriteTree(&tree, audit.Tree(inv, audit.Everything), 0, false); err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"table": table.String(), "graph": dot.String(), "tree": tree.String(),
		"drawing": strings.ReplaceAll(drawing.String(), "in use, or not offered", ""),
	}
}

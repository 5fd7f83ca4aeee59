package report_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// TestPageShowsWhatIsKeptForATenant: a free device of an exclusive domain is not refused. The drawing names the domain.
func TestPageShowsWhatIsKeptForATenant(t *testing.T) {
	const tenant = "0123456789abcdef"
	for name, tt := range map[string]struct {
		domain string
		want   []string
		kept   bool
	}{
		"of the tenant's node": {"Node", []string{"exclusive node: tenant " + tenant}, true},
		"beside its switch":    {"Switch", []string{"exclusive switch: tenant " + tenant}, false},
	} {
		t.Run(name, func(t *testing.T) {
			tree := board.Switch(t)
			tree.Put("run/kata-vfio/published.json", `{"devices":["`+tree.Devices["spare"].String()+`"],"config":{"apiVersion":"resource.kata-vfio.dev/v1alpha1","kind":"NodeConfig",`+
				`"devices":[{"match":{"types":["gpu"]},"exclusive":["`+tt.domain+`"]}]}}`)
			for namespace, claim := range map[string]string{"t1": "left", "t2": "right"} {
				rec := tree.Give(namespace, claim, tree.Devices[claim])
				rec.Plan.Claim.Tenant = tenant
				tree.Save(rec)
			}
			text := render(t, &report.Page{Inventory: audit.NewNodeInventory(read(t, tree), nil, "2026-11-28"), Report: &finding.Report{}})
			for _, want := range tt.want {
				if !strings.Contains(text, want) {
					t.Errorf("the page lacks %q", want)
				}
			}
			if got := strings.Contains(text, "<dd>isolated, kept for tenant "+tenant); got != tt.kept {
				t.Errorf("the page says that a device is kept: %t, want %t", got, tt.kept)
			}
		})
	}
}

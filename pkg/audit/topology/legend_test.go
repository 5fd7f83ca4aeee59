package topology_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/topology"
)

// TestEverySymbolIsExplained: a symbol that is drawn is in the legend, and the samples have
// every symbol of the legend.
func TestEverySymbolIsExplained(t *testing.T) {
	drawn := map[audit.Grade]bool{}
	for name, inv := range inventories(t) {
		d := topology.Arrange(inv)
		legend := map[audit.Grade]bool{}
		for _, s := range d.Symbols {
			legend[s.Grade] = true
		}
		for i := range d.Cards {
			s := d.Cards[i].Symbol
			if s == nil {
				continue
			}
			drawn[s.Grade] = true
			if !legend[s.Grade] {
				t.Errorf("%s: the legend lacks %q of %s", name, s.Grade.Mark(), d.Cards[i].Device.Address)
			}
		}
	}
	explained := map[audit.Grade]bool{}
	for _, e := range topology.Legend() {
		if !drawn[e.Grade] {
			t.Errorf("the legend explains %q, which no sample has", e.Text)
		}
		if explained[e.Grade] || e.Text == "" {
			t.Errorf("%q: explained twice, or not at all", e.Text)
		}
		explained[e.Grade] = true
	}
}

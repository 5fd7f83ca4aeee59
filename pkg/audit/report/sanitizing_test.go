package report_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// TestPageShowsTheStage reads the plugin's config and marks: a mark counts only if the rule asks for a stage.
func TestPageShowsTheStage(t *testing.T) {
	const config = `{"apiVersion":"resource.kata-vfio.dev/v1alpha1","kind":"NodeConfig","devices":[{"name":"gpus","match":{"types":["gpu"]}%s}]}`
	rule := fmt.Sprintf(config, `,"sanitize":{"profile":"memory"}`)
	for name, tt := range map[string]struct {
		config, mark string
		want         bool
	}{
		"it waits":            {rule, `{"address":"%s","since":"2026-11-28T05:00:00Z"}`, true},
		"its stage failed":    {rule, `{"address":"%s","failed":{"profile":"memory","verdict":"Dirty","reason":"bar0"}}`, false},
		"no rule has a stage": {fmt.Sprintf(config, ""), `{"address":"%s","since":"2026-11-28T05:00:00Z"}`, false},
		"its mark is damaged": {rule, `{"address":`, false},
		"no tenant had it":    {rule, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			tree := board.Server(t)
			tree.Put("run/kata-vfio/published.json", `{"devices":["`+tree.Devices["gpu1"].String()+`"],"config":`+tt.config+`,"sanitizers":{"namespace":"kata-vfio-sanitizing",
				"deviceClass":"sanitize.kata-vfio.dev","profiles":[{"name":"memory","image":"registry.example/s@sha256:`+strings.Repeat("0", 64)+`"}]}}`)
			if tt.mark != "" {
				gpu := tree.Devices["gpu1"].String()
				tree.Put("var/lib/kata-vfio/journal/unsanitized/"+gpu+".json", strings.ReplaceAll(tt.mark, "%s", gpu))
			}
			text := render(t, &report.Page{Inventory: audit.NewNodeInventory(read(t, tree), nil, "2026-11-28"), Report: &finding.Report{}})
			if got := strings.Contains(text, "<dd>isolated, sanitizing"); got != tt.want {
				t.Errorf("the page says that it is sanitizing: %t, want %t", got, tt.want)
			}
		})
	}
}

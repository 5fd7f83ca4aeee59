package monitoring

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// tableFile lists the plugin's metrics. `UPDATE_METRICS=1 go test -run TestMetricsTable .` writes it.
const tableFile = "../../deploy/helm/kata-vfio/monitoring/METRICS.md"

const tableHead = `# Metrics of the plugin

The plugin serves these at ` + "`/metrics`" + ` ([who may read them](../README.md#who-may-read-metrics)). [The controller's](../../../../cmd/kata-vfio-controller/README.md#reference) are beside it. All rows are generated from what the plugin serves.

| Metric | Type | Labels | Meaning |
|---|---|---|---|
`

// TestMetricsTable: the document has each metric of the plugin, with its labels and its help.
func TestMetricsTable(t *testing.T) {
	text, err := os.ReadFile(metricsFile)
	if err != nil {
		t.Fatal(err)
	}
	want := tableHead + strings.Join(metricRows(string(text)), "")
	if os.Getenv("UPDATE_METRICS") != "" {
		if err := os.WriteFile(tableFile, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(tableFile)
	if err != nil || string(got) != want {
		t.Errorf("%s is not what the plugin serves (%v): run `UPDATE_METRICS=1 go test -run TestMetricsTable .`", tableFile, err)
	}
}

// metricRows returns a row for each family of an exposition, in its order, which is by name.
func metricRows(exposition string) []string {
	help, kind, labels := map[string]string{}, map[string]string{}, map[string]string{}
	var names []string
	for line := range strings.Lines(exposition) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, text, _ := strings.Cut(rest, " ")
			names, help[name] = append(names, name), text
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, text, _ := strings.Cut(rest, " ")
			kind[name] = text
			continue
		}
		if len(names) > 0 && strings.HasPrefix(line, "kata_vfio_") {
			labels[names[len(names)-1]] = labelNames(line)
		}
	}
	var rows []string
	for _, name := range names {
		if strings.HasPrefix(name, "kata_vfio_") {
			rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, kind[name], labels[name], strings.ReplaceAll(help[name], "|", `\|`)))
		}
	}
	return rows
}

// labelNames returns the names of a sample's labels, without the bounds of buckets.
func labelNames(sample string) string {
	_, list, found := strings.Cut(sample, "{")
	list, _, _ = strings.Cut(list, "}")
	if !found || list == "" {
		return "-"
	}
	var names []string
	for pair := range strings.SplitSeq(list, `",`) {
		if name, _, _ := strings.Cut(pair, "="); name != "le" {
			names = append(names, "`"+name+"`")
		}
	}
	if len(names) == 0 {
		return "-"
	}
	return strings.Join(names, ", ")
}

package monitoring

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
)

const (
	dashboardFile = "../../deploy/helm/kata-vfio/monitoring/dashboard.json"
	// metricsFile is what a plugin serves that has prepared, refused, taken back and quarantined: package plugin's tests write it.
	metricsFile = "testdata/metrics.txt"
)

// dashboard is what the tests look at of Grafana's JSON.
type dashboard struct {
	UID, Title string
	Templating struct {
		List []struct{ Name string }
	}
	Panels []panel
}

type panel struct {
	ID          int
	Type, Title string
	GridPos     struct{ H, W, X, Y int }
	Targets     []target
}

type target struct {
	RefID, Expr, LegendFormat string
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// query is a panel's query as Grafana sends it.
func query(expr string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$node", ".*").Replace(expr)
}

// scrapes are one a minute: counters have grown to what the file says by the last, gauges are as they are.
const scrapes = 60

// scraped is the file as made series, with the labels that the chart's monitors add, and with or without those that
// name tenants.
func scraped(t *testing.T, tenants bool) string {
	t.Helper()
	text, err := os.ReadFile(metricsFile)
	if err != nil {
		t.Fatal(err)
	}
	p, err := textparse.New(text, "text/plain", labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		t.Fatal(err)
	}
	load := "load 1m\n" + controllerSeries()
	gauge := false
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return load
		}
		if err != nil {
			t.Fatal(err)
		}
		if entry == textparse.EntryType {
			_, kind := p.Type()
			gauge = string(kind) == "gauge"
		}
		if entry == textparse.EntrySeries {
			_, _, value := p.Series()
			var series labels.Labels
			p.Labels(&series)
			if !tenants {
				series = labels.NewBuilder(series).Del("claim_namespace", "claim").Labels()
			}
			load += seriesLine(series, value, gauge)
		}
	}
}

// controllerSeries are what a controller serves that shares GPUs and sanitizes devices.
func controllerSeries() string {
	return `  kata_vfio_twin_gpus{pod="one"} 8x60
  kata_vfio_twin_rules{pod="one", side="Ours"} 3x60
  kata_vfio_twin_waiting_seconds{pod="one"} 4x60
  kata_vfio_twin_allocated_twice{pod="one"} 0x60
  kata_vfio_twin_reserve_seconds_bucket{pod="one", le="2"} 0+1x60
  kata_vfio_twin_reserve_seconds_bucket{pod="one", le="+Inf"} 0+1x60
  kata_vfio_twin_answers_total{pod="one", type="TwinReserved", status="True", reason="Reserved"} 0+1x60
  kata_vfio_twin_rule_writes_total{pod="one", side="Ours", write="create"} 0+1x60
  kata_vfio_twin_conflicts_total{pod="one", action="rule"} 0+1x60
  kata_vfio_twin_failures_total{pod="one", action="rule"} 0x60
  kata_vfio_sanitize_waiting{pod="one", profile="memory"} 2x60
  kata_vfio_sanitize_running{pod="one", profile="memory"} 1x60
`
}

// TestControllerSeriesExist: the controller's reference has their names.
func TestControllerSeriesExist(t *testing.T) {
	reference, err := os.ReadFile("../../cmd/kata-vfio-controller/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(controllerSeries()) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), "{")
		if !strings.Contains(string(reference), strings.TrimSuffix(name, "_bucket")) {
			t.Errorf("%s is not in the controller's reference", name)
		}
	}
}

// Who shares GPUs sees each of the metrics about them that the controller's reference has.
func TestMetricsOfSharedGPUsAreInAlertsOrOnDashboard(t *testing.T) {
	reference, err := os.ReadFile("../../cmd/kata-vfio-controller/README.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("(?m)^\\| `(kata_vfio_twin_\\w+)").FindAllStringSubmatch(string(reference), -1)
	if len(names) < 10 {
		t.Fatalf("the reference has %d metrics of shared GPUs, want at least 10", len(names))
	}
	seen := drawn(t)
	for _, m := range names {
		if !strings.Contains(seen, m[1]) {
			t.Errorf("%s is nowhere", m[1])
		}
	}
}

// drawn are the texts of the dashboard and of the alerts.
func drawn(t *testing.T) string {
	t.Helper()
	seen := ""
	for _, file := range []string{dashboardFile, alertsFile} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		seen += string(text)
	}
	return seen
}

// ofTarget are the labels that Prometheus' operator and the chart's monitors give each series.
func ofTarget() map[string]string {
	return map[string]string{
		"job": "kata-vfio-plugin", "node": "worker-1", "namespace": "kata-vfio-system", "pod": "kata-vfio-plugin-x", "container": "plugin",
		"endpoint": "metrics", "instance": "10.0.0.1:9456",
	}
}

func seriesLine(series labels.Labels, value float64, gauge bool) string {
	b := labels.NewBuilder(series)
	for name, value := range ofTarget() {
		if own := series.Get(name); own != "" { // as Prometheus does without honorLabels
			b.Set("exported_"+name, own)
		}
		b.Set(name, value)
	}
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	if gauge {
		return fmt.Sprintf("  %s %sx%d\n", b.Labels(), number(value), scrapes)
	}
	return fmt.Sprintf("  %s 0+%sx%d\n", b.Labels(), number(value/scrapes), scrapes)
}

func TestDashboardQueriesHaveAnswers(t *testing.T) {
	t.Run("from metrics that name tenants", func(t *testing.T) { wantAnswers(t, true) })
	t.Run("from metrics that name none", func(t *testing.T) { wantAnswers(t, false) })
}

func wantAnswers(t *testing.T, tenants bool) {
	t.Helper()
	storage := promqltest.LoadedStorage(t, scraped(t, tenants))
	engine := promqltest.NewTestEngine(t, false, 5*time.Minute, 1_000_000)
	queries := 0
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			queries++
			q, err := engine.NewInstantQuery(t.Context(), storage, nil, query(target.Expr), time.Unix(0, 0).Add(scrapes*time.Minute))
			if err != nil {
				t.Errorf("%s: %v", p.Title, err)
				continue
			}
			result := q.Exec(t.Context())
			vector, err := result.Vector()
			if err != nil || len(vector) == 0 {
				t.Errorf("%s: %s gives %v, %v", p.Title, target.Expr, vector, err)
				continue
			}
			wantDrawn(t, p, target, vector)
			q.Close()
		}
	}
	t.Logf("%d queries", queries)
}

// wantDrawn checks that there is something to draw, with the labels that its legend is made of. A quantile of what was not
// counted is not a number; not all may be.
func wantDrawn(t *testing.T, p panel, q target, vector promql.Vector) {
	t.Helper()
	numbers := 0
	for _, sample := range vector {
		if !math.IsNaN(sample.F) {
			numbers++
		}
		for part := range strings.SplitSeq(q.LegendFormat, "{{") {
			if name, _, ok := strings.Cut(part, "}}"); ok && sample.Metric.Get(name) == "" {
				t.Errorf("%s: the legend %q has no %q in %v", p.Title, q.LegendFormat, name, sample.Metric)
			}
		}
	}
	if numbers == 0 {
		t.Errorf("%s: %s gives no numbers", p.Title, q.Expr)
	}
}

func TestDashboardHasNoTwoPanelsInOnePlace(t *testing.T) {
	const width = 24 // of Grafana's grid
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range readDashboard(t).Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > width {
			t.Errorf("panel %d %q at %+v", p.ID, p.Title, p.GridPos)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := taken[at]; other != "" {
					t.Fatalf("%q lies over %q", p.Title, other)
				}
				taken[at] = p.Title
			}
		}
	}
}

// Whoever adds a metric decides what is to be seen of it.
func TestMetricsAreInAlertsOrOnDashboard(t *testing.T) {
	seen := drawn(t)
	text, err := os.ReadFile(metricsFile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, ok := strings.CutPrefix(line, "# HELP ")
		name, _, _ = strings.Cut(name, " ")
		if ok && !strings.Contains(seen, name) && !unseen()[name] {
			t.Errorf("%s is nowhere", name)
		}
	}
}

// unseen are metrics for who looks closer.
func unseen() map[string]bool {
	return map[string]bool{
		"kata_vfio_vf_receive_packets_total": true, "kata_vfio_vf_transmit_packets_total": true, // bytes are drawn
		"kata_vfio_ledger_written_bytes_total": true, // events are
	}
}

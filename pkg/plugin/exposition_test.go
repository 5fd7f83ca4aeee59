package plugin_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/vftest"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics/metricstest"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/serving"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/golden"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// exposition is what the chart's alerts and dashboard are tried on, by the tests of module test/monitoring.
const exposition = "../../test/monitoring/testdata/metrics.txt"

// TestMonitoringIsTriedOnWhatThePluginServes: the file has the series of a plugin
// that has prepared, refused, taken back and quarantined; values differ each time.
// Run it with -update after a change of metrics.
func TestMonitoringIsTriedOnWhatThePluginServes(t *testing.T) {
	got := scrape(t, busyNode(t).Metrics)
	if golden.Updating() {
		if err := os.WriteFile(exposition, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(exposition)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(series(string(want)), series(got)); diff != "" {
		t.Errorf("%s has other series (-file +plugin); run this test with -update:\n%s", exposition, diff)
	}
}

// TestMetricsFollowPrometheusConventions: names, units, types and help texts.
func TestMetricsFollowPrometheusConventions(t *testing.T) {
	problems, err := promlint.NewWithMetricFamilies(metricstest.Ours(t, busyNode(t).Metrics.Registry)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestDurationsAreNamedSo: each histogram is of a duration.
func TestDurationsAreNamedSo(t *testing.T) {
	for _, f := range metricstest.Ours(t, busyNode(t).Metrics.Registry) {
		if f.GetType() == dto.MetricType_HISTOGRAM && !strings.HasSuffix(f.GetName(), "_duration_seconds") {
			t.Errorf("histogram %s: want a name that ends in _duration_seconds", f.GetName())
		}
	}
}

// busyNode is a node that shows all metrics.
func busyNode(t *testing.T) *plugintest.Node {
	n := plugintest.New(t)
	n.Kernel.AddGPU(0x3b)
	broken := n.Kernel.AddGPU(0x3c)
	pf, vfs := n.Kernel.AddNIC(0x21, 2)
	history, err := writer.Open(t.Context(), writer.Config{Dir: filepath.Join(t.TempDir(), "ledger"), Node: "worker-1", Metrics: n.Metrics})
	if err != nil {
		t.Fatal(err)
	}
	n.Reopen(func(c *prepare.Config) { c.Parts.Ledger = history })
	links := vftest.New(t, n.FS, vftest.Igb())
	links.Count(pf, 0, vf.Counters{RxBytes: 1500, TxBytes: 64, RxPackets: 1, TxPackets: 1, RxDropped: 1, TxDropped: 7})
	n.Metrics.WatchQuarantines(n.Records, true)
	n.Metrics.WatchVFs(n.Records, &vf.Policy{FS: n.FS, Links: links}, true)
	n.Metrics.ShowBuild(metrics.Build{Version: "v0.1.0", Revision: "0123abc", GoVersion: "go1.26"})
	n.Metrics.WatchNRI(func() bool { return true })
	n.Metrics.WatchDisks(oneDisk{})
	(&plugin.ProvisionWatch{VFs: lackingVFs{}, Metrics: n.Metrics, Log: plugintest.Quiet()}).Start(t.Context())
	n.Metrics.ObserveWarm([]maintain.WarmPool{{Rule: "rule 1 (gpus)", Want: 2, Ready: []pci.Address{broken}}})
	n.Metrics.ObserveFragmented(map[isolation.DomainKind]int{isolation.SwitchDomain: 3, isolation.NodeDomain: 0})
	n.Metrics.ObserveLost([]metrics.LostDevice{{Device: "gpu-0000-3b-00-0", Namespace: "team-a", Claim: "train", For: time.Hour}})
	n.Metrics.WatchReadiness(n.Health.Ready)
	n.Metrics.WatchBootstrap(changedNode{})

	good, bad, absent := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0"), plugintest.Allocated("uid-2", "gpu-0000-3c-00-0"), plugintest.Allocated("uid-3", "gpu-0000-ee-00-0")
	network := plugintest.Allocated("uid-4", "vf-"+vfs[0].Label())
	k := plugintest.Serve(t, n, n.Claims, "", good, bad, absent, network)
	k.Prepare(good, bad, absent, network)
	k.Unprepare(good)
	n.Kernel.SetConfig(broken, 0, []byte(strings.Repeat("\xff", 256))...) // off the bus
	k.Unprepare(bad)
	n.Publish(&plugintest.Recorder{})
	n.Metrics.ObserveRequest("pod-resources/Get", time.Millisecond, nil)
	n.Metrics.ObserveRequest("nri/CreateContainer", time.Millisecond, nil)
	n.Metrics.ObserveVerification(0)
	n.Metrics.ObserveAudit([]finding.Finding{
		{ID: "IOM-003", Severity: rule.Critical, State: finding.Pass}, {ID: "ACS-001", Severity: rule.High, State: finding.Fail},
	})
	for _, status := range []int{http.StatusOK, http.StatusInternalServerError} {
		patch := httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "/", http.NoBody)
		_, _ = n.Metrics.CountRequests(answer(status)).RoundTrip(patch)
	}
	return n
}

// answer is a transport that answers with its status.
type answer int

func (a answer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: int(a)}, nil
}

// scrape is what a plugin with the metrics serves to Prometheus, except for what every Go
// program does.
func scrape(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	serving.Metrics(m.Registry, nil).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, serving.MetricsPath, http.NoBody))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	var ours strings.Builder
	for line := range strings.Lines(w.Body.String()) {
		if strings.Contains(line, "kata_vfio_") || strings.Contains(line, "process_resident_memory_bytes") {
			ours.WriteString(line)
		}
	}
	return ours.String()
}

// series are the series of a scrape, without their values.
func series(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			all = append(all, line[:strings.LastIndexByte(line, ' ')])
		}
	}
	slices.Sort(all)
	return all
}

// oneDisk is a disk with room.
type oneDisk struct{}

func (oneDisk) Space() []journal.Space {
	return []journal.Space{{Dir: "/var/lib/kata-vfio", Free: 40 << 30}}
}

// changedNode is a node of which bootstrap found that it needs changes.
type changedNode struct{}

func (changedNode) Read() (*state.Record, error) {
	return state.NewRecord(time.Now(), "gpu-pool", "changes needed", []state.Difference{{Part: "modules", Path: "/etc/modprobe.d/50-kata-vfio.conf", What: "changed"}}, nil), nil
}

package monitoring

import (
	"context"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

const alertsFile = "../../deploy/helm/kata-vfio/monitoring/alerts.yaml"

// watched is for how long Prometheus looks at made series, minute by minute.
const watched = 2 * time.Hour

// A node is its series, by name with labels; the values are in the notation of Prometheus' own tests.
type node map[string]string

// healthy is a node where pods with devices come and go, one claim is refused for a mistake in it, and one check fails
// that is of no weight.
func healthy() node {
	return node{
		`up{job="kata-vfio-system/kata-vfio-plugin", node="a"}`:                                                            "1x120",
		`kube_daemonset_status_desired_number_scheduled{daemonset="kata-vfio-plugin"}`:                                     "3x120",
		`kube_daemonset_status_number_ready{daemonset="kata-vfio-plugin"}`:                                                 "3x120",
		`kata_vfio_unfinished_record_seconds{node="a", state="preparing"}`:                                                 "0 2 0 5 0 0 40 0x113",
		`kata_vfio_unfinished_record_seconds{node="a", state="releasing"}`:                                                 "0 0 30 90 0x116",
		`kata_vfio_unprepare_failing_seconds{node="a", state="prepared"}`:                                                  "0 0 45 105 0x116",
		`kata_vfio_stuck_writes{node="a"}`:                                                                                 "0 0 1 0x117",
		`kata_vfio_records{node="a", state="prepared"}`:                                                                    "3x120",
		`kata_vfio_quarantined_device_seconds{node="a", device="gpu-0000-3c-00-0", claim_namespace="team-a", claim="was"}`: "600 stale",
		`kata_vfio_records{node="a", state="quarantined"}`:                                                                 "0x120",
		`kata_vfio_records{node="a", state="damaged"}`:                                                                     "0x120",
		`kata_vfio_phase_duration_seconds_count{node="a", phase="reset", result="ok"}`:                                     "0+1x120",
		`kata_vfio_phase_duration_seconds_count{node="a", phase="reset", result="error"}`:                                  "0x120",
		`kata_vfio_devices{node="a", type="gpu", health="healthy"}`:                                                        "8x120",
		`kata_vfio_devices{node="a", type="gpu", health="unhealthy"}`:                                                      "0x120",
		`kata_vfio_ledger_failures_total{node="a"}`:                                                                        "0x120",
		`kata_vfio_ledger_problems{node="a"}`:                                                                              "0x120",
		`kata_vfio_audit_check{node="a", id="IOM-003", severity="critical", state="pass"}`:                                 "1x120",
		`kata_vfio_audit_check{node="a", id="ACS-014", severity="low", state="fail"}`:                                      "1x120",
		`kata_vfio_audit_check{node="a", id="ACS-001", severity="high", state="waived"}`:                                   "1x120",
		`kata_vfio_audit_last_timestamp_seconds{node="a"}`:                                                                 "0+60x120",
		`kata_vfio_ready{node="a"}`:                                                                                        "0 1x119",
		`kata_vfio_publish_failures_total{node="a"}`:                                                                       "0 1 1x118",
		`kata_vfio_api_requests_total{node="a", method="GET", code="200"}`:                                                 "0+10x120",
		`kata_vfio_api_requests_total{node="a", method="PATCH", code="409"}`:                                               "0+5x120",
		`kata_vfio_api_requests_total{node="a", method="GET", code="503"}`:                                                 "0 3 3x118",
		`kata_vfio_nri_connected{node="a"}`:                                                                                "0 0 1x118",
		`kata_vfio_refusals_total{node="a", reason="NoRuntimeClass"}`:                                                      "0+1x120",
		`kata_vfio_bootstrap_outcome{node="a", blueprint="", outcome="fit"}`:                                               "1x20 _x20 1x79",
		`kata_vfio_bootstrap_outcome{node="a", blueprint="", outcome="changes needed"}`:                                    "_x20 1x10 stale",
		`kata_vfio_bootstrap_outcome{node="a", blueprint="", outcome="reboot needed"}`:                                     "_x30 1x10 stale",
		`kata_vfio_bootstrap_verified_timestamp_seconds{node="a"}`:                                                         "0+60x120",
		`kata_vfio_ready{node="rolled", pod="old"}`:                                                                        "1x60 stale",
		`kata_vfio_ready{node="rolled", pod="new"}`:                                                                        "_x58 0 1x60",
		`up{job="kata-vfio-system/kata-vfio-plugin", node="rolled", pod="old"}`:                                            "1x60 0 stale",
		`up{job="some-other-plugin", node="a"}`:                                                                            "0x120",
		`kata_vfio_phase_duration_seconds_count{node="a", phase="publish", result="error"}`:                                "0+1x120",
		`kube_daemonset_status_desired_number_scheduled{daemonset="another"}`:                                              "3x120",
		`kube_daemonset_status_number_ready{daemonset="another"}`:                                                          "0x120",
		`kata_vfio_request_duration_seconds_count{node="a", request="nri/HandOver", result="error"}`:                       "0+1x120",
		`kata_vfio_vf_transmit_dropped_total{node="a", namespace="team-a", claim="network"}`:                               "0+100x120",
		`kata_vfio_lost_device_seconds{node="a", device="gpu-0000-3b-00-0", claim_namespace="team-a", claim="train"}`:      "0 300 600 stale",
		`kata_vfio_vfs_lacking{node="a", pf="ens1"}`:                                                                       "4x20 0x100",
		`kata_vfio_state_free_bytes{node="a", directory="/var/lib/kata-vfio"}`:                                             "1000000x5 40000000000x115",
		`up{job="kata-vfio-system/kata-vfio-controller", pod="one"}`:                                                       "1x60 0 stale",
		`up{job="kata-vfio-system/kata-vfio-controller", pod="two"}`:                                                       "1x120",
		`kata_vfio_twin_leader{pod="one"}`:                                                                                 "1x60 stale",
		`kata_vfio_twin_leader{pod="two"}`:                                                                                 "0x62 1x58",
		`kata_vfio_twin_waiting_seconds{pod="two"}`:                                                                        "0 4 0x50 60 0x67",
		`kata_vfio_sanitize_waiting{pod="one", profile="memory"}`:                                                          "4x60 stale",
		`kata_vfio_sanitize_waiting{pod="two", profile="memory"}`:                                                          "4x120",
		`kata_vfio_sanitize_pod_seconds_count{pod="one", profile="memory"}`:                                                "0x50 1x10 stale",
		`kata_vfio_sanitize_pod_seconds_count{pod="two", profile="memory"}`:                                                "0x100 1x20",
		`kata_vfio_sanitize_waiting{pod="two", profile="nvme"}`:                                                            "0x30 1x50 0x40",
		`kata_vfio_sanitize_pod_seconds_count{pod="two", profile="nvme"}`:                                                  "0x120",
		`kata_vfio_tenants_without_room{pod="two"}`:                                                                        "0x120",
		`kata_vfio_tenants_failures_total{pod="two", action="update"}`:                                                     "0x50 1x70",
		`kata_vfio_domain_failures_total{pod="two", action="list"}`:                                                        "0x50 1x70",
		`kube_deployment_status_replicas_available{deployment="kata-vfio-controller"}`:                                     "2x60 1x60",
		`kube_deployment_status_replicas_available{deployment="another"}`:                                                  "0x120",
	}
}

// with returns the node with other series.
func (n node) with(changed node) node {
	n = maps.Clone(n)
	maps.Copy(n, changed)
	return n
}

func (n node) load() string {
	text := "load 1m\n"
	for _, name := range slices.Sorted(maps.Keys(n)) {
		text += "  " + name + " " + n[name] + "\n"
	}
	return text
}

// incidents are what each alert is for: the healthy node's series that are otherwise then.
func incidents() map[string][]node {
	return map[string][]node{
		"KataVFIOPluginDown": {
			{`up{job="kata-vfio-system/kata-vfio-plugin", node="a"}`: "1x60 0x60"},
			{`up{job="kata-vfio-plugin", node="b"}`: "0x120"}, // as a ServiceMonitor names it
		},
		"KataVFIOPluginMissing": {
			{`kube_daemonset_status_number_ready{daemonset="kata-vfio-plugin"}`: "3x60 2x60"},
			{ // of a pool
				`kube_daemonset_status_desired_number_scheduled{daemonset="kata-vfio-plugin-hgx"}`: "3x120",
				`kube_daemonset_status_number_ready{daemonset="kata-vfio-plugin-hgx"}`:             "3x60 2x60",
			},
		},
		"KataVFIOClaimStuck": {
			{`kata_vfio_unfinished_record_seconds{node="a", state="releasing"}`: "0x60 0+60x60"},
			{`kata_vfio_unprepare_failing_seconds{node="a", state="prepared"}`: "0x60 0+60x60"},
		},
		"KataVFIOKernelStuck": {{`kata_vfio_stuck_writes{node="a"}`: "0x60 1x60"}},
		"KataVFIODeviceQuarantined": {
			{`kata_vfio_quarantined_device_seconds{node="a", device="gpu-0000-3b-00-0", claim_namespace="team-a", claim="train"}`: "_x60 0+60x60"},
			{`kata_vfio_quarantined_device_seconds{node="a", device="gpu-0000-3b-00-0", claim_namespace="", claim=""}`: "_x60 0x60"}, // since an unknown time
		},
		"KataVFIODeviceOfLostClaim": {
			{`kata_vfio_lost_device_seconds{node="a", device="gpu-0000-3b-00-0", claim_namespace="team-a", claim="train"}`: "_x60 0+60x60"},
			{`kata_vfio_lost_device_seconds{node="a", device="gpu-0000-3b-00-0", claim_namespace="", claim=""}`: "0+60x120"}, // open metrics
		},
		"KataVFIOResetFailing":     {{`kata_vfio_phase_duration_seconds_count{node="a", phase="reset", result="error"}`: "0x60 1x60"}},
		"KataVFIODeviceUnhealthy":  {{`kata_vfio_devices{node="a", type="gpu", health="unhealthy"}`: "0x60 1x60"}},
		"KataVFIOLedgerNotWritten": {{`kata_vfio_ledger_failures_total{node="a"}`: "0x60 0+1x60"}},
		"KataVFIOLedgerNotVerifying": {
			{`kata_vfio_ledger_problems{node="a"}`: "0x60 2x60"},
			{`kata_vfio_ledger_problems{node="a", pod="other"}`: "1x120"},
		},
		"KataVFIOJournalDamaged": {{`kata_vfio_records{node="a", state="damaged"}`: "0x60 1x60"}},
		"KataVFIOAuditFailing": {
			{`kata_vfio_audit_check{node="a", id="IOM-003", severity="critical", state="fail"}`: "_x60 1x60"},
			{`kata_vfio_audit_check{node="a", id="ACS-001", severity="high", state="fail"}`: "4x120"},
		},
		"KataVFIOAuditStale": {{`kata_vfio_audit_last_timestamp_seconds{node="a"}`: "0+60x30 1800x90"}},
		"KataVFIOPublishingBehind": {
			{`kata_vfio_ready{node="a"}`: "1x60 0x60"},
			{`kata_vfio_publish_failures_total{node="a"}`: "0x60 0+1x60"},
		},
		"KataVFIOAPIErrors": {
			{`kata_vfio_api_requests_total{node="a", method="GET", code="503"}`: "0x60 0+10x60"},
			{`kata_vfio_api_requests_total{node="a", method="PATCH", code="403"}`: "0+3x120"},
			{`kata_vfio_api_requests_total{node="a", method="GET", code="none"}`: "0+3x120"},
		},
		"KataVFIONodeDrifted": {
			{`kata_vfio_bootstrap_outcome{node="a", blueprint="", outcome="changes needed"}`: "_x60 1x60"},
			{`kata_vfio_bootstrap_outcome{node="b", blueprint="p", outcome="can't be made fit"}`: "1x120"},
			{`kata_vfio_bootstrap_outcome{node="b", blueprint="", outcome="unreadable"}`: "1x120"},
		},
		"KataVFIONodeRebootPending": {{`kata_vfio_bootstrap_outcome{node="b", blueprint="", outcome="reboot needed"}`: "1x120"}},
		"KataVFIONodeNotVerified":   {{`kata_vfio_bootstrap_verified_timestamp_seconds{node="b"}`: "-9000x120"}},
		"KataVFIOVFsLacking":        {{`kata_vfio_vfs_lacking{node="a", pf="ens1"}`: "0x60 4x60"}},
		"KataVFIODiskScarce":        {{`kata_vfio_state_free_bytes{node="a", directory="/var/lib/kata-vfio"}`: "40000000000x60 200000000x60"}},
		"KataVFIOControllerDown": {
			{`up{job="kata-vfio-system/kata-vfio-controller", pod="two"}`: "1x60 0x60"},
			{`kata_vfio_twin_leader{pod="two"}`: "0x120"},
		},
		"KataVFIOControllerMissing": {{`kube_deployment_status_replicas_available{deployment="kata-vfio-controller"}`: "2x60 0x60"}},
		"KataVFIOSharedGPUsWait":    {{`kata_vfio_twin_waiting_seconds{pod="two"}`: "0x60 0+60x60"}},
		"KataVFIODevicesNotSanitized": {
			{`kata_vfio_sanitize_waiting{pod="two", profile="nvme"}`: "0x30 1x90"},
			{`kata_vfio_sanitize_pod_seconds_count{pod="one", profile="memory"}`: "0x60 stale"},
			{`kata_vfio_sanitize_pod_seconds_count{pod="one", profile="memory"}`: "_x120", `kata_vfio_sanitize_pod_seconds_count{pod="two", profile="memory"}`: "_x120"},
		},
		"KataVFIOTenantsNotRegistered": {
			{`kata_vfio_tenants_without_room{pod="two"}`: "0x60 20x60"},
			{`kata_vfio_tenants_failures_total{pod="two", action="update"}`: "0x60 0+2x60"},
		},
		"KataVFIODomainsNotReserved": {{`kata_vfio_domain_failures_total{pod="two", action="list"}`: "0x60 0+2x60"}},
		"KataVFIOClassViewStale":     {{`kata_vfio_class_view_failures_total{pod="two"}`: "0x60 0+2x60"}},
		"KataVFIONRIDisconnected":    {{`kata_vfio_nri_connected{node="a"}`: "1x60 0x60"}},
	}
}

// fired are the alerts that fire at any time while Prometheus looks at the series.
func fired(t *testing.T, n node) map[string]*rules.Alert {
	t.Helper()
	storage := promqltest.LoadedStorage(t, n.load())
	engine := promqltest.NewTestEngine(t, false, 5*time.Minute, 1_000_000)
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(engine, storage), Appendable: storage, Queryable: storage,
		Context: t.Context(), Logger: promslog.NewNopLogger(), NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
		Parser: parser.NewParser(parser.Options{}), NameValidationScheme: model.UTF8Validation,
	})
	groups, errs := manager.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, alertsFile)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	all := map[string]*rules.Alert{}
	for at := time.Duration(0); at <= watched; at += time.Minute {
		for _, g := range groups {
			g.Eval(t.Context(), time.Unix(0, 0).Add(at))
			for _, alert := range g.AlertingRules() {
				if err := alert.LastError(); err != nil {
					t.Fatalf("%s: %v", alert.Name(), err)
				}
				alert.ForEachActiveAlert(func(a *rules.Alert) {
					if a.State == rules.StateFiring {
						all[alert.Name()] = a
					}
				})
			}
		}
	}
	return all
}

func TestAlertsStaySilentOnHealthyNode(t *testing.T) {
	for name := range fired(t, healthy()) {
		t.Errorf("%s fires", name)
	}
}

func TestEachAlertFiresOnWhatItIsFor(t *testing.T) {
	cases := incidents()
	for _, name := range alertNames(t) {
		if len(cases[name]) == 0 {
			t.Errorf("%s: no incident", name)
		}
		for _, incident := range cases[name] {
			got := fired(t, healthy().with(incident))
			if _, ok := got[name]; !ok || len(got) != 1 {
				t.Errorf("on %v: %v fire, want %s alone", incident, slices.Sorted(maps.Keys(got)), name)
				continue
			}
			wantWords(t, got[name])
		}
	}
}

// wantWords checks what a person reads: every part is there, with the labels and values filled in.
func wantWords(t *testing.T, a *rules.Alert) {
	t.Helper()
	name := a.Labels.Get("alertname")
	for _, part := range []string{"summary", "description", "runbook_url"} {
		text := a.Annotations.Get(part)
		if text == "" || strings.Contains(text, "<no value>") || strings.Contains(text, "{{") || strings.Contains(text, "error") {
			t.Errorf("%s: its %s is %q", name, part, text)
		}
	}
	if severity := a.Labels.Get("severity"); severity != "critical" && severity != "warning" {
		t.Errorf("%s: its severity is %q", name, severity)
	}
	t.Logf("%s: %s", name, a.Annotations.Get("summary"))
}

func alertNames(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^  - alert: (\w+)$`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1])
	}
	if len(names) == 0 {
		t.Fatal("there are no alerts")
	}
	return names
}

// Each alert links to a heading of the runbook, by the anchor that GitHub makes of it.
func TestAlertsLinkToTheRunbook(t *testing.T) {
	text, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	runbook, err := os.ReadFile("../../deploy/RUNBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(runbook), -1) {
		words := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		anchors[strings.ReplaceAll(words, " ", "-")] = true
	}
	links := regexp.MustCompile(`runbook_url: https://github.com/kata-vfio/kata-vfio/blob/main/deploy/RUNBOOK\.md#(\S+)`).FindAllStringSubmatch(string(text), -1)
	if len(links) != len(alertNames(t)) {
		t.Errorf("%d alerts have %d links", len(alertNames(t)), len(links))
	}
	for _, link := range links {
		if !anchors[link[1]] {
			t.Errorf("deploy/RUNBOOK.md has no heading for #%s", link[1])
		}
	}
}

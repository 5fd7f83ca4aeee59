//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/controller"
)

const (
	// scrapers are values of network policies that admit a Prometheus.
	scrapers = "networkPolicy: {metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]}"
	// prometheus is its account, for metrics.readers.
	prometheus = "[{kind: ServiceAccount, name: prometheus, namespace: monitoring}]"
)

// networkRenderings are those of values that say who watches the plugin and who talks to it.
func networkRenderings() map[string]rendering {
	return map[string]rendering{
		"a PodMonitor": {
			values: "metrics: {podMonitor: {enabled: true, interval: 10s, labels: {team: a}}, tokenSecret: {name: scraper, key: t}}\n" + scrapers, offline: true,
			check: func(t *testing.T, got rendered) {
				has(t, got, "PodMonitor", plugin, `"interval":"10s"`, `"team":"a"`, `"scheme":"https"`, `"insecureSkipVerify":true`,
					`"authorization":{"credentials":{"key":"t","name":"scraper"}}`)
				hasNot(t, got, "PodMonitor", plugin, "bearerTokenFile") // it has no such field
			},
		},
		"a ServiceMonitor": {
			values: "metrics: {serviceMonitor: {enabled: true, interval: 10s, labels: {team: a}}, readers: " + prometheus + "}\n" + scrapers, offline: true,
			check: func(t *testing.T, got rendered) {
				has(t, got, "ServiceMonitor", plugin, `"interval":"10s"`, `"team":"a"`, `"targetLabel":"node"`, `"scheme":"https"`,
					`"insecureSkipVerify":true`, `"bearerTokenFile":"/var/run/secrets/kubernetes.io/serviceaccount/token"`)
				hasNot(t, got, "ServiceMonitor", plugin, "authorization")
				checkService(t, got)
			},
		},
		"metrics with a certificate": {
			values: "metrics: {serviceMonitor: {enabled: true}, tls: {secretName: cert}, tokenSecret: {name: scraper}, readers: " + prometheus + "}\n" + scrapers, offline: true,
			check: func(t *testing.T, got rendered) {
				has(t, got, "ServiceMonitor", plugin, `"ca":{"secret":{"key":"ca.crt","name":"cert"}}`, `"serverName":"kata-vfio-plugin.kata-vfio-system.svc"`,
					`"credentials":{"key":"token","name":"scraper"}`)
				hasNot(t, got, "ServiceMonitor", plugin, "insecureSkipVerify")
				hasNot(t, got, "ServiceMonitor", plugin, "bearerTokenFile")
				has(t, got, "DaemonSet", plugin, `"--metrics-cert-file=/etc/kata-vfio-metrics/tls.crt"`, `"--metrics-key-file=/etc/kata-vfio-metrics/tls.key"`,
					`"mountPath":"/etc/kata-vfio-metrics"`, `"secretName":"cert"`)
			},
		},
		"metrics that are closed": {
			values: "metrics: {readers: " + prometheus + "}",
			check: func(t *testing.T, got rendered) {
				has(t, got, "ClusterRole", "kata-vfio-metrics-reader", `"rules":[{"nonResourceURLs":["/metrics"],"verbs":["get"]}]`)
				has(t, got, "ClusterRoleBinding", "kata-vfio-metrics-reader", `"kind":"ServiceAccount","name":"prometheus","namespace":"monitoring"`)
				has(t, got, "ClusterRole", plugin, `"tokenreviews"`, `"subjectaccessreviews"`)
				hasNot(t, got, "DaemonSet", plugin, "--metrics-open")
			},
		},
		"metrics that are open": {
			values: "metrics: {open: true, serviceMonitor: {enabled: true}}\nnetworkPolicy: {enabled: false}", offline: true,
			check: func(t *testing.T, got rendered) {
				has(t, got, "DaemonSet", plugin, `"--metrics-open"`)
				has(t, got, "ServiceMonitor", plugin, `"scheme":"http"`)
				hasNot(t, got, "ServiceMonitor", plugin, "bearerTokenFile")
				hasNot(t, got, "ClusterRole", plugin, "reviews")
				lacks("ClusterRole", "kata-vfio-metrics-reader")(t, got)
			},
		},
		"open metrics that name tenants, to some": {
			values: "{metrics: {open: true, tenantLabels: true}, networkPolicy: {metricsFrom: [{podSelector: {}}]}}",
			check:  func(t *testing.T, got rendered) { wantArgs(t, got, "--metrics-open", "--metrics-tenants") },
		},
		"alerts": {
			values: "metrics: {prometheusRule: {enabled: true, labels: {team: a}}}", offline: true,
			check: func(t *testing.T, got rendered) {
				has(t, got, "PrometheusRule", plugin, `"team":"a"`, `"alert":"KataVFIOPluginDown"`, `on {{ $labels.node }} does not answer`)
				// kube-state-metrics has series of all namespaces, and a tenant's Deployment can have the controller's name.
				sameFile(t, "monitoring/alerts.yaml", got.find("PrometheusRule", plugin).Object["spec"],
					"{daemonset=", `{namespace="`+system+`", daemonset=`, "{deployment=", `{namespace="`+system+`", deployment=`)
			},
		},
		"alerts and a dashboard of other names": {
			values: "nameOverride: site\nmetrics: {prometheusRule: {enabled: true}, dashboard: {enabled: true}}", offline: true,
			check: func(t *testing.T, got rendered) {
				has(t, got, "PrometheusRule", "site-plugin", `up{job=~\"(.+/)?site-plugin\"}`, `up{job=~\"(.+/)?site-controller\"}`,
					`number_scheduled{namespace=\"kata-vfio-system\", daemonset=~\"site-plugin(-.+)?\"}`,
					`number_ready{namespace=\"kata-vfio-system\", daemonset=~\"site-plugin(-.+)?\"}`,
					`replicas_available{namespace=\"kata-vfio-system\", deployment=\"site-controller\"}`,
					"The Deployment site-controller has no pod", "No kata-vfio-controller acts.")
				hasNot(t, got, "PrometheusRule", "site-plugin", plugin)
				has(t, got, "ConfigMap", "site-plugin-dashboard", `(.+/)?site-plugin`)
				hasNot(t, got, "ConfigMap", "site-plugin-dashboard", plugin)
			},
		},
		"a dashboard": {
			values: "metrics: {dashboard: {enabled: true, labels: {grafana_dashboard: null, folder: a}, annotations: {a: b}}}",
			check: func(t *testing.T, got rendered) {
				c := object[corev1.ConfigMap](t, got, "ConfigMap", plugin+"-dashboard")
				var of any
				if err := json.Unmarshal([]byte(c.Data["kata-vfio.json"]), &of); err != nil {
					t.Error(err)
				}
				sameFile(t, "monitoring/dashboard.json", of)
				if _, ok := c.Labels["grafana_dashboard"]; ok || c.Labels["folder"] != "a" || c.Annotations["a"] != "b" || c.Namespace != system {
					t.Errorf("the ConfigMap is %+v", c.ObjectMeta)
				}
			},
		},
		"an API server by its name": {
			values: "plugin: {apiServer: {host: api.example.org}}",
			check:  func(t *testing.T, got rendered) { checkEgress(t, got, plugin, "443 6443", "53 53") },
		},
		"an API server by its address": {
			values: "plugin: {apiServer: {host: 'fd00::a'}}", check: func(t *testing.T, got rendered) { checkEgress(t, got, plugin, "443 6443") },
		},
		"policies for the audits": {
			values: "audit: {enabled: true, probe: {enabled: false}, nodes: {enabled: true}}",
			check: func(t *testing.T, got rendered) {
				checkEgress(t, got, "kata-vfio-audit", "443 6443")
				checkEgress(t, got, "kata-vfio-audit-node")
			},
		},
		"addresses of the API server": {
			values: "networkPolicy: {apiServer: {ports: [6443], cidrs: [10.0.0.10/32, 'fd00::10/128']}}",
			check: func(t *testing.T, got rendered) {
				egress := object[networkingv1.NetworkPolicy](t, got, "NetworkPolicy", plugin).Spec.Egress
				if len(egress) != 1 || len(egress[0].Ports) != 1 || len(egress[0].To) != 2 || egress[0].To[1].IPBlock.CIDR != "fd00::10/128" {
					t.Errorf("the egress rules are %+v", egress)
				}
			},
		},
		"readers of metrics": {
			values: scrapers + "\n" + sharing,
			check: func(t *testing.T, got rendered) {
				for _, name := range []string{plugin, controller.Name} {
					ingress := object[networkingv1.NetworkPolicy](t, got, "NetworkPolicy", name).Spec.Ingress
					if len(ingress) != 1 || ingress[0].Ports[0].Port.StrVal != "metrics" || len(ingress[0].From) != 1 {
						t.Errorf("%s: the ingress rules are %+v", name, ingress)
					}
				}
			},
		},
		"no readers of metrics": {
			values: sharing,
			check: func(t *testing.T, got rendered) {
				for _, name := range []string{plugin, controller.Name} {
					policy := object[networkingv1.NetworkPolicy](t, got, "NetworkPolicy", name).Spec
					if len(policy.Ingress) != 0 || !slices.Contains(policy.PolicyTypes, networkingv1.PolicyTypeIngress) {
						t.Errorf("%s: somebody may connect: %+v", name, policy)
					}
				}
			},
		},
	}
}

// checkService checks that the ServiceMonitor finds the Service, and the Service the plugin's pods, ready or not.
func checkService(t *testing.T, got rendered) {
	t.Helper()
	service := object[corev1.Service](t, got, "Service", plugin)
	pod := object[appsv1.DaemonSet](t, got, "DaemonSet", plugin).Spec.Template
	monitor := got.find("ServiceMonitor", plugin)
	selector, _, err := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	if err != nil || !labels.SelectorFromSet(selector).Matches(labels.Set(service.Labels)) || len(selector) == 0 {
		t.Errorf("the monitor selects %v (%v), the Service has %v", selector, err, service.Labels)
	}
	if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)) || service.Spec.ClusterIP != corev1.ClusterIPNone ||
		!service.Spec.PublishNotReadyAddresses || service.Spec.Ports[0].Name != "metrics" {
		t.Errorf("the Service is %+v", service.Spec)
	}
}

// checkEgress checks the ports of each rule for what leaves pods, and that no others can reach the audits.
func checkEgress(t *testing.T, got rendered, policy string, want ...string) {
	t.Helper()
	spec := object[networkingv1.NetworkPolicy](t, got, "NetworkPolicy", policy).Spec
	var rules []string
	for _, rule := range spec.Egress {
		var ports []string
		for _, p := range rule.Ports {
			ports = append(ports, p.Port.String())
		}
		rules = append(rules, strings.Join(ports, " "))
	}
	if diff := cmp.Diff(want, rules); diff != "" || len(spec.PolicyTypes) != 2 || policy != plugin && len(spec.Ingress) > 0 {
		t.Errorf("%s: %+v, the rules differ (-want +got):\n%s", policy, spec, diff)
	}
}

// sameFile checks that a file of the chart, YAML or JSON, has come through rendering as it is, with pairs of old and new text replaced.
func sameFile(t *testing.T, name string, got any, replaced ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, name))
	if err != nil {
		t.Fatal(err)
	}
	var want any
	if err := yaml.Unmarshal([]byte(strings.NewReplacer(replaced...).Replace(string(text))), &want); err != nil {
		t.Fatal(err)
	}
	wantText, _ := json.Marshal(want)
	gotText, err := json.Marshal(got)
	if err != nil || string(wantText) != string(gotText) {
		t.Errorf("%s came out otherwise (%v):\n%s", name, err, gotText)
	}
}

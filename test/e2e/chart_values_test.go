//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// What would only be seen on a node, or never, is refused before anything is installed.
func TestSchemaRefuses(t *testing.T) {
	for values, want := range map[string]string{
		"plugins: {}":                                                     "additional properties 'plugins' not allowed",
		"plugin: {privilegd: true}":                                       "additional properties 'privilegd' not allowed",
		"plugin: null":                                                    "missing property 'plugin'",
		"allowedRuntimeClasses: []":                                       "minItems",
		`allowedRuntimeClasses: ["x' || true || 'x"]`:                     "does not match pattern",
		"image: {digest: 'sha256:abc'}":                                   "does not match pattern",
		"image: {repository: ''}":                                         "does not match pattern",
		"plugin: {port: 9455}":                                            "additional properties 'port' not allowed",
		"plugin: {sockets: {podResources: pod-resources.sock}}":           "does not match pattern",
		"plugin: {sockets: {nri: /nri.sock}}":                             "does not match pattern",
		"plugin: {sockets: {nri: /run/" + strings.Repeat("x", 103) + "}}": "maxLength",
		"plugin: {extraArgs: [--hot-plug=true, -x]}":                      "does not match pattern",
		"plugin: {terminationGracePeriodSeconds: 30}":                     "minimum",
		"plugin: {appArmorProfile: {type: Complain}}":                     "must be one of",
		"plugin: {apiServer: {host: 'https://10.0.0.10'}}":                "does not match pattern",
		"plugin: {apiServer: {port: 0}}":                                  "minimum",
		"plugin: {audit: {taint: warning}}":                               "must be one of",
		"plugin: {audit: {profile: production}}":                          "must be one of",
		"plugin: {audit: {waivers: [{rule: ACS-010, scope: '*'}]}}":       "missing propert",
		"plugin: {audit: {waivers: [{rule: K8S-012, scope: x, until: '2027-03-31', reason: x, author: x}]}}":     "not",
		"plugin: {audit: {waivers: [{rule: ORG-001, scope: x, until: '2027-03-31', reason: x, author: x}]}}":     "not",
		"audit: {rules: [{id: ACS-001, title: x, severity: high, why: x, fix: x, settings: [{sysctl: a.b}]}]}":   "does not match pattern",
		"audit: {rules: [{id: ORG-001, title: x, severity: high, why: x, fix: x, settings: [{values: ['1']}]}]}": "oneOf",
		"audit: {waivers: [{rule: ACS-010, scope: '*'}]}":                                                        "missing propert",
		"admission: {tenants: {allowMAC: 'no'}}":                                                                 "want boolean",
		"bootstrap: {every: 1s}":                                                                                 "does not match pattern",
		"bootstrap: {every: 6h}":                                                                                 "does not match pattern",
		"bootstrap: {blueprint: {kernel: {iommuX: On}}}":                                                         "additional properties 'iommuX' not allowed",
		"bootstrap: {blueprint: {kernel: {iommu: 'Off'}}}":                                                       "must be one of",
		"bootstrap: {blueprint: {kernel: {iommu: On}}}":                                                          "got boolean, want string",
		"bootstrap: {blueprint: {versions: {kernel: {minimum: 6.10}}}}":                                          "want string",
		"bootstrap: {blueprint: {kind: Node}}":                                                                   "additional properties 'kind' not allowed",
		"plugin: {exemptNamespaces: []}":                                                                         "minItems",
		"kubectl: {viewers: [{kind: Group}]}":                                                                    "missing propert",
		"kubectl: {viewers: [{kind: ServiceAccount, name: a}]}":                                                  "missing propert",
		"kubectl: {viewers: [{kind: Everybody, name: a}]}":                                                       "must be one of",
		"plugin: {audit: {every: 1h}}":                                                                           "does not match pattern",
		"audit: {nodes: {every: 30s}}":                                                                           "does not match pattern",
		"audit: {nodes: {enabled: yes, root: /}}":                                                                "additional properties 'root' not allowed",
		"kubelet: {dir: /var/lib/kubelet/}":                                                                      "does not match pattern",
		"kubelet: {dir: var/lib/kubelet}":                                                                        "does not match pattern",
		"nodeConfig: {source: File}":                                                                             "must be one of",
		"nodeConfig: {pairing: NUMA}":                                                                            "must be one of",
		"nodeConfig: {allowedHandlers: []}":                                                                      "minItems",
		"nodeConfig: {allowedHandlers: [kata.gpu]}":                                                              "does not match pattern",
		"nodeConfig: {devices: [{policy: bound}]}":                                                               "missing property 'match'",
		"nodeConfig: {devices: [{match: {}}]}":                                                                   "minProperties",
		"nodeConfig: {devices: [{match: {pfNames: []}}]}":                                                        "minItems",
		"nodeConfig: {devices: [{match: {types: [bridge]}}]}":                                                    "must be one of",
		"nodeConfig: {devices: [{match: {vendors: [4318]}}]}":                                                    "want string",
		"nodeConfig: {devices: [{match: {devices: ['2330']}}]}":                                                  "'vendors' required",
		"nodeConfig: {devices: [{match: {classes: ['030']}}]}":                                                   "does not match pattern",
		"nodeConfig: {devices: [{match: {addresses: ['3b:00.0']}}]}":                                             "does not match pattern",
		"nodeConfig: {devices: [{match: {pfNames: ['eth0/1']}}]}":                                                "does not match pattern",
		"nodeConfig: {devices: [{match: {types: [gpu]}, exclude: true, policy: bound}]}":                         "'not' failed",
		"nodeConfig: {devices: [{match: {types: [gpu]}, exclude: true, warm: 1}]}":                               "'not' failed",
		"nodeConfig: {devices: [{match: {types: [gpu]}, exclude: true, sharedWith: gpu.example.com}]}":           "'not' failed",
		"nodeConfig: {devices: [{match: {types: [gpu]}, policy: bound, sharedWith: gpu.example.com}]}":           "value must be 'onDemand'",
		"nodeConfig: {devices: [{match: {types: [gpu]}, warm: 1, sharedWith: gpu.example.com}]}":                 "'not' failed",
		"nodeConfig: {devices: [{match: {types: [gpu, vf]}, sharedWith: gpu.example.com}]}":                      "'const' failed",
		"nodeConfig: {devices: [{match: {vendors: ['10de']}, sharedWith: gpu.example.com}]}":                     "missing property 'types'",
		"nodeConfig: {devices: [{match: {types: [gpu]}, sharedWith: kata-vfio.dev}]}":                            "'not' failed",
		"nodeConfig: {devices: [{match: {types: [gpu]}, sharedWith: GPU}]}":                                      "does not match pattern",
		"nodeConfig: {devices: [{match: {types: [gpu]}, policy: bound, warm: 1}]}":                               "value must be 'onDemand'",
		"nodeConfig: {devices: [{match: {types: [gpu]}, warm: -1}]}":                                             "minimum",
		"nodeConfig: {devices: [{match: {types: [gpu]}, warm: 101%}]}":                                           "does not match pattern",
		"nodeConfig: {addressPools: [{name: a}]}":                                                                "missing property 'ipam'",
		"nodeConfig: {addressPools: [{name: a, ipam: {}}]}":                                                      "missing property 'type'",
		"nodeConfig: {addressPools: [{name: a, ipam: {type: a/b}}]}":                                             "does not match pattern",
		"nodeConfig: {addressPools: [{name: a, cniVersion: '2', ipam: {type: a}}]}":                              "must be one of",
		"nodeConfig: {cniBinDirs: []}":                                                                           "minItems",
		"nodeConfig: {cniBinDirs: [bin]}":                                                                        "does not match pattern",
		"deviceClasses: {vf: {vf: {network: {addressPool: A}}}}":                                                 "does not match pattern",
		"deviceClasses: {gpu-slice: {boundary: device}}":                                                         "must be one of",
		"deviceClasses: {sata: {enabled: true}}":                                                                 "additional properties 'sata' not allowed",
		"deviceClasses: {gpu: {alias: true}, accelerator: {enabled: true}}":                                      "both make the DeviceClass accelerator.kata-vfio.dev",
		"deviceClasses: {gpu: {enabled: false, alias: true}, accelerator: {enabled: true}}":                      "both make the DeviceClass accelerator.kata-vfio.dev",
		"nodeConfig: {gpuSlices: [{match: {}}]}":                                                                 "minProperties",
		"nodeConfig: {gpuSlices: [{match: {vendors: ['1002']}, amd: {}}]}":                                       "minProperties",
		"nodeConfig: {gpuSlices: [{match: {vendors: ['1002']}, amd: {memoryMiB: 0}}]}":                           "minimum",
		"deviceClasses: {pf: {alias: true}}":                                                                     "additional properties 'alias' not allowed",
		"deviceClasses: {gpu: {namespaces: [team_a]}}":                                                           "does not match pattern",
		"deviceClasses: {gpu: {namespaces: ['team-*']}}":                                                         "does not match pattern",
		"deviceClasses: {gpu: {vfio: {backend: group}}}":                                                         "must be one of",
		"deviceClasses: {gpu: {vfio: {reset: 'false'}}}":                                                         "must be one of",
		"deviceClasses: {gpu: {vf: {trust: true}}}":                                                              "additional properties 'vf' not allowed",
		"nodeConfig: {virtualFunctions: [{pf: eth0, count: 1, eswitchMode: switchdev}]}":                         "must be one of",
		"deviceClasses: {vf: {vf: {portGUID: '02:00:5e:10:00:01'}}}":                                             "does not match pattern",
		"deviceClasses: {vf: {vf: {vlan: 4095}}}":                                                                "maximum",
		"deviceClasses: {vf: {vf: {mac: '01:00:5e:00:00:01'}}}":                                                  "does not match pattern",
		"deviceClasses: {gpu: {extendedResourceName: gpu}}":                                                      "does not match pattern",
		`admission: {tenants: {extendedResources: ["a/b'"]}}`:                                                    "does not match pattern",
		"admission: {tenants: {namespaceLabel: ''}}":                                                             "does not match pattern",
		"admission: {tenants: {maxGracePeriodSeconds: 0}}":                                                       "minimum",
		"admission: {tenants: {maxConstraints: 33}}":                                                             "maximum",
		"admission: {tenants: {schedulerName: KAI}}":                                                             "does not match pattern",
		"admission: {protectClaims: {enabled: true}}":                                                            "has no MutatingAdmissionPolicy, which adds the finalizer",
		"admission: {action: Allow}":                                                                             "must be one of",
		"admission: {pods: {enabled: 'no'}}":                                                                     "want boolean",
		"admission: {claims: {enabled: 'no'}}":                                                                   "want boolean",
		"plugin: {cni: {stateDir: /var}}":                                                                        "does not match pattern",
		`guestnet: {image: {tag: "x'"}}`:                                                                         "does not match pattern",
		"guestnet: {resources: {limits: {cpu: \"1', 'x\"}}}":                                                     "does not match pattern",
		"guestnet: {resources: {limits: {gpu: '1'}}}":                                                            "additional properties 'gpu' not allowed",
		"guestnet: {inject: 'yes'}":                                                                              "want boolean",
		"networkPolicy: {apiServer: {ports: []}}":                                                                "minItems",
		"networkPolicy: {apiServer: {cidrs: [10.0.0.10]}}":                                                       "does not match pattern",
		"runtimeClass: {overhead: {memory: 10GB}}":                                                               "does not match pattern",
		"runtimeClass: {overhead: {memory: null}}":                                                               "missing property 'memory'",
		"metrics: {serviceMonitor: {enabled: true}, podMonitor: {enabled: true}}":                                "would count everything twice",
		"metrics: {serviceMonitor: {enabled: true}}":                                                             "metricsFrom is empty, so that nobody reaches metrics",
		"metrics: {serviceMonitor: {interval: often}}":                                                           "does not match pattern",
		"metrics: {dashboard: {namespace: Monitoring}}":                                                          "does not match pattern",
		"metrics: {prometheusRule: {rules: []}}":                                                                 "additional properties 'rules' not allowed",
		"metrics: {podMonitor: {interval: often}}":                                                               "does not match pattern",
		"metrics: {podMonitor: {enabled: true}}":                                                                 "metrics.podMonitor has no token to send",
		"metrics: {readers: [{kind: ServiceAccount, name: a}]}":                                                  "missing propert",
		"metrics: {tls: {secretName: A}}":                                                                        "does not match pattern",
		"metrics: {tokenSecret: {name: a, key: ''}}":                                                             "does not match pattern",
		"metrics: {open: true, tls: {secretName: a}}":                                                            "metrics.open serves plain HTTP",
		"runtimeClass: {name: vm}":                                                                               "runtimeClass.name is vm, and allowedRuntimeClasses is [\"kata-gpu\"]",
		"runtimeClass: {handler: vm}":                                                                            "runtimeClass.handler is vm, and nodeConfig.allowedHandlers is [\"kata-gpu\"]",
		"allowedRuntimeClasses: [kata]":                                                                          "runtimeClass.name is kata-gpu, and allowedRuntimeClasses is",
		"nodeConfig: {allowedHandlers: [kata]}":                                                                  "runtimeClass.handler is kata-gpu, and nodeConfig.allowedHandlers is",
		"runtimeClass: {nic: {enabled: true}}":                                                                   "runtimeClass.nic.name is kata-vfio, and allowedRuntimeClasses is",
		"runtimeClass: {nic: {enabled: true}}\nallowedRuntimeClasses: [kata-gpu, kata-vfio]":                     "runtimeClass.nic.handler is kata-vfio, and nodeConfig.allowedHandlers is",
		"runtimeClass: {nic: {enabled: true, name: kata-gpu, handler: kata-gpu}}":                                "are both kata-gpu: set two names",
		"runtimeClass: {nic: {enabled: true, handler: kata-gpu}}\nallowedRuntimeClasses: [kata-gpu, kata-vfio]":  "one default_memory",
		nicClass + "bootstrap: {enabled: true, blueprint: {containers: {nicHandler: false}}}":                    "no node would have the handler kata-vfio",
		nicClass + "bootstrap: {enabled: true, blueprint: {containers: {hotPlug: true}}}":                        "the handler kata-vfio plugs devices when the VM starts",
		"bootstrap: {blueprint: {containers: {nicHandler: 'no'}}}":                                               "want boolean",
		"serviceAccount: {create: false}":                                                                        "serviceAccount.name is empty",
		"nodeSelection: {mode: Labels}":                                                                          "must be one of",
		"nodeSelection: {nfdLabels: []}":                                                                         "minItems",
		"{nodeSelection: {mode: NFD}, plugin: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{}]}}}}}": "the chart sets that field",
		"nameOverride: Site":                                                                               "does not match pattern",
		"commonLabels: {a: 1}":                                                                             "want string",
		"imagePullSecrets: [a]":                                                                            "want object",
		"plugin: {extraEnv: [{value: a}]}":                                                                 "missing property 'name'",
		"runtimeClass: {secretName: a}":                                                                    "additional properties 'secretName' not allowed",
		"metrics: {open: true, tenantLabels: true}":                                                        "name tenants and claims to every pod",
		"sharedPool: {enabled: true}":                                                                      "sharedPool.drivers is empty",
		sharedWithOther + "kai: {countGPUs: true}":                                                         "set kai.countGPUs to false",
		sharedWithOther + "admission: {tenants: {schedulerName: kai-scheduler}}":                           "leave admission.tenants.schedulerName empty",
		"sharedPool: {drivers: [kata-vfio.dev]}":                                                           "'not' failed",
		"sanitizers: {profiles: {memory: {image: registry.example/s:1}}}":                                  "does not match pattern",
		"sanitizers: {profiles: {memory: {image: '" + stageImage + "', user: root}}}":                      "additional properties",
		"sanitizers: {profiles: {memory: {image: '" + stageImage + "', runtimeClass: runc}}}":              "add the name to allowedRuntimeClasses",
		"sanitizers: {namespace: kata-vfio-system, profiles: {memory: {image: '" + stageImage + "'}}}":     "set one of their own",
		"nodeConfig: {devices: [{match: {types: [gpu]}, sanitize: {profile: memory}}]}":                    "add the profile",
		"nodeConfig: {devices: [{match: {types: [gpu]}, exclude: true, sanitize: {profile: memory}}]}":     "'not' failed",
		"tenancy: {enabled: true}":                                                                         "the API server has no MutatingAdmissionPolicy",
		"tenancy: {label: \"team'\"}":                                                                      "does not match pattern",
		"nodeConfig: {devices: [{match: {types: [gpu]}, exclusive: [Switch]}]}":                            "set tenancy.enabled",
		"nodeConfig: {devices: [{match: {types: [vf]}}, {match: {types: [gpu]}, exclusive: [Node]}]}":      "set tenancy.enabled",
		"nodeConfig: {devices: [{match: {types: [gpu]}, exclusive: [Rack]}]}":                              "must be one of",
		"nodeConfig: {devices: [{match: {types: [gpu]}, exclusive: [Card, Card]}]}":                        "are equal",
		"nodeConfig: {devices: [{match: {types: [gpu]}, exclude: true, exclusive: [Card]}]}":               "'not' failed",
		"nodeConfig: {devices: [{match: {types: [gpu]}, sharedWith: gpu.example.com, exclusive: [Card]}]}": "'not' failed",
		"nodeConfig: {devices: [{match: {types: [gpu]}, reserveDomains: true}]}":                           "missing property 'exclusive'",
		"nodeConfig: {devices: [{match: {types: [gpu]}, exclusive: [], reserveDomains: true}]}":            "minItems",
		"tenancy: {reserveDomains: true}":                                                                  "set tenancy.enabled",
		"sharedPool: {replicas: 0}":                                                                        "minimum",
		"nodeConfig: {devices: [{match: {types: [gpu]}, sharedWith: gpu.example.com}]}":                    "add gpu.example.com to sharedPool.drivers",
		"metrics: {serviceMonitor: {enabled: true}}\n" + scrapers:                                          "metrics.readers is empty: the plugin would refuse each scrape",
		"nodeConfig: {source: Node, devices: [{match: {types: [gpu]}}]}":                                   "nodeConfig.devices is set, and nodeConfig.source is Node",
		"nodeConfig: {source: Node, devices: []}":                                                          "nodeConfig.devices is set, and nodeConfig.source is Node",
		"nodeConfig: {source: Node, virtualFunctions: [{pf: eth0, count: 1}]}":                             "nodeConfig.virtualFunctions is set, and nodeConfig.source is Node",
		"nodeConfig: {source: Node, addressPools: [{name: a, ipam: {type: host-local}}]}":                  "nodeConfig.addressPools is set, and nodeConfig.source is Node",
		hotPlug: "add --hot-plug to plugin.extraArgs",
		hotPlug + "plugin: {extraArgs: [--hot-plug=false, --hot-plug-window=0]}": "add --hot-plug to plugin.extraArgs",
		early:                               boundByNone,
		early + "nodeConfig: {devices: []}": boundByNone,
		early + "nodeConfig: {devices: [{match: {types: [gpu]}, policy: onDemand}]}":                                           boundByNone,
		early + "nodeConfig: {devices: [{match: {types: [gpu]}, exclude: true}]}":                                              boundByNone,
		early + "nodeConfig: {devices: [{match: {addresses: ['0000:3c:00.0']}, policy: bound}]}":                               boundByNone,
		early + "nodeConfig: {devices: [{match: {addresses: ['0000:3B:00.0']}}, {match: {vendors: ['10de']}, policy: bound}]}": boundByNone,
	} {
		t.Run(values, func(t *testing.T) {
			t.Parallel()
			if text, err := template(t, values); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("want a refusal with %q, got %v\n%s", want, err, text)
			}
		})
	}
}

const (
	// sharedWithOther is a pool that only kube-scheduler can schedule.
	sharedWithOther = "sharedPool: {enabled: true, drivers: [gpu.example.com]}\n"

	hotPlug = "bootstrap: {enabled: true, blueprint: {containers: {hotPlug: true}}}\n"
	early   = "bootstrap: {enabled: true, blueprint: {kernel: {earlyBinding: true}, vfio: {keepOff: ['0000:3b:00.0']}}}\n"
	// boundByNone is the refusal of a function that is bound early, and by no rule.
	boundByNone = "names 0000:3b:00.0 in vfio.keepOff, and nodeConfig.devices has no rule with policy: bound for it"
)

// TestChartTakesKubernetesReleases: those that K8S-009 passes, and a release before 1.36.6 or 1.37.1 not.
func TestChartTakesKubernetesReleases(t *testing.T) {
	for version, takes := range map[string]bool{
		"v1.36.5": false, "v1.36.6": true, "v1.36.7-gke.1": true, "v1.36.99+k3s1": true,
		"v1.37.0": false, "v1.37.0+k3s1": false, "v1.37.1": true, "v1.37.2+rke2r1": true, "v1.38.0": true,
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			_, err := template(t, "", "--kube-version", version)
			if takes && err != nil {
				t.Errorf("want the chart rendered for %s, got %v", version, err)
			}
			if want := "chart requires kubeVersion"; !takes && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("want a refusal of %s with %q, got %v", version, want, err)
			}
		})
	}
}

// Values that agree are rendered: the refusals of TestSchemaRefuses are about contradictions only.
func TestChartAcceptsValuesThatAgree(t *testing.T) {
	for _, values := range []string{
		"metrics: {serviceMonitor: {enabled: true}, readers: [{kind: ServiceAccount, name: a, namespace: b}]}\n" + scrapers,
		"nodeConfig: {source: Node, devices: null}",
		hotPlug + "plugin: {extraArgs: [--hot-plug]}",
		hotPlug + "plugin: {extraArgs: [--holder-wait=20s, --hot-plug=true]}",
		strings.Replace(hotPlug, "enabled: true", "enabled: false", 1),
		early + "nodeConfig: {source: Node}",
		early + "nodeConfig: {devices: [{match: {types: [gpu]}, policy: bound}]}",
		early + "nodeConfig: {devices: [{match: {addresses: ['0000:3B:00.0']}, policy: bound}]}",
		early + "nodeConfig: {devices: [{match: {addresses: ['0000:3c:00.0']}}, {match: {vendors: ['10de']}, policy: bound}]}",
		// The function may be none of the first rule.
		early + "nodeConfig: {devices: [{match: {types: [vf]}}, {match: {types: [gpu]}, policy: bound}]}",
		strings.Replace(early, "earlyBinding: true", "earlyBinding: false", 1),
		"kai: {countGPUs: true}\nadmission: {tenants: {schedulerName: kai-scheduler}}\n" + strings.Replace(sharedWithOther, "true", "false", 1),
	} {
		t.Run(values, func(t *testing.T) {
			t.Parallel()
			if _, err := template(t, values); err != nil {
				t.Error(err)
			}
		})
	}
}

// schema is values.schema.json, as far as it is compared.
type schema struct {
	Ref        string `json:"$ref"`
	Properties map[string]schema
	Defs       map[string]schema `json:"$defs"`
	Items      *schema
	Enum       []string
	Pattern    string
	Type       any
	Minimum    *int
	Maximum    *int
}

func valuesSchema(t *testing.T) schema {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// The schema has the fields of the plugin's own API, no more and no fewer.
func TestSchemaHasTheFieldsOfTheAPI(t *testing.T) {
	s := valuesSchema(t)
	nodeConfig := maps.Clone(s.Defs["NodeConfig"].Properties)
	delete(nodeConfig, "source") // where the chart takes it from
	for name, one := range map[string]struct {
		got  map[string]schema
		kind any
	}{
		"VFIOConfig":   {s.Defs["VFIOConfig"].Properties, v1alpha1.VFIOConfig{}},
		"VFConfig":     {s.Defs["VFConfig"].Properties, v1alpha1.VFConfig{}},
		"GuestNetwork": {s.Defs["GuestNetwork"].Properties, v1alpha1.GuestNetwork{}},
		"GuestRoute":   {s.Defs["GuestRoute"].Properties, v1alpha1.GuestRoute{}},
		"NodeConfig":   {nodeConfig, v1alpha1.NodeConfig{}},
		"VFRule":       {s.Defs["VFRule"].Properties, v1alpha1.VFRule{}},
		"AddressPool":  {s.Defs["AddressPool"].Properties, v1alpha1.AddressPool{}},
		"DeviceRule":   {s.Defs["DeviceRule"].Properties, v1alpha1.DeviceRule{}},
		"DeviceMatch":  {s.Defs["DeviceMatch"].Properties, v1alpha1.DeviceMatch{}},
	} {
		var want []string
		for field := range reflect.TypeOf(one.kind).Fields() {
			if !field.Anonymous {
				tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
				want = append(want, tag)
			}
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(one.got))); diff != "" {
			t.Errorf("%s: the fields differ (-API +schema):\n%s", name, diff)
		}
	}
}

// The plugin's refusal of a value lists those that it takes: the schema's list is the same.
func TestSchemaHasTheValuesOfTheAPI(t *testing.T) {
	s := valuesSchema(t)
	for kind, properties := range map[string]map[string]schema{
		"VFIOConfig": s.Defs["VFIOConfig"].Properties, "VFConfig": s.Defs["VFConfig"].Properties,
	} {
		for field, one := range properties {
			switch {
			case one.Enum != nil:
				wantRefusal(t, decodeParameters(kind, field, "?"), "is not one of "+strings.Join(one.Enum, ", "))
			case one.Maximum != nil:
				between := fmt.Sprintf("is not a number from %d to %d", *one.Minimum, *one.Maximum)
				wantRefusal(t, decodeParameters(kind, field, *one.Minimum-1), between)
				wantRefusal(t, decodeParameters(kind, field, *one.Maximum+1), between)
			}
		}
	}
	rule, match := s.Defs["DeviceRule"].Properties, s.Defs["DeviceMatch"].Properties
	_, err := v1alpha1.DecodeNodeConfig([]byte("{apiVersion: resource.kata-vfio.dev/v1alpha1, kind: NodeConfig, " +
		"devices: [{policy: '?', match: {types: ['?']}}]}"))
	wantRefusal(t, err, "is not one of "+strings.Join(rule["policy"].Enum, ", "))
	wantRefusal(t, err, "is not one of "+strings.Join(match["types"].Items.Enum, ", "))
	_, err = v1alpha1.DecodeNodeConfig([]byte("{apiVersion: resource.kata-vfio.dev/v1alpha1, kind: NodeConfig, " +
		"addressPools: [{name: a, cniVersion: '?', ipam: {type: a}}]}"))
	wantRefusal(t, err, "is not one of "+strings.Join(s.Defs["AddressPool"].Properties["cniVersion"].Enum, ", "))
}

// decodeParameters has the plugin decode parameters with one field.
func decodeParameters(kind, field string, value any) error {
	text, err := json.Marshal(map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": kind, field: value})
	if err == nil {
		_, err = v1alpha1.DecodeParameters(text)
	}
	return err
}

func wantRefusal(t *testing.T, err error, want string) {
	t.Helper()
	// The whole list: what follows it is the next problem, or nothing.
	if err == nil || !strings.Contains(err.Error()+";", want+";") {
		t.Errorf("the plugin says %v, want %q", err, want)
	}
}

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/nri"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/docs"
)

func TestPluginReadsTheNodeConfig(t *testing.T) {
	// Nil is "not said", which is the plugin's default rules; empty is nothing.
	for values, want := range map[string][]v1alpha1.DeviceRule{
		"":                            nil,
		"nodeConfig: {devices: null}": nil,
		"nodeConfig: {devices: []}":   {},
		`
nodeConfig:
  devices:
  - {name: console, match: {addresses: ['0000:3b:00.0']}, exclude: true}
  - {name: gpus, match: {types: [gpu], vendors: ['10de'], devices: ['2330'], classes: ['0302']}, policy: bound}
  - {match: {types: [vf], pfNames: [ens1f0np0]}, warm: 25%}
  - {match: {types: [nvme]}, warm: 2}`: {
			{Name: "console", Match: v1alpha1.DeviceMatch{Addresses: []pci.Address{address(t, "0000:3b:00.0")}}, Exclude: true},
			{
				Name: "gpus", Policy: v1alpha1.PolicyBound, Match: v1alpha1.DeviceMatch{
					Types: []string{"gpu"}, Vendors: []pci.ID{0x10de}, Devices: []pci.ID{0x2330}, Classes: []string{"0302"},
				},
			},
			{Match: v1alpha1.DeviceMatch{Types: []string{"vf"}, PFNames: []string{"ens1f0np0"}}, Policy: v1alpha1.PolicyOnDemand, Warm: v1alpha1.Share{Amount: 25, Percent: true}},
			{Match: v1alpha1.DeviceMatch{Types: []string{"nvme"}}, Policy: v1alpha1.PolicyOnDemand, Warm: v1alpha1.Share{Amount: 2}},
		},
	} {
		t.Run(values, func(t *testing.T) {
			got, err := v1alpha1.DecodeNodeConfig([]byte(object[corev1.ConfigMap](t, render(t, values), "ConfigMap", plugin).Data["node.yaml"]))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.Devices); diff != "" {
				t.Errorf("the rules differ (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{v1alpha1.DefaultHandler}, got.AllowedHandlers); diff != "" {
				t.Errorf("the handlers differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPluginReadsTheVirtualFunctions(t *testing.T) {
	objects := render(t, "nodeConfig: {virtualFunctions: [{pf: ens1f0np0, count: 8}, {pf: '0000:3b:00.0', count: 0, eswitchMode: Switchdev}]}")
	got, err := v1alpha1.DecodeNodeConfig([]byte(object[corev1.ConfigMap](t, objects, "ConfigMap", plugin).Data["node.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	want := []v1alpha1.VFRule{{PF: "ens1f0np0", Count: new(8)}, {PF: "0000:3b:00.0", Count: new(0), EswitchMode: v1alpha1.EswitchSwitchdev}}
	if diff := cmp.Diff(want, got.VirtualFunctions); diff != "" {
		t.Errorf("the rules differ (-want +got):\n%s", diff)
	}
}

// The ipam object is the plugin's: nothing of it is the chart's to change.
func TestPluginReadsTheAddressPools(t *testing.T) {
	const ipam = `{"dataDir":"/x","ranges":[[{"subnet":"192.0.2.0/24"}]],"type":"host-local"}`
	objects := render(t, "nodeConfig: {cniBinDirs: [/usr/lib/cni], addressPools: [{name: a, cniVersion: 1.1.0, ipam: "+ipam+"}]}")
	got, err := v1alpha1.DecodeNodeConfig([]byte(object[corev1.ConfigMap](t, objects, "ConfigMap", plugin).Data["node.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	want := []v1alpha1.AddressPool{{Name: "a", CNIVersion: "1.1.0", IPAM: []byte(ipam)}}
	if diff := cmp.Diff(want, got.AddressPools); diff != "" || !cmp.Equal(got.CNIBinDirs, []string{"/usr/lib/cni"}) {
		t.Errorf("the pools differ (-want +got), the directories are %v:\n%s", got.CNIBinDirs, diff)
	}
}

func TestPluginReadsVFAttributes(t *testing.T) {
	for value, want := range map[string]v1alpha1.VFAttributes{"All": "", "Selection": v1alpha1.VFAttributesSelection, "Minimal": v1alpha1.VFAttributesMinimal} {
		objects := render(t, "nodeConfig: {vfAttributes: "+value+"}")
		got, err := v1alpha1.DecodeNodeConfig([]byte(object[corev1.ConfigMap](t, objects, "ConfigMap", plugin).Data["node.yaml"]))
		if err != nil || got.VFAttributes != want {
			t.Errorf("%s: got %+v, %v", value, got, err)
		}
	}
}

func TestPluginReadsQuotaCounters(t *testing.T) {
	for _, want := range []bool{false, true} {
		objects := render(t, fmt.Sprintf("nodeConfig: {quotaCounters: %t}", want))
		got, err := v1alpha1.DecodeNodeConfig([]byte(object[corev1.ConfigMap](t, objects, "ConfigMap", plugin).Data["node.yaml"]))
		if err != nil || got.QuotaCounters != want {
			t.Errorf("%t: got %+v, %v", want, got, err)
		}
	}
}

func TestPluginReadsThePairing(t *testing.T) {
	for value, want := range map[string]v1alpha1.Pairing{"None": "", "Switch": v1alpha1.PairingSwitch, "Root": v1alpha1.PairingRoot} {
		objects := render(t, "nodeConfig: {pairing: "+value+"}")
		got, err := v1alpha1.DecodeNodeConfig([]byte(object[corev1.ConfigMap](t, objects, "ConfigMap", plugin).Data["node.yaml"]))
		if err != nil || got.Pairing != want {
			t.Errorf("%s: got %+v, %v", value, got, err)
		}
	}
}

func address(t *testing.T, text string) pci.Address {
	t.Helper()
	a, err := pci.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The plugin reads the accepted failures at each look: another one rolls nothing.
func TestPluginReadsTheWaivers(t *testing.T) {
	want := finding.Waiver{Rule: "ACS-010", Scope: "0000:3b:00.0", Until: "2027-03-31", Reason: "the board: \"old\"", Author: "alice@example.org"}
	before := render(t, "")
	after := render(t, `plugin: {audit: {waivers: [{rule: ACS-010, scope: '0000:3b:00.0', until: "2027-03-31", reason: 'the board: "old"', author: alice@example.org}]}}`)
	for want, got := range map[*finding.Waiver]rendered{nil: before, &want: after} {
		text := object[corev1.ConfigMap](t, got, "ConfigMap", plugin).Data["waivers.yaml"]
		accepted, err := finding.ParseWaivers([]byte(text), []string{"ACS-010"})
		if err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		var all []finding.Waiver
		if want != nil {
			all = append(all, *want)
		}
		if diff := cmp.Diff(all, accepted); diff != "" {
			t.Errorf("the waivers differ (-want +got):\n%s", diff)
		}
	}
	if !cmp.Equal(before.find("DaemonSet", plugin), after.find("DaemonSet", plugin)) {
		t.Error("a waiver rolls the plugin")
	}
}

// A change of the node config must roll the plugin, which reads it at its start.
func TestNewNodeConfigRollsThePlugin(t *testing.T) {
	before, after := render(t, ""), render(t, "nodeConfig: {devices: []}")
	if cmp.Equal(before.find("DaemonSet", plugin), after.find("DaemonSet", plugin)) {
		t.Error("the DaemonSet is the same")
	}
}

func TestPluginReadsTheParametersOfTheDeviceClasses(t *testing.T) {
	const vfio = "vfio: {backend: IOMMUFD, controlNode: true, reset: Skip, companions: Give, allowUnisolated: true}"
	got := render(t, `
deviceClasses:
  gpu: {`+vfio+`}
  pf: {`+vfio+`}
  gpu-vf: {vf: {maxTxRate: 100}, `+vfio+`}
  vf:
    `+vfio+`
    vf: {mac: '02:00:5e:10:00:01', vlan: 0, vlanQoS: 3, vlanProtocol: 802.1ad, spoofCheck: false, trust: true, rssQuery: true,
      nodeGUID: '02:00:5e:10:00:00:00:01', portGUID: '02:00:5e:10:00:00:00:02', minTxRate: 0, maxTxRate: 100, linkState: Enable}`)
	wantVFIO := v1alpha1.Parameters{VFIO: &v1alpha1.VFIOConfig{
		TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindVFIOConfig},
		Backend:  v1alpha1.BackendIOMMUFD, ControlNode: new(true), Reset: v1alpha1.ResetSkip,
		Companions: v1alpha1.CompanionsGive, AllowUnisolated: new(true),
	}}
	wantVF := v1alpha1.Parameters{VF: &v1alpha1.VFConfig{
		TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindVFConfig},
		MAC:      "02:00:5e:10:00:01", VLAN: new(0), VLANQoS: new(3), VLANProtocol: v1alpha1.VLAN8021ad, SpoofCheck: new(false),
		Trust: new(true), RSSQuery: new(true), NodeGUID: "02:00:5e:10:00:00:00:01", PortGUID: "02:00:5e:10:00:00:00:02",
		MinTxRate: new(0), MaxTxRate: new(100), LinkState: v1alpha1.LinkEnable,
	}}
	wantRate := v1alpha1.Parameters{VF: &v1alpha1.VFConfig{TypeMeta: wantVF.VF.TypeMeta, MaxTxRate: new(100)}}
	for name, want := range map[string][]v1alpha1.Parameters{
		"gpu": {wantVFIO}, "pf": {wantVFIO}, "vf": {wantVFIO, wantVF}, "gpu-vf": {wantVFIO, wantRate},
	} {
		var read []v1alpha1.Parameters
		for _, c := range object[resourcev1.DeviceClass](t, got, "DeviceClass", name+"."+driver).Spec.Config {
			if c.Opaque.Driver != v1alpha1.DriverName {
				t.Errorf("class %s has parameters for %s", name, c.Opaque.Driver)
			}
			p, err := v1alpha1.DecodeParameters(c.Opaque.Parameters.Raw)
			if err != nil {
				t.Fatal(err)
			}
			read = append(read, p)
		}
		if diff := cmp.Diff(want, read); diff != "" {
			t.Errorf("class %s has other parameters (-want +got):\n%s", name, diff)
		}
	}
}

// runtimeclass/ is for clusters without the chart: both must be the same.
func TestRuntimeClassIsTheOneInRuntimeclass(t *testing.T) {
	text, err := os.ReadFile("../../runtimeclass/runtimeclass.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := object[nodev1.RuntimeClass](t, rendered{objects: parse(t, string(text))}, "RuntimeClass", "kata-gpu")
	got := object[nodev1.RuntimeClass](t, render(t, ""), "RuntimeClass", "kata-gpu")
	got.Labels = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the RuntimeClasses differ (-runtimeclass +chart):\n%s", diff)
	}
}

// Names that the chart and the plugin each write down.
func TestChartHasThePluginsNames(t *testing.T) {
	if driver != v1alpha1.DriverName {
		t.Errorf("these tests are for the driver %s, which is %s", driver, v1alpha1.DriverName)
	}
	has(t, render(t, "", mutating("v1")...), "MutatingAdmissionPolicy", "require-plugin."+driver, "'[ "+nri.Name+" ]'")
}

// TestAuditsReadOwnRules: the audits read the rules of audit.rules as they are, and nothing reads any by default.
func TestAuditsReadOwnRules(t *testing.T) {
	rules := strings.TrimPrefix(docs.Read(t, "cmd/kata-vfio-audit/own-rules.yaml"), "rules:\n")
	got := render(t, "audit:\n  enabled: true\n  nodes: {enabled: true}\n  "+strings.ReplaceAll(strings.TrimSpace(rules), "\n", "\n  "))
	var read, want rule.Catalogue
	if err := want.AddOwn("rules.yaml", []byte(docs.Read(t, "cmd/kata-vfio-audit/own-rules.yaml"))); err != nil {
		t.Fatal(err)
	}
	text := object[corev1.ConfigMap](t, got, "ConfigMap", "kata-vfio-audit").Data["rules.yaml"]
	if err := read.AddOwn("rules.yaml", []byte(text)); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	// The ConfigMap has no comment before the rules, so that they are on other lines.
	elsewhere := []cmp.Option{cmpopts.IgnoreFields(rule.Own{}, "Line"), cmpopts.IgnoreFields(rule.Rule{}, "File")}
	if diff := cmp.Diff(want.Own, read.Own, elsewhere...); diff != "" || len(read.Own) == 0 {
		t.Errorf("%d rules (-want +got):\n%s", len(read.Own), diff)
	}
	without := render(t, "audit: {enabled: true, nodes: {enabled: true}}")
	for kind, name := range map[string]string{"DaemonSet": "kata-vfio-audit-node", "CronJob": "kata-vfio-audit"} {
		has(t, got, kind, name, `"--rules=/waivers/rules.yaml"`)
		if text := fmt.Sprint(without.find(kind, name).Object); strings.Contains(text, "--rules") {
			t.Errorf("%s %s has --rules without rules: %s", kind, name, text)
		}
	}
}

// The audits accept what audit.waivers says, of the cluster too, and what the plugin does; the plugin only its own.
func TestAuditsReadTheWaivers(t *testing.T) {
	ours := finding.Waiver{Rule: "K8S-012", Scope: "*", Until: "2027-03-31", Reason: "the board: \"old\"", Author: "alice@example.org"}
	plugins := finding.Waiver{Rule: "ACS-010", Scope: "0000:3b:00.0", Until: "2027-03-31", Reason: "x", Author: "bob"}
	got := render(t, `
audit: {enabled: true, nodes: {enabled: true}, waivers: [{rule: K8S-012, scope: '*', until: "2027-03-31", reason: 'the board: "old"', author: alice@example.org}]}
plugin: {audit: {waivers: [{rule: ACS-010, scope: '0000:3b:00.0', until: "2027-03-31", reason: x, author: bob}]}}`)
	for name, want := range map[string][]finding.Waiver{"kata-vfio-audit": {ours, plugins}, plugin: {plugins}} {
		text := object[corev1.ConfigMap](t, got, "ConfigMap", name).Data["waivers.yaml"]
		accepted, err := finding.ParseWaivers([]byte(text), []string{"ACS-010", "K8S-012"})
		if err != nil {
			t.Fatalf("%s: %v:\n%s", name, err, text)
		}
		if diff := cmp.Diff(want, accepted); diff != "" {
			t.Errorf("%s: the waivers differ (-want +got):\n%s", name, diff)
		}
	}
	for kind, name := range map[string]string{"DaemonSet": "kata-vfio-audit-node", "CronJob": "kata-vfio-audit"} {
		has(t, got, kind, name, `"--waivers=/waivers/waivers.yaml"`, `"mountPath":"/waivers","name":"waivers","readOnly":true`, `"configMap":{"name":"kata-vfio-audit"}`)
	}
	if without := render(t, "audit: {nodes: {enabled: true}}"); object[corev1.ConfigMap](t, without, "ConfigMap", "kata-vfio-audit").Data["waivers.yaml"] == "" {
		t.Error("without a waiver there is no file")
	}
	lacks("ConfigMap", "kata-vfio-audit")(t, render(t, ""))
}

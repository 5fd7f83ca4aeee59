//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
)

// mixedBoards are the values of a cluster with three kinds of boards.
const mixedBoards = `
nodeConfig: {vfAttributes: Minimal}
plugin: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: rack}]}}}
bootstrap: {enabled: true, apply: Never, maxUnavailable: 2, blueprint: {name: any, kernel: {iommu: Passthrough, arguments: [a=b]}}}
pools:
- name: hgx
  nodeSelector: {kata-vfio.dev/pool: hgx}
  nodeConfig:
    devices: [{name: gpus, match: {vendors: ["10de"], types: [gpu]}, policy: bound}]
    virtualFunctions: [{pf: eth1, count: 8}]
  bootstrap: {apply: Once, maxUnavailable: 10%, blueprint: {name: hgx, kernel: {earlyBinding: true, iommu: "On"}, vfio: {keepOff: ["0000:18:00.0"]}}}
- name: mi300
  nodeSelector: {kata-vfio.dev/pool: mi300}
  nodeConfig: {devices: []}
- name: flex
  nodeSelector: {kata-vfio.dev/pool: flex, other: label}
  nodeConfig: {source: Node}
  bootstrap: {enabled: false}
`

// poolRenderings are the chart with pools of nodes.
func poolRenderings() map[string]rendering {
	return map[string]rendering{
		"pools": {values: mixedBoards, check: func(t *testing.T, got rendered) {
			for kind, names := range map[string][]string{
				"DaemonSet": {"kata-vfio-bootstrap-hgx", "kata-vfio-bootstrap-mi300", "kata-vfio-plugin-flex", "kata-vfio-plugin-hgx", "kata-vfio-plugin-mi300"},
				"ConfigMap": {"kata-vfio-bootstrap-hgx", "kata-vfio-bootstrap-mi300", "kata-vfio-plugin-hgx", "kata-vfio-plugin-mi300"},
				// What is not the nodes' is there once.
				"ServiceAccount": {plugin}, "NetworkPolicy": {bootstrapName, plugin},
			} {
				if diff := cmp.Diff(names, slices.Sorted(slices.Values(got.names(kind)))); diff != "" {
					t.Errorf("the names of %ss differ (-want +got):\n%s", kind, diff)
				}
			}
		}},
		"pools of one release's nodes, by NFD": {
			values: "nodeSelection: {mode: NFD}\n" + mixedBoards,
			check: func(t *testing.T, got rendered) {
				pod := object[appsv1.DaemonSet](t, got, "DaemonSet", "kata-vfio-plugin-hgx").Spec.Template.Spec
				if _, labeled := pod.NodeSelector["kata-vfio.dev/node"]; labeled || pod.NodeSelector["kata-vfio.dev/pool"] != "hgx" || pod.Affinity.NodeAffinity == nil {
					t.Errorf("it runs on %v and %v", pod.NodeSelector, pod.Affinity)
				}
			},
		},
	}
}

// A pool's nodes get its fields, and the release's where it has none.
func TestPoolsHaveTheirOwnConfigs(t *testing.T) {
	got := render(t, mixedBoards)
	for name, want := range map[string]struct {
		rules, vfs int
		iommu      blueprint.IOMMUMode
		early      bool
		title      string
		apply      string
		at         string
	}{
		"hgx":   {1, 1, blueprint.IOMMUOn, true, "hgx", "--apply=Once", "10%"},
		"mi300": {0, 0, blueprint.IOMMUPassthrough, false, "any", "--apply=Never", "2"},
	} {
		config, err := v1alpha1.DecodeNodeConfig([]byte(object[corev1.ConfigMap](t, got, "ConfigMap", "kata-vfio-plugin-"+name).Data["node.yaml"]))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if config.Devices == nil || len(config.Devices) != want.rules || len(config.VirtualFunctions) != want.vfs || config.VFAttributes != v1alpha1.VFAttributesMinimal {
			t.Errorf("%s has the node config %+v", name, config)
		}
		b, err := blueprint.Parse([]byte(object[corev1.ConfigMap](t, got, "ConfigMap", "kata-vfio-bootstrap-"+name).Data["blueprint.yaml"]))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if b.Name != want.title || b.Kernel.IOMMU != want.iommu || b.Kernel.EarlyBinding != want.early || strings.Join(b.Kernel.Arguments, " ") != "a=b" {
			t.Errorf("%s has the blueprint %+v", name, b)
		}
		set := object[appsv1.DaemonSet](t, got, "DaemonSet", "kata-vfio-bootstrap-"+name).Spec
		if at := set.UpdateStrategy.RollingUpdate.MaxUnavailable.String(); at != want.at {
			t.Errorf("bootstrap of %s is rolled out on %s nodes at a time, want %s", name, at, want.at)
		}
		if args := strings.Join(set.Template.Spec.Containers[0].Args, " "); !strings.Contains(args, want.apply) {
			t.Errorf("bootstrap of %s has the arguments %s; want %s", name, args, want.apply)
		}
	}
	volumes := object[appsv1.DaemonSet](t, got, "DaemonSet", "kata-vfio-plugin-flex").Spec.Template.Spec.Volumes
	for _, v := range volumes {
		if v.Name == "config" && (v.HostPath == nil || v.HostPath.Path != "/etc/kata-vfio") {
			t.Errorf("the plugin of flex reads its config from %+v; want the node's files", v.VolumeSource)
		}
	}
}

// Two plugins on one node would take the same devices: selectors exclude that, and the scheduler.
func TestPoolsAreApart(t *testing.T) {
	got := render(t, mixedBoards)
	sets := map[string]*appsv1.DaemonSet{}
	for _, name := range []string{"hgx", "mi300", "flex"} {
		sets[name] = object[appsv1.DaemonSet](t, got, "DaemonSet", "kata-vfio-plugin-"+name)
		if pod := sets[name].Spec.Template.Spec; pod.NodeSelector["kata-vfio.dev/node"] != "true" || pod.NodeSelector["kata-vfio.dev/pool"] != name {
			t.Errorf("the plugin of %s runs on %v", name, pod.NodeSelector)
		}
	}
	without := object[appsv1.DaemonSet](t, render(t, "{}"), "DaemonSet", plugin).Spec.Template.Labels
	for name, set := range sets {
		for other, pods := range map[string]map[string]string{"hgx": sets["hgx"].Spec.Template.Labels, "mi300": sets["mi300"].Spec.Template.Labels, "": without} {
			if selects := selector(t, set.Spec.Selector).Matches(labels.Set(pods)); selects != (name == other) {
				t.Errorf("the DaemonSet of %q selects pods of %q: %v", name, other, selects)
			}
			terms := set.Spec.Template.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			if len(terms) != 2 || terms[0].TopologyKey != "rack" || terms[1].TopologyKey != "kubernetes.io/hostname" {
				t.Fatalf("the plugin of %s is kept apart by %+v; want the values' term, and one for nodes", name, terms)
			}
			// A tenant can give its own pod the labels and a node.
			if all := terms[1]; len(all.Namespaces) > 0 || all.NamespaceSelector != nil {
				t.Errorf("pods of the namespaces %q, %v keep the plugin of %s from a node; want the release's only", all.Namespaces, all.NamespaceSelector, name)
			}
			if apart := selector(t, terms[1].LabelSelector).Matches(labels.Set(pods)); apart != (name != other) {
				t.Errorf("the plugin of %q is kept from nodes with one of %q: %v", name, other, apart)
			}
		}
		policy := object[networkingv1.NetworkPolicy](t, got, "NetworkPolicy", plugin)
		if !selector(t, &policy.Spec.PodSelector).Matches(labels.Set(set.Spec.Template.Labels)) {
			t.Errorf("NetworkPolicy %s is not for the plugin of %s", policy.Name, name)
		}
	}
}

func selector(t *testing.T, s *metav1.LabelSelector) labels.Selector {
	t.Helper()
	got, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// names are the names of the objects of a kind, in the order of the rendering, which is that of names.
func (r rendered) names(kind string) []string {
	var all []string
	for _, o := range r.objects {
		if o.GetKind() == kind {
			all = append(all, o.GetName())
		}
	}
	return all
}

func TestPoolsThatContradictAreRefused(t *testing.T) {
	const in = "bootstrap: {enabled: true}\npools: [{name: a, nodeSelector: {p: a}, "
	for _, c := range []struct{ values, want string }{
		{"pools: [{nodeSelector: {p: a}}]", "missing property 'name'"},
		{"pools: [{name: a}]", "missing property 'nodeSelector'"},
		{"pools: [{name: a, nodeSelector: {}}]", "minProperties"},
		{"pools: [{name: A, nodeSelector: {p: a}}]", "does not match pattern"},
		{in + "nodeConfig: {device: []}}]", "additional properties 'device' not allowed"},
		{in + "bootstrap: {blueprint: {vfio: {keepOffMatching: [{types: [gpu, vf]}]}}}}]", "'not' failed"},
		{in + "bootstrap: {blueprint: {vfio: {keepOffMatching: [{pfNames: [eth0]}]}}}}]", "'not' failed"},
		{in + "bootstrap: {maxUnavailable: 0}}]", "minimum"},
		{in + "bootstrap: {every: 1h}}]", "additional properties 'every' not allowed"},
		{in + "bootstrap: {blueprint: {kernel: {iommu: pt}}}}]", "must be one of"},
		{"pools: [{name: a, nodeSelector: {p: a}}, {name: a, nodeSelector: {p: b}}]", "two pools named a"},
		{"pools: [{name: a, nodeSelector: {p: a}}, {name: b, nodeSelector: {q: a}}]", "pools a and b can have the same node"},
		{"pools: [{name: a, nodeSelector: {p: a}}, {name: b, nodeSelector: {p: a, q: a}}]", "pools a and b can have the same node"},
		{"pools: [{name: a, nodeSelector: {p: a}}, {name: b, nodeSelector: {p: b, q: a}}, {name: c, nodeSelector: {p: b}}]", "pools b and c can have the same node"},
		{"pools: [{name: a, nodeSelector: {kata-vfio.dev/node: a}}]", "which nodes of all pools need"},
		{in + "nodeConfig: {devices: [{match: {types: [gpu]}, sharedWith: gpu.example.com}]}}]", "pool a: nodeConfig.devices shares GPUs with gpu.example.com"},
		{in + "nodeConfig: {devices: [{match: {types: [gpu]}, sanitize: {profile: x}}]}}]", "pool a: nodeConfig.devices names the sanitizer x"},
		{in + "nodeConfig: {devices: [{match: {types: [gpu]}, exclusive: [Card]}]}}]", "pool a: nodeConfig.devices has a rule with exclusive"},
		{in + "nodeConfig: {source: Node, devices: []}}]", "pool a: nodeConfig.devices is set, and nodeConfig.source is Node"},
		{in + "nodeConfig: {allowedHandlers: [b]}}]", "pool a: runtimeClass.handler is kata-gpu"},
		{in + "bootstrap: {blueprint: {containers: {hotPlug: true}}}}]", "pool a: bootstrap.blueprint.containers.hotPlug is true"},
		{strings.Replace(early, "keepOff: ['0000:3b:00.0']", "keepOffMatching: [{types: [gpu]}]", 1) + "nodeConfig: {devices: [{match: {types: [gpu]}}]}", "vfio.keepOffMatching, and nodeConfig.devices has no rule with policy: bound"},
		{early + "pools: [{name: a, nodeSelector: {p: a}}]", "pool a: bootstrap.blueprint has kernel.earlyBinding"},
	} {
		t.Run(c.values, func(t *testing.T) {
			t.Parallel()
			if text, err := template(t, c.values); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want a refusal with %q, got %v\n%s", c.want, err, text)
			}
		})
	}
}

// What one pool contradicts may be right in another.
func TestPoolsThatAgreeAreAccepted(t *testing.T) {
	for _, values := range []string{
		"pools: [{name: a, nodeSelector: {p: ''}}, {name: b, nodeSelector: {p: b}}]",
		"pools: [{name: a, nodeSelector: {p: a, q: a}}, {name: b, nodeSelector: {p: a, q: b}}, {name: c, nodeSelector: {p: b}}]",
		early + "pools: [{name: a, nodeSelector: {p: a}, bootstrap: {enabled: false}}]",
		early + "pools: [{name: a, nodeSelector: {p: a}, bootstrap: {blueprint: {kernel: {earlyBinding: false}}}}]",
		early + "pools: [{name: a, nodeSelector: {p: a}, nodeConfig: {devices: [{match: {types: [gpu]}, policy: bound}]}}]",
		hotPlug + "pools: [{name: a, nodeSelector: {p: a}, bootstrap: {blueprint: {containers: {hotPlug: false}}}}]",
		"nodeConfig: {devices: []}\npools: [{name: a, nodeSelector: {p: a}, nodeConfig: {source: Node, devices: null}}]",
	} {
		t.Run(values, func(t *testing.T) {
			t.Parallel()
			if _, err := template(t, values); err != nil {
				t.Error(err)
			}
		})
	}
}

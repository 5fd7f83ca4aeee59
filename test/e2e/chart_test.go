//go:build e2e

package e2e

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/controller"
	"github.com/kata-vfio/kata-vfio/test/contend"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// mutating tells helm that the API server has MutatingAdmissionPolicies, in a version.
func mutating(version string) []string {
	return []string{"--api-versions", "admissionregistration.k8s.io/" + version + "/MutatingAdmissionPolicy"}
}

// systemNamespace makes the release's namespace, as the chart's README says, for the first test that asks.
func systemNamespace(t *testing.T, p *controlplane.ControlPlane) {
	t.Helper()
	_, err := client(t, p, controlplane.Admin()).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: system, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

func TestHelmHasNothingToSayAboutTheChart(t *testing.T) {
	if out, err := helm(t, "lint", "--strict", chart); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// What a user may set shows where it must, and the API server takes all of it.
func TestAPIServerTakesEveryRendering(t *testing.T) {
	p := cluster(t)
	systemNamespace(t, p)
	// A dry run makes no namespace, which the chart's other objects need.
	for _, name := range []string{"kata-vfio-sanitizing", "wash"} {
		_, err := p.KubectlInput(t.Context(), strings.NewReader("apiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+"}\n"), "apply", "-f", "-")
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, table := range []map[string]rendering{plainRenderings(), podRenderings(), policyRenderings(), networkRenderings(), poolRenderings()} {
		for _, name := range slices.Sorted(maps.Keys(table)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				one := table[name]
				if refusedOnOlder(t, one.values, one.args...) {
					return
				}
				got := render(t, one.values, one.args...)
				if !one.offline {
					dryRun(t, p, got.text)
				}
				one.check(t, got)
			})
		}
	}
}

// sharing are values for GPUs that another driver of the tests publishes, too.
const sharing = "sharedPool: {enabled: true, drivers: [" + contend.Driver + "]}\ndeviceClasses: {shared-gpu: {enabled: true}}"

// rendering is the chart with some values, and what must come of them.
type rendering struct {
	values  string
	args    []string
	offline bool // the API server here does not know a kind of it
	check   func(*testing.T, rendered)
}

func plainRenderings() map[string]rendering {
	return map[string]rendering{
		"the defaults": {check: func(t *testing.T, got rendered) {
			want := map[string]int{
				"ServiceAccount": 1, "ClusterRole": 3, "ClusterRoleBinding": 1, "ConfigMap": 1, "DaemonSet": 1, "DeviceClass": 5,
				"NetworkPolicy": 1, "RuntimeClass": 1, "ValidatingAdmissionPolicy": 13, "ValidatingAdmissionPolicyBinding": 13,
			}
			if diff := cmp.Diff(want, kinds(got)); diff != "" {
				t.Errorf("the kinds differ (-want +got):\n%s", diff)
			}
		}},
		"policies that mutate, v1": {args: mutating("v1"), check: checkMutating("v1")},
		// An API server of 1.34 to 1.36; this one serves v1 only.
		"policies that mutate, v1beta1": {args: mutating("v1beta1"), offline: true, check: checkMutating("v1beta1")},
		"policies that mutate, in both": {args: append(mutating("v1beta1"), mutating("v1")...), check: checkMutating("v1")},
		"without the policy that mutates": {
			values: "admission: {requirePlugin: {enabled: false}}", args: mutating("v1"), check: lacks("MutatingAdmissionPolicy", ""),
		},
		"the init container by policy, v1": {
			values: "guestnet: {inject: true}", args: mutating("v1"),
			check: func(t *testing.T, got rendered) {
				has(t, got, "MutatingAdmissionPolicy", "configure-network.kata-vfio.dev", "'ghcr.io/kata-vfio/kata-vfio-guestnet:0.1.0'", "imagePullPolicy: 'IfNotPresent'")
			},
		},
		"the init container by policy, v1beta1": {
			values: "guestnet: {inject: true, resources: {requests: null}}", args: mutating("v1beta1"), offline: true,
			check: func(t *testing.T, got rendered) {
				has(t, got, "MutatingAdmissionPolicyBinding", "configure-network.kata-vfio.dev", `"key":"kata-vfio.dev/tenant"`)
			},
		},
		"the init container by no policy":      {args: mutating("v1"), check: lacks("MutatingAdmissionPolicy", "configure-network.kata-vfio.dev")},
		"the init container, without mutation": {values: "guestnet: {inject: true}", check: lacks("MutatingAdmissionPolicy", "")},
		"classes for some namespaces": {
			values: "deviceClasses: {vf: {namespaces: [team-a, team-b], vf: {trust: true}}, gpu-vf: {namespaces: []}}",
			check: func(t *testing.T, got rendered) {
				// Nobody has whole functions unless an admin says who.
				for name, want := range map[string]string{"gpu": "*", "gpu-vf": "", "vf": "team-a,team-b", "pf": ""} {
					class := object[resourcev1.DeviceClass](t, got, "DeviceClass", name+".kata-vfio.dev")
					if namespaces := class.Annotations[v1alpha1.AnnotationNamespaces]; namespaces != want {
						t.Errorf("DeviceClass %s is granted to %q, want %q", class.Name, namespaces, want)
					}
				}
			},
		},
		"a class for shared GPUs": {
			values: "deviceClasses: {shared-gpu: {enabled: true}}",
			check: func(t *testing.T, got rendered) {
				for name, comparison := range map[string]string{"gpu": "==", "shared-gpu": "!="} {
					class := object[resourcev1.DeviceClass](t, got, "DeviceClass", name+".kata-vfio.dev")
					want := "device.driver == 'kata-vfio.dev' && device.attributes['kata-vfio.dev'].?type.orValue('') == 'gpu' && " +
						"device.attributes['kata-vfio.dev'].?sharedWith.orValue('') " + comparison + " ''"
					if got := class.Spec.Selectors[0].CEL.Expression; got != want {
						t.Errorf("DeviceClass %s selects by %q, want %q", name, got, want)
					}
				}
			},
		},
		"classes by what a function is": {
			values: "deviceClasses: {nvme: {enabled: true}, accelerator: {enabled: true}, other: {enabled: true}}",
			check: func(t *testing.T, got rendered) {
				const own = "device.driver == 'kata-vfio.dev' && device.attributes['kata-vfio.dev']"
				for name, want := range map[string]string{
					"gpu-slice": own + ".?type.orValue('') == 'gpuvf' && device.attributes['kata-vfio.dev'].?boundary.orValue('') in ['hardwareSlice', 'scheduler']",
					"nvme":      own + ".?type.orValue('') == 'nvme'", "accelerator": own + ".?type.orValue('') == 'accelerator'",
					"other": own + ".?type.orValue('') == 'other'",
				} {
					class := object[resourcev1.DeviceClass](t, got, "DeviceClass", name+".kata-vfio.dev")
					if got := class.Spec.Selectors[0].CEL.Expression; got != want {
						t.Errorf("DeviceClass %s selects by %q, want %q", name, got, want)
					}
				}
			},
		},
		"slices with one boundary": {
			values: "deviceClasses: {gpu-slice: {boundary: hardwareSlice}}",
			check: func(t *testing.T, got rendered) {
				const want = "device.driver == 'kata-vfio.dev' && device.attributes['kata-vfio.dev'].?type.orValue('') == 'gpuvf' && " +
					"device.attributes['kata-vfio.dev'].?boundary.orValue('') == 'hardwareSlice'"
				class := object[resourcev1.DeviceClass](t, got, "DeviceClass", "gpu-slice.kata-vfio.dev")
				if got := class.Spec.Selectors[0].CEL.Expression; got != want {
					t.Errorf("the class selects by %q, want %q", got, want)
				}
			},
		},
		"slices of GPUs": {
			values: "nodeConfig: {devices: [{match: {types: [gpuvf]}}], gpuSlices: [{match: {vendors: [\"1002\"]}}]}",
			check: func(t *testing.T, got rendered) {
				has(t, got, "ConfigMap", plugin, "gpuSlices:")
			},
		},
		"classes with aliases": {
			values: "deviceClasses: {gpu: {alias: true, namespaces: [team-a], vfio: {reset: Skip}}, gpu-vf: {enabled: false, alias: true}}",
			check: func(t *testing.T, got rendered) {
				class := object[resourcev1.DeviceClass](t, got, "DeviceClass", "gpu.kata-vfio.dev")
				alias := object[resourcev1.DeviceClass](t, got, "DeviceClass", "accelerator.kata-vfio.dev")
				class.Name = alias.Name
				if diff := cmp.Diff(class, alias); diff != "" {
					t.Errorf("the alias selects, grants or configures otherwise (-class +alias):\n%s", diff)
				}
				has(t, got, "DeviceClass", "accelerator-vf.kata-vfio.dev", `.?type.orValue('') == 'gpu-vf'`)
				lacks("DeviceClass", "gpu-vf.kata-vfio.dev")(t, got)
			},
		},
		"aliases of no extended resource": {
			values: "deviceClasses: {gpu: {alias: true, extendedResourceName: example.com/gpu}}",
			check: func(t *testing.T, got rendered) {
				hasNot(t, got, "DeviceClass", "accelerator.kata-vfio.dev", "extendedResourceName")
			},
		},
		"a pool that is shared": {
			values: sharing + "\nnodeConfig: {devices: [{match: {types: [gpu]}, sharedWith: gpu.example.com}]}\nplugin: {listClaims: false}",
			check: func(t *testing.T, got rendered) {
				has(t, got, "Deployment", controller.Name, `"replicas":2`, `"--shared-driver=gpu.example.com"`, `"runAsNonRoot":true`, `"drop":["ALL"]`, `"readOnlyRootFilesystem":true`,
					`"command":["/usr/bin/kata-vfio-controller"]`, `"command":["/usr/bin/kata-vfio-controller","probe","ready","--probe-socket=/run/kata-vfio-probes/probes.sock"]`)
				checkProbes(t, object[appsv1.Deployment](t, got, "Deployment", controller.Name).Spec.Template.Spec)
				has(t, got, "ClusterRole", plugin, `"resources":["resourceclaims"],"verbs":["list"]`)
				has(t, got, "PodDisruptionBudget", controller.Name, `"maxUnavailable":1`)
				has(t, got, "DeviceClass", "shared-gpu.kata-vfio.dev", `sharedWith`)
			},
		},
		"a pool with one controller": {
			values: "sharedPool: {enabled: true, drivers: [gpu.example.com], replicas: 1, nodeSelector: {kubernetes.io/os: null}, tolerations: [{operator: Exists}]}",
			check: func(t *testing.T, got rendered) {
				has(t, got, "Deployment", controller.Name, `"replicas":1`, `"tolerations":[{"operator":"Exists"}]`)
				lacks("PodDisruptionBudget", "")(t, got)
			},
		},
		"Fabric Manager's API": {
			values: "plugin: {fabric: {enabled: true}}",
			check: func(t *testing.T, got rendered) {
				has(t, got, "DaemonSet", plugin, `"hostPath":{"path":"/run/kata-vfio-fabric","type":"DirectoryOrCreate"}`, `"mountPath":"/run/kata-vfio-fabric"`)
			},
		},
		"no pool that is shared": {check: lacks("Deployment", "")},
		"sanitizers": {
			values: sanitizing,
			check: func(t *testing.T, got rendered) {
				has(t, got, "Deployment", controller.Name, `"--sanitizers=/etc/kata-vfio/sanitizers.yaml"`, `"configMap":{"name":"kata-vfio-sanitizers"}`)
				hasNot(t, got, "Deployment", controller.Name, "--shared-driver")
				hasNot(t, got, "ClusterRole", controller.Name, "devicetaintrules")
				hasNot(t, got, "ClusterRole", controller.Name, "resourceclaims/status")
				has(t, got, "DaemonSet", plugin, `"--sanitizers=/etc/kata-vfio/sanitizers.yaml"`, `"projected":{"sources":[{"configMap":{"name":"kata-vfio-plugin"}},{"configMap":{"name":"kata-vfio-sanitizers"}}]}`)
				has(t, got, "Namespace", stagesNamespace, `"pod-security.kubernetes.io/enforce":"privileged"`)
				has(t, got, "DeviceClass", stageClass, `"kata-vfio.dev/namespaces":"kata-vfio-sanitizing"`)
				has(t, got, "NetworkPolicy", "kata-vfio-sanitizers", `"podSelector":{}`, `"policyTypes":["Ingress","Egress"]`)
				has(t, got, "ValidatingAdmissionPolicy", "stages.kata-vfio.dev", stageImage, "system:serviceaccount:kata-vfio-system:kata-vfio-controller")
				has(t, got, "ValidatingAdmissionPolicyBinding", "stages.kata-vfio.dev", `"operator":"In","values":["kata-vfio-sanitizing"]`)
				for _, name := range []string{"stage-claims.kata-vfio.dev", "class-tolerations.kata-vfio.dev"} {
					has(t, got, "ValidatingAdmissionPolicyBinding", name, `"operator":"NotIn","values":["kata-vfio-sanitizing"]`)
				}
				if strings.Contains(got.text, "'@") || strings.Contains(got.text, "@'") {
					t.Error("a policy has a value of the chart that is not filled in")
				}
			},
		},
		"sanitizers beside a node's own config": {
			values: "sanitizers: {namespace: wash, profiles: {memory: {image: \"" + stageImage + "\"}}}\nnodeConfig: {source: Node}",
			check: func(t *testing.T, got rendered) {
				has(t, got, "DaemonSet", plugin, `"--sanitizers=/etc/kata-vfio-sanitizers/sanitizers.yaml"`, `"mountPath":"/etc/kata-vfio-sanitizers"`)
				has(t, got, "Namespace", "wash", `"pod-security.kubernetes.io/enforce":"restricted"`)
			},
		},
		"sanitizers beside shared GPUs": {
			values: sharing + "\n" + sanitizing,
			check: func(t *testing.T, got rendered) {
				has(t, got, "Deployment", controller.Name, `"--shared-driver=gpu.example.com","--sanitizers=/etc/kata-vfio/sanitizers.yaml"`)
				has(t, got, "ClusterRole", controller.Name, "devicetaintrules")
			},
		},
		"sanitizers without their policies": {
			values: sanitizing + "\nadmission: {stages: {enabled: false}}", check: lacks("ValidatingAdmissionPolicy", "stages.kata-vfio.dev"),
		},
		"no sanitizers": {check: func(t *testing.T, got rendered) {
			lacks("Namespace", "")(t, got)
			lacks("ValidatingAdmissionPolicy", "class-tolerations.kata-vfio.dev")(t, got)
		}},
		"tenants": {
			values: "tenancy: {enabled: true}\nnodeConfig: {devices: [{match: {types: [gpu]}, exclusive: [Card, Switch]}]}", args: mutating("v1"),
			check: func(t *testing.T, got rendered) {
				has(t, got, "Deployment", controller.Name, `"--tenants"`)
				hasNot(t, got, "Deployment", controller.Name, "--tenant-label")
				has(t, got, "ClusterRole", controller.Name, `{"apiGroups":[""],"resources":["namespaces"],"verbs":["list","watch"]}`)
				hasNot(t, got, "ClusterRole", controller.Name, "resource.k8s.io")
				has(t, got, "Role", controller.Name, `"resourceNames":["kata-vfio-tenants"],"resources":["configmaps"],"verbs":["get","update"]`)
				has(t, got, "Role", plugin, `"rules":[{"apiGroups":[""],"resourceNames":["kata-vfio-tenants"],"resources":["configmaps"],"verbs":["get"]}]`)
				has(t, got, "RoleBinding", plugin, `"kind":"ServiceAccount","name":"kata-vfio-plugin"`)
				has(t, got, "ConfigMap", plugin, `- Card\n`, `- Switch\n`)
				for _, kind := range []string{"MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicyBinding"} {
					name := map[string]string{"MutatingAdmissionPolicyBinding": "exclusive-domains.kata-vfio.dev", "ValidatingAdmissionPolicyBinding": "exclusive-claims.kata-vfio.dev"}[kind]
					has(t, got, kind, name, `"paramRef":{"name":"kata-vfio-tenants","namespace":"kata-vfio-system","parameterNotFoundAction":"Allow"}`)
					hasNot(t, got, kind, name, "matchResources")
				}
				hasNot(t, got, "ValidatingAdmissionPolicyBinding", "exclusive-tenants.kata-vfio.dev", "paramRef")
				has(t, got, "ValidatingAdmissionPolicyBinding", "class-tolerations.kata-vfio.dev", `"paramRef":{"parameterNotFoundAction":"Allow","selector":{}}`)
			},
		},
		"tenants by a label, beside sanitizers": {
			values: sanitizing + "\ntenancy: {enabled: true, label: example.com/team}", args: mutating("v1"),
			check: func(t *testing.T, got rendered) {
				has(t, got, "Deployment", controller.Name, `"--tenants","--tenant-label=example.com/team"`)
				has(t, got, "ClusterRole", controller.Name, `"resourceslices"`, `"namespaces"`)
				has(t, got, "MutatingAdmissionPolicy", "exclusive-domains.kata-vfio.dev", "labels[?'example.com/team']")
				has(t, got, "MutatingAdmissionPolicyBinding", "exclusive-domains.kata-vfio.dev", `"operator":"NotIn","values":["kata-vfio-sanitizing"]`)
				has(t, got, "ValidatingAdmissionPolicyBinding", "exclusive-claims.kata-vfio.dev", `"operator":"NotIn","values":["kata-vfio-sanitizing"]`)
				has(t, got, "ValidatingAdmissionPolicyBinding", "exclusive-tenants.kata-vfio.dev", `"operator":"NotIn","values":["kata-vfio-sanitizing"]`)
				if strings.Contains(got.text, "'@") || strings.Contains(got.text, "@'") {
					t.Error("a policy has a value of the chart that is not filled in")
				}
			},
		},
		"reserved domains": {
			values: reserving, args: mutating("v1"),
			check: func(t *testing.T, got rendered) {
				has(t, got, "Deployment", controller.Name, `"--tenants","--reserve-domains"`)
				has(t, got, "ClusterRole", controller.Name, `"resourceslices"`, `"resourceclaims/status"`, `"arbitrary-node:patch"`, `"events"`, `"namespaces"`)
				hasNot(t, got, "ClusterRole", controller.Name, "devicetaintrules")
				has(t, got, "ConfigMap", plugin, `reserveDomains: true`)
			},
		},
		"no tenants": {args: mutating("v1"), check: lacks("MutatingAdmissionPolicy", "exclusive-domains.kata-vfio.dev")},
		"without policies for slices": {
			values: "admission: {slices: {enabled: false}}", check: lacks("ValidatingAdmissionPolicy", "slices.kata-vfio.dev"),
		},
		"without a policy for Events": {
			values: "admission: {events: {enabled: false}}", check: lacks("ValidatingAdmissionPolicy", "events.kata-vfio.dev"),
		},
		"without the policy for claims' status": {
			values: "admission: {claims: {enabled: false}}", check: lacks("ValidatingAdmissionPolicy", "claims.kata-vfio.dev"),
		},
		"without the policy for parameters": {
			values: "admission: {parameters: {enabled: false}}", check: lacks("ValidatingAdmissionPolicy", "parameters.kata-vfio.dev"),
		},
		"without the policy for pods of no tenant": {
			values: "admission: {pods: {enabled: false}}", check: lacks("ValidatingAdmissionPolicy", "pods.kata-vfio.dev"),
		},
		"without policies for tenants": {
			values: "admission: {tenants: {enabled: false}}", check: func(t *testing.T, got rendered) {
				binding := object[admissionv1.ValidatingAdmissionPolicyBinding](t, got, "ValidatingAdmissionPolicyBinding", "pods.kata-vfio.dev")
				if binding.Spec.MatchResources != nil {
					t.Errorf("the policy for pods leaves namespaces out that no other looks at: %+v", binding.Spec.MatchResources)
				}
				lacks("ValidatingAdmissionPolicy", "tenant-pods.kata-vfio.dev")(t, got)
				lacks("ValidatingAdmissionPolicy", "tenant-claims.kata-vfio.dev")(t, got)
				lacks("ValidatingAdmissionPolicy", "tenant-classes.kata-vfio.dev")(t, got)
				lacks("ValidatingAdmissionPolicy", "tenant-bindings.kata-vfio.dev")(t, got)
				lacks("ValidatingAdmissionPolicy", "tenant-podgroups.kata-vfio.dev")(t, got)
				lacks("ValidatingAdmissionPolicy", "tenant-finalizers.kata-vfio.dev")(t, got)
				lacks("ValidatingAdmissionPolicy", "tenant-deletions.kata-vfio.dev")(t, got)
				lacks("ValidatingAdmissionPolicy", "tenant-pod-classes.kata-vfio.dev")(t, got)
			},
		},
		"addresses from classes alone": {
			check: func(t *testing.T, got rendered) {
				has(t, got, "ValidatingAdmissionPolicy", "tenant-claims.kata-vfio.dev", "p.?mac.orValue('') == ''")
			},
		},
		"addresses from claims, too": {
			values: "admission: {tenants: {allowMAC: true}}", check: func(t *testing.T, got rendered) {
				if strings.Contains(got.text, "p.?mac.orValue('') == ''") {
					t.Error("a claim may not choose its address")
				}
			},
		},
		"without the RuntimeClass": {values: "runtimeClass: {enabled: false}", check: lacks("RuntimeClass", "")},
		"a priority level of the plugins": {
			values: "flowControl: {enabled: true, shares: 7, queueLength: 500}\nserviceAccount: {name: vfio}",
			check: func(t *testing.T, got rendered) {
				has(t, got, "PriorityLevelConfiguration", "kata-vfio-plugin", `"nominalConcurrencyShares":7`, `"queueLengthLimit":500`)
				has(t, got, "FlowSchema", "kata-vfio-plugin", `"name":"vfio"`, `"namespace":"kata-vfio-system"`)
			},
		},
		"without a priority level":  {check: lacks("FlowSchema", "")},
		"without the NetworkPolicy": {values: "networkPolicy: {enabled: false}", check: lacks("NetworkPolicy", "")},
		"without the class of GPUs": {
			values: "deviceClasses: {gpu: {enabled: false}}", check: lacks("DeviceClass", "gpu.kata-vfio.dev"),
		},
		"without classes": {
			values: "deviceClasses: {gpu: {enabled: false}, vf: {enabled: false}, pf: {enabled: false}, gpu-vf: {enabled: false}, gpu-slice: {enabled: false}}", check: lacks("DeviceClass", ""),
		},
		"a RuntimeClass of another name": {
			values: "runtimeClass: {name: vm, handler: vm-gpu, overhead: {memory: 4Gi}, nodeSelector: {a: b}}\nallowedRuntimeClasses: [vm]\nnodeConfig: {allowedHandlers: [vm-gpu]}",
			check:  func(t *testing.T, got rendered) { has(t, got, "RuntimeClass", "vm", `"handler":"vm-gpu"`) },
		},
		"a RuntimeClass for NICs": {
			values: "runtimeClass: {nic: {enabled: true}}\nallowedRuntimeClasses: [kata-gpu, kata-vfio]\nnodeConfig: {allowedHandlers: [kata-gpu, kata-vfio]}",
			check: func(t *testing.T, got rendered) {
				has(t, got, "RuntimeClass", "kata-gpu", `"handler":"kata-gpu"`, `"memory":"10240Mi"`)
				has(t, got, "RuntimeClass", "kata-vfio", `"handler":"kata-vfio"`, `"memory":"1536Mi"`, `"kata-vfio.dev/node":"true"`)
				has(t, got, "ValidatingAdmissionPolicy", "tenant-pods.kata-vfio.dev", "['kata-gpu', 'kata-vfio']")
			},
		},
		"audits of the cluster and of nodes": {
			values: "audit: {enabled: true, probe: {enabled: false}, nodes: {enabled: true, every: 30m}, profile: lab}\nplugin: {nodeSelector: {pool: gpu}}",
			check: func(t *testing.T, got rendered) {
				has(t, got, "DaemonSet", "kata-vfio-audit-node", `"--every=30m"`, `"--profile=lab"`, `"pool":"gpu"`, `"automountServiceAccountToken":false`)
				has(t, got, "CronJob", "kata-vfio-audit", `"--profile=lab"`)
			},
		},
		"who may see": {
			values: "kubectl: {viewers: [{kind: Group, name: 'gpu: operators'}, {kind: ServiceAccount, name: board, namespace: monitoring}], aggregateToView: true}",
			check: func(t *testing.T, got rendered) {
				has(t, got, "ClusterRole", "kata-vfio-view", `"rbac.authorization.k8s.io/aggregate-to-view":"true"`)
				has(t, got, "ClusterRoleBinding", "kata-vfio-view", `"name":"gpu: operators"`, `"namespace":"monitoring"`)
			},
		},
		"tenants see their classes": {
			values: "kubectl: {classes: {enabled: true, readers: [{kind: Group, name: tenants}]}}",
			check: func(t *testing.T, got rendered) {
				has(t, got, "Deployment", controller.Name, `"--classes"`)
				has(t, got, "ClusterRole", controller.Name, `"resources":["deviceclasses"],"verbs":["list","watch"]`, `"resources":["namespaces"],"verbs":["list","watch"]`)
				has(t, got, "ClusterRole", controller.Name, `"resources":["devicetaintrules"],"verbs":["list","watch"]`)
				has(t, got, "Role", controller.Name, `"resourceNames":["kata-vfio-classes"],"resources":["configmaps"],"verbs":["patch"]`)
				hasNot(t, got, "Role", controller.Name, `"resources":["configmaps"],"verbs":["create"]`)
				has(t, got, "Role", "kata-vfio-classes", `"resourceNames":["kata-vfio-classes"],"resources":["configmaps"],"verbs":["get"]`)
				has(t, got, "RoleBinding", "kata-vfio-classes", `"kind":"Group","name":"tenants"`)
				has(t, got, "ConfigMap", "kata-vfio-classes")
			},
		},
		"GPUs that KAI counts": {
			values: "kai: {countGPUs: true}",
			check: func(t *testing.T, got rendered) {
				has(t, got, "Deployment", controller.Name, `"--count-gpus"`)
				has(t, got, "ClusterRole", controller.Name, `"resources":["resourceslices"],"verbs":["create","update","delete"]`)
				has(t, got, "ClusterRole", controller.Name, `"resources":["devicetaintrules"],"verbs":["list","watch"]`)
				hasNot(t, got, "ClusterRole", controller.Name, "resourceclaims")
				has(t, got, "ValidatingAdmissionPolicy", "gpu-counts.kata-vfio.dev", "gpu-count.kata-vfio.dev")
			},
		},
		"GPUs that KAI does not count": {
			values: "kubectl: {classes: {enabled: true}}",
			check: func(t *testing.T, got rendered) {
				hasNot(t, got, "ClusterRole", controller.Name, `"delete"`)
				lacks("ValidatingAdmissionPolicy", "gpu-counts.kata-vfio.dev")(t, got)
			},
		},
		"tenants see no classes": {check: func(t *testing.T, got rendered) {
			lacks("ConfigMap", "kata-vfio-classes")(t, got)
			lacks("Role", "kata-vfio-classes")(t, got)
		}},
		"nobody may see":    {values: "kubectl: {enabled: false}", check: lacks("ClusterRole", "kata-vfio-view")},
		"no audit of nodes": {values: "audit: {enabled: true, probe: {enabled: false}}", check: lacks("DaemonSet", "kata-vfio-audit-node")},
	}
}

// policyRenderings are those of values that stand in admission policies.
func policyRenderings() map[string]rendering {
	const names = "'example.com/gpu', 'example.com/other', 'example.com/vf'"
	action := func(want admissionv1.ValidationAction) func(*testing.T, rendered) {
		return func(t *testing.T, got rendered) {
			for _, name := range []string{"slices", "claims", "events", "pods", "parameters", "tenant-pods", "tenant-claims"} {
				b := object[admissionv1.ValidatingAdmissionPolicyBinding](t, got, "ValidatingAdmissionPolicyBinding", name+".kata-vfio.dev")
				if diff := cmp.Diff([]admissionv1.ValidationAction{want}, b.Spec.ValidationActions); diff != "" {
					t.Errorf("%s acts otherwise (-want +got):\n%s", name, diff)
				}
			}
		}
	}
	return map[string]rendering{
		"violations that are refused":     {check: action(admissionv1.Deny)},
		"violations that warn":            {values: "admission: {action: Warn}", check: action(admissionv1.Warn)},
		"violations that are in the logs": {values: "admission: {action: Audit}", check: action(admissionv1.Audit)},
		"extended resources": {
			values: `
deviceClasses: {gpu: {extendedResourceName: example.com/gpu}, vf: {extendedResourceName: example.com/vf}, pf: {enabled: false, extendedResourceName: example.com/pf}}
admission: {tenants: {extendedResources: [example.com/other, example.com/gpu]}}`,
			args: mutating("v1"),
			check: func(t *testing.T, got rendered) {
				has(t, got, "DeviceClass", "gpu.kata-vfio.dev", `"extendedResourceName":"example.com/gpu"`)
				has(t, got, "ValidatingAdmissionPolicy", "tenant-pods.kata-vfio.dev", names)
				has(t, got, "MutatingAdmissionPolicy", "require-plugin.kata-vfio.dev", names)
			},
		},
		"other RuntimeClasses": {
			values: "allowedRuntimeClasses: [kata-gpu, kata.cc]\nguestnet: {inject: true}", args: mutating("v1"),
			check: func(t *testing.T, got rendered) {
				has(t, got, "ValidatingAdmissionPolicy", "tenant-pods.kata-vfio.dev", "['kata-gpu', 'kata.cc']", "kata-gpu or kata.cc")
				has(t, got, "MutatingAdmissionPolicy", "configure-network.kata-vfio.dev", "['kata-gpu', 'kata.cc']")
			},
		},
		"more time to end": {
			values: "admission: {tenants: {maxGracePeriodSeconds: 3600}}",
			check: func(t *testing.T, got rendered) {
				has(t, got, "ValidatingAdmissionPolicy", "tenant-pods.kata-vfio.dev", "= 3600 || seconds in variables.oldGrace")
				has(t, got, "ValidatingAdmissionPolicy", "tenant-deletions.kata-vfio.dev", "request.?options.?gracePeriodSeconds.orValue(0) ", "= 3600", "oldObject.spec.?resourceClaims")
			},
		},
		"claims that are protected": {
			values: "admission: {protectClaims: {enabled: true}}", args: mutating("v1"),
			check: func(t *testing.T, got rendered) {
				has(t, got, "MutatingAdmissionPolicy", "protect-claims.kata-vfio.dev", resourcev1.Finalizer)
				has(t, got, "MutatingAdmissionPolicyBinding", "protect-claims.kata-vfio.dev", `"parameterNotFoundAction":"Allow"`)
			},
		},
		"claims that are not protected": {args: mutating("v1"), check: lacks("MutatingAdmissionPolicy", "protect-claims.kata-vfio.dev")},
		"one scheduler": {
			values: "admission: {tenants: {schedulerName: kai-scheduler}}\naudit: {enabled: true, probe: {enabled: false}}",
			check: func(t *testing.T, got rendered) {
				has(t, got, "CronJob", "kata-vfio-audit", `"--scheduler-name=kai-scheduler"`)
				for _, name := range []string{"tenant-pods.kata-vfio.dev", "tenant-pod-classes.kata-vfio.dev"} {
					has(t, got, "ValidatingAdmissionPolicy", name, "object.spec.?schedulerName.orValue('') == 'kai-scheduler'", "needs schedulerName: kai-scheduler in this")
				}
			},
		},
		"any scheduler": {check: func(t *testing.T, got rendered) {
			hasNot(t, got, "ValidatingAdmissionPolicy", "tenant-pods.kata-vfio.dev", "schedulerName")
		}},
		"other constraints": {
			values: "admission: {tenants: {maxConstraints: 8}}",
			check: func(t *testing.T, got rendered) {
				has(t, got, "ValidatingAdmissionPolicy", "tenant-claims.kata-vfio.dev", "a claim may have 8 constraints")
			},
		},
		"another label of tenants": {
			values: "admission: {tenants: {namespaceLabel: capsule.clastix.io/tenant}}",
			check: func(t *testing.T, got rendered) {
				for _, name := range []string{
					"tenant-pods.kata-vfio.dev", "tenant-claims.kata-vfio.dev", "tenant-bindings.kata-vfio.dev",
					"tenant-classes.kata-vfio.dev", "tenant-pod-classes.kata-vfio.dev", "tenant-podgroups.kata-vfio.dev",
					"tenant-finalizers.kata-vfio.dev", "tenant-deletions.kata-vfio.dev",
				} {
					has(t, got, "ValidatingAdmissionPolicyBinding", name, `"key":"capsule.clastix.io/tenant"`)
				}
			},
		},
	}
}

func kinds(r rendered) map[string]int {
	counts := map[string]int{}
	for _, o := range r.objects {
		counts[o.GetKind()]++
	}
	return counts
}

// lacks checks that there is no object of a kind, or none with the name.
func lacks(kind, name string) func(*testing.T, rendered) {
	return func(t *testing.T, r rendered) {
		t.Helper()
		for _, o := range r.objects {
			if strings.HasPrefix(o.GetKind(), kind) && (name == "" || o.GetName() == name) {
				t.Errorf("there is a %s %s", o.GetKind(), o.GetName())
			}
		}
	}
}

// has checks that an object's JSON has some parts.
func has(t *testing.T, r rendered, kind, name string, parts ...string) {
	t.Helper()
	o := r.find(kind, name)
	if o == nil {
		t.Fatalf("there is no %s %s", kind, name)
	}
	text, err := json.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		if !strings.Contains(string(text), part) {
			t.Errorf("%s %s lacks %q:\n%s", kind, name, part, text)
		}
	}
}

// hasNot checks that an object's JSON does not have a part.
func hasNot(t *testing.T, r rendered, kind, name, part string) {
	t.Helper()
	o := r.find(kind, name)
	if o == nil {
		t.Fatalf("there is no %s %s", kind, name)
	}
	text, err := json.Marshal(o.Object)
	if err != nil || strings.Contains(string(text), part) {
		t.Errorf("%s %s has %q (%v):\n%s", kind, name, part, err, text)
	}
}

func checkMutating(version string) func(*testing.T, rendered) {
	return func(t *testing.T, r rendered) {
		for _, kind := range []string{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"} {
			for _, name := range []string{"require-plugin", "require-plugin-classes"} {
				o := r.find(kind, name+".kata-vfio.dev")
				if o == nil || o.GetAPIVersion() != "admissionregistration.k8s.io/"+version {
					t.Errorf("the %s %s is %v", kind, name, o)
				}
			}
		}
	}
}

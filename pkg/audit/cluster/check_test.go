package cluster_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	model "github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const driver = "kata-vfio.dev"

func named(name string, labels ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, Labels: map[string]string{}}
	for i := 0; i+1 < len(labels); i += 2 {
		m.Labels[labels[i]] = labels[i+1]
	}
	return m
}

func inNamespace(ns, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name}
}

// policy is one of the chart's, and its binding.
func policy(s *world, name, expression string) {
	name += "." + driver
	s.Policies = append(s.Policies, admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: named(name),
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionv1.Fail), Validations: []admissionv1.Validation{{Expression: expression}},
		},
	})
	s.Bindings = append(s.Bindings, admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: named(name),
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	})
}

// world has the objects of the API server: those of the state itself, and those of its cluster.
type world struct {
	cluster.State
	Slices         []resourceapi.ResourceSlice
	Claims         []resourceapi.ResourceClaim
	Pods           []corev1.Pod
	RuntimeClasses []nodev1.RuntimeClass
	DeviceClasses  []resourceapi.DeviceClass
	Policies       []admissionv1.ValidatingAdmissionPolicy
	Bindings       []admissionv1.ValidatingAdmissionPolicyBinding
}

// state is the state of the objects as they are now.
func (w *world) state() *cluster.State {
	s := w.State
	s.Cluster = &model.Cluster{}
	addAll(s.Cluster, w.Slices)
	addAll(s.Cluster, w.Claims)
	addAll(s.Cluster, w.Pods)
	addAll(s.Cluster, w.RuntimeClasses)
	addAll(s.Cluster, w.DeviceClasses)
	addAll(s.Cluster, w.Policies)
	addAll(s.Cluster, w.Bindings)
	return &s
}

func addAll[T any](to *model.Cluster, objects []T) {
	for i := range objects {
		to.Add(&objects[i])
	}
}

// slice has one device of node n1.
func slice(name, driverName, pool, deviceName, address string) resourceapi.ResourceSlice {
	return resourceapi.ResourceSlice{
		ObjectMeta: named(name),
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driverName, NodeName: new("n1"), Pool: resourceapi.ResourcePool{Name: pool, ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: deviceName, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"resource.kubernetes.io/pciBusID": {StringValue: &address},
			}}},
		},
	}
}

// good is a cluster with two tenants, one of which has a GPU.
func good() *world {
	s := &world{
		State: cluster.State{
			Version: "v1.36.6", Missing: map[string]string{}, Nodes: map[string]bool{"n1": true}, Labeled: map[string]map[string]string{"n1": {"kata-vfio.dev/node": "true"}},
			Options: cluster.Options{TenantLabel: "kata-vfio.dev/tenant", Namespace: "kata-vfio", RuntimeClasses: []string{"kata-gpu"}, ProbeNamespace: "probe"},
			Namespaces: []corev1.Namespace{
				{ObjectMeta: named("t1", "kata-vfio.dev/tenant", "", "pod-security.kubernetes.io/enforce", "restricted")},
				{ObjectMeta: named("t2", "kata-vfio.dev/tenant", "", "pod-security.kubernetes.io/enforce", "baseline")},
				{ObjectMeta: named("probe", "kata-vfio.dev/tenant", "")},
				{ObjectMeta: named("kata-vfio")},
			},
			Probes: []cluster.Probe{{About: "a good pod", Harmless: true}, {About: "a bad pod", Refused: true, Policy: "tenant-pods." + driver}},
			Roles: []rbacv1.ClusterRole{
				{ObjectMeta: named("cluster-admin"), Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}},
				{ObjectMeta: named("everything"), Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}},
			},
			Grants: []cluster.Grant{{Subject: rbacv1.Subject{Kind: "Group", Name: "platform"}, Role: "cluster-admin", RoleKind: "ClusterRole", Binding: "platform"}},
			DaemonSets: []appsv1.DaemonSet{{
				ObjectMeta: named("kata-vfio-plugin", "app.kubernetes.io/name", "kata-vfio"),
				Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{
					ObjectMeta: named("", "app.kubernetes.io/component", "plugin"),
					Spec: corev1.PodSpec{
						Containers: []corev1.Container{{Image: "r.example.com/p@sha256:00"}}, NodeSelector: map[string]string{"kata-vfio.dev/node": "true"},
					},
				}},
			}},
		},
		RuntimeClasses: []nodev1.RuntimeClass{{
			ObjectMeta: named("kata-gpu"), Handler: "kata-gpu", Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{"memory": resource.MustParse("10240Mi")}},
		}},
		DeviceClasses: []resourceapi.DeviceClass{{
			ObjectMeta: named("gpu." + driver), Spec: resourceapi.DeviceClassSpec{ExtendedResourceName: new("example.com/gpu")},
		}},
		Slices: []resourceapi.ResourceSlice{
			slice("s1", driver, "n1/kata-vfio.dev", "gpu-0000-3b-00-0", "0000:3b:00.0"),
			slice("s2", driver, "n1/kata-vfio.dev/pf-0000-5e-00-0", "vf-0000-5e-10-0", "0000:5e:10.0"),
			slice("s3", "gpu.example.com", "n1", "gpu-1", "0000:41:00.0"),
		},
	}
	policy(s, "tenant-pods", "name in ['example.com/gpu']")
	policy(s, "tenant-claims", "true")
	policy(s, "slices", "true")
	policy(s, "claims", "true")
	policy(s, "tenant-classes", "true")
	policy(s, "tenant-pod-classes", "true")
	policy(s, "tenant-bindings", "true")
	policy(s, "tenant-podgroups", "true")
	policy(s, "tenant-finalizers", "true")
	policy(s, "tenant-deletions", "true")
	for _, ns := range []string{"t1", "t2"} {
		s.Quotas = append(s.Quotas, corev1.ResourceQuota{
			ObjectMeta: inNamespace(ns, "devices"),
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"gpu." + driver + ".deviceclass.resource.k8s.io/devices": resource.MustParse("2")}},
		})
	}
	s.Claims = []resourceapi.ResourceClaim{claim("t1", "gpu")}
	s.Pods = []corev1.Pod{pod("t1", "train", "kata-gpu")}
	return s
}

// claim has the GPU, prepared, for one pod.
func claim(ns, name string) resourceapi.ResourceClaim {
	meta := inNamespace(ns, name)
	meta.Finalizers = []string{resourceapi.Finalizer}
	return resourceapi.ResourceClaim{
		ObjectMeta: meta,
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
			{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu." + driver}},
		}}},
		Status: resourceapi.ResourceClaimStatus{
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
				Results: []resourceapi.DeviceRequestAllocationResult{{Driver: driver, Pool: "n1/kata-vfio.dev", Device: "gpu-0000-3b-00-0"}},
			}},
			Devices:     []resourceapi.AllocatedDeviceStatus{{Driver: driver, Pool: "n1/kata-vfio.dev", Device: "gpu-0000-3b-00-0"}},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "train"}},
		},
	}
}

// pod has the claim gpu by a template.
func pod(ns, name, class string) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Annotations: map[string]string{v1alpha1.AnnotationRequiredPlugins: "[ kata-vfio ]"}},
		Spec: corev1.PodSpec{
			NodeName: "n1", Containers: []corev1.Container{{Name: "main"}},
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("gpu")}},
		},
		Status: corev1.PodStatus{
			Phase:                 corev1.PodRunning,
			ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: new("gpu")}},
		},
	}
	if class != "" {
		p.Spec.RuntimeClassName = &class
	}
	return p
}

func grantTo(kind, ns, name string) func(*world) {
	return func(s *world) {
		s.Grants = append(s.Grants, cluster.Grant{Subject: rbacv1.Subject{Kind: kind, Namespace: ns, Name: name}, Role: "everything", RoleKind: "ClusterRole", Binding: "oops"})
	}
}

// plantClass adds a DeviceClass of the site's that is granted to namespaces, with
// parameters for our driver.
func plantClass(namespaces, parameters string) func(*world) {
	return func(s *world) {
		c := resourceapi.DeviceClass{ObjectMeta: named("fast.example.com")}
		if namespaces != "" {
			c.Annotations = map[string]string{"kata-vfio.dev/namespaces": namespaces}
		}
		c.Spec.Config = []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{
				Raw: []byte(`{"apiVersion":"resource.kata-vfio.dev/v1alpha1",` + parameters + `}`),
			}},
		}}}
		s.DeviceClasses = append(s.DeviceClasses, c)
	}
}

// TestClusterRightsToWeakenIsolation: what a grant is for is not a fault, nor what nobody may name; what
// can't be read is unknown.
func TestClusterRightsToWeakenIsolation(t *testing.T) {
	for name, tt := range map[string]struct {
		plant    func(*world)
		state    finding.State
		severity rule.Severity
	}{
		"a tenant's VLAN":                   {plantClass("t1", `"kind":"VFConfig","vlan":100`), finding.Pass, ""},
		"trust for who is not a tenant":     {plantClass("kata-vfio", `"kind":"VFConfig","trust":true`), finding.Pass, ""},
		"trust for nobody":                  {plantClass("", `"kind":"VFConfig","trust":true`), finding.Pass, ""},
		"nothing that weakens, for all":     {plantClass("*", `"kind":"VFIOConfig","backend":"Group"`), finding.Pass, ""},
		"trust for everybody":               {plantClass("*", `"kind":"VFConfig","trust":true`), finding.Fail, rule.High},
		"trust for a tenant":                {plantClass("t1", `"kind":"VFConfig","trust":true`), finding.Fail, rule.Medium},
		"parameters that nobody can decode": {plantClass("*", `"kind":"?"`), finding.Unknown, rule.High},
	} {
		t.Run(name, func(t *testing.T) {
			s := good()
			tt.plant(s)
			for _, f := range judge(s).Findings {
				if f.ID == "K8S-028" && (f.State != tt.state || tt.severity != "" && f.Severity != tt.severity) {
					t.Errorf("it is %s, %s: %s", f.State, f.Severity, f.Text)
				}
			}
		})
	}
}

// checks returns all checks of a cluster, which are parsed once for hundreds of clusters. TestEachRuleHasItsCheck sees an error.
var checks = sync.OnceValue(func() []cluster.Check {
	rules, err := rule.ReadCatalogue()
	if err != nil {
		return nil
	}
	all, _ := cluster.Catalogue(rules)
	return all
})

// TestEachRuleHasItsCheck: the rules of a cluster and the checks have the same IDs.
func TestEachRuleHasItsCheck(t *testing.T) {
	rules, err := rule.ReadCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	if all, err := cluster.Catalogue(rules); err != nil || len(all) < 25 {
		t.Errorf("%d checks, %v; want 25 at least and no error", len(all), err)
	}
}

func judge(s *world) *finding.Report {
	profile, _ := finding.ProfileNamed(finding.MultiTenant)
	return cluster.Run(s.state(), checks(), finding.Options{Profile: profile, Today: "2026-11-22"})
}

func TestGoodClusterPasses(t *testing.T) {
	s := good()
	exclusive(s)
	r := judge(s)
	for _, f := range r.Findings {
		if f.State != finding.Pass && f.Text != "no node's report was given (--node-report)" {
			t.Errorf("%s %s: %s", f.ID, f.State, f.Text)
		}
	}
	if len(r.Findings) != len(checks()) {
		t.Errorf("%d findings of %d checks", len(r.Findings), len(checks()))
	}
}

// fault is one thing that is wrong with a cluster, and which rule has to say so.
type fault struct {
	rule, about string
	plant       func(*world)
	// object is the finding's; empty for any.
	object string
}

func TestEachFaultIsFound(t *testing.T) {
	everybody := grantTo("Group", "", "system:authenticated")
	faults := []fault{
		{"K8S-001", "no policy", func(s *world) { s.Policies = s.Policies[1:] }, "ValidatingAdmissionPolicy tenant-pods.kata-vfio.dev"},
		{"K8S-001", "no binding", func(s *world) { s.Bindings = nil }, ""},
		{"K8S-001", "it only warns", func(s *world) { s.Bindings[0].Spec.ValidationActions = []admissionv1.ValidationAction{"Warn"} }, ""},
		{"K8S-001", "it ignores its failures", func(s *world) { s.Policies[1].Spec.FailurePolicy = new(admissionv1.Ignore) }, "ValidatingAdmissionPolicy tenant-claims.kata-vfio.dev"},
		{"K8S-001", "it does not work", func(s *world) { s.Probes[1].Refused = false }, "dry run"},
		{"K8S-001", "it does not work, and another dry run can't be made", func(s *world) {
			s.Probes[1].Refused = false
			s.Probes = append(s.Probes, cluster.Probe{About: "a worse pod", Impossible: "timeout"})
		}, "dry run"},
		{"K8S-002", "no RuntimeClass", func(s *world) { s.Pods[0] = pod("t1", "train", "") }, "pod t1/train"},
		{"K8S-002", "another RuntimeClass", func(s *world) { s.Pods[0] = pod("t1", "train", "runc") }, "pod t1/train"},
		{"K8S-002", "by an extended resource", func(s *world) {
			s.Pods[0].Spec.RuntimeClassName, s.Pods[0].Status.ResourceClaimStatuses = nil, nil
			s.Pods[0].Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "gpu"}
		}, "pod t1/train"},
		{"K8S-032", "a pod with a claim", func(s *world) { s.Pods[0].Annotations = nil }, "pod t1/train"},
		{"K8S-032", "a pod without a claim", claimless("kata-gpu"), "pod other/p"},
		{"K8S-032", "another RuntimeClass with the handler", func(s *world) {
			s.RuntimeClasses = append(s.RuntimeClasses, nodev1.RuntimeClass{ObjectMeta: named("site"), Handler: "kata-gpu"})
			claimless("site")(s)
		}, "pod other/p"},
		{"K8S-032", "a container that is excused", func(s *world) {
			s.Pods[0].Annotations[v1alpha1.AnnotationRequiredPlugins+"/container.main"] = "[]"
		}, "pod t1/train"},
		{"K8S-032", "an init container that is excused", func(s *world) {
			s.Pods[0].Spec.InitContainers = []corev1.Container{{Name: "init"}}
			s.Pods[0].Annotations[v1alpha1.AnnotationRequiredPlugins+"/container.init"] = "[other]"
		}, "pod t1/train"},
		{"K8S-032", "a debugger that is excused", func(s *world) {
			s.Pods[0].Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
			s.Pods[0].Annotations[v1alpha1.AnnotationRequiredPlugins+"/container.debug"] = "[]"
		}, "pod t1/train"},
		{"K8S-003", "no RuntimeClass", func(s *world) { s.RuntimeClasses = nil }, "RuntimeClass kata-gpu"},
		{"K8S-003", "runc in a VM's name", func(s *world) { s.RuntimeClasses[0].Handler = "runc" }, "RuntimeClass kata-gpu"},
		{"K8S-004", "a tenant with admin access", func(s *world) { s.Namespaces[0].Labels["resource.kubernetes.io/admin-access"] = "true" }, "namespace t1"},
		{"K8S-004", "everybody labels namespaces", everybody, ""},
		{"K8S-004", "a tenant's service account labels its own namespace", func(s *world) {
			grantTo("ServiceAccount", "t1", "default")(s)
			s.Grants[len(s.Grants)-1].Namespace = "t1"
		}, "service account t1/default by oops in t1"},
		{"K8S-005", "a tenant's claim", func(s *world) { s.Claims[0].Spec.Devices.Requests[0].Exactly.AdminAccess = new(true) }, "claim t1/gpu"},
		{"K8S-006", "everybody", everybody, ""},
		{"K8S-006", "a tenant's service account", grantTo("ServiceAccount", "t1", "default"), ""},
		{"K8S-006", "all service accounts of a tenant", grantTo("Group", "", "system:serviceaccounts:t2"), ""},
		{"K8S-007", "no policy", func(s *world) { s.Policies = s.Policies[:2] }, "ValidatingAdmissionPolicy slices.kata-vfio.dev"},
		{"K8S-008", "no policy", func(s *world) { s.Policies = s.Policies[:3] }, ""},
		{"K8S-009", "mirror pods bypass the authorization", func(s *world) { s.Version = "v1.33.1" }, ""},
		{"K8S-009", "no resource.k8s.io/v1", func(s *world) { s.Version = "v1.31.9" }, ""},
		{"K8S-009", "counters are refused", func(s *world) { s.Version = "v1.34.99" }, ""},
		{"K8S-009", "pairs stay pending", func(s *world) { s.Version = "v1.35.99" }, ""},
		{"K8S-009", "a claim stops the scheduler", func(s *world) { s.Version = "v1.36.5" }, ""},
		{"K8S-009", "the same of 1.37", func(s *world) { s.Version = "v1.37.0" }, ""},
		{"K8S-010", "by two drivers", func(s *world) { s.Slices[2] = slice("s3", "gpu.example.com", "n1", "gpu-1", "0000:3B:00.0") }, "node n1 0000:3b:00.0"},
		{"K8S-010", "by another driver's own attribute", func(s *world) {
			s.Slices[2].Spec.Devices[0].Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"pciAddress": {StringValue: new("0000:3b:00.0")}}
		}, "node n1 0000:3b:00.0"},
		{"K8S-010", "a VF that has no attribute", func(s *world) {
			s.Slices[1].Spec.Devices[0].Attributes = nil
			s.Slices[2] = slice("s3", "sriov.example.com", "n1", "vf-1", "0000:5e:10.0")
		}, "node n1 0000:5e:10.0"},
		{"K8S-010", "the VF of a pair", func(s *world) {
			s.Slices[0].Spec.Devices[0].Name = "gpu-0000-3b-00-0-vf-0000-5e-00-2"
			s.Slices[2] = slice("s3", "sriov.example.com", "n1", "vf-1", "0000:5e:00.2")
		}, "node n1 0000:5e:00.2"},
		{"K8S-011", "another node's pool", func(s *world) { s.Slices[0].Spec.Pool.Name = "n2" }, "ResourceSlice s1"},
		{"K8S-011", "a node that is not there", func(s *world) { s.Nodes = map[string]bool{} }, "ResourceSlice s1"},
		{"K8S-031", "a slice", func(s *world) { s.Slices[0].Spec.SkipNodeOperations = []resourceapi.SkipNodeOperation{"*"} }, "ResourceSlice s1"},
		{"K8S-031", "a claim that was allocated from one", func(s *world) {
			s.Claims[0].Status.Allocation.Devices.Results[0].SkipNodeOperations = []resourceapi.SkipNodeOperation{"NodeUnprepareResources"}
		}, "claim t1/gpu"},
		{"K8S-033", "two tenants", func(s *world) { exclusive(s); joined(s, "t2", blueTenant) }, "claim t2/late"},
		{"K8S-033", "a free device without taint", func(s *world) { exclusive(s); s.Slices[0].Spec.Devices[1].Taints = nil }, "node n1"},
		{"K8S-035", "one device", func(s *world) { s.Claims = append(s.Claims, claim("t2", "late")) }, "claim t2/late"},
		{"K8S-035", "a pair with the GPU", func(s *world) {
			pair := slice("s4", driver, "n1/kata-vfio.dev", "gpu-0000-3b-00-0-vf-0000-5e-10-2", "0000:3b:00.0")
			s.Slices = append(s.Slices, pair)
			late := claim("t2", "late")
			late.Status.Allocation.Devices.Results[0].Device = pair.Spec.Devices[0].Name
			s.Claims = append(s.Claims, late)
		}, "claim t2/late"},
		{"K8S-036", "no finalizer", func(s *world) { s.Claims[0].Finalizers = nil }, "claim t1/gpu"},
		{"K8S-036", "a claim that is gone", func(s *world) { s.Claims = nil }, "pod t1/train"},
		{"K8S-037", "no pod", func(s *world) { s.Claims[0].Status.ReservedFor, s.Pods = nil, nil }, "claim t1/gpu"},
		{"K8S-030", "an attribute of another type", func(s *world) {
			s.Slices[0].Spec.Devices[0].Attributes["isolated"] = resourceapi.DeviceAttribute{StringValue: new("true")}
		}, "node n1"},
		{"K8S-012", "nothing enforced", func(s *world) { delete(s.Namespaces[1].Labels, "pod-security.kubernetes.io/enforce") }, "namespace t2"},
		{"K8S-013", "privileged", func(s *world) {
			s.Pods[0].Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		}, "pod t1/train"},
		{"K8S-013", "a privileged debugger", func(s *world) {
			s.Pods[0].Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: "debug", SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
			}}}
		}, "pod t1/train"},
		{"K8S-013", "the root of the node", func(s *world) {
			s.Pods[0].Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		}, "pod t1/train"},
		{"K8S-015", "a name that no policy knows", func(s *world) { s.DeviceClasses[0].Spec.ExtendedResourceName = new("example.com/other") }, ""},
		{"K8S-016", "two pods", func(s *world) {
			s.Claims[0].Status.ReservedFor = append(s.Claims[0].Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Name: "b"})
		}, "claim t1/gpu"},
		{"K8S-016", "a PodGroup", func(s *world) { s.Claims[0].Status.ReservedFor = podGroup() }, "claim t1/gpu"},
		{"K8S-018", "prepared and not allocated", func(s *world) { s.Claims[0].Status.Allocation = nil }, "claim t1/gpu"},
		{"K8S-018", "prepared for nobody", func(s *world) { s.Claims[0].Status.ReservedFor = nil }, "claim t1/gpu"},
		{"K8S-019", "everybody", everybody, ""},
		{"K8S-021", "no quota", func(s *world) { s.Quotas = s.Quotas[:1] }, "namespace t2"},
		{"K8S-022", "it tolerates", func(s *world) {
			s.Claims[0].Spec.Devices.Requests[0].Exactly.Tolerations = []resourceapi.DeviceToleration{{Operator: "Exists"}}
		}, "claim t1/gpu"},
		{"K8S-022", "it tolerates the domains of two tenants", func(s *world) {
			s.Claims[0].Spec.Devices.Requests[0].Exactly.Tolerations = []resourceapi.DeviceToleration{ofTenant("0123456789abcdef"), ofTenant("fedcba9876543210")}
		}, "claim t1/gpu"},
		{"K8S-022", "it tolerates the domains of all tenants", func(s *world) {
			s.Claims[0].Spec.Devices.Requests[0].Exactly.Tolerations = []resourceapi.DeviceToleration{{Key: v1alpha1.TaintTenant, Operator: "Exists"}}
		}, "claim t1/gpu"},
		{"K8S-028", "trust for everybody", plantClass("*", `"kind":"VFConfig","trust":true`), "DeviceClass fast.example.com"},
		{"K8S-028", "a VLAN for everybody", plantClass("t9,*", `"kind":"VFConfig","vlan":100`), "DeviceClass fast.example.com"},
		{"K8S-028", "an address for everybody", plantClass("*", `"kind":"VFConfig","mac":"02:00:00:00:00:01"`), "DeviceClass fast.example.com"},
		{"K8S-028", "no reset for a tenant", plantClass("t1", `"kind":"VFIOConfig","reset":"Skip"`), "DeviceClass fast.example.com"},
		{"K8S-028", "the control node for a tenant", plantClass("kata-vfio, t2", `"kind":"VFIOConfig","controlNode":true`), "DeviceClass fast.example.com"},
		{"K8S-022", "by a DeviceClass of the site's own name", func(s *world) {
			s.DeviceClasses = append(s.DeviceClasses, resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{
				Name: "fast-gpu", Annotations: map[string]string{v1alpha1.AnnotationNamespaces: "t1"},
			}})
			r := s.Claims[0].Spec.Devices.Requests[0].Exactly
			r.DeviceClassName, r.Tolerations = "fast-gpu", []resourceapi.DeviceToleration{{Operator: "Exists"}}
		}, "claim t1/gpu"},
		{"K8S-034", "a node in no pool", func(s *world) {
			s.DaemonSets[0].Spec.Template.Spec.NodeSelector["kata-vfio.dev/pool"] = "hgx"
		}, "node n1"},
		{"K8S-034", "two plugins", func(s *world) { s.DaemonSets = append(s.DaemonSets, *s.DaemonSets[0].DeepCopy()) }, "node n1"},
		{"K8S-023", "a tag", func(s *world) { s.DaemonSets[0].Spec.Template.Spec.Containers[0].Image = "r.example.com/p:1" }, ""},
	}
	for _, c := range checks() {
		seen := slices.ContainsFunc(faults, func(f fault) bool { return f.rule == c.ID })
		if !seen && !slices.ContainsFunc(nodeFaults(), func(f nodeFault) bool { return f.rule == c.ID }) {
			t.Errorf("%s is never seen to fail", c.ID)
		}
	}
	for _, f := range faults {
		t.Run(f.rule+"/"+f.about, func(t *testing.T) {
			s := good()
			f.plant(s)
			r := judge(s)
			i := slices.IndexFunc(r.Findings, func(g finding.Finding) bool { return g.ID == f.rule && g.State == finding.Fail })
			if i < 0 {
				t.Fatalf("not found")
			}
			if g := r.Findings[i]; f.object != "" && g.Object != f.object || g.Remediation == "" || g.Text == "" {
				t.Errorf("found as %+v", g)
			}
		})
	}
}

// A slice that is out of place is described with what is out of place, and the fix is for that: no plugin writes the slice of a missing
// node again.
func TestStrayedSliceIsExplained(t *testing.T) {
	for name, c := range map[string]struct {
		plant     func(*world)
		text, fix string
	}{
		"another node's pool": {
			func(s *world) { s.Slices[0].Spec.Pool.Name = "n2" },
			`slice s1 of node "n1" is in pool "n2", which is not the node's`, "delete the slice; the plugin of an existing node writes its own again",
		},
		"a node that does not exist": {
			func(s *world) { s.Nodes = map[string]bool{"n2": true} },
			`slice s1 offers devices of node "n1", and the cluster has no Node of that name`, "if the node was removed: `kubectl delete resourceslice s1`",
		},
		"no node": {
			func(s *world) { s.Slices[0].Spec.NodeName, s.Slices[0].Spec.AllNodes = nil, new(true) },
			"slice s1 names no node", "`kubectl delete resourceslice s1`; find in the API server's audit log who created it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := good()
			c.plant(s)
			for _, f := range judge(s).Findings {
				if f.ID == "K8S-011" && f.Object == "ResourceSlice s1" {
					if !strings.Contains(f.Text, c.text) || !strings.HasPrefix(f.Remediation, c.fix) {
						t.Errorf("%s\nfix: %s", f.Text, f.Remediation)
					}
					return
				}
			}
			t.Error("not found")
		})
	}
}

// claimless adds a pod without claims and without the annotation, in a namespace that is not a tenant's.
func claimless(class string) func(*world) {
	return func(s *world) {
		s.Pods = append(s.Pods, corev1.Pod{
			ObjectMeta: inNamespace("other", "p"), Spec: corev1.PodSpec{RuntimeClassName: &class, Containers: []corev1.Container{{Name: "main"}}},
		})
	}
}

// Pods without a VM, of another Kata handler, or that ended need no annotation.
func TestPluginIsRequiredInOurVMsOnly(t *testing.T) {
	for name, plant := range map[string]func(*world){
		"runc": claimless("runc"),
		"another handler of Kata's": func(s *world) {
			s.RuntimeClasses = append(s.RuntimeClasses, nodev1.RuntimeClass{ObjectMeta: named("kata-qemu"), Handler: "kata-qemu"})
			claimless("kata-qemu")(s)
		},
		"ended": func(s *world) {
			claimless("kata-gpu")(s)
			s.Pods[1].Status.Phase = corev1.PodSucceeded
		},
		"required by its own annotation": func(s *world) {
			claimless("kata-gpu")(s)
			s.Pods[1].Annotations = map[string]string{v1alpha1.AnnotationRequiredPlugins + "/pod": "[kata-vfio, other]"}
		},
	} {
		s := good()
		plant(s)
		for _, f := range judge(s).Findings {
			if f.ID == "K8S-032" && f.State != finding.Pass {
				t.Errorf("%s: K8S-032 is %s: %s", name, f.State, f.Text)
			}
		}
	}
}

func podGroup() []resourceapi.ResourceClaimConsumerReference {
	return []resourceapi.ResourceClaimConsumerReference{{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "ring"}}
}

// TestClaimOfPodGroup says whether pods of the group are left.
func TestClaimOfPodGroup(t *testing.T) {
	const shared, abandoned = `claim t1/gpu is reserved for PodGroup "ring"`, `claim t1/gpu holds its devices for PodGroup "ring", and no pod uses it`
	for about, test := range map[string]struct {
		plant func(*world)
		want  string
	}{
		"with a pod":      {func(*world) {}, shared},
		"its pods ended":  {func(s *world) { s.Pods[0].Status.Phase = corev1.PodSucceeded }, abandoned},
		"without pods":    {func(s *world) { s.Pods = nil }, abandoned},
		"pods not listed": {func(s *world) { s.Pods, s.Missing = nil, map[string]string{"pods": "forbidden"} }, shared},
	} {
		t.Run(about, func(t *testing.T) {
			s := good()
			s.Claims[0].Status.ReservedFor = podGroup()
			test.plant(s)
			if !slices.ContainsFunc(judge(s).Findings, func(f finding.Finding) bool {
				return f.ID == "K8S-016" && f.State == finding.Fail && strings.HasPrefix(f.Text, test.want)
			}) {
				t.Errorf("no finding %q", test.want)
			}
		})
	}
}

// TestClusterUnknownOutcomes: unreadable objects are unknown, and never pass.
func TestClusterUnknownOutcomes(t *testing.T) {
	s := good()
	s.Missing = map[string]string{"pods": "forbidden", "clusterroles": "forbidden", "resourceslices": "forbidden"}
	s.Probes[1] = cluster.Probe{About: "a bad pod", Impossible: "no permission"}
	state := map[string]finding.State{}
	for _, f := range judge(s).Findings {
		state[f.ID] = f.State
	}
	for _, id := range []string{"K8S-001", "K8S-002", "K8S-004", "K8S-006", "K8S-007", "K8S-010", "K8S-013", "K8S-019"} {
		if state[id] != finding.Unknown {
			t.Errorf("%s is %s, want unknown", id, state[id])
		}
	}
	s = good()
	s.Probes[0].Refused = true
	if f := judge(s); f.Findings[0].State != finding.Unknown || f.Findings[0].ID != "K8S-001" {
		t.Errorf("dry runs of which even the harmless one is refused: %+v", f.Findings[0])
	}
}

// TestPolicyThatLooksAtClassesKnowsTheirNames: those of classes that the chart's values
// don't name, where the policy is in force and asks for VMs.
func TestPolicyThatLooksAtClassesKnowsTheirNames(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding)
		want   finding.State
	}{
		"in force": {func(*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {}, finding.Pass},
		"without parameters": {func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.ParamRef = nil
		}, finding.Fail},
		"that only warns": {func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
		}, finding.Fail},
		"of an older chart": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.Validations[0].Expression = "!variables.named || variables.granted"
		}, finding.Fail},
	} {
		t.Run(name, func(t *testing.T) {
			s := good()
			s.DeviceClasses[0].Spec.ExtendedResourceName = new("example.com/other")
			i := slices.IndexFunc(s.Policies, func(p admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == "tenant-pod-classes."+driver })
			p, b := &s.Policies[i], &s.Bindings[i]
			p.Spec.ParamKind = &admissionv1.ParamKind{APIVersion: "resource.k8s.io/v1", Kind: "DeviceClass"}
			b.Spec.ParamRef = &admissionv1.ParamRef{Selector: &metav1.LabelSelector{}}
			p.Spec.Validations[0].Expression = "!variables.named || object.spec.?runtimeClassName.orValue('') in ['kata-gpu']"
			tt.change(p, b)
			i = slices.IndexFunc(judge(s).Findings, func(f finding.Finding) bool { return f.ID == "K8S-015" && f.State == tt.want })
			if i < 0 {
				t.Errorf("K8S-015 is not %s: %+v", tt.want, judge(s).Findings)
			}
		})
	}
}

// ofTenant is the toleration that the policy exclusive-domains adds to the claims of a tenant.
func ofTenant(id string) resourceapi.DeviceToleration {
	return resourceapi.DeviceToleration{Key: v1alpha1.TaintTenant, Operator: "Equal", Value: id, Effect: "NoSchedule"}
}

// TestTolerationOfOwnDomains: each claim of a cluster with tenancy has it.
func TestTolerationOfOwnDomains(t *testing.T) {
	own := []resourceapi.DeviceToleration{ofTenant("0123456789abcdef")}
	for name, request := range map[string]resourceapi.DeviceRequest{
		"exactly": {Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu.kata-vfio.dev", Tolerations: own}},
		"first available": {
			Name: "gpu", FirstAvailable: []resourceapi.DeviceSubRequest{{Name: "a", DeviceClassName: "gpu.kata-vfio.dev", Tolerations: own}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := good()
			s.Claims[0].Spec.Devices.Requests = []resourceapi.DeviceRequest{request}
			for _, f := range judge(s).Findings {
				if f.ID == "K8S-022" && f.State != finding.Pass {
					t.Errorf("K8S-022 is %s: %s; want a pass", f.State, f.Text)
				}
			}
		})
	}
}

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

const requiredPlugins = "required-plugins.noderesource.dev"

// Parts of a pod's spec.
const (
	inVM      = "runtimeClassName: kata-gpu\n"
	oneClaim  = "resourceClaims: [{name: gpu, resourceClaimName: gpu}]\n"
	aTemplate = "resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]\n"
	implicit  = "deviceclass.resource.kubernetes.io/gpu.kata-vfio.dev"
)

// pod is one with a container, from the rest of its spec and its annotations.
func pod(t *testing.T, spec, annotations string) *corev1.Pod {
	t.Helper()
	made := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "attack"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &made.Spec); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(annotations), &made.Annotations); err != nil {
		t.Fatal(err)
	}
	if len(made.Spec.Containers) == 0 {
		made.Spec.Containers = []corev1.Container{{Name: "main", Image: "example.com/none:1"}}
	}
	return made
}

// containers has a resource in a container's limits.
func containers(kind, resource string) string {
	one := "[{name: a, image: 'example.com/none:1', resources: {limits: {" + resource + ": 1}}}]\n"
	if kind == "initContainers" {
		return "initContainers: " + one + "containers: [{name: main, image: 'example.com/none:1'}]\n"
	}
	return kind + ": " + one
}

// withRights has a container with a security context.
func withRights(kind, rights string) string {
	one := "[{name: a, image: 'example.com/none:1', securityContext: {" + rights + "}}]\n"
	if kind == "initContainers" {
		return "initContainers: " + one + "containers: [{name: main, image: 'example.com/none:1'}]\n"
	}
	return kind + ": " + one
}

// apart has an anti-affinity to pods with the labels of the plugin's, required or preferred, with a field that says of which namespaces.
func apart(how, namespaces string) string {
	term := "{labelSelector: {matchLabels: {app.kubernetes.io/name: kata-vfio}}, topologyKey: kubernetes.io/os, " + namespaces + "}"
	if how == "preferred" {
		term = "{weight: 1, podAffinityTerm: " + term + "}"
	}
	return "affinity: {podAntiAffinity: {" + how + "DuringSchedulingIgnoredDuringExecution: [" + term + "]}}\n"
}

// wantForbidden checks that a policy refused, with its message, or that all was well where no message is wanted.
func wantForbidden(t *testing.T, err error, message string) {
	t.Helper()
	switch {
	case message == "":
		if err != nil {
			t.Error(err)
		}
	case !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), message):
		t.Errorf("want a refusal with %q, got %v", message, err)
	}
}

// The API server checks an expression's types, as far as it can, and tells in the policy's status what it finds.
func TestPoliciesPassTheTypeCheck(t *testing.T) {
	policies := client(t, installed(t), controlplane.Admin()).AdmissionregistrationV1().ValidatingAdmissionPolicies()
	for _, name := range []string{"slices", "claims", "pods", "tenant-pods", "tenant-claims", "tenant-classes", "tenant-pod-classes", "tenant-bindings", "tenant-podgroups", "tenant-finalizers", "tenant-deletions"} {
		until(t, "policy "+name+" is checked", func(ctx context.Context) error {
			got, err := policies.Get(ctx, name+"."+driver, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got.Status.ObservedGeneration != got.Generation {
				return errors.New("not yet")
			}
			if got.Status.TypeChecking != nil && len(got.Status.TypeChecking.ExpressionWarnings) > 0 {
				t.Errorf("%s: %+v", name, got.Status.TypeChecking.ExpressionWarnings)
			}
			return nil
		})
	}
}

func TestTenantsPodWithDevicesRunsInAVM(t *testing.T) {
	p := installed(t)
	ns := tenantNamespace(t, p)
	pods := client(t, p, controlplane.Admin()).CoreV1().Pods(ns)
	const (
		vm          = "a pod with devices (resourceClaims, or a device resource in limits) must run in a VM"
		hostPath    = "hostPath volumes reach the node's VFIO devices"
		annotations = "annotations cdi.k8s.io/* and io.katacontainers.* choose devices"
		required    = "the annotation required-plugins.noderesource.dev is the cluster's"
		namespaces  = "hostPID, hostIPC and hostNetwork reach the node's processes"
		rights      = "privileged containers, and capabilities beyond those of Pod Security"
		server      = "volumes that name a server or a disk (nfs, iscsi, fc and others)"
		affinity    = "required terms of podAntiAffinity with a namespaceSelector"
	)
	if _, err := p.KubectlInput(t.Context(), strings.NewReader(otherClass), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	for name, attack := range map[string]struct{ spec, annotations, want string }{
		"a claim in a VM":                   {inVM + oneClaim, "", ""},
		"a claim without a RuntimeClass":    {oneClaim, "", vm},
		"a claim in another RuntimeClass":   {"runtimeClassName: e2e-other\n" + oneClaim, "", vm},
		"a template in a VM":                {inVM + aTemplate, "", ""},
		"a template without a RuntimeClass": {aTemplate, "", vm},
		"an extended resource in a VM":      {inVM + containers("containers", implicit), "", ""},
		"an extended resource":              {containers("containers", implicit), "", vm},
		"an init container's":               {containers("initContainers", implicit), "", vm},
		"no device and no RuntimeClass":     {"", "", ""},
		"a resource that is not a device":   {containers("containers", "cpu"), "", ""},
		"a hostPath":                        {"volumes: [{name: a, hostPath: {path: /dev/vfio}}]", "", hostPath},
		"a hostPath in a VM":                {inVM + "volumes: [{name: b, emptyDir: {}}, {name: a, hostPath: {path: /}}]", "", hostPath},
		"the node's processes":              {inVM + "hostPID: true", "", namespaces},
		"the node's shared memory":          {"hostIPC: true", "", namespaces},
		"the node's network":                {"hostNetwork: true", "", namespaces},
		"none of the node's namespaces":     {"hostPID: false\nhostNetwork: false", "", ""},
		"a privileged container":            {withRights("containers", "privileged: true"), "", rights},
		"a privileged container in a VM":    {inVM + withRights("containers", "privileged: true"), "", rights},
		"a privileged init container":       {withRights("initContainers", "privileged: true"), "", rights},
		"an unprivileged container":         {withRights("containers", "privileged: false"), "", ""},
		"a capability":                      {withRights("containers", "capabilities: {add: [SYS_ADMIN]}"), "", rights},
		"a capability in a VM":              {inVM + withRights("containers", "capabilities: {add: [CHOWN, SYS_RAWIO]}"), "", rights},
		"all capabilities":                  {inVM + withRights("initContainers", "capabilities: {add: [ALL]}"), "", rights},
		"a capability in small letters":     {inVM + withRights("containers", "capabilities: {add: [sys_admin]}"), "", rights},
		"a capability of the baseline":      {withRights("containers", "capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}"), "", ""},
		"the network's, in a VM":            {inVM + withRights("initContainers", "capabilities: {add: [NET_ADMIN]}"), "", ""},
		"the network's":                     {withRights("containers", "capabilities: {add: [NET_ADMIN]}"), "", rights},
		"an emptyDir":                       {"volumes: [{name: a, emptyDir: {}}]", "", ""},
		"a volume of no kind":               {"volumes: [{name: a}]", "", ""},
		"a volume claim and an image":       {inVM + "volumes: [{name: a, persistentVolumeClaim: {claimName: a}}, {name: b, image: {reference: 'example.com/none:1'}}]", "", ""},
		"a CSI driver's volume":             {inVM + "volumes: [{name: a, csi: {driver: example.com}}]", "", ""},
		"volumes of the cluster's objects":  {"volumes: [{name: a, configMap: {name: a}}, {name: b, secret: {secretName: b}}, {name: c, projected: {sources: [{secret: {name: c}}]}}, {name: d, downwardAPI: {}}]", "", ""},
		"an NFS server of its own":          {inVM + "volumes: [{name: b, emptyDir: {}}, {name: a, nfs: {server: 10.0.0.1, path: /}}]", "", server},
		"an iSCSI server of its own":        {inVM + "volumes: [{name: a, iscsi: {targetPortal: '10.0.0.1:3260', iqn: 'iqn.2026-01.com.example:a', lun: 0}}]", "", server},
		"a disk by its name":                {"volumes: [{name: a, fc: {wwids: ['3600508b400105e210000900000490000']}}]", "", server},
		"pods of all namespaces kept away":  {apart("required", "namespaceSelector: {}"), "", affinity},
		"the plugin kept away":              {inVM + oneClaim + apart("required", "namespaces: ["+system+"]"), "", affinity},
		"its own pods kept away":            {apart("required", "namespaces: ["+ns+"]"), "", ""},
		"pods of all namespaces disliked":   {apart("preferred", "namespaceSelector: {}"), "", ""},
		"a CDI annotation":                  {inVM, "cdi.k8s.io/x: nvidia.com/pgpu=0", annotations},
		"a Kata annotation":                 {inVM, "io.katacontainers.config.runtime.vfio_mode: vfio", annotations},
		"a CDI annotation in capitals":      {inVM, "CDI.k8s.io/x: nvidia.com/pgpu=0", annotations},
		"a Kata annotation in capitals":     {"", "IO.katacontainers.config.agent.trace: x", annotations},
		"a Kata agent's annotation":         {"", "io.katacontainers.config.agent.policy: x", annotations},
		"another annotation":                {inVM, "example.com/cdi.k8s.io: x", ""},
		"the plugin required by itself":     {inVM + oneClaim, requiredPlugins + ": '[ kata-vfio ]'", ""},
		"no plugin required, without a VM":  {"", requiredPlugins + ": '[]'", required},
		"another plugin required":           {"", requiredPlugins + ": '[ mine ]'", required},
		"no plugin required of a container": {inVM + oneClaim, requiredPlugins + "/container.main: '[]'", required},
		"no plugin required of the pod":     {inVM + oneClaim, requiredPlugins + "/pod: ''", required},
		// The mutating policy has the last word, before the other policy sees it.
		"no plugin required":                 {inVM + oneClaim, requiredPlugins + ": '[]'", ""},
		"no plugin required, without device": {inVM, requiredPlugins + ": '[]'", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := pods.Create(t.Context(), pod(t, attack.spec, attack.annotations), dryRunCreate())
			wantForbidden(t, err, attack.want)
			if err == nil && (strings.Contains(attack.spec, "resourceClaims") || strings.Contains(attack.spec, implicit) || strings.Contains(attack.spec, inVM)) &&
				got.Annotations[requiredPlugins] != "[ kata-vfio ]" {
				t.Errorf("the annotations are %v: containerd would not require the plugin", got.Annotations)
			}
		})
	}
	t.Run("of another namespace is not looked at", func(t *testing.T) {
		free := client(t, p, controlplane.Admin()).CoreV1().Pods(namespace(t, p))
		for _, attack := range []*corev1.Pod{pod(t, oneClaim, ""), pod(t, "volumes: [{name: a, hostPath: {path: /}}]", "")} {
			_, err := free.Create(t.Context(), attack, dryRunCreate())
			wantForbidden(t, err, "")
		}
		for spec, want := range map[string]string{
			inVM + oneClaim: "[ kata-vfio ]", oneClaim: "[ kata-vfio ]", "runtimeClassName: e2e-other\n" + oneClaim: "[ kata-vfio ]",
			inVM: "[ kata-vfio ]", "": "", "runtimeClassName: e2e-other\n": "",
		} {
			got, err := free.Create(t.Context(), pod(t, spec, ""), dryRunCreate())
			if err != nil || got.Annotations[requiredPlugins] != want {
				t.Errorf("the annotation is on each pod with claims and on each in a VM, in every namespace; got %v, %v of %s", got, err, spec)
			}
		}
	})
	t.Run("is watched after its creation", func(t *testing.T) {
		made := pod(t, inVM+oneClaim, "")
		if _, err := pods.Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for rights, want := range map[string]string{
			`{"privileged": true}`: rights, `{"capabilities": {"add": ["SYS_PTRACE"]}}`: rights, `{"runAsUser": 1}`: "",
		} {
			_, err := pods.Patch(t.Context(), made.Name, types.StrategicMergePatchType,
				[]byte(`{"spec": {"ephemeralContainers": [{"name": "debug", "image": "example.com/none:1", "securityContext": `+rights+`}]}}`),
				metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "ephemeralcontainers")
			wantForbidden(t, err, want)
		}
		for patch, want := range map[string]string{
			`{"example.com/a": "b"}`:                        "",
			`{"cdi.k8s.io/x": "a"}`:                         annotations,
			`{"io.katacontainers.config.agent.trace": "a"}`: annotations,
			`{"` + requiredPlugins + `": null}`:             required,
			`{"` + requiredPlugins + `": "[]"}`:             required,
			`{"` + requiredPlugins + `/pod": "[]"}`:         required,
		} {
			for _, subresource := range []string{"", "status"} {
				_, err := pods.Patch(t.Context(), made.Name, types.MergePatchType, []byte(`{"metadata": {"annotations": `+patch+`}}`),
					metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, subresource)
				wantForbidden(t, err, want)
			}
		}
	})
}

// Outside of tenants' namespaces, what the plugin would refuse once the pod's VM has booted is refused at once, and nothing else.
func TestPodOfNoTenantReachesNoDevicePastAClaim(t *testing.T) {
	p := installed(t)
	pods := client(t, p, controlplane.Admin()).CoreV1().Pods(namespace(t, p))
	const (
		kata     = "annotations io.katacontainers.* change a pod's VM"
		cdi      = "annotations cdi.k8s.io/* that name devices of kata-vfio.dev/vfio"
		hostPath = "hostPath volumes of /dev, /dev/vfio and /dev/iommu"
		required = "the annotation required-plugins.noderesource.dev is the cluster's"
		mode     = "io.katacontainers.config.runtime.vfio_mode: vfio"
	)
	mount := func(path string) string { return "volumes: [{name: a, hostPath: {path: '" + path + "'}}]" }
	for name, attack := range map[string]struct{ spec, annotations, want string }{
		"a claim in a VM":                       {inVM + oneClaim, "", ""},
		"a Kata annotation":                     {inVM, mode, kata},
		"a Kata annotation in capitals":         {inVM, "IO.katacontainers.config.agent.trace: x", kata},
		"a Kata annotation without a VM":        {"", mode, ""},
		"a CDI annotation":                      {inVM, "cdi.k8s.io/x: nvidia.com/pgpu=0", cdi},
		"another's CDI annotation without a VM": {"", "cdi.k8s.io/x: nvidia.com/pgpu=0", ""},
		"a CDI annotation for a device of ours": {"", "cdi.k8s.io/x: 'nvidia.com/gpu=0,kata-vfio.dev/vfio=x'", cdi},
		"another annotation":                    {inVM, "example.com/cdi.k8s.io: x", ""},
		"the node's /dev":                       {inVM + mount("/dev/"), "", hostPath},
		"the node's VFIO nodes":                 {inVM + mount("//dev/./vfio/devices"), "", hostPath},
		"the node's iommufd":                    {inVM + mount("/dev/iommu"), "", hostPath},
		"the node's shared memory":              {inVM + mount("/dev/shm"), "", ""},
		"the node's root, as node exporters do": {inVM + mount("/"), "", ""},
		"another directory":                     {inVM + mount("/var/dev"), "", ""},
		"the node's /dev without a VM":          {mount("/dev"), "", ""},
		"volumes of other kinds":                {inVM + "volumes: [{name: a, emptyDir: {}}, {name: b, nfs: {server: 10.0.0.1, path: /}}]", "", ""},
		"no plugin required":                    {inVM, requiredPlugins + ": '[]'", ""}, // the mutating policy has the last word
		"no plugin required of a container":     {inVM, requiredPlugins + "/container.main: '[]'", required},
		"no plugin required, without a VM":      {"", requiredPlugins + "/container.main: '[]'", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := pods.Create(t.Context(), pod(t, attack.spec, attack.annotations), dryRunCreate())
			wantForbidden(t, err, attack.want)
		})
	}
	made := pod(t, inVM, "")
	if _, err := pods.Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for patch, want := range map[string]string{
		`{"cdi.k8s.io/x": "a"}`: cdi, `{"io.katacontainers.config.agent.trace": "a"}`: kata, `{"example.com/a": "a"}`: "",
		`{"` + requiredPlugins + `": null}`: required, `{"` + requiredPlugins + `": "[]"}`: required, `{"` + requiredPlugins + `/pod": "[]"}`: required,
	} {
		for _, subresource := range []string{"", "status"} {
			_, err := pods.Patch(t.Context(), made.Name, types.MergePatchType, []byte(`{"metadata": {"annotations": `+patch+`}}`),
				metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, subresource)
			wantForbidden(t, err, want)
		}
	}
}

// A Binding's annotations become its pod's, by both of the API server's resources.
func TestTenantsBindingAnnotatesNoPod(t *testing.T) {
	p := installed(t)
	ns := tenantNamespace(t, p)
	admin := client(t, p, controlplane.Admin())
	// What the scheduler passes over, so that it binds nothing itself.
	waits := pod(t, "schedulerName: nobody", "")
	if _, err := admin.CoreV1().Pods(ns).Create(t.Context(), waits, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for annotation, want := range map[string]string{
		"cdi.k8s.io/x": "a Binding's annotations become its pod's", "io.katacontainers.config.hypervisor.path": "a Binding's annotations become its pod's",
		"CDI.k8s.io/x": "a Binding's annotations become its pod's", "io.KataContainers.config.hypervisor.path": "a Binding's annotations become its pod's",
		requiredPlugins: "a Binding's annotations become its pod's", requiredPlugins + "/container.main": "a Binding's annotations become its pod's",
		"example.com/a": "",
	} {
		binding := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: waits.Name, Namespace: ns, Annotations: map[string]string{annotation: "x"}},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "e2e-nowhere"},
		}
		wantForbidden(t, admin.CoreV1().Pods(ns).Bind(t.Context(), binding, dryRunCreate()), want)
		err := admin.CoreV1().RESTClient().Post().Namespace(ns).Resource("bindings").
			VersionedParams(new(dryRunCreate()), scheme.ParameterCodec).Body(binding).Do(t.Context()).Error()
		wantForbidden(t, err, want)
	}
}

// otherClass is a RuntimeClass that does not run VMs.
const otherClass = `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: e2e-other}
handler: runc
`

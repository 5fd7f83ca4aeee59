//go:build e2e

package e2e

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// What a pod says to have its network configured, and who does it.
const (
	configure = "kata-vfio.dev/configure-network: 'true'"
	guestnet  = "kata-vfio-guestnet"
)

// configuring adds the policy for the time of the test: it is off by default.
func configuring(t *testing.T, p *controlplane.ControlPlane, ns string) {
	t.Helper()
	got := render(t, "guestnet: {inject: true}", mutating("v1")...)
	var both strings.Builder
	for _, kind := range []string{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"} {
		text, err := yaml.Marshal(got.find(kind, "configure-network."+driver).Object)
		if err != nil {
			t.Fatal(err)
		}
		both.WriteString("---\n" + string(text))
	}
	apply(t, p, "default", both.String())
	t.Cleanup(func() {
		// The test's own context is over by now.
		if _, err := p.KubectlInput(context.Background(), strings.NewReader(both.String()), "delete", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
	pods := client(t, p, controlplane.Admin()).CoreV1().Pods(ns)
	until(t, "the policy is in force", func(ctx context.Context) error {
		got, err := pods.Create(ctx, pod(t, inVM+oneClaim, configure), dryRunCreate())
		if err == nil && len(got.Spec.InitContainers) == 0 {
			err = errors.New("there is no init container")
		}
		return err
	})
}

// initContainer is ours for a pod with the claims.
func initContainer(claims ...string) corev1.Container {
	c := corev1.Container{
		Name: guestnet, Image: "ghcr.io/kata-vfio/kata-vfio-guestnet:0.1.0", ImagePullPolicy: corev1.PullIfNotPresent,
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
		},
		SecurityContext: &corev1.SecurityContext{
			RunAsUser: new(int64(0)), RunAsNonRoot: new(false), Privileged: new(false), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN"}},
		},
		TerminationMessagePath: corev1.TerminationMessagePathDefault, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}
	for _, claim := range claims {
		c.Resources.Claims = append(c.Resources.Claims, corev1.ResourceClaim{Name: claim})
	}
	return c
}

func TestTenantsPodHasItsNetworkConfigured(t *testing.T) {
	p := installed(t)
	ns := tenantNamespace(t, p)
	configuring(t, p, ns)
	const (
		others    = "initContainers: [{name: a, image: 'example.com/none:1'}, {name: b, image: 'example.com/none:1', restartPolicy: Always}]\n"
		byHand    = "initContainers: [{name: a, image: 'example.com/none:1'}, {name: kata-vfio-guestnet, image: 'example.com/mine:1'}]\n"
		twoClaims = "resourceClaims: [{name: gpu, resourceClaimName: gpu}, {name: net, resourceClaimTemplateName: net}]\n"
	)
	ours, both := initContainer("gpu"), initContainer("gpu", "net")
	for name, one := range map[string]struct {
		spec, annotations string
		ours              *corev1.Container
		want              []string
	}{
		"one claim":                       {inVM + oneClaim, configure, &ours, []string{guestnet}},
		"a template":                      {inVM + aTemplate, configure, &ours, []string{guestnet}},
		"two claims":                      {inVM + twoClaims, configure, &both, []string{guestnet}},
		"before other init containers":    {inVM + oneClaim + others, configure, &ours, []string{guestnet, "a", "b"}},
		"by hand, and not twice":          {inVM + oneClaim + byHand, configure, nil, []string{"a", guestnet}},
		"not asked for":                   {inVM + oneClaim + others, "", nil, []string{"a", "b"}},
		"asked not to":                    {inVM + oneClaim, "kata-vfio.dev/configure-network: 'false'", nil, nil},
		"no claims":                       {inVM + others, configure, nil, []string{"a", "b"}},
		"no claims, an extended resource": {inVM + containers("containers", implicit), configure, nil, nil},
		"no VM":                           {others, configure, nil, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := client(t, p, controlplane.Admin()).CoreV1().Pods(ns).Create(t.Context(), pod(t, one.spec, one.annotations), dryRunCreate())
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for i := range got.Spec.InitContainers {
				c := &got.Spec.InitContainers[i]
				names = append(names, c.Name)
				c.VolumeMounts = nil // the token's
			}
			if !slices.Equal(names, one.want) {
				t.Fatalf("the init containers are %v, want %v", names, one.want)
			}
			if one.ours == nil {
				return
			}
			if diff := cmp.Diff(*one.ours, got.Spec.InitContainers[0]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("of another namespace is not looked at", func(t *testing.T) {
		got, err := client(t, p, controlplane.Admin()).CoreV1().Pods(namespace(t, p)).Create(t.Context(), pod(t, inVM+oneClaim, configure), dryRunCreate())
		if err != nil || len(got.Spec.InitContainers) > 0 {
			t.Errorf("got %v, %v", got, err)
		}
	})
	t.Run("where Pod Security is baseline needs an exemption", func(t *testing.T) {
		strict := labeledNamespace(t, p, map[string]string{"kata-vfio.dev/tenant": "team-a", "pod-security.kubernetes.io/enforce": "baseline"})
		_, err := client(t, p, controlplane.Admin()).CoreV1().Pods(strict).Create(t.Context(), pod(t, inVM+oneClaim, configure), dryRunCreate())
		wantForbidden(t, err, `non-default capabilities (container "kata-vfio-guestnet" must not include "NET_ADMIN"`)
	})
	t.Run("is a pod that the API server stores", func(t *testing.T) {
		if _, err := client(t, p, controlplane.Admin()).CoreV1().Pods(ns).Create(t.Context(), pod(t, inVM+twoClaims+others, configure), metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	})
}

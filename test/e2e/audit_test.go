//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusteraudit "github.com/kata-vfio/kata-vfio/pkg/audit/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/kube"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// auditor is who the chart's audit is.
func auditor() controlplane.User {
	return controlplane.User{Name: "system:serviceaccount:" + system + ":kata-vfio-audit", Groups: []string{"system:serviceaccounts", "system:authenticated"}}
}

// auditClient is the client of `kata-vfio-audit cluster`, as the chart's ServiceAccount.
func auditClient(t *testing.T, p *controlplane.ControlPlane) *kube.Client {
	t.Helper()
	config, err := p.RESTConfig(auditor())
	if err != nil {
		t.Fatal(err)
	}
	c, err := kube.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// auditCluster judges the cluster as the chart's ServiceAccount, and returns the rules' states, and their texts.
func auditCluster(t *testing.T, p *controlplane.ControlPlane) (states map[string]finding.State, texts map[string]string) {
	t.Helper()
	s, err := clusteraudit.Read(t.Context(), auditClient(t, p), clusteraudit.Options{
		TenantLabel: "kata-vfio.dev/tenant", Namespace: system, RuntimeClasses: []string{"kata-gpu"}, ProbeNamespace: "kata-vfio-audit-probe",
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Missing) > 0 {
		t.Errorf("the chart's account can't list %v", s.Missing)
	}
	profile, _ := finding.ProfileNamed(finding.MultiTenant)
	states, texts = map[string]finding.State{}, map[string]string{}
	for _, f := range slices.Backward(clusteraudit.Run(s, clusterChecks(t), finding.Options{Profile: profile, Today: "2026-11-22"}).Findings) { // the worst last
		states[f.ID] = f.State
		texts[f.ID] += f.Text + "; "
	}
	return states, texts
}

// TestAuditOfACluster: with what the chart gives it, it finds the installation in order, tries the policies, and finds what
// somebody undoes. Nothing that it asks for is ever made.
func TestAuditOfACluster(t *testing.T) {
	p := installed(t)
	admin := client(t, p, controlplane.Admin())
	config, err := p.KubeconfigFile(controlplane.Admin(), "")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := helm(t, "upgrade", release, chart, "--namespace", system, "--kubeconfig", config, "--set", "audit.enabled=true"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	until(t, "the policies refuse what the audit tries", func(context.Context) error {
		if states, texts := auditCluster(t, p); states["K8S-001"] != finding.Pass {
			return fmt.Errorf("K8S-001 is %s: %s", states["K8S-001"], texts["K8S-001"])
		}
		return nil
	})
	states, texts := auditCluster(t, p)
	for id, want := range map[string]finding.State{
		"K8S-003": finding.Pass, "K8S-004": finding.Pass, "K8S-006": finding.Pass, "K8S-007": finding.Pass, "K8S-008": finding.Pass, "K8S-028": finding.Pass,
		"K8S-009": finding.Pass, "K8S-019": finding.Pass, "K8S-023": finding.Fail, // the default image has a tag
	} {
		if states[id] != want {
			t.Errorf("%s is %s, want %s: %s", id, states[id], want, texts[id])
		}
	}
	made, err := admin.CoreV1().Pods("kata-vfio-audit-probe").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(made.Items) > 0 {
		t.Errorf("the probe namespace has %d pods, %v", len(made.Items), err)
	}
	t.Run("nothing can be made in the probe namespace", func(t *testing.T) {
		_, err := client(t, p, auditor()).CoreV1().Pods("kata-vfio-audit-probe").Create(t.Context(), pod(t, inVM+oneClaim, ""), metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "exceeded quota") {
			t.Errorf("the account may make a pod: %v", err)
		}
	})
	for policy, passes := range map[string]string{
		"tenant-pods.kata-vfio.dev":    "lets pass a pod with a claim and no RuntimeClass",
		"tenant-classes.kata-vfio.dev": "lets pass a claim by DeviceClass audit-probe.kata-vfio.dev, which is not granted to its namespace",
	} {
		t.Run("a binding of "+policy+" that only warns", func(t *testing.T) {
			bindings := admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
			patchActions := func(actions ...string) {
				t.Helper()
				raw, err := json.Marshal(map[string]any{"spec": map[string]any{"validationActions": actions}})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := bindings.Patch(t.Context(), policy, "application/merge-patch+json", raw, metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			patchActions("Warn")
			defer func() {
				patchActions("Deny")
				until(t, "the policies refuse again", func(context.Context) error {
					if states, texts := auditCluster(t, p); states["K8S-001"] != finding.Pass {
						return fmt.Errorf("K8S-001 is %s: %s", states["K8S-001"], texts["K8S-001"])
					}
					return nil
				})
			}()
			until(t, "the audit finds that "+policy+" lets pass", func(context.Context) error {
				states, texts := auditCluster(t, p)
				if states["K8S-001"] != finding.Fail || !strings.Contains(texts["K8S-001"], passes) {
					return fmt.Errorf("K8S-001 is %s: %s", states["K8S-001"], texts["K8S-001"])
				}
				return nil
			})
		})
	}
	t.Run("DeviceClasses that are granted by mistake", func(t *testing.T) { // pf, too: the audit tries any that is not
		grant := func(namespaces string) {
			t.Helper()
			if _, err := p.Kubectl(t.Context(), "annotate", "--overwrite", "deviceclass", "audit-probe.kata-vfio.dev", "pf.kata-vfio.dev", "kata-vfio.dev/namespaces="+namespaces); err != nil {
				t.Fatal(err)
			}
		}
		grant("*")
		until(t, "the audit does not try a class that is granted", func(context.Context) error {
			if states, texts := auditCluster(t, p); states["K8S-001"] != finding.Unknown || !strings.Contains(texts["K8S-001"], "was not tried") {
				return fmt.Errorf("K8S-001 is %s: %s", states["K8S-001"], texts["K8S-001"])
			}
			return nil
		})
		grant("")
		until(t, "the policies refuse the class again", func(context.Context) error {
			if states, texts := auditCluster(t, p); states["K8S-001"] != finding.Pass {
				return fmt.Errorf("K8S-001 is %s: %s", states["K8S-001"], texts["K8S-001"])
			}
			return nil
		})
	})
	t.Run("everybody may change DeviceClasses", func(t *testing.T) {
		_, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "oops"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:serviceaccounts"}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = admin.RbacV1().ClusterRoleBindings().Delete(context.Background(), "oops", metav1.DeleteOptions{})
		})
		states, texts := auditCluster(t, p)
		for _, id := range []string{"K8S-004", "K8S-006", "K8S-019"} {
			if states[id] != finding.Fail {
				t.Errorf("%s is %s: %s", id, states[id], texts[id])
			}
		}
	})
	t.Run("a tenant's privileged pod", func(t *testing.T) {
		ns := namespace(t, p)
		bad := pod(t, "", "")
		bad.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		if _, err := admin.CoreV1().Pods(ns).Create(t.Context(), bad, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		// The policies refuse it in a tenant's namespace: it is older than the label.
		if _, err := p.Kubectl(t.Context(), "label", "namespace", ns, "kata-vfio.dev/tenant=team-a"); err != nil {
			t.Fatal(err)
		}
		states, texts := auditCluster(t, p)
		if states["K8S-013"] != finding.Fail || !strings.Contains(texts["K8S-013"], ns+"/attack has the privileged container main") || states["K8S-012"] != finding.Fail {
			t.Errorf("K8S-013 is %s: %s; K8S-012 is %s", states["K8S-013"], texts["K8S-013"], states["K8S-012"])
		}
	})
	t.Logf("all rules: %v", slices.Sorted(maps.Keys(states)))
}

// clusterChecks returns all checks of a cluster.
func clusterChecks(tb testing.TB) []clusteraudit.Check {
	tb.Helper()
	rules, err := rule.ReadCatalogue()
	if err != nil {
		tb.Fatal(err)
	}
	checks, err := clusteraudit.Catalogue(rules)
	if err != nil {
		tb.Fatal(err)
	}
	return checks
}

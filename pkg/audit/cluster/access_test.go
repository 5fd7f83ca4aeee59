package cluster_test

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kata-vfio/kata-vfio/pkg/audit/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/kube/kubetest"
)

// TestServiceAccountByItsUserName: a binding can name a service account as a user, too.
func TestServiceAccountByItsUserName(t *testing.T) {
	for name, want := range map[string]finding.State{
		"system:serviceaccount:t1:default":        finding.Fail,
		"system:serviceaccount:kata-vfio:default": finding.Pass,
		"system:serviceaccount:t1":                finding.Pass,
		"alice":                                   finding.Pass,
	} {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: named("oops"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "everything"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: name}},
		}
		read, err := cluster.Read(t.Context(), kubetest.New(fake.NewClientset(binding)), cluster.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := good()
		s.Grants = append(s.Grants, read.Grants...)
		found := judge(s).Findings
		i := slices.IndexFunc(found, func(f finding.Finding) bool { return f.ID == "K8S-006" })
		if found[i].State != want {
			t.Errorf("K8S-006 is %s for user %s, want %s: %s", found[i].State, name, want, found[i].Text)
		}
	}
}

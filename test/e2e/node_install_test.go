//go:build e2e

package e2e

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// meddler is an NRI plugin that gives pods devices.
const meddler = "nri-meddler"

// install installs the plugin and makes the site's namespaces.
func (s *site) install(ctx context.Context) error {
	var err error
	if s.drivers, err = s.driversNow(ctx); err != nil {
		return err
	}
	if err := s.node.InstallPlugin(ctx, chart); err != nil {
		return err
	}
	for name, labels := range map[string]map[string]string{tenant: {"kata-vfio.dev/tenant": tenant}, trusted: nil} {
		_, err := s.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		err = s.until(ctx, "the namespace's service account is made", nodeLimit, func(ctx context.Context) error {
			_, err := s.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

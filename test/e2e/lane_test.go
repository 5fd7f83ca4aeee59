//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/e2e/binaries"
)

// kubernetesVersion is that of the control plane and the kubelet in the lane of $KATA_VFIO_LANE.
func kubernetesVersion() string {
	if binaries.Older() {
		return "v1.36.6"
	}
	return "v1.37.2"
}

// containerdVersion is that of the node's containerd in the lane of $KATA_VFIO_LANE.
func containerdVersion() string {
	if binaries.Older() {
		return "2.3.7"
	}
	return "2.4.2"
}

// newestOnly leaves out a test of what Kubernetes has from 1.37 on.
func newestOnly(t *testing.T, what string) {
	t.Helper()
	if binaries.Older() {
		t.Skipf("Kubernetes %s has no %s", kubernetesVersion(), what)
	}
}

// refusedOnOlder reports whether the older Kubernetes can't have what values ask for. There the chart must say so.
func refusedOnOlder(t *testing.T, values string, args ...string) bool {
	t.Helper()
	if !binaries.Older() || !strings.Contains(values, "sharedPool: {enabled: true") {
		return false
	}
	const want = "sharing needs DeviceTaintRules of 1.37"
	if text, err := template(t, values, args...); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the chart renders shared GPUs for %s with %v: %.200s; want %q", kubernetesVersion(), err, text, want)
	}
	return true
}

package cluster_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

// judged is what K8S-009 says of a release of Kubernetes.
func judged(t *testing.T, version string) finding.Finding {
	t.Helper()
	for _, check := range checks() {
		if check.ID == "K8S-009" {
			found := check.Judge(&cluster.State{Version: version})
			if len(found) != 1 {
				t.Fatalf("K8S-009 of %s: got %d findings, want 1", version, len(found))
			}
			return found[0]
		}
	}
	t.Fatal("got no K8S-009 in the catalogue, want it")
	return finding.Finding{}
}

// A release whose only known fault leaves a step to the operator passes, and says which.
func TestLimitOfAReleasePasses(t *testing.T) {
	const limit = `"kata-vfio-plugin drain --evict" does not evict pods that use an extended resource (fixed in 1.37.2)`
	for version, want := range map[string]string{
		"v1.36.6": "v1.36.6; " + limit, "v1.37.1+k3s1": "v1.37.1+k3s1; " + limit, "v1.37.2": "v1.37.2", "v1.38.0": "v1.38.0",
	} {
		if got := judged(t, version); got.State != finding.Pass || got.Text != want {
			t.Errorf("K8S-009 of %s: got %s %q, want %s %q", version, got.State, got.Text, finding.Pass, want)
		}
	}
	if got := judged(t, "v1.36.5"); got.State != finding.Fail || !strings.HasSuffix(got.Text, "; "+limit) {
		t.Errorf("K8S-009 of v1.36.5: got %s %q, want a failure that names the limit last", got.State, got.Text)
	}
}

// Each fault ends with the release that deploy/README.md names, and no release before.
func TestFaultsEndWithTheirReleases(t *testing.T) {
	const (
		parameters = "the parameters that a claim has from two classes apply to the wrong devices"
		gates      = "DRAPartitionableDevices and DRADeviceTaints are off by default"
		counters   = "it refuses slices with counters"
		count      = "a claim for very many devices stops kube-scheduler"
		all        = `a claim with "allocationMode: All" over pairs stops kube-scheduler`
		root       = "claims for a GPU and a VF that share a root may stay Pending"
		pools      = "a GPU may be allocated twice beside another driver whose pool has the same name"
		evict      = `"kata-vfio-plugin drain --evict" does not evict pods that use an extended resource`
	)
	for _, c := range []struct{ last, fixed, fault string }{
		{"v1.33.99", "v1.34.0", "it does not serve resource.k8s.io/v1"},
		{"v1.32.5", "v1.32.6", "mirror pods bypass the authorization of claims (CVE-2025-4563)"},
		{"v1.33.1", "v1.33.2", "mirror pods bypass the authorization of claims (CVE-2025-4563)"},
		{"v1.34.1", "v1.34.2", parameters},
		{"v1.35.99", "v1.36.0", gates},
		{"v1.34.99", "v1.35.0", counters},
		{"v1.34.12", "v1.34.13", count},
		{"v1.35.9", "v1.35.10", count},
		{"v1.36.5", "v1.36.6", count},
		{"v1.37.0", "v1.37.1", count},
		{"v1.35.5", "v1.35.6", all},
		{"v1.36.1", "v1.36.2", all},
		{"v1.36.2", "v1.36.3", root},
		{"v1.36.3", "v1.36.4", pools},
		{"v1.37.1", "v1.37.2", evict},
	} {
		if got := judged(t, c.last).Text; !strings.Contains(got, c.fault) {
			t.Errorf("K8S-009 of %s: got %q, want it to have %q", c.last, got, c.fault)
		}
		if got := judged(t, c.fixed).Text; strings.Contains(got, c.fault) {
			t.Errorf("K8S-009 of %s: got %q, want it without %q", c.fixed, got, c.fault)
		}
	}
}

// The releases that deploy/README.md and the chart ask for pass, and those just before them fail.
func TestReleasesThatTheDocumentsAskForPass(t *testing.T) {
	for version, want := range map[string]finding.State{
		"v1.35.10": finding.Fail, "v1.36.5": finding.Fail, "v1.36.6": finding.Pass, "v1.36.7-gke.1": finding.Pass,
		"v1.37.0": finding.Fail, "v1.37.1": finding.Pass, "v1.38.0": finding.Pass,
	} {
		if got := judged(t, version); got.State != want {
			t.Errorf("K8S-009 of %s: got %s %q, want %s", version, got.State, got.Text, want)
		}
	}
}

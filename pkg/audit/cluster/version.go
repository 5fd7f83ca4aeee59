package cluster

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

func versionCheck() Check {
	return Check{ID: "K8S-009", Judge: serverVersion}
}

// fault is a fault of Kubernetes 1.x: it exists from minor version since on, in all patch releases before those that fix it. A
// minor version between since and the last one in fixed that is not in fixed never got the fix.
type fault struct {
	what  string
	since int
	fixed map[int]int // the first patch release without the fault, by minor version
}

// faults returns the faults of the API server and the scheduler that affect our claims and slices. Each was reproduced with
// Kubernetes' own allocator or validation, or is described in the named pull request.
func faults() []fault {
	return []fault{
		{"it does not serve resource.k8s.io/v1", 0, map[int]int{34: 0}},
		{"mirror pods bypass the authorization of claims (CVE-2025-4563)", 32, map[int]int{32: 6, 33: 2}},
		{"the parameters that a claim has from two classes apply to the wrong devices", 34, map[int]int{34: 2}},
		{"DRAPartitionableDevices and DRADeviceTaints are off by default, without which the plugin publishes no devices", 34, map[int]int{36: 0}},
		{"it refuses slices with counters, which pairs and PFs beside their VFs have", 34, map[int]int{35: 0}},
		{"a claim for very many devices stops kube-scheduler", 34, map[int]int{34: 13, 35: 10, 36: 6, 37: 1}},
		{`a claim with "allocationMode: All" over pairs stops kube-scheduler`, 35, map[int]int{35: 6, 36: 2}},
		{"claims for a GPU and a VF that share a root may stay Pending", 35, map[int]int{36: 3}},
		{"a GPU may be allocated twice beside another driver whose pool has the same name", 34, map[int]int{36: 4}},
	}
}

// limits returns faults that need an extra step of an operator, and don't affect tenants. A release that has only such faults passes.
func limits() []fault {
	return []fault{
		{`"kata-vfio-plugin drain --evict" does not evict pods that use an extended resource (fixed in 1.37.2)`, 34, map[int]int{37: 2}},
	}
}

// affects reports whether a release has the fault.
func (f fault) affects(minor, patch int) bool {
	if fixed, ok := f.fixed[minor]; ok {
		return patch < fixed
	}
	last := 0
	for m := range f.fixed {
		last = max(last, m)
	}
	return minor >= f.since && minor < last
}

func serverVersion(s *State) []finding.Finding {
	var minor, patch int
	// Sscanf ignores what follows the numbers, such as "+k3s1" or "-gke.1000".
	if _, err := fmt.Sscanf(s.Version, "v1.%d.%d", &minor, &patch); err != nil {
		return unknown("the audit does not know Kubernetes version " + s.Version)
	}
	bearable := present(limits(), minor, patch)
	if has := present(faults(), minor, patch); len(has) > 0 {
		return []finding.Finding{fail("", "Kubernetes is "+s.Version+": "+strings.Join(append(has, bearable...), "; "), saw("/version", s.Version))}
	}
	return pass(strings.Join(append([]string{s.Version}, bearable...), "; "))
}

// present returns which of the faults a release has, in words.
func present(all []fault, minor, patch int) []string {
	var has []string
	for _, f := range all {
		if f.affects(minor, patch) {
			has = append(has, f.what)
		}
	}
	return has
}

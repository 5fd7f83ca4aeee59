package facts_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// The versions are those of running systems.
func TestChangesInKernels(t *testing.T) {
	const has, lacks, unknown = facts.ChangeIn, facts.ChangeMissing, facts.ChangeUnknown
	for _, c := range []struct {
		release, version string
		opens, mappings  facts.ChangeState
	}{
		{"6.17.0", "", has, has},
		{"6.17.0-rc3", "", unknown, unknown},
		{"6.17.0-0.rc3.20250829git07d9df80082b.34.fc44.x86_64", "", unknown, unknown},
		{"6.17.0-5-generic", "Linux version 6.17.0-5-generic (buildd@lcy02) #5-Ubuntu SMP PREEMPT_DYNAMIC", has, has},
		{"7.2.12+deb13-amd64", "", has, has},
		{"6.16.0", "", lacks, has},
		{"6.16.1-arch1-1", "", has, has},
		{"6.15.9-201.fc42.x86_64", "", lacks, has},
		{"6.15.10-200.fc42.x86_64", "", has, has},
		{"6.14.11", "", lacks, lacks},
		{"6.14.0-29-generic", "Linux version 6.14.0-29-generic #29~24.04.1-Ubuntu SMP", unknown, unknown},
		{"6.14.11-4-pve", "Linux version 6.14.11-4-pve (build@proxmox)", unknown, unknown},
		{"6.12.41+deb13-amd64", "Linux version 6.12.41+deb13-amd64 (debian-kernel@lists.debian.org) #1 SMP PREEMPT_DYNAMIC Debian 6.12.41-1 (2025-08-12)", lacks, lacks},
		{"6.12.43+deb13-amd64", "", has, lacks},
		{"6.12.117+deb12-amd64", "Linux version 6.12.117+deb12-amd64 #1 SMP Debian 6.12.117-1~deb12u1 (2026-11-10)", has, lacks},
		{"6.12.41-flatcar", "", lacks, lacks},
		{"6.12.45-talos", "", has, lacks},
		{"6.12.0-124.8.1.el10_1.x86_64", "Linux version 6.12.0-124.8.1.el10_1.x86_64 (mockbuild@x86-64) #1 SMP", unknown, unknown},
		{"6.12.0-160000.5-default", "", unknown, unknown},
		{"6.8.0-64-generic", "Linux version 6.8.0-64-generic (buildd@lcy02-amd64-083) #67-Ubuntu SMP PREEMPT_DYNAMIC", unknown, unknown},
		{"6.8.12", "", lacks, lacks},
		{"6.6.101", "", lacks, lacks},
		{"6.6.102", "", has, lacks},
		{"6.6.110-something", "", has, unknown},
		{"6.1.0-37-amd64", "Linux version 6.1.0-37-amd64 (debian-kernel@lists.debian.org) #1 SMP PREEMPT_DYNAMIC Debian 6.1.140-1 (2025-05-22)", lacks, lacks},
		{"6.1.0-56-amd64", "Linux version 6.1.0-56-amd64 (debian-kernel@lists.debian.org) #1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2 (2026-11-15)", has, lacks},
		{"6.1.0-37-amd64", "", unknown, unknown},
		{"6.1.150-174.273.amzn2023.x86_64", "", has, unknown},
		{"6.1.141-155.222.amzn2023.x86_64", "", unknown, unknown},
		{"5.15.189", "", unknown, lacks},
		{"5.15.0-151-generic", "", unknown, unknown},
		{"5.14.0-570.el9_6.x86_64", "", unknown, unknown},
		{"5.10.0-35-amd64", "Linux version 5.10.0-35-amd64 #1 SMP Debian 5.10.237-1 (2025-05-19)", lacks, lacks},
		{"4.18.0-553.el8_10.x86_64", "", unknown, unknown},
		{"", "", unknown, unknown},
		{"6", "", unknown, unknown},
		{"6.x.1", "", unknown, unknown},
		{"custom", "", unknown, unknown},
	} {
		k := facts.Kernel{Release: c.release, Version: c.version}
		if got := facts.ParallelOpens().In(k); got != c.opens {
			t.Errorf("%q %q: parallel opens %d, want %d", c.release, c.version, got, c.opens)
		}
		if got := facts.LargeMappings().In(k); got != c.mappings {
			t.Errorf("%q %q: large mappings %d, want %d", c.release, c.version, got, c.mappings)
		}
	}
}

func TestChangeNamesItsReleases(t *testing.T) {
	for change, words := range map[*facts.KernelChange][]string{
		new(facts.ParallelOpens()): {"6.17 or later", "6.12.42", "6.1.148"},
		new(facts.LargeMappings()): {"6.15 or later;"},
	} {
		for _, word := range words {
			if !strings.Contains(change.Fix(), word) {
				t.Errorf("%s: the fix does not name %q: %s", change, word, change.Fix())
			}
		}
	}
}

func TestQEMUAlignsMappingsSince9_2(t *testing.T) {
	for version, want := range map[string]facts.ChangeState{
		"v11.0.1": facts.ChangeIn, "10.0.13": facts.ChangeIn, "v9.2.0": facts.ChangeIn, "9.2": facts.ChangeIn,
		"v9.1.2": facts.ChangeMissing, "8.2.2": facts.ChangeMissing, "7.2": facts.ChangeMissing,
		"": facts.ChangeUnknown, "gpu-snp-20260430": facts.ChangeUnknown, "v9.2.0-rc1": facts.ChangeUnknown,
	} {
		if got := facts.AlignsMappings(version); got != want {
			t.Errorf("%q: %d, want %d", version, got, want)
		}
	}
}

func TestKataQEMUIsInItsVersions(t *testing.T) {
	version, err := facts.KataQEMU([]byte("assets:\n  hypervisor:\n    qemu:\n      description: VMM\n      version: v11.0.1\n    qemu-snp-experimental:\n      tag: x\n"))
	if err != nil || version != "v11.0.1" {
		t.Errorf("%q, %v", version, err)
	}
	if version, err := facts.KataQEMU([]byte("assets: {}\n")); err != nil || version != "" {
		t.Errorf("no QEMU: %q, %v", version, err)
	}
	if _, err := facts.KataQEMU([]byte("assets: [\n")); err == nil {
		t.Error("damaged YAML is accepted")
	}
}

package check_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// runs makes a board's kernel another one.
func runs(release, version string) func(*board.Tree) {
	return func(t *board.Tree) {
		t.Put("proc/sys/kernel/osrelease", release+"\n")
		t.Put("proc/version", version+"\n")
	}
}

// ships makes a board's Kata one that ships a version of QEMU.
func ships(version string) func(*board.Tree) {
	return func(t *board.Tree) {
		t.Put("opt/kata/versions.yaml", "assets:\n  hypervisor:\n    qemu:\n      version: "+version+"\n")
	}
}

func vfioSpeedFaults() []fault {
	const debian = "Linux version 6.1.0-37-amd64 (debian-kernel@lists.debian.org) #1 SMP Debian 6.1.140-1 (2025-05-22)"
	return []fault{
		{rule: "VFIO-022", about: "Debian's old kernel", board: board.Server, plant: runs("6.1.0-37-amd64", debian)},
		{rule: "VFIO-022", about: "kernel.org's old kernel", board: board.Server, plant: runs("6.12.41", "")},
		{rule: "VFIO-022", about: "the stable release", board: board.Server, state: finding.Pass, plant: runs("6.12.42", "")},
		{rule: "VFIO-022", about: "Ubuntu's kernel", board: board.Server, state: finding.Manual, plant: runs("6.8.0-64-generic", "")},
		{rule: "VFIO-022", about: "no kernel", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) { t.Delete("proc/sys/kernel/osrelease") }},
		{rule: "VFIO-023", about: "a stable release", board: board.Server, device: "", plant: runs("6.12.117+deb13-amd64", "")},
		{rule: "VFIO-023", about: "a later kernel", board: board.Server, state: finding.Pass, plant: runs("6.15.2", "")},
		{rule: "VFIO-023", about: "Red Hat's kernel", board: board.Server, state: finding.Manual, plant: runs("5.14.0-570.el9_6.x86_64", "")},
		{rule: "VFIO-023", about: "iommufd", board: board.Server, state: finding.NotApplicable, plant: func(t *board.Tree) { t.WithIOMMUFD() }},
		{rule: "RT-033", about: "an old release of Kata", board: board.Server, plant: ships("v9.1.2")},
		{rule: "RT-033", about: "a release of Kata", board: board.Server, state: finding.Pass, plant: ships("v11.0.1")},
		{rule: "RT-033", about: "no versions", board: board.Server, state: finding.Manual, plant: func(*board.Tree) {}},
		{rule: "RT-033", about: "another QEMU", board: board.Server, state: finding.Manual, plant: func(t *board.Tree) {
			ships("v11.0.1")(t)
			t.AddToKata("[hypervisor.qemu]\npath = '/opt/kata/bin/qemu-system-x86_64-snp-experimental'\n")
		}},
	}
}

// TestSpeedFindingsAreInformation: no gate fails for a slow start, and the fix names a version.
func TestSpeedFindingsAreInformation(t *testing.T) {
	tree := board.Server(t)
	runs("6.12.41", "")(tree)
	ships("v9.1.2")(tree)
	failed := map[string]string{}
	for _, f := range audit(t, tree).Findings {
		if f.State != finding.Fail {
			continue
		}
		failed[f.ID] = f.Remediation
		if f.ID == "VFIO-022" && f.Severity != rule.Info {
			t.Errorf("%s is %s", f.ID, f.Severity)
		}
	}
	for id, version := range map[string]string{"VFIO-022": "6.12.42", "VFIO-023": "6.15", "RT-033": "QEMU 9.2"} {
		if !strings.Contains(failed[id], version) {
			t.Errorf("the fix of %s does not name %s: %q", id, version, failed[id])
		}
	}
}

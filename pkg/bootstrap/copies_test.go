package bootstrap_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
)

// A kernel that is installed after apply copies the arguments. Revert leaves them nowhere, and what the entry had besides stays.
func TestRevertRemovesArgumentsFromEntriesThatCopiedThem(t *testing.T) {
	for name, c := range map[string]struct{ distribution, entry, copy string }{
		"RHEL":         {"RHEL 9", "boot/loader/entries/m-5.14.0.conf", "boot/loader/entries/m-5.14.1.conf"},
		"systemd-boot": {"Debian 13, systemd-boot", "boot/efi/loader/entries/id-6.12.9-1.conf", "boot/efi/loader/entries/id-6.12.10-1.conf"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, files(c.distribution))
			n.put("proc/cmdline", "ro\n")
			n.put(c.copy, strings.Replace(n.read(c.entry), "ro crashkernel", "ro mitigations=auto crashkernel", 1))
			before := n.snapshot()
			n.remove(c.copy)
			n.apply(blueprint.Default())
			n.put(c.copy, strings.Replace(n.read(c.entry), "ro crashkernel", "ro mitigations=auto crashkernel", 1))
			if r := n.revert(); len(r.Kept) > 0 {
				t.Errorf("kept %+v", r.Kept)
			}
			n.same(before, "after revert")
			status, err := n.engine().Status()
			if err != nil || len(status.Files) > 0 {
				t.Errorf("status %+v, %v", status, err)
			}
		})
	}
}

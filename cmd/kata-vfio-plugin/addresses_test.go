package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// TestWhereAddressesComeFrom: the plan names the pool, status what came of it,
// and the way back returns it.
func TestWhereAddressesComeFrom(t *testing.T) {
	root := newRoot(t)
	args := []string{"plan", "--root", root, "--config", "testdata/pool-node.yaml", "-f", "testdata/pool-claim.yaml"}
	got := invoke(t, args...)
	for _, want := range []string{"vf-0000-21-02-0 has addresses from pool tenants (host-local)\n", "takeAddress  0000:21:02.0  vfio-pci       from pool tenants\n"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("plan lacks %q:\n%s%s", want, got.stdout, got.stderr)
		}
	}
	rec := journal.Record{Kind: journal.Claim, State: journal.Prepared, BootID: "boot-1"}
	if err := json.Unmarshal([]byte(invoke(t, append(args, "-o", "json")...).stdout), &rec.Plan); err != nil {
		t.Fatal(err)
	}
	rec.Plan.Devices[0].Network = &v1alpha1.GuestNetwork{Addresses: []string{"192.0.2.10/24"}}
	store, err := journal.Open(filepath.Join(root, "var/lib/kata-vfio/journal"))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Save(&rec); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ args, want string }{
		{"status", "\nvf-0000-21-02-0 of " + rec.ID() + " has 192.0.2.10/24 from pool tenants\n"},
		{"status -o json", `"addressPool": "tenants"`},
		{"unprepare --dry-run " + rec.ID(), "to pool tenants\n"},
	} {
		got := invoke(t, append(strings.Fields(tt.args), "--root", root)...)
		if !strings.Contains(got.stdout, tt.want) || got.code != 0 {
			t.Errorf("%s lacks %q:\n%s%s", tt.args, tt.want, got.stdout, got.stderr)
		}
	}
	left := invoke(t, "unprepare", "--dry-run", "--leave-addresses", rec.ID(), "--root", root)
	if strings.Contains(left.stdout, "to pool tenants") || left.code != 0 {
		t.Errorf("unprepare --leave-addresses would return addresses:\n%s%s", left.stdout, left.stderr)
	}
}

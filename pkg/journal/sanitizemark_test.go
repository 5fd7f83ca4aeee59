package journal_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
)

// twoGPUs is a node with two GPUs of one model without serial numbers.
func twoGPUs() *device.Snapshot {
	gpu := func(bus uint8) device.Function {
		return device.Function{Address: pci.Address{Bus: bus}, Vendor: 0x10de, Device: 0x2330, Root: "pci0000:00", Upstream: []pci.Address{{Device: bus}}}
	}
	return &device.Snapshot{Host: device.Host{BootID: "boot-2"}, Functions: []device.Function{gpu(1), gpu(2)}}
}

func mark(id device.Identity, claim string) journal.SanitizeMark {
	return journal.SanitizeMark{Address: pci.Address{Bus: 9}, Identity: id, Claim: journal.ClaimName{UID: claim}}
}

// TestMarkNamesOnlyTheLastTenant: the claim of a mark may get its function again, so it must be certain that no other had it.
func TestMarkNamesOnlyTheLastTenant(t *testing.T) {
	snap := twoGPUs()
	first, second := snap.Identify(&snap.Functions[0]), snap.Identify(&snap.Functions[1])
	moved := first
	moved.Slot = "pci0000:00/1f.0/00.0" // it may be any of the two
	failed := mark(first, "a")
	failed.Failed = &journal.FailedStage{Verdict: sanitize.Dirty}
	for name, tt := range map[string]struct {
		marks  []journal.SanitizeMark
		want   map[*device.Identity]string // the claim by function
		failed bool                        // of the first
	}{
		"of one function":             {marks: []journal.SanitizeMark{mark(first, "a")}, want: map[*device.Identity]string{&first: "a"}},
		"of one that can't be told":   {marks: []journal.SanitizeMark{mark(moved, "a")}, want: map[*device.Identity]string{&first: "", &second: ""}},
		"of one, and perhaps of both": {marks: []journal.SanitizeMark{mark(first, "a"), mark(moved, "b")}, want: map[*device.Identity]string{&first: "", &second: ""}},
		"perhaps of both, and of one": {marks: []journal.SanitizeMark{mark(moved, "b"), mark(first, "a")}, want: map[*device.Identity]string{&first: "", &second: ""}},
		"two of two tenants":          {marks: []journal.SanitizeMark{mark(first, "a"), mark(first, "b")}, want: map[*device.Identity]string{&first: ""}},
		"two of one tenant":           {marks: []journal.SanitizeMark{mark(first, "a"), mark(first, "a")}, want: map[*device.Identity]string{&first: "a"}},
		"a failed stage last":         {marks: []journal.SanitizeMark{mark(first, "b"), failed}, want: map[*device.Identity]string{&first: ""}, failed: true},
		"a failed stage first":        {marks: []journal.SanitizeMark{failed, mark(first, "b")}, want: map[*device.Identity]string{&first: ""}, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			got := journal.Unsanitized(tt.marks, snap)
			if len(got) != len(tt.want) {
				t.Errorf("got %d marked functions, want %d", len(got), len(tt.want))
			}
			for id, claim := range tt.want {
				m := got[snap.Find(*id).Function.Address]
				if m == nil || m.Claim.UID != claim {
					t.Errorf("mark of %s: got %+v, want one of claim %q", id.Slot, m, claim)
				}
			}
			if m := got[pci.Address{Bus: 1}]; m != nil && (m.Failed != nil) != tt.failed {
				t.Errorf("failed: got %+v, want %v", m.Failed, tt.failed)
			}
		})
	}
}

// TestMarkFollowsItsFunction: firmware may give a device another address at the next boot, and its old mark must not stay.
func TestMarkFollowsItsFunction(t *testing.T) {
	store, err := journal.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	snap := twoGPUs()
	first, second := snap.Identify(&snap.Functions[0]), snap.Identify(&snap.Functions[1])
	for _, m := range []journal.SanitizeMark{
		{Address: pci.Address{Bus: 7}, Identity: first, Claim: journal.ClaimName{UID: "a"}},
		{Address: pci.Address{Bus: 8}, Identity: second, Claim: journal.ClaimName{UID: "b"}},
		{Address: pci.Address{Bus: 1}, Identity: first, Claim: journal.ClaimName{UID: "c"}},
	} {
		if err := store.MarkUnsanitized(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	marks, err := store.Unsanitized()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range marks {
		got = append(got, marks[i].Address.String()+" "+marks[i].Claim.UID)
	}
	if want := []string{"0000:01:00.0 c", "0000:08:00.0 b"}; len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %q, want %q", got, want)
	}
}

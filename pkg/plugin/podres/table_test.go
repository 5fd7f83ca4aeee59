package podres_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/podres"
)

// node is a journal and a CDI directory.
type node struct {
	t       *testing.T
	dir     string
	records *journal.Store
	specs   *cdi.Dir
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir()}
	var err error
	if n.records, err = journal.Open(filepath.Join(n.dir, "journal")); err != nil {
		t.Fatal(err)
	}
	if n.specs, err = cdi.Open(filepath.Join(n.dir, "cdi")); err != nil {
		t.Fatal(err)
	}
	return n
}

// table is a table of its own, as another instance of the plugin has one.
func (n *node) table() *podres.Table {
	n.t.Helper()
	records, err := journal.Open(filepath.Join(n.dir, "journal"))
	if err != nil {
		n.t.Fatal(err)
	}
	return podres.NewTable(podres.TableConfig{
		Journal: records, Specs: n.specs, BootID: thisBoot, Node: "worker-1",
		JournalDir: filepath.Join(n.dir, "journal"), SpecsDir: filepath.Join(n.dir, "cdi"),
	})
}

func (n *node) view(table *podres.Table) *podres.View {
	n.t.Helper()
	v, err := table.View()
	if err != nil {
		n.t.Fatal(err)
	}
	return v
}

// tableRecord is a claim with a GPU for the pod db-0, prepared.
func tableRecord(uid, podUID string) *journal.Record {
	return &journal.Record{
		Kind: journal.Claim, State: journal.Prepared, BootID: thisBoot,
		Plan: plan.Plan{
			Claim:   plan.Ref{UID: uid, Namespace: "tenant-a", Name: "claim-" + uid, Pods: []claim.Pod{{UID: podUID, Name: "db-0"}}},
			Devices: []plan.Device{{Request: "gpu", Pool: "worker-1/kata-vfio.dev", Name: gpu, Address: pci.Address{Bus: 0x3b}}},
		},
	}
}

func (n *node) save(r *journal.Record) {
	n.t.Helper()
	if err := n.records.Save(r); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) prepared(uid, podUID, node string) {
	n.t.Helper()
	r := tableRecord(uid, podUID)
	n.save(r)
	n.writeSpec(r, node)
}

func (n *node) write(file, content string) {
	n.t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) writeSpec(r *journal.Record, node string) {
	n.t.Helper()
	spec, err := cdi.Spec(&r.Plan, [][]cdi.Node{{{Path: node, Major: 511, Minor: 3}}})
	if err != nil {
		n.t.Fatal(err)
	}
	if err := n.specs.Write(r.ID(), spec); err != nil {
		n.t.Fatal(err)
	}
}

func TestViewFindsADeviceByPodNodeAndCDIName(t *testing.T) {
	n := newNode(t)
	r := tableRecord("c1", "p1")
	n.save(r)
	n.writeSpec(r, "/dev/vfio/15")
	v := n.view(n.table())
	want := &podres.Assignment{
		Claim: r.Plan.Claim, State: journal.Prepared,
		Devices: []podres.Device{{
			Request: "gpu", Pool: "worker-1/kata-vfio.dev", Name: gpu, Published: gpu, Address: pci.Address{Bus: 0x3b},
			CDI: "kata-vfio.dev/vfio=c1-" + gpu, Nodes: []string{"/dev/vfio/15"},
		}},
	}
	byCDI, _ := v.WithCDI(want.Devices[0].CDI)
	for how, got := range map[string][]*podres.Assignment{
		"all": v.All(), "pod": v.OfPod("p1"), "node": v.WithNode("/dev/vfio/15"), "CDI": {byCDI},
	} {
		if diff := cmp.Diff([]*podres.Assignment{want}, got); diff != "" {
			t.Errorf("by %s (-want +got):\n%s", how, diff)
		}
	}
	if !want.Usable() {
		t.Error("a prepared claim with its node is not usable")
	}
	if got := v.OfPod("p2"); got != nil {
		t.Errorf("another pod has %v", got)
	}
	if _, ok := v.WithCDI("kata-vfio.dev/vfio=c2-" + gpu); ok {
		t.Error("a CDI name of no claim is known")
	}
}

// A StatefulSet's pod comes back under its name while the old one's claim is
// not unprepared.
func TestPodsOfOneNameAreToldApart(t *testing.T) {
	n := newNode(t)
	n.save(tableRecord("c1", "p1"))
	n.save(tableRecord("c2", "p2"))
	n.save(tableRecord("c3", "p2"))
	v := n.view(n.table())
	if diff := cmp.Diff([]string{"p1", "p2"}, v.PodUIDs("tenant-a", "db-0")); diff != "" {
		t.Errorf("PodUIDs (-want +got):\n%s", diff)
	}
	if got := v.OfPod("p2"); len(got) != 2 || got[0].Claim.UID != "c2" || got[1].Claim.UID != "c3" {
		t.Errorf("the second pod has %v", got)
	}
	if got := v.PodUIDs("tenant-b", "db-0"); got != nil {
		t.Errorf("another namespace's pod has UIDs %v", got)
	}
}

func TestTableHidesUnassignableDevices(t *testing.T) {
	for name, change := range map[string]func(*journal.Record){
		"being released":  func(r *journal.Record) { r.State = journal.Releasing },
		"quarantined":     func(r *journal.Record) { r.State = journal.Quarantined },
		"of another boot": func(r *journal.Record) { r.BootID = "older" },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			r := tableRecord("c1", "p1")
			change(r)
			n.save(r)
			n.writeSpec(r, "/dev/vfio/15")
			v := n.view(n.table())
			if a := v.OfPod("p1"); len(a) != 1 || a[0].Usable() {
				t.Errorf("OfPod = %v, want one that is not usable", a)
			}
			if got := v.WithNode("/dev/vfio/15"); got != nil {
				t.Errorf("its node belongs to %v", got)
			}
		})
	}
	t.Run("without a spec", func(t *testing.T) {
		n := newNode(t)
		n.save(tableRecord("c1", "p1"))
		if a := n.view(n.table()).OfPod("p1"); len(a) != 1 || a[0].Usable() {
			t.Errorf("OfPod = %v, want one that is not usable", a)
		}
	})
}

// What another instance writes is seen, and what does not change costs nothing.
func TestViewFollowsTheFiles(t *testing.T) {
	n := newNode(t)
	table := n.table()
	first := n.view(table)
	r := tableRecord("c1", "p1")
	n.save(r)
	n.writeSpec(r, "/dev/vfio/15")
	second := n.view(table)
	if second == first || len(second.WithNode("/dev/vfio/15")) != 1 {
		t.Fatal("a new claim is not seen")
	}
	if again := n.view(table); again != second {
		t.Error("the view was made again though nothing changed")
	}
	n.writeSpec(r, "/dev/vfio/devices/vfio7")
	if third := n.view(table); len(third.WithNode("/dev/vfio/devices/vfio7")) != 1 || third.WithNode("/dev/vfio/15") != nil {
		t.Error("a spec that was written again is not seen")
	}
	if err := n.records.Delete("c1"); err != nil {
		t.Fatal(err)
	}
	if last := n.view(table); last.OfPod("p1") != nil {
		t.Error("a claim that is gone is still there")
	}
}

// TestDamagedFileConcernsItsClaim: a record or spec that can't be read, for example after a rollback of the plugin, leaves the
// other claims with their devices.
func TestDamagedFileConcernsItsClaim(t *testing.T) {
	newer := `{"version": 99, "sha256": "", "record": {}}`
	for name, tt := range map[string]struct {
		file, content string
		unread        bool // the record
	}{
		"record":       {"journal/c1.json", "{", true},
		"newer record": {"journal/c1.json", newer, true},
		"CDI spec":     {"cdi/kata-vfio.dev-vfio_c1.json", "{", false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.prepared("c1", "p1", "/dev/vfio/15")
			n.prepared("c2", "p2", "/dev/vfio/16")
			file := filepath.Join(n.dir, tt.file)
			whole, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			n.write(file, tt.content)
			table := n.table()
			v := n.view(table)
			if a := v.WithNode("/dev/vfio/16"); len(a) != 1 || !a[0].Usable() {
				t.Errorf("the other claim has %v", a)
			}
			if a := v.WithNode("/dev/vfio/15"); a != nil {
				t.Errorf("its own node belongs to %v", a)
			}
			own := v.OfPod("p1")
			if unread := v.Unread(); tt.unread && (len(own) > 0 || unread == nil || !strings.Contains(unread.Error(), file)) {
				t.Errorf("Unread = %v, its pod has %v; want the file named", unread, own)
			}
			if !tt.unread && (v.Unread() != nil || len(own) != 1 || own[0].Usable() || !strings.Contains(own[0].SpecFault, filepath.Base(file))) {
				t.Errorf("Unread = %v, its pod has %v; want the spec's file named", v.Unread(), own)
			}
			n.write(file, string(whole))
			if v := n.view(table); v.Unread() != nil || len(v.WithNode("/dev/vfio/15")) != 1 {
				t.Errorf("Unread = %v, the node belongs to %v; want the file that was put back", v.Unread(), v.WithNode("/dev/vfio/15"))
			}
		})
	}
}

func TestUnreadableJournalIsAnError(t *testing.T) {
	n := newNode(t)
	dir := filepath.Join(n.dir, "journal")
	table := n.table()
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	n.write(dir, "")
	if v, err := table.View(); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("View = %v, %v; want an error that names the directory", v, err)
	}
}

func TestSandboxesTellWhetherDevicesAreClean(t *testing.T) {
	a := &podres.Assignment{}
	if !a.CleanFor("s1") {
		t.Error("devices that nobody had are not clean")
	}
	a.Sandbox = &journal.Sandbox{ID: "s1"}
	if !a.CleanFor("s1") || a.CleanFor("s2") {
		t.Error("want clean for its own sandbox alone")
	}
}

// TestWithdrawnClaimsAreNotUsable: what is prepared and not allocated to the claim is nobody's
// to have, also in a view that was made before that was known.
func TestWithdrawnClaimsAreNotUsable(t *testing.T) {
	n := newNode(t)
	r := tableRecord("c1", "p1")
	n.save(r)
	n.writeSpec(r, "/dev/vfio/15")
	table := n.table()
	for _, why := range []string{"", "its allocation was withdrawn", "it is allocated elsewhere now", ""} {
		table.Withdraw("c1", why)
		table.Withdraw("c2", "of a claim that is not here")
		if a := n.view(table).OfPod("p1")[0]; a.Usable() != (why == "") || a.Withdrawn != why {
			t.Errorf("withdrawn %q: usable %t, %q", why, a.Usable(), a.Withdrawn)
		}
	}
}

// TestDevicesOfAnotherNodesPoolAreNotUsable, as records had them before pools were compared.
func TestDevicesOfAnotherNodesPoolAreNotUsable(t *testing.T) {
	for pool, usable := range map[string]bool{
		"worker-1/kata-vfio.dev": true, "worker-1": true, "worker-1/pf-0000-21-00-0": true, "worker-1/kata-vfio.dev/pf-0000-21-00-0": true, "worker-2": false, "worker-10": false, "worker-2/pf-0000-21-00-0": false,
	} {
		n := newNode(t)
		r := tableRecord("c1", "p1")
		r.Plan.Devices[0].Pool = pool
		n.save(r)
		n.writeSpec(r, "/dev/vfio/15")
		table := n.table()
		if a := n.view(table).OfPod("p1")[0]; a.Usable() != usable {
			t.Errorf("pool %s: usable %t, %q", pool, a.Usable(), a.Withdrawn)
		}
	}
}

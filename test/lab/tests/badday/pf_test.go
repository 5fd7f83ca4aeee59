//go:build lab

package badday_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// pfStage is a PF with two VFs, the second of which has settings before any claim, and what the machine was like then.
type pfStage struct {
	*node.Node
	pf, vf   string // the PF's interface, the second VF's address
	vfs      []string
	bindings map[string]plan.Binding
}

func openPF(t *testing.T) *pfStage {
	t.Helper()
	kernel.VFs(t, topology.PF0, "2")
	s := &pfStage{Node: stage.Open(t, stage.Config()), pf: kernel.LinkUp(t, topology.PF0), vf: topology.VF(topology.PF0, 1)}
	run(t, "ip", "link", "set", s.pf, "vf", "1", "mac", "02:00:5e:00:00:99", "vlan", "7", "max_tx_rate", "90")
	s.vfs, s.bindings = stage.VFs(t, s.Node), stage.Bindings(t)
	return s
}

// request asks for the second VF.
func (s *pfStage) request(t *testing.T, cfg v1alpha1.VFConfig) *claim.Request {
	t.Helper()
	cfg.Default()
	req := stage.Request(t, uid, s.vf)
	req.Devices[0].VF = &cfg
	return req
}

func (s *pfStage) prepare(t *testing.T, cfg v1alpha1.VFConfig) {
	t.Helper()
	if _, err := s.Preparer.Prepare(t.Context(), s.request(t, cfg)); err != nil {
		t.Fatal(err)
	}
}

// tenants are settings that igb has.
func tenants() v1alpha1.VFConfig {
	return v1alpha1.VFConfig{VLAN: new(100), VLANQoS: new(3), MaxTxRate: new(50), Trust: new(true)}
}

// staysPending checks that the claim could not be taken back, and says why in one line.
func (s *pfStage) staysPending(t *testing.T, words ...string) {
	t.Helper()
	_, err := s.Preparer.Unprepare(t.Context(), uid)
	stage.Says(t, err, append(words, topology.PF0)...)
	oneLine(t, err, words[0])
	rec, err := s.Parts.Journal.Load(uid)
	if err != nil || rec == nil || rec.State != journal.Cleaned {
		t.Fatalf("the record is %+v, %v; want it cleaned and kept", rec, err)
	}
	if got := kernel.Driver(t, s.vf); got != "vfio-pci" {
		t.Errorf("%s is on %q, with a tenant's settings; want it out of others' reach", s.vf, got)
	}
}

// isBack takes the claim back, and checks that all is as it was before.
func (s *pfStage) isBack(t *testing.T) {
	t.Helper()
	if _, err := s.Preparer.Unprepare(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	stage.Unchanged(t, s.bindings)
	if diff := cmp.Diff(s.vfs, stage.VFs(t, s.Node)); diff != "" {
		t.Errorf("what the PF imposes (-before +after):\n%s", diff)
	}
}

// TestPFWithoutALink: igb takes no rates then (of a link that it believes to have no speed), and all other settings.
func TestPFWithoutALink(t *testing.T) {
	t.Run("at Prepare", func(t *testing.T) {
		s := openPF(t)
		run(t, "ip", "link", "set", s.pf, "down")
		_, err := s.Preparer.Prepare(t.Context(), s.request(t, tenants()))
		stage.Says(t, err, "txRate", "has no link", "bring the PF's link up", topology.PF0)
		stage.Empty(t, s.Node)
		without := tenants()
		without.MaxTxRate = nil
		s.prepare(t, without)
		s.isBack(t)
	})
	t.Run("at Unprepare", func(t *testing.T) {
		s := openPF(t)
		s.prepare(t, tenants())
		run(t, "ip", "link", "set", s.pf, "down")
		s.staysPending(t, "txRate", "has no link", "bring the PF's link up")
		kernel.LinkUp(t, topology.PF0)
		s.isBack(t)
	})
	t.Run("for a while", func(t *testing.T) {
		s := openPF(t)
		s.prepare(t, tenants())
		want := stage.VFs(t, s.Node)
		run(t, "ip", "link", "set", s.pf, "down")
		kernel.LinkUp(t, topology.PF0)
		if diff := cmp.Diff(want, stage.VFs(t, s.Node)); diff != "" {
			t.Errorf("after the link came back (-prepared +now):\n%s", diff)
		}
		s.isBack(t)
	})
}

// TestPFIsRenamed while a claim has a VF: interfaces go by their function.
func TestPFIsRenamed(t *testing.T) {
	s := openPF(t)
	s.prepare(t, tenants())
	run(t, "ip", "link", "set", s.pf, "name", s.pf+"new") // for good: what the VF's driver makes may take the old name
	s.prepare(t, tenants())                               // again
	s.isBack(t)
}

// TestPFIsInAnotherNamespace, as when somebody gave it to a container.
func TestPFIsInAnotherNamespace(t *testing.T) {
	run(t, "ip", "netns", "add", "elsewhere")
	t.Cleanup(func() { run(t, "ip", "netns", "delete", "elsewhere") })
	away := func(t *testing.T, s *pfStage) { run(t, "ip", "link", "set", s.pf, "netns", "elsewhere") }
	back := func(t *testing.T, s *pfStage) {
		run(t, "ip", "-n", "elsewhere", "link", "set", s.pf, "netns", "1")
		kernel.LinkUp(t, topology.PF0)
	}
	t.Run("at Prepare", func(t *testing.T) {
		s := openPF(t)
		away(t, s)
		_, err := s.Preparer.Prepare(t.Context(), s.request(t, tenants()))
		stage.Says(t, err, "no network interface on this node", "move its interface back", topology.PF0)
		stage.Empty(t, s.Node)
		back(t, s)
		s.prepare(t, tenants())
		s.isBack(t)
	})
	t.Run("at Unprepare", func(t *testing.T) {
		s := openPF(t)
		s.prepare(t, tenants())
		away(t, s)
		s.staysPending(t, "no network interface", "another network namespace")
		back(t, s)
		s.isBack(t)
	})
}

// TestPFLosesItsDriver while a claim has a VF: igb takes its VFs along, and their settings with them. The claim says so and
// comes off the node.
func TestPFLosesItsDriver(t *testing.T) {
	s := openPF(t)
	req := s.request(t, tenants())
	s.prepare(t, tenants())
	kernel.Write(t, kernel.Path(topology.PF0, "driver/unbind"), topology.PF0)
	t.Cleanup(func() { kernel.Write(t, "/sys/bus/pci/drivers/igb/bind", topology.PF0) })
	_, err := s.Preparer.Prepare(t.Context(), req)
	stage.Says(t, err, s.vf, "delete its pod")
	r, err := s.Recover(t.Context())
	if err != nil || len(r.Unfinished) != 1 {
		t.Fatalf("Recover = %+v, %v; want the claim unfinished", r, err)
	}
	stage.Says(t, r.Unfinished[0], s.vf, "delete its pod")
	release, err := s.Preparer.Unprepare(t.Context(), uid)
	if err != nil || len(release.Proofs) > 0 {
		t.Errorf("Unprepare = %+v, %v; want no proof of what is gone", release.Proofs, err)
	}
	delete(s.bindings, topology.VF(topology.PF0, 0))
	delete(s.bindings, s.vf)
	s.bindings[topology.PF0] = plan.Binding{}
	stage.Unchanged(t, s.bindings)
}

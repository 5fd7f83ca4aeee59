package dra_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

// lackingVFs are those of a node whose PF waits for a VF that is in use.
type lackingVFs struct{}

func (lackingVFs) Provision(context.Context) ([]plan.Provision, error) {
	return []plan.Provision{{Rule: "ens1f0np0", Have: 2, Want: 8, Refused: "VF 0000:21:02.0 is held by claim uid-1", Fix: "free it", Waits: true}}, nil
}

func (lackingVFs) BindStanding(context.Context) error { return nil }

// TestVFsAreMadeOnceTheOneInUseIsFree: the node is told to be short of them until then, and the log says why, once.
func TestVFsAreMadeOnceTheOneInUseIsFree(t *testing.T) {
	n := newNode(t)
	pf, vfs := n.k.AddNIC(0x21, 2)
	cfg := n.claims.Config
	cfg.Node = &v1alpha1.NodeConfig{VirtualFunctions: []v1alpha1.VFRule{{PF: pf.String(), Count: new(4)}}}
	cfg.Node.Default()
	n.claims = prepare.New(cfg)
	n.prepared("uid-1", "vf-"+vfs[0].Label())
	var log bytes.Buffer
	watch := &dra.ProvisionWatch{VFs: n.claims, Metrics: n.metrics, Log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, look := range []func(context.Context) bool{watch.Look, watch.Again} {
		if waits := look(t.Context()); !waits {
			t.Error("it does not wait, though a VF is in use")
		}
		if lacking, _ := gauges(t, n.metrics, "kata_vfio_vfs_lacking"); lacking["0000:21:00.0"] != 2 {
			t.Errorf("lacking %v, want two of 0000:21:00.0", lacking)
		}
	}
	if said := strings.Count(log.String(), "number of VFs left as it is"); said != 1 {
		t.Errorf("said %d times, want once:\n%s", said, log.String())
	}
	if _, err := n.claims.Unprepare(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	if waits := watch.Again(t.Context()); waits || len(n.k.VFs(pf)) != 4 {
		t.Errorf("waits: %t, with VFs %v", waits, n.k.VFs(pf))
	}
	if lacking, _ := gauges(t, n.metrics, "kata_vfio_vfs_lacking"); lacking["0000:21:00.0"] != 0 {
		t.Errorf("lacking %v, want none", lacking)
	}
}

//go:build lab

package claims_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
)

// open opens the node with a config, nil for the default, and checks at the test's end that nothing is left.
func open(t *testing.T, cfg *v1alpha1.NodeConfig) *node.Node {
	t.Helper()
	c := stage.Config()
	c.Node = cfg
	return stage.Open(t, c)
}

// mustPrepare prepares and logs how long it took.
func mustPrepare(t *testing.T, n *node.Node, req *claim.Request) *journal.Record {
	t.Helper()
	begin := time.Now()
	rec, err := n.Preparer.Prepare(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("prepared %s in %d ms", req.UID, time.Since(begin).Milliseconds())
	return rec
}

// mustUnprepare unprepares and logs the resets.
func mustUnprepare(t *testing.T, n *node.Node, uid string) {
	t.Helper()
	release, err := n.Preparer.Unprepare(context.WithoutCancel(t.Context()), uid)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range release.Proofs {
		t.Logf("reset %v by %s in %d ms", p.Set, p.Method, p.Milliseconds)
	}
}

func asRefusal(t *testing.T, err error) *rule.RefusedError {
	t.Helper()
	var refused *rule.RefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("got %v; want a refusal", err)
	}
	return refused
}

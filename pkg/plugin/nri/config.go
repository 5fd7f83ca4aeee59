package nri

import (
	"context"
	"log/slog"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/assignment"
)

// Assignments says who has what; [assignment.Table] is the real one. An error
// means that it can't be told of any device.
type Assignments interface {
	View() (*assignment.View, error)
}

// Claims enters into the journal which sandbox has a claim's devices, and
// resets them after it; [prepare.Preparer] is the real one. An error that is
// neither [prepare.NotPreparedError] nor [prepare.QuarantinedError] is tried
// again.
type Claims interface {
	HandOver(ctx context.Context, uid string, to journal.Sandbox) error
	Renew(ctx context.Context, uid, sandboxID string) ([]isolation.Proof, error)
}

// Config is what a [Plugin] works with. Only Observe and Report may be nil.
type Config struct {
	Assignments Assignments
	Claims      Claims
	Host        Host
	Rules       Rules
	// Socket is the runtime's NRI socket, "/var/run/nri/nri.sock".
	Socket string
	Log    *slog.Logger
	// Observe counts a call of the runtime by its name in NRI, and the work that
	// follows by "HandOver" and "Renew". A refusal is an error of the call. It is
	// called from several goroutines and must not block.
	Observe func(hook string, took time.Duration, err error)
	// Report hears of every refusal, and of every running container with a
	// device that it must not have, which can't be refused any more. It is called
	// from several goroutines and must not block.
	Report func(Refusal)
}

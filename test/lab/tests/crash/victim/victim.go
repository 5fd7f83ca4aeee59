// Package victim is a plugin process that dies, or is left hanging, at a chosen moment of its work. A test binary
// becomes one when it is run again with Variable set.
package victim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
)

// Variable names the environment variable that holds a victim's Orders as JSON.
const Variable = "KATA_VFIO_VICTIM"

// Reached is the line that a victim prints at its moment, and Ended at the end of its work.
const (
	Reached = "reached"
	Ended   = "ended"
)

// Act is what a victim does.
type Act string

// The acts.
const (
	Prepare   Act = "prepare"
	Unprepare Act = "unprepare"
	Recover   Act = "recover"
)

// Orders tell a victim what to do and when to stop.
type Orders struct {
	Act       Act
	UID       string
	Addresses []string
	// VF says what the PFs of the functions, all VFs then, are to impose; nil for the default.
	VF *v1alpha1.VFConfig
	// At is the number of the event (see effects.Event) after which the victim stops, from 1; 0 for never. An event
	// follows each piece of work: a lock, a scan, a journal write, a step, a reset, a node, a CDI spec, and each single setting
	// that a PF was told.
	At int
	// Phase makes At count only the events of one phase.
	Phase effects.Phase
	// Hang keeps the victim where it is, until somebody cuts its power; otherwise it kills itself.
	Hang bool
	// After is how long after its first event the victim kills itself, wherever it is then; 0 for never.
	After time.Duration
	// Config is the node's config.
	Config Places
}

// Places are the parts of node.Config that a test moves; empty for the usual ones.
type Places struct{ StateDir, RunDir, CDIDir string }

// NodeConfig is the config of the orders.
func (p Places) NodeConfig() node.Config {
	c := stage.Config()
	if p.StateDir != "" {
		c.StateDir, c.RunDir, c.CDIDir = p.StateDir, p.RunDir, p.CDIDir
	}
	return c
}

// Main runs the tests, or the victim where this process is one. It is for TestMain.
func Main(m *testing.M) {
	text, ok := os.LookupEnv(Variable)
	if !ok {
		os.Exit(m.Run())
	}
	if err := run(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run carries out orders to the end, and prints how many events there were.
func run(text string) error {
	var o Orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return fmt.Errorf("read orders: %w", err)
	}
	stop := &stopper{orders: o}
	c := o.Config.NodeConfig()
	c.Observe = stop.event
	n, err := node.Open(c)
	if err != nil {
		return err
	}
	if policy, ok := n.Parts.VFs.(*vf.Policy); ok {
		policy.Links = &links{Links: policy.Links, wrote: func() { stop.event(effects.Event{Phase: PhaseSetting}) }}
	}
	if err := o.carryOut(n); err != nil {
		return err
	}
	fmt.Printf("%s %d %d\n", Ended, stop.count, time.Since(stop.first))
	return n.Close()
}

func (o *Orders) carryOut(n *node.Node) error {
	ctx := context.Background()
	switch o.Act {
	case Prepare:
		snap, err := n.Parts.Inventory.Snapshot(ctx)
		if err != nil {
			return err
		}
		req, err := o.Request(snap)
		if err != nil {
			return err
		}
		_, err = n.Preparer.Prepare(ctx, req)
		return err
	case Unprepare:
		_, err := n.Preparer.Unprepare(ctx, o.UID)
		return err
	case Recover:
		r, err := n.Recover(ctx)
		return errors.Join(append(r.Unfinished, err)...)
	}
	return fmt.Errorf("no act %q", o.Act)
}

// Request is the claim of the orders.
func (o *Orders) Request(snap *device.Snapshot) (*claim.Request, error) {
	req, err := stage.NewRequest(snap, o.UID, o.Addresses...)
	if err != nil || o.VF == nil {
		return req, err
	}
	o.VF.Default()
	for i := range req.Devices {
		req.Devices[i].VF = o.VF
	}
	return req, nil
}

// stopper counts events and ends the process at its moment.
type stopper struct {
	orders Orders

	mu    sync.Mutex // guards the rest; the event that stops never releases it
	count int
	first time.Time // event
}

func (s *stopper) event(e effects.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first.IsZero() {
		s.first = time.Now()
		if s.orders.After > 0 {
			time.AfterFunc(s.orders.After, die)
		}
	}
	if s.orders.Phase != "" && e.Phase != s.orders.Phase {
		return
	}
	s.count++
	if s.count != s.orders.At {
		return
	}
	fmt.Println(Reached)
	if s.orders.Hang {
		hang()
	}
	die()
}

// die does not return.
func die() {
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	hang()
}

// hang does not return. It waits in the kernel: the runtime ends a process of which all goroutines wait in Go.
func hang() {
	for {
		_, _ = unix.Poll(nil, -1)
	}
}

// Fate is how a victim ended.
type Fate struct {
	// Killed is set when SIGKILL ended it.
	Killed bool
	// Events is how many events a victim saw that came to the end of its work, and Took the time since the first.
	Events int
	Took   time.Duration
}

// Command is this test binary as a victim with the orders.
func Command(ctx context.Context, o Orders) (*exec.Cmd, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), Variable+"="+string(text))
	return cmd, nil
}

// Run runs a victim to its end, whichever that is. Its error is what it said when it could not do its work.
func Run(ctx context.Context, o Orders) (Fate, error) {
	cmd, err := Command(ctx, o)
	if err != nil {
		return Fate{}, err
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status, ok := exit.Sys().(syscall.WaitStatus)
		if ok && status.Signaled() && status.Signal() == unix.SIGKILL {
			return Fate{Killed: true}, nil
		}
	}
	if err != nil {
		return Fate{}, fmt.Errorf("%w: %s", err, bytes.TrimSpace(errs.Bytes()))
	}
	var fate Fate
	if _, err := fmt.Sscanf(out.String(), Ended+" %d %d\n", &fate.Events, &fate.Took); err != nil && !errors.Is(err, io.EOF) {
		return Fate{}, fmt.Errorf("the victim said %q: %w", out.String(), err)
	}
	return fate, nil
}

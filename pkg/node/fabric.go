package node

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/manager"
)

// Programs that ask Fabric Manager, unless the config names another one.
const (
	defaultHelper = "/usr/bin/kata-vfio-fabric"
	defaultFMPM   = "/usr/bin/fmpm"
)

// fabricManager returns the client that the config asks for. A node without a fabric has that of the defaults: a claim from before the
// config changed needs one to end.
func (c *Config) fabricManager() *fabricClient {
	of := v1alpha1.Fabric{Address: v1alpha1.DefaultFabricAddress}
	if c.Node != nil && c.Node.Fabric != nil {
		of = *c.Node.Fabric
	}
	f := &fabricClient{root: c.Root, state: filepath.Join(c.Root, fabric.StateFile), Manager: c.Fabric}
	if socket, ok := strings.CutPrefix(of.Address, "unix:"); ok {
		f.socket = filepath.Join(c.Root, socket)
	}
	switch {
	case f.Manager != nil:
	case of.Client == v1alpha1.FabricFMPM:
		f.Manager = &manager.FMPM{Program: cmp.Or(of.Program, defaultFMPM), Address: of.Address}
	default:
		f.Manager = &manager.Helper{Program: cmp.Or(of.Program, defaultHelper), Address: of.Address}
	}
	return f
}

// fabricClient writes each list that Fabric Manager answers to the node's file of it, for the inventory and the audit.
type fabricClient struct {
	fabric.Manager
	root, state string
	// socket is that of the API; empty if it has none.
	socket string
	// begun marks the GPUs after Fabric Manager has initialized the fabric.
	begun func(context.Context) error
	// check refuses to activate the partition with a number.
	check func(ctx context.Context, id int) error

	mu    sync.Mutex // guards the file, and noted
	noted time.Time  // when this process wrote last why it can't be asked
}

// sameReasonFor is how long a reason stays in the file while only its numbers change. Each write has the node published again.
const sameReasonFor = 10 * time.Minute

// Partitions implements [fabric.Manager].
func (f *fabricClient) Partitions(ctx context.Context) (fabric.List, error) {
	l, err := f.Manager.Partitions(ctx)
	if err != nil {
		return nil, err
	}
	start, err := f.started(ctx)
	_, keepErr := f.keep(func(s *fabric.State) {
		s.Answered(l, f.version())
		if err != nil { // no claim may get a GPU that should be reset first
			s.Away = oneLine(err)
			return
		}
		s.Begun(start)
	})
	return l, keepErr
}

// version returns that of NVIDIA's driver; empty if it is unknown, as without the driver on the node.
func (f *fabricClient) version() string {
	text, err := os.ReadFile(filepath.Join(f.root, fabric.VersionFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// away notes why Fabric Manager can't be asked. The partitions stay: they are there still.
func (f *fabricClient) away(why error) (changed bool, err error) {
	text := oneLine(why)
	return f.keep(func(s *fabric.State) {
		if !fabric.SameReason(s.Away, text) || time.Since(f.noted) >= sameReasonFor {
			s.Away, f.noted = text, time.Now()
		}
	})
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// keep changes the file, and reports whether it has another content now.
func (f *fabricClient) keep(change func(*fabric.State)) (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, err := os.ReadFile(f.state)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	s, err := fabric.Parse[fabric.State](before)
	if err != nil {
		s = &fabric.State{} // none yet, or of another version: what is answered now counts
	}
	change(s)
	now, err := json.Marshal(s)
	if err != nil || bytes.Equal(before, now) {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(f.state), 0o700); err != nil {
		return false, err
	}
	if err := renameio.WriteFile(f.state, now, 0o600); err != nil {
		return false, fmt.Errorf("write what Fabric Manager answered: %w", err)
	}
	return true, nil
}

// AskFabric reads the partitions of the node's fabric, and reports whether the answer differs from the last one. If Fabric Manager waits
// for the list of active partitions after a restart, it gets the list first. It ends partitions that Fabric Manager then made active by
// mistake. It does nothing on a node whose config has no fabric. The error says why Fabric Manager can't be asked; claims with GPUs of the fabric are refused with it then.
func (n *Node) AskFabric(ctx context.Context) (changed bool, err error) {
	if n.Node == nil || n.Node.Fabric == nil || n.fabric == nil {
		return false, nil
	}
	before, _ := os.ReadFile(n.fabric.state) // another content, or none, is a change
	_, err = n.fabric.Partitions(ctx)
	if waits(err) {
		err = n.replay(ctx)
	}
	if err == nil {
		err = n.endWrong(ctx)
	}
	if err == nil {
		err = n.fabric.blocked()
	}
	if err != nil && ctx.Err() == nil {
		_, keepErr := n.fabric.away(err)
		err = errors.Join(err, keepErr)
	}
	now, _ := os.ReadFile(n.fabric.state)
	return !bytes.Equal(before, now), err
}

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

// Default paths of the programs that call Fabric Manager. The node config may name another program.
const (
	defaultHelper = "/usr/bin/kata-vfio-fabric"
	defaultFMPM   = "/usr/bin/fmpm"
)

// fabricManager returns the client that the node config asks for. A node without a fabric gets a client with the default settings: it is
// needed to end a claim that was prepared before the config changed.
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

// fabricClient is a client of Fabric Manager that writes each list it receives to the node's state file ([fabric.StateFile]), which the
// inventory and the audit read.
type fabricClient struct {
	fabric.Manager
	root, state string
	// socket is the path of the API's Unix socket; empty if the API has none.
	socket string
	// begun marks the GPUs after Fabric Manager has initialized the fabric.
	begun func(context.Context) error
	// check refuses to activate the partition with a number.
	check func(ctx context.Context, id int) error

	mu    sync.Mutex // guards the file, and noted
	noted time.Time  // when this process last wrote why Fabric Manager can't be asked
}

// sameReasonFor is how long the state file keeps a reason while only the numbers in the reason's text change. Each write of the file makes
// the plugin publish the node again.
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
		if err != nil { // the GPUs could not be marked, and no claim may get a GPU that must be reset first
			s.Away = oneLine(err)
			return
		}
		s.Begun(start)
	})
	return l, keepErr
}

// version returns the version of NVIDIA's driver; empty if it is unknown, as on a node without the driver.
func (f *fabricClient) version() string {
	text, err := os.ReadFile(filepath.Join(f.root, fabric.VersionFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// away records why Fabric Manager can't be asked. The partitions stay in the file, because they still exist on the fabric.
func (f *fabricClient) away(why error) (changed bool, err error) {
	text := oneLine(why)
	return f.keep(func(s *fabric.State) {
		if !fabric.SameReason(s.Away, text) || time.Since(f.noted) >= sameReasonFor {
			s.Away, f.noted = text, time.Now()
		}
	})
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// keep applies change to the state file, and reports whether the content of the file changed.
func (f *fabricClient) keep(change func(*fabric.State)) (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, err := os.ReadFile(f.state)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	s, err := fabric.Parse[fabric.State](before)
	if err != nil {
		s = &fabric.State{} // there is no file yet, or another version wrote it: start from the answer of now
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

// AskFabric reads the partitions of the node's fabric, and reports whether the state file changed. After a restart Fabric Manager may wait
// for the list of active partitions. AskFabric sends that list first then. It also deactivates partitions that Fabric Manager activated by
// mistake because of the list. AskFabric does nothing on a node whose config has no fabric. The error says why Fabric Manager can't be
// asked. Claims with GPUs of the fabric are then refused with this error.
func (n *Node) AskFabric(ctx context.Context) (changed bool, err error) {
	if n.Node == nil || n.Node.Fabric == nil || n.fabric == nil {
		return false, nil
	}
	before, _ := os.ReadFile(n.fabric.state) // a file that is new, or has another content, is a change
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

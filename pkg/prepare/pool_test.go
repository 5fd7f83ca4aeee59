package prepare_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/network/podnet"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// pool is host-local's double: a directory with a file for each address that
// is taken, which names its lease. It outlives processes and reboots.
type pool struct {
	dir  string
	size int
	// backfilling is what Find says, badConfig what every call says of a config that
	// the plugin does not take, mute what a call says that may have done its work.
	missing, badConfig, mute error

	mu sync.Mutex // host-local has a lock on its directory
}

func newPool(t *testing.T) *pool { return &pool{dir: t.TempDir(), size: 4} }

// Find implements [effects.Addresses].
func (p *pool) Find(*plan.Lease) error { return p.missing }

// Add implements [effects.Addresses]. As host-local does, it refuses a lease
// that has an address.
func (p *pool) Add(_ context.Context, l *plan.Lease) (*podnet.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := errors.Join(p.missing, p.badConfig); err != nil {
		return nil, &podnet.PluginError{Plugin: l.Plugin, Command: "ADD", Nothing: true, Err: err}
	}
	taken, err := p.taken()
	if err != nil {
		return nil, err
	}
	for address, owner := range taken {
		if owner == name(l) {
			err := fmt.Errorf("%s has been allocated to %s, duplicate allocation is not allowed", address, owner)
			return nil, &podnet.PluginError{Plugin: l.Plugin, Command: "ADD", Nothing: true, Err: err}
		}
	}
	for i := range p.size {
		address := fmt.Sprintf("192.0.2.%d", 10+i)
		if taken[address] != "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(p.dir, address), []byte(name(l)), 0o600); err != nil {
			return nil, err
		}
		return &podnet.Result{
			Addresses: []string{address + "/24"}, Routes: []v1alpha1.GuestRoute{{To: "default", Via: "192.0.2.1"}},
		}, p.mute
	}
	return nil, &podnet.PluginError{Plugin: l.Plugin, Command: "ADD", Nothing: true, Err: errors.New("no IP addresses available")}
}

// Delete implements [effects.Addresses].
func (p *pool) Delete(_ context.Context, l *plan.Lease) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := errors.Join(p.missing, p.badConfig); err != nil {
		return err
	}
	taken, err := p.taken()
	for address, owner := range taken {
		if owner == name(l) {
			err = errors.Join(err, os.Remove(filepath.Join(p.dir, address)))
		}
	}
	return errors.Join(err, p.mute)
}

// name is what the plugin knows a lease by.
func name(l *plan.Lease) string { return l.Container + "\n" + l.Interface }

// taken returns who has which address.
func (p *pool) taken() (map[string]string, error) {
	entries, err := os.ReadDir(p.dir)
	taken := map[string]string{}
	for _, e := range entries {
		owner, err := os.ReadFile(filepath.Join(p.dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		taken[e.Name()] = string(owner)
	}
	return taken, err
}

// addresses returns the addresses that are taken, with the prefix's length.
func (w *world) addresses() []string {
	w.t.Helper()
	taken, err := w.pool.taken()
	if err != nil {
		w.t.Fatal(err)
	}
	all := []string{}
	for address := range taken {
		all = append(all, address+"/24")
	}
	slices.Sort(all)
	return all
}

// recorded returns the addresses that a prepared claim's devices have from pools.
func (w *world) recorded(uid string) []string {
	w.t.Helper()
	all := []string{}
	if rec := w.record(uid); rec != nil {
		for _, d := range rec.Plan.Devices {
			if d.Lease != nil {
				all = append(all, d.Network.Addresses...)
			}
		}
	}
	slices.Sort(all)
	return all
}

// usePool has the VFs of the world's requests take addresses from a pool.
func (w *world) usePool() {
	w.node = &v1alpha1.NodeConfig{AddressPools: []v1alpha1.AddressPool{{Name: "tenants", IPAM: []byte(`{"type":"host-local"}`)}}}
	w.node.Default()
	w.network = &v1alpha1.GuestNetwork{AddressPool: "tenants", Interface: "net1"}
}

// cutAddresses are the node's pools behind the power switch.
type cutAddresses struct {
	effects.Addresses
	p *power
}

func (p *power) addresses(a effects.Addresses) effects.Addresses { return cutAddresses{a, p} }

func (c cutAddresses) Add(ctx context.Context, l *plan.Lease) (result *podnet.Result, err error) {
	err = c.p.effect(func() (err error) {
		result, err = c.Addresses.Add(ctx, l)
		return err
	})
	return result, err
}

func (c cutAddresses) Delete(ctx context.Context, l *plan.Lease) error {
	return c.p.effect(func() error { return c.Addresses.Delete(ctx, l) })
}

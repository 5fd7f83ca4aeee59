// Command guest runs in the lab machine and prints medians and ratios of what it times. The two sides of a comparison take
// turns. For each function that it is given, it times Prepare against the same kernel writes by a minimal C loop, and against
// driverctl. With one of these words before the addresses, it times something else:
//
//	vf      settings of a PF's VF, against iproute2
//	opens   opens of several functions at once, against one
//	guests  starts of VMs with the functions at once, against one
//	pins    one iommufd object, against one for each function
//	bar     a BAR mapped at an aligned address, against another address
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

const rounds = 15

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, addresses []string) error {
	if len(addresses) > 1 {
		switch addresses[0] {
		case "vf":
			return compareVF(ctx, addresses[1])
		case "opens":
			return compareOpens(addresses[1:])
		case "guests":
			return compareGuests(addresses[1:])
		case "pins":
			return comparePins(addresses[1:])
		case "bar":
			return compareBAR(addresses[1])
		}
	}
	for _, text := range addresses {
		a, err := pci.ParseAddress(text)
		if err != nil {
			return err
		}
		if err := measure(ctx, a); err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
	}
	return nil
}

// measured are the times of all rounds.
type measured struct {
	prepare, durable, loop, driverctl []time.Duration
}

// measure takes turns, so that what disturbs the machine disturbs all alike.
func measure(ctx context.Context, a pci.Address) error {
	b, err := open(ctx, a)
	if err != nil {
		return err
	}
	defer b.node.Close()
	var m measured
	for range rounds {
		took, durable, err := b.prepare(ctx)
		if err != nil {
			return err
		}
		m.prepare, m.durable = append(m.prepare, took), append(m.durable, durable)
		if took, err = loop(ctx, a); err != nil {
			return err
		}
		m.loop = append(m.loop, took)
		if took, err = driverctl(ctx, a); err != nil {
			return err
		}
		m.driverctl = append(m.driverctl, took)
	}
	m.print(a)
	return nil
}

func (m *measured) print(a pci.Address) {
	prepare, durable, loop, other := median(m.prepare), median(m.durable), median(m.loop), median(m.driverctl)
	ratio := func(a, b time.Duration) float64 { return float64(a) / float64(b) }
	fmt.Printf("%s medians of %d: prepare %v, of which durable writes %v; kernel writes in C %v; driverctl %v\n",
		a, rounds, prepare.Round(100*time.Microsecond), durable.Round(100*time.Microsecond), loop.Round(100*time.Microsecond), other.Round(100*time.Microsecond))
	fmt.Printf("%s ratio prepare-without-durable-writes/kernel %.3f\n", a, ratio(prepare-durable, loop))
	fmt.Printf("%s ratio prepare/kernel %.3f\n", a, ratio(prepare, loop))
	fmt.Printf("%s ratio prepare/driverctl %.3f\n", a, ratio(prepare, other))
}

// bench is an opened node with a watcher, as the plugin has it.
type bench struct {
	node    *node.Node
	req     *claim.Request
	durable time.Duration // of the journal and the CDI spec since it was last cleared
	phases  map[effects.Phase]time.Duration
}

func open(ctx context.Context, a pci.Address) (*bench, error) {
	b := &bench{}
	n, err := node.Open(node.Config{
		Root: "/", StateDir: node.DefaultStateDir, RunDir: node.DefaultRunDir, CDIDir: node.DefaultCDIDir,
		WriteLimit: node.DefaultWriteLimit,
		Observe:    b.observe,
		Inventory: func(fs *sysfs.FS) (effects.Inventory, error) {
			return inventory.Watch(ctx, fs)
		},
	})
	if err != nil {
		return nil, err
	}
	snap, err := n.Parts.Inventory.Snapshot(ctx)
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	f, ok := snap.Function(a)
	if !ok {
		return nil, errors.Join(errors.New("absent"), n.Close())
	}
	d := claim.Device{Request: "device", Pool: "lab", Name: f.Name(), Address: a}
	d.VFIO.Default()
	b.node, b.req = n, &claim.Request{UID: "bench", Devices: []claim.Device{d}}
	return b, nil
}

func (b *bench) observe(e effects.Event) {
	if b.phases != nil {
		b.phases[e.Phase] += e.Took
	}
	if e.Phase == effects.PhaseJournal || e.Phase == effects.PhaseCDI {
		b.durable += e.Took
	}
}

// prepare times one Prepare, and takes it back untimed.
func (b *bench) prepare(ctx context.Context) (took, durable time.Duration, err error) {
	b.durable, b.phases = 0, map[effects.Phase]time.Duration{}
	begin := time.Now()
	if _, err := b.node.Preparer.Prepare(ctx, b.req); err != nil {
		return 0, 0, err
	}
	took, durable = time.Since(begin), b.durable
	if os.Getenv("PHASES") != "" {
		fmt.Println(took, b.phases)
	}
	_, err = b.node.Preparer.Unprepare(ctx, b.req.UID)
	return took, durable, err
}

// loop runs one round of the C program.
func loop(ctx context.Context, a pci.Address) (time.Duration, error) {
	out, err := exec.CommandContext(ctx, "/host/loop", a.String(), "vfio-pci", "1").Output()
	if err != nil {
		return 0, fmt.Errorf("loop: %w", err)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	return time.Duration(ns), err
}

// driverctl times one override by driverctl, without its own persistence, and takes it back untimed.
func driverctl(ctx context.Context, a pci.Address) (time.Duration, error) {
	begin := time.Now()
	if out, err := exec.CommandContext(ctx, "driverctl", "--nosave", "set-override", a.String(), "vfio-pci").CombinedOutput(); err != nil {
		return 0, fmt.Errorf("driverctl: %w: %s", err, out)
	}
	took := time.Since(begin)
	if out, err := exec.CommandContext(ctx, "driverctl", "--nosave", "unset-override", a.String()).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("driverctl: %w: %s", err, out)
	}
	return took, nil
}

func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/test/internal/compile"
	"github.com/kata-vfio/kata-vfio/test/lab"
	"github.com/kata-vfio/kata-vfio/test/lab/installed"
	"github.com/kata-vfio/kata-vfio/test/lab/remote"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// inputs are the claims that the demo prepares, and a node config.
//
//go:embed files
var inputs embed.FS

const (
	claimUID = "7d9e2c1a-5b1f-4f37-9a30-2f6f0c1d8e44"
	vfMAC    = "02:00:00:00:00:10"
)

// demo is one show.
type demo struct {
	out     io.Writer
	bin     string
	picture string
	begin   time.Time
	m       *lab.Machine
	chapter int
}

func newDemo(out io.Writer, bin, picture string) *demo {
	return &demo{out: out, bin: bin, picture: picture, begin: time.Now()}
}

// run boots the machine and plays all chapters.
func (d *demo) run(ctx context.Context) error {
	d.title("Boot a machine with an IOMMU, SR-IOV NICs and GPU stand-ins (software emulation), as a bare node: its IOMMU is not switched on")
	m, err := lab.Start(ctx, lab.Config{Progress: d.out, WithoutIOMMU: true})
	if err != nil {
		return err
	}
	defer m.Stop()
	d.m = m
	for _, chapter := range []func(context.Context) error{
		d.bootstrap, d.provide, d.provision, d.inventory, d.plan, d.prepare, d.vm, d.refusal, d.unprepare, d.slice,
	} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	d.say("\nDone in %.0f s. The drawing of the machine is in %s.", time.Since(d.begin).Seconds(), d.picture)
	return nil
}

// bootstrap makes the node fit: its boot loader is GRUB, and what it starts is what GRUB's own tools have written.
func (d *demo) bootstrap(ctx context.Context) error {
	d.title("Make the node fit: what is to do, then do it")
	if err := copyFile(filepath.Join(d.bin, "kata-vfio-bootstrap"), filepath.Join(d.m.Share(), "kata-vfio-bootstrap")); err != nil {
		return fmt.Errorf("%w (run `make build` first)", err)
	}
	if err := installed.Enter(ctx, d.m); err != nil {
		return err
	}
	if err := d.onNode(ctx, 3, "kata-vfio-bootstrap plan"); err != nil {
		return err
	}
	if err := d.onNode(ctx, 4, "kata-vfio-bootstrap apply"); err != nil {
		return err
	}
	d.title("The operator reboots the node, by its GRUB's new configuration")
	if err := installed.Reboot(ctx, d.m); err != nil {
		return err
	}
	return d.onNode(ctx, 0, "kata-vfio-bootstrap verify")
}

// onNode runs a command line in the installed node's root for all to see, which must end with the exit code.
func (d *demo) onNode(ctx context.Context, code int, line string) error {
	d.say("node# %s", line)
	cmd := d.m.Command(ctx, "sh", "-c", installed.Line(line))
	cmd.Stdout, cmd.Stderr = d.out, d.out
	return d.ended(cmd.Run(), code, line)
}

// provide brings commands and inputs into the machine.
func (d *demo) provide(ctx context.Context) error {
	for _, name := range []string{"kata-vfio-plugin", "kata-vfio-audit", "kata-vfio-guestnet"} {
		if err := copyFile(filepath.Join(d.bin, name), filepath.Join(d.m.Share(), name)); err != nil {
			return fmt.Errorf("%w (run `make build` first)", err)
		}
	}
	for _, name := range []string{"claim.yaml", "refused.yaml", "node.yaml", "slice.yaml", "slices.yaml", "vfs.yaml", "waivers.yaml"} {
		data, err := inputs.ReadFile("files/" + name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(d.m.Share(), name), data, 0o644); err != nil {
			return err
		}
	}
	if err := compile.Static(ctx, "github.com/kata-vfio/kata-vfio/test/lab/guest/showvm", filepath.Join(d.m.Share(), "showvm")); err != nil {
		return err
	}
	return d.quiet(ctx, "cp /host/kata-vfio-* /usr/bin/; mkdir -p /etc/kata-vfio; cp /host/waivers.yaml /etc/kata-vfio/; ln -s "+sysfs(topology.PF0, "net/*")+" /run/pf; pf=$(basename $(readlink -f /run/pf)); "+
		"ip link set $pf up; for i in $(seq 300); do test $(cat /run/pf/carrier) = 1 && exit 0; sleep 0.1; done; exit 1")
}

// showVFs is the command that shows what the PF imposes on its VFs.
const showVFs = "ip link show dev $(basename $(readlink -f /run/pf)) | grep vf"

// provision makes VFs.
func (d *demo) provision(ctx context.Context) error {
	d.title("VFs for tenants, made as the node's config says, and kept from host drivers")
	return d.show(ctx, "kata-vfio-plugin provision --config /host/vfs.yaml")
}

// inventory shows what there is.
func (d *demo) inventory(ctx context.Context) error {
	d.title("What the node has, and whether each device can be isolated")
	if err := d.show(ctx, "kata-vfio-audit devices"); err != nil {
		return err
	}
	if err := d.quiet(ctx, "kata-vfio-audit topology > /host/topology.svg"); err != nil {
		return err
	}
	return copyFile(filepath.Join(d.m.Share(), "topology.svg"), d.picture)
}

func (d *demo) plan(ctx context.Context) error {
	d.title("A tenant's claim: what would be done (nothing is touched)")
	return d.show(ctx, "kata-vfio-plugin prepare --audit-taint off --dry-run -f /host/claim.yaml")
}

func (d *demo) prepare(ctx context.Context) error {
	d.title("Prepare it: each step verified, with its time")
	if err := d.show(ctx, "kata-vfio-plugin prepare --audit-taint off -f /host/claim.yaml"); err != nil {
		return err
	}
	d.title("The claim's network policy, imposed by the PF and read back")
	if err := d.show(ctx, showVFs); err != nil {
		return err
	}
	d.title("The CDI spec that Kata gets")
	return d.show(ctx, "cat /run/cdi/kata-vfio.dev-vfio_"+claimUID+".json")
}

// vm starts the tenant's VM, tries to take its devices away, and ends it.
func (d *demo) vm(ctx context.Context) error {
	d.title("The tenant's VM boots with the devices; its own view")
	stdin, hold := io.Pipe()
	up := newWatcher(d.out, "the VM is waiting")
	cmd := d.m.Command(ctx, "/host/showvm", "/run/cdi/kata-vfio.dev-vfio_"+claimUID+".json", vfMAC, topology.Gateway)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, up, up
	ended := make(chan error, 1)
	go func() { ended <- cmd.Run() }()
	select {
	case err := <-ended:
		return fmt.Errorf("the VM: %w", err)
	case <-up.seen:
	}
	err := d.inUse(ctx)
	return errors.Join(err, hold.Close(), <-ended)
}

// inUse asks for the devices back while the VM runs.
func (d *demo) inUse(ctx context.Context) error {
	d.title("Taking the devices away from the running VM is refused")
	return d.expect(ctx, 4, "kata-vfio-plugin unprepare "+claimUID)
}

func (d *demo) refusal(ctx context.Context) error {
	d.title("A claim that can't be isolated is refused, with the reason and the way out")
	return d.expect(ctx, 3, "kata-vfio-plugin prepare --audit-taint off -f /host/refused.yaml --config /host/node.yaml")
}

// unprepare gives the devices back.
func (d *demo) unprepare(ctx context.Context) error {
	d.title("The VM has ended: reset, compare registers, restore")
	if err := d.show(ctx, "kata-vfio-plugin unprepare "+claimUID); err != nil {
		return err
	}
	d.title("As it was before")
	return d.show(ctx, showVFs+"; kata-vfio-plugin status; kata-vfio-audit devices | grep -E '0000:(22:00.0|21:10.0)'")
}

// title begins a chapter.
func (d *demo) title(text string) {
	d.chapter++
	d.say("\n%s\n[%3.0fs] %d. %s", strings.Repeat("─", 100), time.Since(d.begin).Seconds(), d.chapter, text)
}

func (d *demo) say(format string, args ...any) {
	_, _ = fmt.Fprintf(d.out, format+"\n", args...) // a reader who went away is not a reason to stop
}

// show runs a command line in the machine for all to see.
func (d *demo) show(ctx context.Context, line string) error {
	d.say("$ %s", line)
	cmd := d.m.Command(ctx, "sh", "-c", line)
	cmd.Stdout, cmd.Stderr = d.out, d.out
	return cmd.Run()
}

// expect runs a command line that must end with the exit code.
func (d *demo) expect(ctx context.Context, code int, line string) error {
	return d.ended(d.show(ctx, line), code, line)
}

// ended tells the exit code of a command line, which must be this one.
func (d *demo) ended(err error, code int, line string) error {
	got := 0
	if exit, ok := errors.AsType[*remote.ExitError](err); ok {
		got, err = exit.Code, nil
	}
	if err != nil || got != code {
		return fmt.Errorf("%q ended with exit code %d, %w; want %d", line, got, err, code)
	}
	d.say("(exit code %d)", code)
	return nil
}

// quiet runs a command line whose output matters only on failure.
func (d *demo) quiet(ctx context.Context, line string) error {
	if out, err := d.m.Command(ctx, "sh", "-ec", line).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, out)
	}
	return nil
}

func sysfs(address, name string) string { return "/sys/bus/pci/devices/" + address + "/" + name }

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

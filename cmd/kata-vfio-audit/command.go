package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/archive"
	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Exit codes, as the help documents them.
const (
	exitFailed = command.Failed
	exitUsage  = command.Usage
	// exitFindings: a check fails at the requested severity.
	exitFindings = 3
	// exitUndetermined: nothing fails, but some results are unknown.
	exitUndetermined = 4
	// exitLedger: the ledger, or a bundle of it, does not verify.
	exitLedger = 5
)

// allExitCodes are those of all commands; each documents its own.
const allExitCodes = "Exit codes:\n" +
	"  0  nothing fails that was asked about; commands that only show: always\n" +
	"  1  the node, tree or file could not be read, or the output could not be written\n" +
	"  2  the command line, or a file that it names, is wrong\n" +
	"  3  a check fails at the severity of --fail-on or worse\n" +
	"  4  no check fails, but with --strict: some checks could not tell\n" +
	"  5  the ledger does not verify"

const readingExitCodes = "Exit codes:\n" +
	"  0  done\n" +
	"  1  the node or tree could not be read, or the output could not be written\n" +
	"  2  the command line, or a file that it names, is wrong"

const exitCodes = "Exit codes:\n" +
	"  0  done, whatever the verdicts are\n" +
	"  1  the node or tree could not be read, or the output could not be written\n" +
	"  2  the command line is wrong"

// newCommand returns the command tree. Results go to stdout, warnings to stderr.
func newCommand(stdout, stderr io.Writer) *cobra.Command {
	var t tree
	cmd := &cobra.Command{
		Use:   "kata-vfio-audit",
		Short: "Judge how well a node isolates the tenants of its PCI devices",
		Long: "kata-vfio-audit reads a node, or a captured copy of one, and reports whether VMs with PCI devices are isolated\n" +
			"from each other and from the node: what is wrong, who is in reach, the evidence, and how to fix it.\n" +
			"It changes nothing. Run it as root: the kernel shows ACS and ATS only to root.\n" +
			"\n" +
			allExitCodes,
		Args: command.NoSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.Setup(cmd, stdout, stderr)
	cmd.PersistentFlags().StringVar(&t.root, "root", "/", "the node's root: / or a directory that holds sys, proc, dev and lib, or an archive of collect")
	cmd.AddCommand(
		nodeCommand(&t), explainCommand(&t), rulesCommand(&t), devicesCommand(&t), topologyCommand(&t), sandboxesCommand(&t), handlersCommand(&t),
		collectCommand(&t), gatherCommand(&t), evalCommand(&t), diffCommand(&t), whoCommand(&t), ledgerCommand(&t),
	)
	for _, c := range []*cobra.Command{checksCommand(), profilesCommand(), waiveCommand(), clusterCommand(), fleetCommand(), verifyCommand()} {
		cmd.AddCommand(c)
		withoutRoot(c)
	}
	cmd.AddCommand(former(&t)...)
	command.AddVersion(cmd, cmd.Name()+" "+command.Build())
	return cmd
}

// withoutRoot leaves --root out of the help of a command that reads no node.
func withoutRoot(c *cobra.Command) {
	c.SetHelpFunc(func(c *cobra.Command, args []string) {
		// All commands share the flag, so it is hidden only while this help is printed.
		root := c.InheritedFlags().Lookup("root")
		root.Hidden = true
		c.Root().HelpFunc()(c, args)
		root.Hidden = false
	})
}

// tree is the source of a node.
type tree struct {
	root string
	// ownRules are files of the organization's rules whose settings collect copies too, or directories of them.
	ownRules []string
}

// read scans the node and judges its functions. It writes facts that are missing from
// the verdicts to warnings.
func (t *tree) read(ctx context.Context, warnings io.Writer) (*audit.Inventory, error) {
	node, err := t.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = node.Close() }()
	if err := t.check(node.fs, warnings); err != nil {
		return nil, err
	}
	s, err := t.scan(ctx, node.fs)
	if err != nil {
		return nil, err
	}
	if err := warnHidden(s, warnings); err != nil {
		return nil, err
	}
	checks, err := check.Catalogue()
	if err != nil {
		return nil, err
	}
	inv := audit.NewNodeInventory(facts.New(node.fs, s), checks, today())
	return inv, warnUnread(inv, warnings)
}

// today is the day that waivers are compared with.
func today() string { return time.Now().UTC().Format(time.DateOnly) }

// warnUnread names the facts that the verdicts do not count.
func warnUnread(inv *audit.Inventory, warnings io.Writer) error {
	return warnOnce(warnings, inv.Unread)
}

// opened is a node's file system, or that of an archive.
type opened struct {
	fs   *sysfs.FS
	root string
	// manifest is nil for a node.
	manifest *archive.Manifest
	closer   io.Closer
}

// Close releases the node, and removes unpacked files.
func (o *opened) Close() error { return o.closer.Close() }

func (t *tree) open() (*opened, error) {
	if archive.Is(t.root) {
		a, err := archive.Open(t.root)
		if err != nil {
			return nil, err
		}
		return &opened{fs: a.FS, root: t.root, manifest: a.Manifest, closer: a}, nil
	}
	fs, err := sysfs.Open(t.root)
	if err != nil {
		return nil, fmt.Errorf("%w; --root wants / or a directory that holds a node's sys, proc, dev and lib, or an archive of `collect`", err)
	}
	return &opened{fs: fs, root: t.root, closer: fs}, nil
}

// scan reads the node's functions and, in parallel, their names.
func (t *tree) scan(ctx context.Context, fs *sysfs.FS) (s *device.Snapshot, err error) {
	var names *inventory.Names
	g, ctx := errgroup.WithContext(ctx)
	// pci.ids has some 40,000 lines: its parsing overlaps with the scan of sysfs.
	g.Go(func() (err error) {
		names, err = loadNames(fs)
		return err
	})
	g.Go(func() (err error) {
		if s, err = inventory.Scan(ctx, fs); err != nil {
			if there, err := fs.Exists(sysfs.Devices); err == nil && !there {
				return t.noNode()
			}
			return fmt.Errorf("read the node below %s: %w", t.root, err)
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	names.Apply(s)
	return s, nil
}

// loadNames reads the tree's pci.ids, or this machine's if the tree, such as a copy of
// sys and proc, has none.
func loadNames(fs *sysfs.FS) (*inventory.Names, error) {
	names, err := inventory.LoadNames(fs)
	if names != nil || err != nil {
		return names, err
	}
	here, err := sysfs.Open("/")
	if err != nil {
		return nil, err
	}
	defer func() { _ = here.Close() }()
	return inventory.LoadNames(here)
}

// noNode is the error for a root without PCI functions.
func (t *tree) noNode() error {
	return fmt.Errorf("%s has no %s, so it is not a Linux node's root; --root wants / or a directory that holds a node's sys, proc, dev and lib", t.root, sysfs.Devices)
}

// check refuses a root that is not a Linux node, and warns of a node that can't isolate.
func (t *tree) check(fs *sysfs.FS, warnings io.Writer) error {
	ok, err := fs.Exists(sysfs.Devices)
	if err != nil {
		return err
	}
	if !ok {
		return t.noNode()
	}
	ok, err = fs.Exists("sys/kernel/iommu_groups")
	if err != nil {
		return err
	}
	if ok {
		return nil
	}
	return warn(warnings, t.root+" has no sys/kernel/iommu_groups: the kernel was built without IOMMU support, or the copy is incomplete; no device can be isolated")
}

// warn writes a warning, or nothing if the text is empty.
func warn(warnings io.Writer, text string) error {
	if text == "" {
		return nil
	}
	_, err := fmt.Fprintf(warnings, "warning: %s\n", output.Visible(text))
	return err
}

// warnOnce writes each warning once, even if many devices have it.
func warnOnce(warnings io.Writer, texts []string) error {
	for _, text := range output.Fold(texts) {
		if err := warn(warnings, text); err != nil {
			return err
		}
	}
	return nil
}

// warnHidden counts the functions whose capabilities were cut off.
func warnHidden(s *device.Snapshot, warnings io.Writer) error {
	n := hidden(s)
	if n == 0 {
		return nil
	}
	return warn(warnings, fmt.Sprintf("configuration space of %s could not be read in full: ACS and ATS are unknown there; run as root", output.Count(n, "function")))
}

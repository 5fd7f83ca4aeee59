package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/archive"
	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
)

// supportLedger is the default size of the ledger in a support bundle, in MiB (--ledger).
const supportLedger = 16

func collectCommand(t *tree) *cobra.Command {
	var file string
	var limit int64
	var bundle bool
	var s support
	cmd := &cobra.Command{
		Use:   "collect",
		Short: "Copy what the checks read of a node into one file, to judge it elsewhere, or for support",
		Long: "collect reads the node as `kata-vfio-audit node` does, and data for later versions, and writes one archive (.tar.gz).\n" +
			"Use it in place of the node: with `eval`, or with --root of any command. The archive records what could not be\n" +
			"read and what was not read: checks treat neither as good. With --rules it also has what your own rules read, and their names\n" +
			"and hashes, but not the rules: pass them to `eval` too.\n" +
			"\n" +
			"It contains names of tenants and claims, addresses and host names, kernel and runtime configuration, and the\n" +
			"command lines of the node's runtimes and of processes that hold devices. It contains no environment variables, keys\n" +
			"or tokens. Its mode is 0600.\n" +
			"\n" + supportHelp +
			exitCodes,
		Example: "  kata-vfio-audit collect --file node7.tgz\n  kata-vfio-audit eval node7.tgz\n" +
			"  kata-vfio-audit collect --support --mask --file node7-support.tgz\n" +
			"  kata-vfio-audit collect --support --file node7-support.tgz --kubeconfig /etc/kubernetes/admin.conf",
		Args: command.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&file, "file", "", "file to write; - or none is standard output, which must not be a terminal")
	f.Int64Var(&limit, "ledger", archive.LedgerLimit>>20, "most MiB of the node's ledger to copy: the newest events, and the hashes of older events,\n"+
		fmt.Sprintf("so that the whole ledger still verifies; with --support: %d by default", supportLedger))
	f.BoolVar(&bundle, "support", false, "make a support bundle")
	addRulesFlag(cmd, &t.ownRules)
	only := s.flags(cmd)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, name := range only {
			if !bundle && cmd.Flags().Changed(name) {
				return command.Usagef("--%s needs --support", name)
			}
		}
		if bundle && !cmd.Flags().Changed("ledger") {
			limit = supportLedger
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		// The archive is whole before the first byte leaves: an error leaves no truncated file and nothing in a pipe.
		var out bytes.Buffer
		write := t.collect
		if bundle {
			write = func(ctx context.Context, w, warnings io.Writer, limit int64) error {
				return s.write(ctx, t, w, warnings, limit)
			}
		}
		if err := write(cmd.Context(), &out, cmd.ErrOrStderr(), limit<<20); err != nil {
			return err
		}
		return deliverArchive(out.Bytes(), file, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

const supportHelp = "--support writes a bundle for a support case instead: node.tgz (the archive), devices and findings as JSON, the\n" +
	"journal's records, the end of the ledger and the result of its verification, versions, and the ends of log files.\n" +
	"With --kubeconfig it adds the plugin's own objects, its slices, and the claims that have or wait for devices of\n" +
	"kata-vfio (use an administrator's kubeconfig: other users may list little). Its manifest.json has the hash of every\n" +
	"file and lists what was left out. It contains no Secrets, keys, tokens, passwords or kubeconfigs in any known form.\n" +
	"--mask replaces the names of tenants' namespaces, pods and claims with pseudonyms, the same for the same name, and\n" +
	"leaves out the logs of runtimes. Names that are also common words, such as dev or gpu, stay in running text. The masked\n" +
	"ledger does not verify, so the bundle contains the earlier result. Host names and addresses stay.\n" +
	"\n"

// gatherCommand is hidden: it is `collect --support` under an earlier name.
func gatherCommand(t *tree) *cobra.Command {
	cmd := collectCommand(t)
	cmd.Use, cmd.Hidden = "gather", true
	cmd.Short, cmd.Long, cmd.Example = "The same as `kata-vfio-audit collect --support`", exitCodes, ""
	_ = cmd.Flags().Set("support", "true") // the flag is there, and a boolean
	return cmd
}

// deliverArchive writes an archive, and names its file on warnings.
func deliverArchive(data []byte, file string, stdout, warnings io.Writer) error {
	if file == "" || file == "-" {
		if output.Is(stdout) {
			return command.Usagef("the archive can't go to a terminal: name a file with --file")
		}
		if _, err := stdout.Write(data); err != nil {
			return fmt.Errorf("write archive: %w", err)
		}
		return nil
	}
	if err := writePrivate(file, data); err != nil {
		return fmt.Errorf("write archive to %s: %w", file, err)
	}
	fmt.Fprintf(warnings, "wrote %s (%.1f MiB)\n", file, float64(len(data))/(1<<20))
	return nil
}

// writePrivate writes a file that only its owner may read, regardless of the mode of the file that it replaces, which
// [renameio.WriteFile] would keep.
func writePrivate(file string, data []byte) error {
	f, err := renameio.NewPendingFile(file, renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// collect judges the node while a recorder records its reads, reads further useful files, and writes all of them. It
// includes no more than a number of bytes of the ledger.
func (t *tree) collect(ctx context.Context, w, warnings io.Writer, ledgerLimit int64) error {
	r, err := t.record(ctx, warnings, ledgerLimit)
	if err != nil {
		return err
	}
	defer func() { _ = r.node.Close() }()
	working := output.NewProgress(warnings)
	defer working.End()
	working.Say("compressing the files")
	return r.recorder.Write(w, r.manifest)
}

// recorded is a node whose reads a recorder recorded.
type recorded struct {
	node     *opened
	facts    *facts.Node
	findings *finding.Report
	// checks are all checks.
	checks   []check.Check
	recorder *archive.Recorder
	manifest archive.Manifest
}

// record reads the node; the caller closes it.
func (t *tree) record(ctx context.Context, warnings io.Writer, ledgerLimit int64) (*recorded, error) {
	node, err := t.open()
	if err != nil {
		return nil, err
	}
	if node.manifest != nil {
		return nil, errors.Join(command.Usagef("%s is already an archive", t.root), node.Close())
	}
	r := &recorded{node: node}
	if err := r.look(ctx, t, warnings, ledgerLimit); err != nil {
		return nil, errors.Join(err, node.Close())
	}
	return r, nil
}

func (r *recorded) look(ctx context.Context, t *tree, warnings io.Writer, ledgerLimit int64) error {
	rules, err := readRules(t.ownRules)
	if err != nil {
		return err
	}
	if err := t.check(r.node.fs, warnings); err != nil {
		return err
	}
	working := output.NewProgress(warnings)
	defer working.End()
	now := time.Now().UTC()
	seen, recorder := archive.Record(r.node.fs)
	working.Say("reading the node")
	n, err := t.look(ctx, seen)
	if err != nil {
		return err
	}
	r.facts, r.recorder = n, recorder
	if r.checks, err = check.Of(rules); err != nil {
		return err
	}
	r.findings = check.Run(n, r.checks, check.Options{Profile: finding.Profiles()[0], Today: now.Format(time.DateOnly)})
	r.findings.Subject, r.findings.RuleFiles = r.node.subject(n, now), rules.Files
	check.Planned(n, r.checks, now.Format(time.DateOnly)) // so that the archive has the files that it reads
	working.Say("reading the files of %s", output.Count(len(n.Snapshot.Functions), "function"))
	if err := recorder.Wide(ctx); err != nil {
		return err
	}
	if err := addFacts(ctx, recorder, n); err != nil {
		return err
	}
	history, err := recorder.Ledger(ctx, ledgerLimit)
	if err != nil {
		return err
	}
	if err := warn(warnings, history.String()); err != nil {
		return err
	}
	r.manifest = archive.Manifest{
		Collector: command.Build(), Time: now.Format(time.RFC3339), UID: os.Getuid(), Hidden: hidden(n.Snapshot),
		Hostname: n.Read(hostnameFile).Value, BootID: n.Snapshot.Host.BootID, Kernel: n.Snapshot.Host.Kernel, Ledger: history, RuleFiles: rules.Files,
	}
	return nil
}

// addFacts adds facts that no file of the node has: the settings that PFs impose on their VFs, the addresses of interfaces,
// the answers of containerd, and the owners of files.
func addFacts(ctx context.Context, recorder *archive.Recorder, n *facts.Node) error {
	// Stats has the files that the checks have asked for so far, so this has to be the last step of the reading.
	kept := map[string]any{facts.StatFile: n.Stats()}
	if links, seen := n.Links(); seen.OK() {
		kept[facts.LinksFile] = links
	}
	addresses, err := inventory.Addresses(ctx, n.FS())
	if err != nil {
		return err
	}
	if addresses != nil {
		kept[inventory.AddressesFile] = addresses
	}
	if running, seen := runtimes.Running(n); seen.OK() {
		kept[runtimes.RunningFile] = running
	}
	for name, value := range kept {
		data, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("record %s: %w", name, err)
		}
		recorder.Put(name, data)
	}
	return nil
}

// hidden counts the functions whose configuration space was not shown in full.
func hidden(s *device.Snapshot) int {
	n := 0
	for i := range s.Functions {
		if f := &s.Functions[i]; f.Capabilities.Truncated && !f.ConfigDead {
			n++
		}
	}
	return n
}

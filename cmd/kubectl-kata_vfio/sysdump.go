package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// sysdump has the flags of the command.
type sysdump struct {
	file      string
	system    string
	since     time.Duration
	mask, dry bool
}

func sysdumpCommand(s *session) *cobra.Command {
	var d sysdump
	cmd := &cobra.Command{
		Use:   "sysdump",
		Short: "Write the state of kata-vfio in the whole cluster to an archive, for a support case",
		Long: "sysdump writes one .tar.gz with kata-vfio's objects, the claims for its devices, their pods and Events, nodes, and the logs of kata-vfio's\n" +
			"pods. What you may not read is listed in its manifest.json with the reason, and the rest is there. It reads no Secrets, and the\n" +
			"archive has no values of environment variables. --mask replaces the names of tenants' namespaces, pods and claims, and leaves out their\n" +
			"images, addresses and claims' parameters. Credentials in logs and ConfigMaps are removed by their form only: read the archive before\n" +
			"you pass it on.\n" +
			"\n" +
			exitCodeHelp("sysdump"),
		Example: "  kubectl kata-vfio sysdump --mask\n  kubectl kata-vfio sysdump --since 2h -o case-4711.tar.gz\n  kubectl kata-vfio sysdump --dry-run   # lists what it would read",
		Args:    command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.since <= 0 {
				return command.Usagef("--since %s: want more than 0, such as 2h", d.since)
			}
			if d.dry {
				out := cmd.OutOrStdout()
				return writeLines(out, dumpTable(&d).Lines(output.TableWidth(out), output.Colorful(out)))
			}
			return s.dump(cmd, &d)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&d.file, "output", "o", "", "write the archive to this `file`; - is the standard output (default: kata-vfio-sysdump-TIME.tar.gz)")
	f.StringVar(&d.system, "system-namespace", systemNamespace, "namespace of the chart")
	f.DurationVar(&d.since, "since", 24*time.Hour, "how old the oldest lines of logs are")
	f.BoolVar(&d.mask, "mask", false, "replace the names of tenants' namespaces, pods and claims")
	f.BoolVar(&d.dry, "dry-run", false, "list what would be read, and read nothing")
	return cmd
}

// dumpTable is what a sysdump reads.
func dumpTable(d *sysdump) *output.Table {
	t := &output.Table{Titles: []string{"READS", "NAMESPACE", "KEEPS"}}
	kinds := fleet.DumpKinds(d.system)
	for i := range kinds {
		where := kinds[i].Namespace
		if where == "" {
			where = "all"
		}
		t.Rows = append(t.Rows, cells(kinds[i].Name, where, kinds[i].Keeps))
	}
	keeps := fmt.Sprintf("of kata-vfio's pods: the last %d MiB of each container since %s, and of its last restart", maxLog>>20, d.since)
	t.Rows = append(t.Rows, cells("pods/log", d.system, keeps))
	return t
}

// dumpLimit is the time that the API server may take for all requests.
const dumpLimit = 10 * time.Minute

// dump reads the cluster and writes the archive.
func (s *session) dump(cmd *cobra.Command, d *sysdump) error {
	client, _, err := s.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), dumpLimit)
	defer cancel()
	progress := output.NewProgress(cmd.ErrOrStderr())
	var b output.Bundle
	var mask *output.Mask
	if d.mask {
		mask = output.NewMask()
	}
	err = d.fill(ctx, client, &b, mask, progress)
	progress.End()
	if err != nil {
		return err
	}
	// The archive is in memory until it is whole, so that an interrupted command leaves no half of one.
	var archive bytes.Buffer
	made := s.now().UTC()
	if err := b.Write(&archive, output.BundleManifest{Tool: command.Build(), Time: made.Format(time.RFC3339)}, mask); err != nil {
		return err
	}
	return d.save(cmd, archive.Bytes(), b.Notes(), made)
}

// fill reads everything. The error is a [forbiddenError] if the user may list nothing.
func (d *sysdump) fill(ctx context.Context, client lister, b *output.Bundle, mask *output.Mask, progress *output.Progress) error {
	server, err := client.ServerVersion(ctx)
	if err != nil {
		return fmt.Errorf("ask the API server for its version: %w", err)
	}
	if err := b.AddJSON("versions.json", map[string]string{"kubernetes": server.GitVersion, "tool": command.Build()}); err != nil {
		return err
	}
	objects := &fleet.Dump{Namespace: d.system, Flag: "--system-namespace", Mask: mask, Say: progress.Say}
	listed, err := objects.Add(ctx, client, b)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("list the cluster's objects: %w", context.Cause(ctx))
	}
	if listed == 0 {
		return &forbiddenError{kind: fleet.Slices, err: errors.New(b.Notes()[0])}
	}
	d.logs(ctx, client, b, mask, objects.Components, progress)
	return nil
}

// save writes the archive, and says what is missing from it.
func (d *sysdump) save(cmd *cobra.Command, archive []byte, notes []string, made time.Time) error {
	for _, note := range notes {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: %s\n", output.Visible(note))
	}
	if d.file == "-" {
		if _, err := cmd.OutOrStdout().Write(archive); err != nil {
			return fmt.Errorf("write archive: %w", err)
		}
		return nil
	}
	name := d.file
	if name == "" {
		name = "kata-vfio-sysdump-" + made.Format("20060102T150405Z") + ".tar.gz"
	}
	if err := writePrivate(name, archive); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %d KiB\n", output.Visible(name), (len(archive)+1023)/1024)
	if err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// writePrivate writes a file that only its owner may read, and leaves a file of before in place until the new one is whole. renameio does
// not work on Windows, on which this program runs.
func writePrivate(name string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*") // of mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

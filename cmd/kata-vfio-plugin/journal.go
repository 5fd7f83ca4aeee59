package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// journalCommand groups the commands for the journal's files.
func journalCommand(opts *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "journal",
		Short: "Show the journal's formats, and export it for an older plugin",
		Long: "Each record has the version of its format. This plugin reads versions 1 to " + fmt.Sprint(journal.Version) + ", and writes each\n" +
			"record in the oldest version that holds all of it. It refuses a newer version and does not change it.\n\n" + exitCodes,
		Example: "  kata-vfio-plugin journal versions\n  kata-vfio-plugin journal export --as 1 --to /root/journal-1",
		Args:    command.NoSubcommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(journalVersionsCommand(opts), journalExportCommand(opts))
	return cmd
}

// recordVersion is the format of one record.
type recordVersion struct {
	UID     string `json:"uid"`
	State   string `json:"state"`
	Version int    `json:"version"`
	// Lost says why an older plugin can't read it.
	Lost string `json:"lost,omitempty"`
}

func journalVersionsCommand(opts *options) *cobra.Command {
	return &cobra.Command{
		Use:   "versions",
		Short: "Show which version of the format each record needs, and why",
		Long:  "versions shows which records an older plugin can use, and which can't be read at all.\n\n" + exitCodes,
		Args:  command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		Example: "  kata-vfio-plugin journal versions -o json | jq '.records[] | select(.version > 1)'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := opts.records()
			if err != nil {
				return err
			}
			records, problems := store.List()
			for i := range problems {
				problems[i] = readable(problems[i])
			}
			all := []recordVersion{}
			rows := [][]string{{"UID", "STATE", "VERSION", "WHY"}}
			for _, rec := range records {
				v := recordVersion{UID: rec.ID(), State: string(rec.State), Version: journal.VersionOf(rec)}
				if _, err := journal.EncodeAs(rec, 1); err != nil {
					v.Lost = err.Error()
				}
				all = append(all, v)
				rows = append(rows, []string{v.UID, v.State, fmt.Sprint(v.Version), orDash(v.Lost)})
			}
			done, err := document(cmd.OutOrStdout(), opts.output, map[string]any{"records": all})
			if !done {
				err = table(cmd.OutOrStdout(), rows)
			}
			return errors.Join(append(problems, err)...)
		},
	}
}

func journalExportCommand(opts *options) *cobra.Command {
	var version int
	var to string
	cmd := &cobra.Command{
		Use:   "export --as N --to DIR",
		Short: "Write the journal into a new directory for an older plugin",
		Long: "export writes all records and marks in an older format. If that loses something on which the older plugin must act, or\n" +
			"a record can't be read, export lists all of it and writes nothing. Stop the plugin first, replace the journal with the\n" +
			"export, and start the older plugin.\n\n" + exitCodes,
		Args: command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		Example: "  kata-vfio-plugin journal export --as 1 --to /root/journal-1",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version < 1 || version > journal.Version || to == "" {
				return command.Usagef("want --as 1 to %d, and --to a directory that does not exist", journal.Version)
			}
			store, err := opts.records()
			if err != nil {
				return err
			}
			n, err := store.Export(version, to)
			if err != nil {
				return readable(err)
			}
			if done, err := document(cmd.OutOrStdout(), opts.output, map[string]any{"records": n, "version": version, "directory": to}); done {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s written as version %d to %s.\n", terminal.Count(n, "record"), version, to)
			return err
		},
	}
	cmd.Flags().IntVar(&version, "as", 0, "version of the format")
	cmd.Flags().StringVar(&to, "to", "", "directory to create")
	return cmd
}

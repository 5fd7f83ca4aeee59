package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// shortest is the least time between audits, which limits the load on the node.
const shortest = time.Minute

// repeated has the flags of repeated audits of a node.
type repeated struct {
	every time.Duration
	out   string
}

func (e *repeated) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.DurationVar(&e.every, "every", 0, "repeat at this interval, such as 1h, plus or minus a tenth, until a signal comes (minimum 1m)")
	f.StringVar(&e.out, "out", "", "with --every: directory for the latest report, as NODE.json")
}

// check refuses contradictory flags.
func (e *repeated) check(cmd *cobra.Command) error {
	set := cmd.Flags().Changed
	switch {
	case set("every") && e.every < shortest:
		return command.Usagef("--every %s: want %s or more", e.every, shortest)
	case e.every > 0 && (set("file") || set("output") && cmd.Flag("output").Value.String() != "json"):
		return command.Usagef("--every writes JSON lines to standard output, and files with --out: it takes neither --file nor another format")
	case e.every == 0 && e.out != "":
		return command.Usagef("--out needs --every; use --file to write one report")
	}
	return nil
}

// isFileName reports whether a node's name can be the name of its file.
func isFileName(name string) bool {
	return name != "" && !strings.HasPrefix(name, ".") && !strings.ContainsAny(name, "/\x00") && len(name) <= 253
}

// watch audits the node until the command's context ends. It reports an audit that can't be made or written on standard
// error, and continues.
func (t *tree) watch(cmd *cobra.Command, j *judging, e *repeated) error {
	if e.out != "" {
		if err := os.MkdirAll(e.out, 0o700); err != nil {
			return fmt.Errorf("create the directory for reports: %w", err)
		}
	}
	repeat(cmd.Context(), e.every, func(ctx context.Context) {
		if err := j.rereadRules(); err != nil {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "audit: the rules that were read before apply: %s\n", output.Visible(err.Error()))
		}
		if err := j.rereadWaivers(); err != nil {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "audit: no waivers apply: %s\n", output.Visible(err.Error()))
		}
		if err := t.once(ctx, j, e, cmd.OutOrStdout()); err != nil && ctx.Err() == nil {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "audit: %s\n", output.Visible(err.Error()))
		}
	})
	return nil
}

// once makes one audit. It writes the file before the line, so that a reader of the line finds the file. If the file can't
// be written, the line is written nevertheless.
func (t *tree) once(ctx context.Context, j *judging, e *repeated, stdout io.Writer) error {
	doc, err := t.judge(ctx, j, j.checks)
	if err != nil {
		return err
	}
	var line bytes.Buffer
	if err := output.JSONLine(&line, "report", doc.Report); err != nil {
		return err
	}
	// The file comes first: the report must be kept even if the reader of standard output has gone away.
	kept := e.keep(doc.Subject.Name, line.Bytes())
	if _, err := stdout.Write(line.Bytes()); err != nil {
		return errors.Join(kept, fmt.Errorf("write report: %w", err))
	}
	return kept
}

// keep writes a node's report to its file, if reports are kept.
func (e *repeated) keep(name string, report []byte) error {
	if e.out == "" {
		return nil
	}
	if !isFileName(name) {
		return fmt.Errorf("the node's name %q can't be a file name; set --node-name", name)
	}
	if err := writePrivate(filepath.Join(e.out, name+".json"), report); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// repeat calls do now and then periodically, until ctx ends. The period varies by a tenth, so that nodes that started
// together drift apart.
func repeat(ctx context.Context, every time.Duration, do func(context.Context)) {
	for ctx.Err() == nil {
		do(ctx)
		// The pause follows the audit's end: an audit that takes longer than the period is not followed at once by the next.
		wait := time.NewTimer(every - every/10 + rand.N(every/5))
		select {
		case <-ctx.Done():
			wait.Stop()
		case <-wait.C:
		}
	}
}

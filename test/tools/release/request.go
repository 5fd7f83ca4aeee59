package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"

	"github.com/kata-vfio/kata-vfio/test/tools/release/commandline"
)

// request is what a command line asks for.
type request struct {
	tree     string // the source tree, for its documents, chart and units
	programs string // a directory for each processor
	output   string // exists already; what is in it is in the checksums
	version  string // a semantic version without v
	guests   []string
	bare     []string
	helm     string // the command that renders the chart, or empty
	dev      bool
	// chartOnly is a request for the chart, and with helm its manifest, of a tree as it is: nothing is compiled for it.
	chartOnly bool
	log       io.Writer // gets what is done now; nil for none
}

// parse reads a command line. What is wrong with it is in the error alone; its help goes to w.
func parse(args []string, w io.Writer) (*request, error) {
	r := request{log: w}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.tree, "tree", ".", "the source tree's `directory`")
	flags.StringVar(&r.programs, "programs", "", "the `directory` of the programs, in a directory for each GOARCH")
	flags.StringVar(&r.output, "o", "", "the `directory` to write to, which may have more to be released in it")
	flags.StringVar(&r.version, "version", "", "the release's `version`, such as 1.2.3")
	flags.Func("guest", "a `program` that runs in guests and is in no host's package; may be given again",
		func(name string) error { r.guests = append(r.guests, name); return nil })
	flags.Func("bare", "a `program` that is released as a file of its own too, for scripts that fetch it; may be given again",
		func(name string) error { r.bare = append(r.bare, name); return nil })
	flags.StringVar(&r.helm, "helm", "", "the `command` helm, to write the chart as a manifest for kubectl, too")
	flags.BoolVar(&r.chartOnly, "chart-only", false, "write the chart, and its manifest with -helm, without any programs")
	flags.BoolVar(&r.dev, "dev", false, "take programs of a tree with changes that are in no commit")
	if err := commandline.Parse(flags, "release -programs DIRECTORY -version VERSION -o DIRECTORY [flags]", args, w); err != nil {
		return nil, err
	}
	return &r, r.validate()
}

func (r *request) validate() error {
	switch {
	case r.chartOnly && r.programs != "":
		return errors.New("-chart-only takes no -programs: without them there is no commit to name")
	case r.programs == "" && !r.chartOnly:
		return errors.New("the flag -programs is missing: the directory of the programs")
	case r.output == "":
		return errors.New("the flag -o is missing: the directory to write to")
	}
	return commandline.CheckVersion(r.version)
}

// Run makes all files, then their checksums, and says what it made.
func (r *request) Run(ctx context.Context, stdout io.Writer) error {
	if r.chartOnly {
		return r.writeCharts(ctx, source{version: r.version, time: time.Unix(0, 0).UTC()})
	}
	programs, err := load(r.programs)
	if err != nil {
		return err
	}
	src, err := sourceOf(programs)
	if err != nil {
		return err
	}
	if err := r.accept(src); err != nil {
		return err
	}
	src.version = r.version
	if err := r.write(ctx, src, programs); err != nil {
		return err
	}
	return checksums(r.output, stdout)
}

// accept refuses a source of which nobody could make the same release again.
func (r *request) accept(src source) error {
	if src.modified && !r.dev {
		return errors.New("the programs are of a tree with changes that are in no commit: commit them, or say -dev")
	}
	return nil
}

// say says what is done now, as `make release` does for what it builds.
func (r *request) say(format string, args ...any) {
	if r.log != nil {
		fmt.Fprintf(r.log, format+"\n", args...)
	}
}

// write makes all files but the checksums.
func (r *request) write(ctx context.Context, src source, programs []program) error {
	r.say("describe %d programs", len(programs))
	cache, err := newModuleCache(ctx)
	if err != nil {
		return err
	}
	if err := describe(ctx, programs, src, cache); err != nil {
		return err
	}
	r.say("write the SBOM")
	if err := writeSBOM(r.output, src, programs, cache); err != nil {
		return fmt.Errorf("write the SBOM: %w", err)
	}
	r.say("write the chart")
	if err := r.writeCharts(ctx, src); err != nil {
		return err
	}
	r.say("write %d archives", len(programs))
	license, err := os.ReadFile(r.tree + "/LICENSE")
	if err != nil {
		return err
	}
	for i := range programs {
		if err := writeArchive(r.output, src, &programs[i], license); err != nil {
			return fmt.Errorf("write the archive of %s: %w", programs[i].name, err)
		}
	}
	if err := writeKrew(r.output, src, programs); err != nil {
		return fmt.Errorf("write the krew manifest: %w", err)
	}
	if err := r.writeBare(programs); err != nil {
		return err
	}
	r.say("write the packages")
	return r.writePackages(src, programs)
}

// writeCharts writes the chart and, if there is a helm to render it, what is made of it.
func (r *request) writeCharts(ctx context.Context, src source) error {
	chart, err := writeChart(r.tree, r.output, src, r.dev)
	if err != nil {
		return fmt.Errorf("write the chart: %w", err)
	}
	if r.helm == "" {
		return nil
	}
	if err := r.writeInstall(ctx, src, chart); err != nil {
		return fmt.Errorf("write the manifest for kubectl: %w", err)
	}
	return nil
}

// writeBare writes programs as they are. It is an error if a requested program does not exist, which would otherwise show only
// when a node fetches it.
func (r *request) writeBare(programs []program) error {
	for _, name := range r.bare {
		found := false
		for i := range programs {
			p := &programs[i]
			if p.name != name || p.os != "linux" {
				continue
			}
			found = true
			if err := renameio.WriteFile(filepath.Join(r.output, p.name+"-linux-"+p.arch), p.content, 0o755); err != nil {
				return err
			}
		}
		if !found {
			return fmt.Errorf("-bare %s: there is no such program", name)
		}
	}
	return nil
}

// onHosts returns the programs for nodes. It leaves out the programs of guests, the kubectl plugin, and programs for systems
// other than Linux.
func (r *request) onHosts(programs []program) []program {
	return slices.DeleteFunc(slices.Clone(programs), func(p program) bool {
		return slices.Contains(r.guests, p.name) || p.isKubectlPlugin() || p.os != "linux"
	})
}

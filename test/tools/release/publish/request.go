package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/mod/semver"

	"github.com/kata-vfio/kata-vfio/test/tools/release/commandline"
)

// request is what a command line asks for.
type request struct {
	from      string // the directory of the release
	version   string // a semantic version without v
	registry  string // a host and a path
	plainHTTP bool
	remote    string // a Git remote, or empty
	changelog string
	notes     string // a file to write, or empty
	output    string // a file to write, or empty
	dev       bool
}

// published is one artifact in the registry.
type published struct {
	Kind       string `json:"kind"` // image or chart
	Repository string `json:"repository"`
	Tag        string `json:"tag"`
	Digest     string `json:"digest"`
}

// parse reads a command line. What is wrong with it is in the error alone; its help goes to w.
func parse(args []string, w io.Writer) (*request, error) {
	var r request
	flags := flag.NewFlagSet("publish", flag.ContinueOnError)
	flags.StringVar(&r.from, "from", "bin/release", "the `directory` of the release")
	flags.StringVar(&r.version, "version", "", "the release's `version`, such as 1.2.3")
	flags.StringVar(&r.registry, "registry", "", "the registry's `host/path`, such as ghcr.io/kata-vfio")
	flags.BoolVar(&r.plainHTTP, "plain-http", false, "allow a registry without TLS")
	flags.StringVar(&r.remote, "remote", "", "the `URL` of a Git repository that gets the krew manifest; the default is none")
	flags.StringVar(&r.changelog, "changelog", "CHANGELOG.md", "the `file` that describes the version")
	flags.StringVar(&r.notes, "notes", "", "write what the changelog says about the version to this `file`")
	flags.StringVar(&r.output, "o", "", "write the digests as JSON to this `file`, too")
	flags.BoolVar(&r.dev, "dev", false, "allow a version that is not a release, such as 1.2.3-dev")
	if err := commandline.Parse(flags, "publish -version VERSION -registry HOST/PATH [flags]", args, w); err != nil {
		return nil, err
	}
	return &r, r.validate()
}

func (r *request) validate() error {
	if err := commandline.CheckVersion(r.version); err != nil {
		return err
	}
	switch {
	case semver.Prerelease("v"+r.version) == "-dev" && !r.dev:
		return fmt.Errorf("version %s is of a tree with changes that are in no commit: publish a release, or add -dev", r.version)
	case r.registry == "":
		return errors.New("the flag -registry is missing: the host and path to push to")
	}
	return nil
}

// Run checks everything that can be checked here before it pushes anything.
func (r *request) Run(ctx context.Context, stdout io.Writer) error {
	if err := verify(r.from); err != nil {
		return err
	}
	if err := r.writeNotes(); err != nil {
		return err
	}
	done, err := r.pushAll(ctx, stdout)
	if err != nil {
		return err
	}
	if err := r.writeDigests(done); err != nil {
		return err
	}
	if r.remote == "" {
		return nil
	}
	return r.publishKrew(ctx, stdout)
}

// pushAll pushes the images and the chart, and says what it pushed.
func (r *request) pushAll(ctx context.Context, stdout io.Writer) (done []published, err error) {
	temporary, err := os.MkdirTemp("", "publish-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temporary)
	artifacts, err := r.artifacts(temporary)
	if err != nil {
		return nil, err
	}
	for i := range artifacts {
		one, err := r.push(ctx, &artifacts[i])
		if err != nil {
			return nil, fmt.Errorf("push the %s %s: %w", artifacts[i].kind, artifacts[i].reference, err)
		}
		fmt.Fprintf(stdout, "%s %s:%s@%s\n", one.Kind, one.Repository, one.Tag, one.Digest)
		done = append(done, one)
	}
	return done, nil
}

func (r *request) writeNotes() error {
	if r.dev && r.notes == "" {
		return nil
	}
	changelog, err := os.ReadFile(r.changelog)
	if err != nil {
		return err
	}
	text, err := notes(string(changelog), r.version)
	if err != nil {
		return fmt.Errorf("%s: %w", r.changelog, err)
	}
	if r.notes == "" {
		return nil
	}
	return renameio.WriteFile(r.notes, []byte(text), 0o644)
}

func (r *request) writeDigests(done []published) error {
	if r.output == "" {
		return nil
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(done); err != nil {
		return err
	}
	return renameio.WriteFile(r.output, out.Bytes(), 0o644)
}

// file is the path of one of the release's files.
func (r *request) file(name string) string { return filepath.Join(r.from, name) }

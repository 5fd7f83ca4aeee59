package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// request is what a command line asks for.
type request struct {
	output     string
	name       name.Tag
	entrypoint []string
	labels     map[string]string
	programs   map[string]string // files of this host, by their paths in the image; several, one for each processor, by commas
	dynamic    map[string]string // dynamic programs, in the same form, for this host's processor
	libraries  []string          // files of this host that dynamic programs load when they run
	oci        bool
}

// parse reads a command line. What is wrong with it is in the error alone; its help goes to w.
func parse(args []string, w io.Writer) (*request, error) {
	r := &request{labels: map[string]string{}, programs: map[string]string{}, dynamic: map[string]string{}}
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&r.output, "o", "", "the archive's `file`, replaced when the new one is complete")
	reference := flags.String("name", "", "the image's `name`, REGISTRY/NAME:TAG")
	flags.Func("entrypoint", "a `word` of what a container runs: the program's path, then, by the flag again, its arguments",
		func(word string) error { r.entrypoint = append(r.entrypoint, word); return nil })
	flags.Func("label", "a `KEY=VALUE` of the image's labels; may be given again",
		func(text string) error { return put(r.labels, text) })
	flags.Func("dynamic", "a `PATH=PROGRAM` of a dynamic program, which brings this host's dynamic linker and libraries; may be given again",
		func(text string) error { return put(r.dynamic, text) })
	flags.Func("library", "a `file` of this host that a dynamic program loads when it runs, for the C library's directory; may be given again",
		func(file string) error { r.libraries = append(r.libraries, file); return nil })
	flags.BoolVar(&r.oci, "oci", false,
		"write an OCI archive with compressed layers, for registries; PATH=PROGRAM,PROGRAM then is for several processors")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(w, "usage: image -o FILE -name NAME -entrypoint PATH [flags] PATH=PROGRAM ...")
		flags.SetOutput(w)
		flags.PrintDefaults()
	}
	if err != nil {
		return nil, err
	}
	for _, arg := range flags.Args() {
		if err := put(r.programs, arg); err != nil {
			return nil, fmt.Errorf("program %q: %w", arg, err)
		}
	}
	if r.name, err = parseName(*reference); err != nil {
		return nil, err
	}
	return r, r.validate()
}

// parseName takes whole names only. What is left out of a name, Docker would take from its hub.
func parseName(text string) (name.Tag, error) {
	tag, err := name.NewTag(text, name.StrictValidation)
	if err != nil {
		return name.Tag{}, fmt.Errorf("name %q is not REGISTRY/NAME:TAG: %w", text, err)
	}
	return tag, nil
}

// put adds a KEY=VALUE.
func put(to map[string]string, text string) error {
	key, value, _ := strings.Cut(text, "=")
	if key == "" || value == "" {
		return errors.New("it has no key, or no value after a =")
	}
	if _, twice := to[key]; twice {
		return fmt.Errorf("%s is given twice", key)
	}
	to[key] = value
	return nil
}

func (r *request) validate() error {
	if r.output == "" {
		return errors.New("the flag -o is missing: the archive's file")
	}
	if len(r.programs) == 0 {
		return errors.New("the programs are missing: PATH=PROGRAM for each, such as /bin/show=bin/show")
	}
	for _, p := range slices.Concat(slices.Collect(maps.Keys(r.programs)), slices.Collect(maps.Keys(r.dynamic)), r.libraries) {
		if relative, ok := strings.CutPrefix(p, "/"); !ok || !fs.ValidPath(relative) || relative == "." {
			return fmt.Errorf("path %q of a program is not absolute and clean", p)
		}
	}
	if len(r.entrypoint) == 0 {
		return errors.New("the flag -entrypoint is missing: the path of the program that a container runs")
	}
	if _, ok := r.programs[r.entrypoint[0]]; !ok {
		return fmt.Errorf("entrypoint %q is none of the programs' paths", r.entrypoint[0])
	}
	return nil
}

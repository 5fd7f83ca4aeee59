// Command image makes a container image out of static programs, from scratch: without a base image, a registry or a
// daemon. The same programs and flags make the same bytes.
//
// Its output is an archive as `docker save` writes it, the one form that `ctr images import`, `docker load`,
// `podman load` and `kind load image-archive` all read:
//
//	image -o show.tar -name localhost/show:1 -entrypoint /bin/show /bin/show=bin/show
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run makes the image that the arguments ask for and prints its name and its ID, which crictl and docker know it by.
func run(args []string, stdout, stderr io.Writer) error {
	r, err := parse(args, stderr)
	if err != nil {
		return err
	}
	img, err := r.image()
	if err != nil {
		return fmt.Errorf("make image %s: %w", r.name, err)
	}
	id, err := img.ConfigName()
	if err != nil {
		return fmt.Errorf("make image %s: %w", r.name, err)
	}
	if err := save(r.output, r.name, img); err != nil {
		return fmt.Errorf("write image %s to %s: %w", r.name, r.output, err)
	}
	fmt.Fprintln(stdout, r.name, id)
	return nil
}

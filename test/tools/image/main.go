// Command image makes a container image out of static programs, from scratch: without a base image, a registry or a
// daemon. The same programs and flags make the same bytes.
//
// Its output is an archive as `docker save` writes it, the one form that `ctr images import`, `docker load`,
// `podman load` and `kind load image-archive` all read:
//
//	image -o show.tar -name localhost/show:1 -entrypoint /bin/show /bin/show=bin/show
//
// or, with -oci, an OCI archive of an image for several processors, which `skopeo copy --all oci-archive:` and
// `crane push` take to a registry, and containerd imports:
//
//	image -oci -o show.oci.tar -name localhost/show:1 -entrypoint /bin/show /bin/show=amd64/show,arm64/show
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

// run makes the image that the arguments ask for and prints its name and its ID: which crictl and docker know it by or,
// of one for several processors, by which registries do.
func run(args []string, stdout, stderr io.Writer) error {
	r, err := parse(args, stderr)
	if err != nil {
		return err
	}
	images, err := r.images()
	if err != nil {
		return fmt.Errorf("make image %s: %w", r.name, err)
	}
	write := save
	if r.oci {
		write = saveOCI
	}
	id, err := write(r.output, r.name, images)
	if err != nil {
		return fmt.Errorf("write image %s to %s: %w", r.name, r.output, err)
	}
	fmt.Fprintln(stdout, r.name, id)
	return nil
}

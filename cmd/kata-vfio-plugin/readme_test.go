package main

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/readme"
)

// Who is in trouble types what the README says.
func TestTheREADMERunsCommandsThatThereAre(t *testing.T) {
	for _, heading := range []string{"Uninstall", "When something is wrong"} {
		for _, args := range readme.Commands(t, heading, "kata-vfio-plugin") {
			got := invoke(t, append(args, "--help")...)
			if got.code != 0 || !strings.Contains(got.stdout, "kata-vfio-plugin "+args[0]) {
				t.Errorf("%q: code %d: %s%s", args, got.code, got.stdout, got.stderr)
			}
		}
	}
}

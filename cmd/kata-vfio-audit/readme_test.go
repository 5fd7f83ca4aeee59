package main

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/readme"
)

// Who is in trouble types what the README says.
func TestTheREADMERunsCommandsThatThereAre(t *testing.T) {
	for _, args := range readme.Commands(t, "When something is wrong", "kata-vfio-audit") {
		stdout, stderr, err := execute(t, append(args, "--help")...)
		if err != nil || !strings.Contains(stdout, "kata-vfio-audit "+args[0]) {
			t.Errorf("%q: %v: %s%s", args, err, stdout, stderr)
		}
	}
}

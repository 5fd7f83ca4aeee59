package main

import (
	"io"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/readme"
)

// Who is in trouble types what the README says.
func TestTheREADMERunsCommandsThatThereAre(t *testing.T) {
	for _, heading := range []string{"When something is wrong", "Day two"} {
		for _, args := range readme.Commands(t, heading, "kata-vfio-audit") {
			readme.Check(t, newCommand(io.Discard, io.Discard), args)
		}
	}
}

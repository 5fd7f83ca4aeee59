package bootstrap

import (
	"bytes"
	"fmt"

	"github.com/rogpeppe/go-internal/diff"
)

// unified returns the difference of two versions of a small file as `diff -u` prints it, empty without a difference. The
// names are those of the versions; use "/dev/null" for one that does not exist.
func unified(beforeName, afterName string, before, after []byte) string {
	if bytes.IndexByte(before, 0) >= 0 || bytes.IndexByte(after, 0) >= 0 {
		if bytes.Equal(before, after) {
			return ""
		}
		return fmt.Sprintf("binary files %s and %s differ\n", beforeName, afterName)
	}
	_, hunks, _ := bytes.Cut(diff.Diff(beforeName, before, afterName, after), []byte("\n")) // the first line is the command
	return string(hunks)
}

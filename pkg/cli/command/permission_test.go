package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestErrorOfAPermissionSaysWhoMay: a user other than root learns what to do, once.
func TestErrorOfAPermissionSaysWhoMay(t *testing.T) {
	const hint = "; user 1000 may not do that: run it as root, or as a user who may"
	denied := &fs.PathError{Op: "open", Path: "/root/node.yaml", Err: unix.EACCES}
	for about, c := range map[string]struct {
		err  error
		uid  int
		want string
	}{
		"a file":                {fmt.Errorf("read the node config: %w", denied), 1000, hint},
		"an operation":          {errors.Join(errors.New("a"), os.NewSyscallError("mount", unix.EPERM)), 1000, hint},
		"root":                  {denied, 0, ""},
		"another error":         {fs.ErrNotExist, 1000, ""},
		"that says it":          {fmt.Errorf("%w; run bootstrap as root", denied), 1000, ""},
		"that says who may":     {fmt.Errorf("%w; only root can read it", denied), 1000, ""},
		"that names what lacks": {fmt.Errorf("%w; the container needs the capability NET_ADMIN", denied), 1000, ""},
	} {
		if got := lacksRight(c.err, c.uid); got != c.want {
			t.Errorf("%s: got %q, want %q", about, got, c.want)
		}
	}
}

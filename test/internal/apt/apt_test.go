package apt_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/test/internal/apt"
)

// fakeAPT is the only program on PATH: it says its arguments, and fails for those that begin with one of the words
// until it has updated its lists, if it ever can.
func fakeAPT(t *testing.T, canUpdate bool) {
	t.Helper()
	dir := t.TempDir()
	update := "exit 100"
	if canUpdate {
		update = ": >" + dir + "/lists; exit 0"
	}
	script := `#!/bin/sh
echo "$@"
if [ "$1" = update ]; then ` + update + `; fi
[ -e ` + dir + `/lists ]
`
	if err := os.WriteFile(filepath.Join(dir, "apt-get"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
}

func TestListsAreFetchedWhereThoseAtHandDoNotDo(t *testing.T) {
	fakeAPT(t, true)
	var log strings.Builder
	if err := apt.Install(t.Context(), &log, "a", "b"); err != nil {
		t.Fatal(err)
	}
	const install = "install -y -q --no-install-recommends -oDPkg::Lock::Timeout=600 a b\n"
	if diff := cmp.Diff(install+"update -q\n"+install, log.String()); diff != "" {
		t.Errorf("what was run (-want +got):\n%s", diff)
	}
	log.Reset()
	if err := apt.Install(t.Context(), &log, "a", "b"); err != nil || log.String() != install {
		t.Errorf("with good lists %v, it ran\n%s", err, log.String())
	}
}

func TestFailureQuotesWhatWasSaid(t *testing.T) {
	fakeAPT(t, false)
	err := apt.Install(t.Context(), &strings.Builder{}, "a")
	if err == nil || !strings.Contains(err.Error(), "exit status 100\nupdate -q") {
		t.Errorf("got %v", err)
	}
}

func TestHostWithoutAPTGetsAdvice(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := apt.Install(t.Context(), &strings.Builder{}, "a", "b")
	if err == nil || !strings.Contains(err.Error(), `"apt-get install --no-install-recommends a b"`) {
		t.Errorf("got %v", err)
	}
}

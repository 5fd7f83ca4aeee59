package tail_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/test/internal/tail"
)

func TestEndIsKept(t *testing.T) {
	var w tail.Writer
	var all strings.Builder
	for i := range 1000 {
		text := fmt.Sprintf("line %d\n", i)
		fmt.Fprint(&w, text)
		all.WriteString(text)
	}
	file := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(file, []byte(all.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	got := w.String()
	if len(got) > 3000 || len(got) < 2900 || !strings.HasSuffix(got, "line 998\nline 999") {
		t.Errorf("the tail is %q", got)
	}
	if diff := cmp.Diff(got, tail.File(file)); diff != "" {
		t.Errorf("a file's tail differs from a writer's (-writer +file):\n%s", diff)
	}
}

func TestTailKeepsShortText(t *testing.T) {
	var w tail.Writer
	fmt.Fprint(&w, "\n a word\n")
	if got := w.String(); got != "a word" {
		t.Errorf("the tail is %q", got)
	}
}

func TestLogThatIsNotThereSaysSo(t *testing.T) {
	if got := tail.File(filepath.Join(t.TempDir(), "log")); !strings.Contains(got, "no such file") {
		t.Errorf("the tail is %q", got)
	}
}

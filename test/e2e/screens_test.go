//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/chromium"
)

// shotsDir is where screenshots are kept; without it none are taken.
const shotsDir = "KATA_VFIO_SHOTS"

// screen returns what a command shows at a terminal of a width in columns: in colors, with its tables in that width, and with the wanted word.
func (s *shownTo) screen(t *testing.T, line, want string, columns int) string {
	t.Helper()
	kubectl, err := s.plane.KubectlAs(t.Context(), s.user, s.plugins)
	if err != nil {
		t.Fatal(err)
	}
	inner := fmt.Sprintf("stty cols %d && exec '%s' kata-vfio %s", columns, kubectl.Path, line)
	cmd := exec.CommandContext(t.Context(), "script", "-qec", inner, "/dev/null") // util-linux; its exit code is the command's
	cmd.Env = slices.Concat(kubectl.Env, []string{"TERM=xterm"})
	out, err := cmd.Output()
	// Exit code 3 says that something needs attention.
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 3 {
		err = nil
	}
	if err != nil || !strings.Contains(string(out), want) {
		t.Fatalf("kubectl kata-vfio %s: %v; want %q in:\n%s", line, err, want, out)
	}
	return string(out)
}

// fitsScreens checks in a browser that what people read at terminals of 80 and 120 columns fits those.
func (s *shownTo) fitsScreens(t *testing.T, lines map[string]string) {
	browser := chromium.Start(t)
	for _, columns := range []int{80, 120} {
		for line, want := range lines {
			text := s.screen(t, line, want, columns)
			page, err := chromium.Terminal(text, columns)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			file := filepath.Join(t.TempDir(), "terminal.html")
			if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
				t.Fatal(err)
			}
			p := browser.Open("file://"+file, chromium.View{Width: 1320, Height: 900})
			if wide := p.Wider(); wide > 0 {
				t.Errorf("kubectl kata-vfio %s at %d columns: got lines %d pixels too wide, want none:\n%s", line, columns, wide, text)
			}
			keepScreen(t, p, fmt.Sprintf("%s-%d.png", strings.ReplaceAll(line, "/", "-"), columns))
		}
	}
}

func keepScreen(t *testing.T, p *chromium.Page, name string) {
	t.Helper()
	dir := os.Getenv(shotsDir)
	if dir == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name), p.Screenshot(true), 0o600); err != nil {
		t.Fatal(err)
	}
}

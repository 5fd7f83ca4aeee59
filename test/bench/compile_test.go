package bench

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// compilePlugin builds the command as it is built for an image.
func compilePlugin(b *testing.B) string {
	b.Helper()
	replace := map[string]string{}
	for file, by := range map[string]string{
		"../../cmd/kata-vfio-plugin/writable.go": "testdata/overlay/writable.go",
		"../../pkg/sysfs/control/writer.go":      "testdata/overlay/writer.go",
	} {
		replace[absolute(b, file)] = absolute(b, by)
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		b.Fatal(err)
	}
	overlay := filepath.Join(b.TempDir(), "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		b.Fatal(err)
	}
	return compile(b, "../../cmd/kata-vfio-plugin", "-overlay", overlay)
}

func absolute(b *testing.B, path string) string {
	b.Helper()
	abs, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(abs)
	}
	if err != nil {
		b.Fatal(err)
	}
	return abs
}

// compile builds a static binary and returns its path.
func compile(b *testing.B, pkg string, flags ...string) string {
	b.Helper()
	binary := filepath.Join(b.TempDir(), filepath.Base(pkg))
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", binary}, flags...)
	cmd := exec.CommandContext(b.Context(), "go", append(args, pkg)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("build %s: %v: %s", pkg, err, out)
	}
	return binary
}

package archive_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/archive"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// unpack returns a bundle's manifest and files.
func unpack(t *testing.T, data []byte) (m output.BundleManifest, files map[string]string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(content)
	}
	if err := json.Unmarshal([]byte(files[output.BundleManifestName]), &m); err != nil {
		t.Fatal(err)
	}
	return m, files
}

func write(t *testing.T, b *output.Bundle, mask *output.Mask) (output.BundleManifest, map[string]string) {
	t.Helper()
	var out bytes.Buffer
	if err := b.Write(&out, output.BundleManifest{Tool: "test", Time: "2026-11-22T10:00:00Z"}, mask); err != nil {
		t.Fatal(err)
	}
	return unpack(t, out.Bytes())
}

func TestManifestHasTheHashOfEveryFile(t *testing.T) {
	var b output.Bundle
	b.Add("a.txt", []byte("acme has token: hunter2hunter2\n"))
	b.AddDone("b.bin", []byte{0, 1, 2})
	mask := output.NewMask()
	mask.Hide("acme")
	m, files := write(t, &b, mask)
	if len(m.Files) != 2 || !m.Masked || len(files) != 3 {
		t.Fatalf("manifest %+v, %d files", m, len(files))
	}
	for _, f := range m.Files {
		sum := sha256.Sum256([]byte(files[f.Name]))
		if f.SHA256 != hex.EncodeToString(sum[:]) || f.Bytes != int64(len(files[f.Name])) {
			t.Errorf("%s: %+v", f.Name, f)
		}
	}
	if strings.Contains(files["a.txt"], "acme") || strings.Contains(files["a.txt"], "hunter2") {
		t.Errorf("a.txt: %q", files["a.txt"])
	}
}

// TestLogsAreBounded: large ones lose their beginning, pipes are not waited for, links
// do not lead off the node, and of the node's own logs only what concerns devices stays.
func TestLogsAreBounded(t *testing.T) {
	root := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.WriteFile(secret, []byte("of another tree"), 0o600); err != nil {
		t.Fatal(err)
	}
	own := "var/log/pods/kata-vfio_kata-vfio-plugin-x_uid/plugin/"
	put(own+"0.log", "first\n"+strings.Repeat("claim prepared\n", 300_000)+"last\n")
	put("var/log/syslog", "sshd: session opened for carol\nkernel: vfio-pci 0000:3b:00.0: reset done\n")
	put("var/log/pods/team_train_uid/c/0.log", "of a tenant")
	if err := errors.Join(os.Symlink(secret, filepath.Join(root, own, "1.log")), syscall.Mkfifo(filepath.Join(root, own, "2.log"), 0o600)); err != nil {
		t.Fatal(err)
	}
	node, err := sysfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = node.Close() }()
	var b output.Bundle
	if err := archive.AddLogs(t.Context(), &b, node, "kata-vfio", nil); err != nil {
		t.Fatal(err)
	}
	m, files := write(t, &b, nil)
	if got := files["logs/"+own+"0.log"]; strings.HasPrefix(got, "first") || !strings.HasSuffix(got, "last\n") || len(got) > 2<<20 {
		t.Errorf("the large log has %d bytes", len(got))
	}
	if got := files["logs/var/log/syslog"]; got != "kernel: vfio-pci 0000:3b:00.0: reset done\n" {
		t.Errorf("syslog: %q", got)
	}
	if len(files) != 3 {
		t.Errorf("files %v", m.Files)
	}
	notes := strings.Join(m.Notes, "\n")
	for _, want := range []string{"journalctl", "1.log could not be read", "2.log could not be read", "the last 2 MiB"} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes lack %q:\n%s", want, notes)
		}
	}
}

func TestBundleHasAnEnd(t *testing.T) {
	var b output.Bundle
	b.Add("huge", make([]byte, 128<<20+1))
	for range 5000 {
		b.Add("small", nil)
	}
	if m, _ := write(t, &b, nil); len(m.Files) != 4096 || m.Files[0].Name != "small" || !strings.Contains(m.Notes[0], "huge (134217729 bytes) is left out") {
		t.Errorf("%d files, the first %+v, notes %.200v", len(m.Files), m.Files[0], m.Notes)
	}
}

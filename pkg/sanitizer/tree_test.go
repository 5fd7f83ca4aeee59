package sanitizer

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
)

// vm is a VM's sysfs as plain files, by their paths. A file in devices is relative to the directory of the PCI functions.
type vm map[string]string

// Lines of the attribute resource, of 64 KiB.
const (
	absent       = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
	prefetchable = "0x00000000fd000000 0x00000000fd00ffff 0x0000000000042208\n"
	registers    = "0x00000000fe000000 0x00000000fe00ffff 0x0000000000040200\n"
	ports        = "0x000000000000c000 0x000000000000c03f 0x0000000000040101\n"
	noAddress    = "0x0000000000000000 0x000000000000ffff 0x0000000020042208\n"
	barSize      = 64 << 10
)

// The function that most tests are about, and a second one.
const (
	display = "0000:00:05.0"
	other   = "0000:00:06.0"
)

// config is the head of a configuration space whose function decodes memory, or does not.
func config(decodes bool) string {
	head := make([]byte, 64)
	head[0], head[1], head[2], head[3] = 0x34, 0x12, 0x11, 0x11
	if decodes {
		head[commandRegister] = commandMemory
	}
	return string(head)
}

// add adds a function. Each BAR that its resources show has a file full of a former tenant's data.
func (v vm) add(address, ids, class string, resources ...string) vm {
	vendor, device, _ := strings.Cut(ids, ":")
	lines := resources
	for len(lines) < 13 {
		lines = append(lines, absent)
	}
	dir := "sys/bus/pci/devices/" + address + "/"
	maps.Copy(v, vm{
		dir + "vendor": "0x" + vendor + "\n", dir + "device": "0x" + device + "\n", dir + "class": "0x" + class + "\n",
		dir + "revision": "0x02\n", dir + "enable": "0\n", dir + "config": config(true), dir + "resource": strings.Join(lines, ""),
	})
	for i, line := range resources {
		if line == prefetchable || line == registers {
			v[fmt.Sprintf("%sresource%d", dir, i)] = strings.Repeat("secret42", barSize/8)
		}
	}
	return v
}

// usual is the VM with one device of 64 KiB of memory, and what each VM has.
func usual() vm {
	return vm{}.
		add("0000:00:00.0", "8086:29c0", "060000").
		add("0000:00:01.0", "1af4:1041", "020000", registers, absent, absent, absent, prefetchable).
		add("0000:00:02.0", "1b36:000c", "060400", registers).
		add("0000:00:1f.2", "8086:2922", "010601", absent, absent, absent, absent, ports, registers).
		add(display, "1234:1111", "038000", prefetchable, absent, registers)
}

// make writes the files, and returns their root.
func (v vm) make(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"sys", "proc", "dev", "lib"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, content := range v {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// options are those of a run in a VM.
func options(root string) Options {
	return Options{Root: root, Timeout: time.Minute, Log: slog.New(slog.DiscardHandler)}
}

func address(t *testing.T, text string) *pci.Address {
	t.Helper()
	a, err := pci.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return &a
}

// expectVerdict checks the verdict of a result, and that it is a valid document.
func expectVerdict(t *testing.T, r *sanitize.Result, verdict sanitize.Verdict, reason string) {
	t.Helper()
	if r.Verdict != verdict || !strings.Contains(r.Reason, reason) {
		t.Errorf("got %s because %q, want %s because %q", r.Verdict, r.Reason, verdict, reason)
	}
	if document, err := r.Encode(); err != nil {
		t.Errorf("the result is not valid: %v\n%s", err, document)
	}
}

// zero reports whether a file of a VM has zeros only.
func zero(t *testing.T, root, path string) bool {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return len(content) > 0 && len(bytes.Trim(content, "\x00")) == 0
}

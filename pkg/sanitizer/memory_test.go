package sanitizer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
)

const displayDir = "sys/bus/pci/devices/" + display + "/"

func memory(t *testing.T, o MemoryOptions) *sanitize.Result {
	t.Helper()
	r, err := Memory(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestMemory wipes what a tenant left in the only device of a VM, and nothing else.
func TestMemory(t *testing.T) {
	v := usual()
	v[displayDir+"rom"] = "?U\xaa and code"
	root := v.make(t)
	r := memory(t, MemoryOptions{Options: options(root), ExpectBytes: barSize})
	expectVerdict(t, r, sanitize.Clean, "")
	// The file's first byte is what was written to read the rest.
	rom := sha256.Sum256([]byte("1U\xaa and code"))
	want := &sanitize.Result{
		APIVersion: sanitize.APIVersion, Kind: sanitize.Kind, Verdict: sanitize.Clean,
		Device: &sanitize.Device{Vendor: "0x1234", Device: "0x1111"},
		Checks: []sanitize.Check{{Name: "bar0", Method: "FillVerifyZeroVerify", Verdict: sanitize.Clean, Bytes: barSize}},
		Firmware: []sanitize.Measurement{
			{Name: "revision", Algorithm: sanitize.Version, Value: "0x02"},
			{Name: "rom", Algorithm: sanitize.SHA256, Value: hex.EncodeToString(rom[:])},
		},
	}
	if diff := cmp.Diff(want, r, cmpopts.IgnoreFields(sanitize.Check{}, "Seconds", "Pattern")); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	for path, wiped := range map[string]bool{
		displayDir + "resource0": true, displayDir + "resource2": false, "sys/bus/pci/devices/0000:00:01.0/resource4": false,
	} {
		if zero(t, root, path) != wiped {
			t.Errorf("%s: got zeros %t, want %t", path, !wiped, wiped)
		}
	}
	if enabled, err := os.ReadFile(filepath.Join(root, displayDir, "enable")); err != nil || enabled[0] != '1' {
		t.Errorf("the function was not enabled: %s, %v", enabled, err)
	}
	if r.Checks[0].Seconds <= 0 {
		t.Error("the check took no time")
	}
}

func TestMemoryResults(t *testing.T) {
	for name, row := range map[string]struct {
		change  func(*testing.T, vm, *MemoryOptions)
		verdict sanitize.Verdict
		reason  string
	}{
		"no device": {func(_ *testing.T, v vm, _ *MemoryOptions) {
			for path := range v {
				if strings.HasPrefix(path, displayDir) {
					delete(v, path)
				}
			}
		}, sanitize.Unknown, "no device to sanitize among its functions (4: "},
		"two devices": {func(_ *testing.T, v vm, _ *MemoryOptions) {
			v.add(other, "10de:1eb8", "030200", registers, prefetchable)
		}, sanitize.Unknown, "2 devices to sanitize (0000:00:05.0 (1234:1111, class 038000), 0000:00:06.0 (10de:1eb8"},
		"one of two": {func(t *testing.T, v vm, o *MemoryOptions) {
			v.add(other, "10de:1eb8", "030200", registers, prefetchable)
			o.Options.Device = address(t, display)
		}, sanitize.Clean, ""},
		"a device that is not there": {func(t *testing.T, _ vm, o *MemoryOptions) { o.Options.Device = address(t, other) }, sanitize.Unknown, "the VM has no PCI function 0000:00:06.0"},
		"registers only": {func(_ *testing.T, v vm, _ *MemoryOptions) {
			v.add(display, "1234:1111", "038000", registers)
		}, sanitize.Unknown, "no prefetchable memory BAR"},
		"a BAR that was named":    {func(_ *testing.T, _ vm, o *MemoryOptions) { o.BARs = []int{0, 2} }, sanitize.Clean, ""},
		"a BAR that is not there": {func(_ *testing.T, _ vm, o *MemoryOptions) { o.BARs = []int{1} }, sanitize.Unknown, "no memory BAR 1"},
		"a BAR of ports": {func(_ *testing.T, v vm, o *MemoryOptions) {
			v.add(display, "1234:1111", "038000", prefetchable, ports)
			o.BARs = []int{1}
		}, sanitize.Unknown, "no memory BAR 1"},
		"a BAR without an address": {func(_ *testing.T, v vm, _ *MemoryOptions) {
			v.add(display, "1234:1111", "038000", noAddress)
		}, sanitize.Unknown, "has no address"},
		"more memory than windows":   {func(_ *testing.T, _ vm, o *MemoryOptions) { o.ExpectBytes = barSize + 1 }, sanitize.Unknown, "the device has 65537 bytes of memory, and its BARs show 65536"},
		"less memory than windows":   {func(_ *testing.T, _ vm, o *MemoryOptions) { o.ExpectBytes = 1 }, sanitize.Clean, ""},
		"a file of another size":     {func(_ *testing.T, v vm, _ *MemoryOptions) { v[displayDir+"resource0"] = "short" }, sanitize.Unknown, "its file has 5 bytes, and the BAR 65536"},
		"no file":                    {func(_ *testing.T, v vm, _ *MemoryOptions) { delete(v, displayDir+"resource0") }, sanitize.Unknown, "map BAR 0"},
		"not enabled":                {func(_ *testing.T, v vm, _ *MemoryOptions) { v[displayDir+"config"] = config(false) }, sanitize.Unknown, "does not decode its memory"},
		"can't be enabled":           {func(_ *testing.T, v vm, _ *MemoryOptions) { delete(v, displayDir+"enable") }, sanitize.Unknown, "enable 0000:00:05.0"},
		"no revision and a bad line": {func(_ *testing.T, v vm, _ *MemoryOptions) { v[displayDir+"resource"] = "1 2\n" }, sanitize.Unknown, "resource line"},
	} {
		t.Run(name, func(t *testing.T) {
			v, o := usual(), MemoryOptions{}
			row.change(t, v, &o)
			root := v.make(t)
			named := o.Options.Device
			o.Options = options(root)
			o.Options.Device = named
			r := memory(t, o)
			expectVerdict(t, r, row.verdict, row.reason)
			if r.Verdict == sanitize.Clean && !zero(t, root, displayDir+"resource0") {
				t.Error("the verdict is Clean, and the memory is not zero")
			}
		})
	}
}

// TestMemoryBeyondBARs wipes what it can reach of a device that has more.
func TestMemoryBeyondBARs(t *testing.T) {
	root := usual().make(t)
	r := memory(t, MemoryOptions{Options: options(root), ExpectBytes: 1 << 40})
	expectVerdict(t, r, sanitize.Unknown, "the rest can't be reached")
	if len(r.Checks) != 1 || r.Checks[0].Verdict != sanitize.Clean || !zero(t, root, displayDir+"resource0") {
		t.Errorf("the window was not wiped: %+v", r.Checks)
	}
}

// A driver that stays bound would write to the memory, too.
func TestMemoryWithDriver(t *testing.T) {
	v := usual()
	v["sys/bus/pci/drivers/bochs-drm/unbind"] = ""
	root := v.make(t)
	if err := os.Symlink("../../drivers/bochs-drm", filepath.Join(root, displayDir, "driver")); err != nil {
		t.Fatal(err)
	}
	r := memory(t, MemoryOptions{Options: options(root)})
	expectVerdict(t, r, sanitize.Unknown, "unbind 0000:00:05.0 from the guest's driver bochs-drm: the kernel accepted it, and the driver is bochs-drm")
	if zero(t, root, displayDir+"resource0") {
		t.Error("the memory of a device with a driver was written")
	}
}

// kernel is a writer of attributes that unbinds.
type kernel struct {
	root   string
	writes []string
}

func (k *kernel) Write(path string, data []byte) error {
	k.writes = append(k.writes, path+"="+string(data))
	return os.Remove(filepath.Join(k.root, displayDir, "driver"))
}

func TestUnbind(t *testing.T) {
	root := usual().make(t)
	if err := os.Symlink("../../drivers/bochs-drm", filepath.Join(root, displayDir, "driver")); err != nil {
		t.Fatal(err)
	}
	fs, err := sysfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fs.Close() }()
	k := &kernel{root: root}
	g := &guest{fs: fs, control: control.New(k, fs, time.Second)}
	for range 2 { // the second has nothing to do
		if err := g.unbind(t.Context(), *address(t, display)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"sys/bus/pci/drivers/bochs-drm/unbind=" + display}, k.writes); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// hanging is a log whose lines are not written until a channel is closed.
type hanging struct {
	slog.Handler
	until chan struct{}
}

func (hanging) Enabled(context.Context, slog.Level) bool { return true }

func (h hanging) Handle(context.Context, slog.Record) error {
	<-h.until
	return nil
}

// TestCollectorStaysOffWhileTheWorkHangs: a collection would wait for the work, and the result would not be written.
func TestCollectorStaysOffWhileTheWorkHangs(t *testing.T) {
	const usually = 99
	defer debug.SetGCPercent(debug.SetGCPercent(usually))
	h := hanging{slog.DiscardHandler, make(chan struct{})}
	o := MemoryOptions{Options: options(usual().make(t))}
	o.Options.Timeout, o.Options.Log = 100*time.Millisecond, slog.New(h)
	expectVerdict(t, memory(t, o), sanitize.Unknown, "not sanitized within 100ms")
	if percent := debug.SetGCPercent(-1); percent != -1 {
		t.Errorf("the collector runs at %d percent beside the work, want it off", percent)
	}
	close(h.until)
	o.Options = options(usual().make(t))
	debug.SetGCPercent(usually)
	memory(t, o)
	if percent := debug.SetGCPercent(usually); percent != usually {
		t.Errorf("the collector is at %d percent after the work, want %d", percent, usually)
	}
}

// TestInterrupted leaves no result when a signal ends the program.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := Memory(ctx, MemoryOptions{Options: options(usual().make(t))})
	if r != nil || !errors.Is(err, ErrInterrupted) {
		t.Errorf("got %+v, %v; want ErrInterrupted and no result", r, err)
	}
}

package control_test

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

var (
	gpu = pci.Address{Bus: 0x3b}
	nic = pci.Address{Bus: 0x5e}
)

// A recorder keeps writes and answers them as told. Its attributes hold what
// was written to them last.
type recorder struct {
	writes [][2]string
	answer map[string]error  // by path
	files  map[string]string // by path
}

func (r *recorder) Write(path string, data []byte) error {
	r.writes = append(r.writes, [2]string{path, string(data)})
	return r.answer[path]
}

func (r *recorder) ReadString(path string) (string, error) {
	text, ok := r.files[path]
	if !ok {
		return "", &fs.PathError{Op: "open", Path: path, Err: unix.ENOENT}
	}
	return text, nil
}

func TestWrites(t *testing.T) {
	tests := map[string]struct {
		do   func(context.Context, *control.Control) error
		want [2]string
	}{
		"set override": {
			func(ctx context.Context, c *control.Control) error {
				return c.Write(ctx, control.DriverOverride(gpu, "vfio-pci"))
			},
			[2]string{"sys/bus/pci/devices/0000:3b:00.0/driver_override", "vfio-pci"},
		},
		"clear override by a newline, since the kernel ignores an empty write": {
			func(ctx context.Context, c *control.Control) error {
				return c.Write(ctx, control.DriverOverride(gpu, ""))
			},
			[2]string{"sys/bus/pci/devices/0000:3b:00.0/driver_override", "\n"},
		},
		"unbind": {
			func(ctx context.Context, c *control.Control) error {
				return c.Write(ctx, control.Unbind(gpu, "nvidia"))
			},
			[2]string{"sys/bus/pci/drivers/nvidia/unbind", "0000:3b:00.0"},
		},
		"probe": {
			func(ctx context.Context, c *control.Control) error { return c.Write(ctx, control.Probe(gpu)) },
			[2]string{"sys/bus/pci/drivers_probe", "0000:3b:00.0"},
		},
		"enable VFs": {
			func(ctx context.Context, c *control.Control) error { return c.Write(ctx, control.NumVFs(nic, 4)) },
			[2]string{"sys/bus/pci/devices/0000:5e:00.0/sriov_numvfs", "4"},
		},
		"autoprobe off": {
			func(ctx context.Context, c *control.Control) error {
				return c.Write(ctx, control.Autoprobe(nic, false))
			},
			[2]string{"sys/bus/pci/devices/0000:5e:00.0/sriov_drivers_autoprobe", "0"},
		},
		"autoprobe on": {
			func(ctx context.Context, c *control.Control) error { return c.Write(ctx, control.Autoprobe(nic, true)) },
			[2]string{"sys/bus/pci/devices/0000:5e:00.0/sriov_drivers_autoprobe", "1"},
		},
		"enable": {
			func(ctx context.Context, c *control.Control) error { return c.Write(ctx, control.Enable(gpu)) },
			[2]string{"sys/bus/pci/devices/0000:3b:00.0/enable", "1"},
		},
		"ROM readable": {
			func(ctx context.Context, c *control.Control) error { return c.Write(ctx, control.ROM(gpu, true)) },
			[2]string{"sys/bus/pci/devices/0000:3b:00.0/rom", "1"},
		},
		"ROM unreadable": {
			func(ctx context.Context, c *control.Control) error { return c.Write(ctx, control.ROM(gpu, false)) },
			[2]string{"sys/bus/pci/devices/0000:3b:00.0/rom", "0"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := &recorder{}
			if err := tt.do(t.Context(), control.New(r, r, 0)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([][2]string{tt.want}, r.writes); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNothingIsWrittenOnceTheContextIsOver(t *testing.T) {
	cause := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	r := &recorder{}
	err := control.New(r, r, 0).Write(ctx, control.Unbind(gpu, "nvidia"))
	if !errors.Is(err, cause) {
		t.Errorf("error %v does not wrap the cause", err)
	}
	if len(r.writes) > 0 {
		t.Errorf("wrote %q", r.writes)
	}
}

func TestReset(t *testing.T) {
	const (
		list  = "sys/bus/pci/devices/0000:3b:00.0/reset_method"
		reset = "sys/bus/pci/devices/0000:3b:00.0/reset"
	)
	tests := map[string]struct {
		former string // of reset_method; "-" for no such file
		answer map[string]error
		want   [][2]string
		err    error
	}{
		"the list is cut down to the method and restored": {
			former: "flr pm bus",
			want:   [][2]string{{list, "pm"}, {reset, "1"}, {list, "flr pm bus"}},
		},
		"the kernel would pass over a first method that does not apply, so also then": {
			former: "pm bus",
			want:   [][2]string{{list, "pm"}, {reset, "1"}, {list, "pm bus"}},
		},
		"the only method": {
			former: "pm",
			want:   [][2]string{{reset, "1"}},
		},
		"a kernel without reset_method": {
			former: "-",
			want:   [][2]string{{reset, "1"}},
		},
		"resets disabled by the administrator stay so": {
			former: "",
			want:   [][2]string{{list, "pm"}, {reset, "1"}, {list, "\n"}},
		},
		"a failed reset restores the list too": {
			former: "flr pm",
			answer: map[string]error{reset: unix.EIO},
			want:   [][2]string{{list, "pm"}, {reset, "1"}, {list, "flr pm"}},
			err:    unix.EIO,
		},
		"a method that the function does not offer": {
			former: "flr bus",
			answer: map[string]error{list: unix.EINVAL},
			want:   [][2]string{{list, "pm"}},
			err:    unix.EINVAL,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := &recorder{answer: tt.answer, files: map[string]string{list: tt.former}}
			if tt.former == "-" {
				r.files = nil
			}
			_, err := control.New(r, r, 0).Reset(t.Context(), gpu, "pm", "")
			if !errors.Is(err, tt.err) {
				t.Errorf("error %v, want %v", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, r.writes); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}

// The context ends while the reset is in the kernel. Whether its answer is
// still in time or not, the list ends up as it was.
func TestResetRestoresTheListAfterTheContextEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const list = "sys/bus/pci/devices/0000:3b:00.0/reset_method"
		ctx, cancel := context.WithCancel(t.Context())
		b := newBlocker()
		b.files = map[string]string{list: "flr bus"}
		w := writerFunc(func(path string, data []byte) error {
			if string(data) == "1" {
				cancel()
			}
			return b.Write(path, data)
		})
		_, _ = control.New(w, b, 0).Reset(ctx, gpu, "bus", "")
		synctest.Wait()
		writes := b.written()
		want := [2]string{list, "flr bus"}
		if last := writes[len(writes)-1]; last != want {
			t.Errorf("last write %q, want %q", last, want)
		}
	})
}

type writerFunc func(path string, data []byte) error

func (f writerFunc) Write(path string, data []byte) error { return f(path, data) }

func TestErrors(t *testing.T) {
	const dir = "/sys/bus/pci/devices/0000:3b:00.0/"
	tests := map[string]struct {
		err  control.WriteError
		want string
	}{
		"privileges": {
			control.WriteError{Path: dir + "driver_override", Value: "vfio-pci", Err: unix.EACCES},
			`write "vfio-pci" to /sys/bus/pci/devices/0000:3b:00.0/driver_override: permission denied` +
				` (run as root with the host's /sys)`,
		},
		"read-only": {
			control.WriteError{Path: "/sys/bus/pci/drivers_probe", Value: "0000:3b:00.0", Err: unix.EROFS},
			`write "0000:3b:00.0" to /sys/bus/pci/drivers_probe: read-only file system` +
				` (/sys is read-only: mount it read-write into this container, or run it privileged)`,
		},
		"not bound": {
			control.WriteError{Path: "/sys/bus/pci/drivers/igb/unbind", Value: "0000:3b:00.0", Err: unix.ENODEV},
			`write "0000:3b:00.0" to /sys/bus/pci/drivers/igb/unbind: no such device` +
				` (the function is no longer bound to this driver, or no longer exists)`,
		},
		"VFs enabled": {
			control.WriteError{Path: dir + "sriov_numvfs", Value: "4", Err: unix.EBUSY},
			`write "4" to /sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs: device or resource busy` +
				` (VFs are already enabled: write 0 first to disable them)`,
		},
		"clearing": {
			control.WriteError{Path: dir + "driver_override", Value: "\n", Err: unix.EIO},
			`write "\n" to /sys/bus/pci/devices/0000:3b:00.0/driver_override: input/output error`,
		},
		"not the kernel's": {
			control.WriteError{Path: dir + "reset", Value: "1", Err: errors.New("out of order")},
			`write "1" to /sys/bus/pci/devices/0000:3b:00.0/reset: out of order`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.err.Error(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// Each answer of a store function that has a meaning of its own says it.
func TestHints(t *testing.T) {
	hinted := map[string][]unix.Errno{
		"drivers/igb/unbind":                {unix.ENODEV, unix.ENOENT},
		"drivers_probe":                     {unix.ENODEV, unix.EINVAL},
		"devices/X/enable":                  {unix.EBUSY},
		"devices/X/reset":                   {unix.ENOTTY, unix.EAGAIN, unix.EBUSY},
		"devices/X/reset_method":            {unix.EINVAL, unix.ENODEV},
		"devices/X/sriov_numvfs":            {unix.EBUSY, unix.ERANGE, unix.ENOENT},
		"devices/X/driver_override":         {unix.EROFS, unix.EACCES, unix.EPERM, unix.ENOENT, unix.ENODEV},
		"devices/X/sriov_drivers_autoprobe": {unix.EROFS},
	}
	for path, errnos := range hinted {
		for _, errno := range errnos {
			bare := (&control.WriteError{Path: path, Err: errors.New(errno.Error())}).Error()
			text := (&control.WriteError{Path: path, Err: errno}).Error()
			if text == bare {
				t.Errorf("%s on %s has no hint", errno, path)
			}
		}
	}
	if got := (&control.WriteError{Path: "drivers_probe", Err: unix.ENOTTY}).Error(); got != `write "" to drivers_probe: inappropriate ioctl for device` {
		t.Errorf("made up a meaning: %s", got)
	}
}

func TestRefusalCanBeMatched(t *testing.T) {
	const path = "sys/bus/pci/drivers_probe"
	r := &recorder{answer: map[string]error{path: &fs.PathError{Op: "openat", Path: "drivers_probe", Err: unix.EROFS}}}
	err := control.New(r, r, 0).Write(t.Context(), control.Probe(gpu))
	want := &control.WriteError{Path: "/" + path, Value: "0000:3b:00.0", Err: unix.EROFS}
	var got *control.WriteError
	if !errors.As(err, &got) {
		t.Fatalf("%v is no WriteError", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
	if !errors.Is(err, unix.EROFS) {
		t.Errorf("%v does not match EROFS", err)
	}
}

// TestManyVFsTakeTheirTime: 127 VFs take 25 seconds on mlx5, which is not a reason to give the PF up.
func TestManyVFsTakeTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sysfstest.New(t)
		k.AddRootPort(0x21)
		hca := sysfstest.HCA(pci.Address{Bus: 0x21})
		hca.Capabilities.SRIOV.TotalVFs = 127
		k.Add(hca)
		const each = 200 * time.Millisecond
		k.SlowVFs(hca.Address, each)
		fsys, err := sysfs.Open(k.Root())
		if err != nil {
			t.Fatal(err)
		}
		defer fsys.Close()
		begun := time.Now()
		if err := control.New(k, fsys, 20*time.Second).Write(t.Context(), control.NumVFs(hca.Address, 127)); err != nil {
			t.Fatal(err)
		}
		if took, made := time.Since(begun), len(k.VFs(hca.Address)); took != 127*each || made != 127 {
			t.Errorf("%d VFs after %s", made, took)
		}
	})
}

// TestVFsThatNeverComeAreGivenUp: the limit is longer than for other writes, and there is one.
func TestVFsThatNeverComeAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const path = "sys/bus/pci/devices/0000:21:00.0/sriov_numvfs"
		b := newBlocker(path)
		begun := time.Now()
		err := control.New(b, b, time.Second).Write(t.Context(), control.NumVFs(pci.Address{Bus: 0x21}, 4))
		want := &control.StuckError{Address: pci.Address{Bus: 0x21}, Path: "/" + path, Value: "4", Since: begun}
		wantStuck(t, err, want)
		if waited := time.Since(begun); waited != control.NumVFsLimit {
			t.Errorf("waited %s", waited)
		}
		close(b.until[path])
	})
}

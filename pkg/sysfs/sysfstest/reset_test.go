package sysfstest_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

func TestResetRules(t *testing.T) {
	const (
		gpu    = devices + "0000:3b:00.0"
		list   = gpu + "/reset_method"
		reset  = gpu + "/reset"
		others = devices + "0000:41:00.1"
	)
	a := pci.Address{Bus: 0x3b}
	call := func(method string, err error) sysfstest.ResetCall {
		return sysfstest.ResetCall{Address: a, Method: method, Err: err}
	}
	tests := map[string]struct {
		fail  map[string]error // by method
		steps []step
		calls []sysfstest.ResetCall
		list  string
	}{
		"the first method": {nil, []step{{reset, "1", nil}}, []sysfstest.ResetCall{call("flr", nil)}, "flr bus"},
		"one by one":       {nil, []step{{list, "bus", nil}, {reset, "1\n", nil}}, []sysfstest.ResetCall{call("bus", nil)}, "bus"},
		"reordered":        {nil, []step{{list, " bus  flr\n", nil}}, nil, "bus flr"},
		"unknown method":   {nil, []step{{list, "magic", unix.EINVAL}}, nil, "flr bus"},
		"not offered":      {nil, []step{{list, "flr pm", unix.EINVAL}}, nil, "flr bus"},
		"disabled":         {nil, []step{{list, "\n", nil}, {reset, "1", unix.ENOTTY}}, nil, ""},
		"default":          {nil, []step{{list, "bus", nil}, {list, "default\n", nil}}, nil, "flr bus"},
		"not 1":            {nil, []step{{reset, "2", unix.EINVAL}, {reset, "x", unix.EINVAL}}, nil, "flr bus"},
		"ENOTTY goes on": {
			map[string]error{"flr": unix.ENOTTY},
			[]step{{reset, "1", nil}},
			[]sysfstest.ResetCall{call("flr", unix.ENOTTY), call("bus", nil)},
			"flr bus",
		},
		"any other error does not": {
			map[string]error{"flr": unix.EIO},
			[]step{{reset, "1", unix.EIO}},
			[]sysfstest.ResetCall{call("flr", unix.EIO)},
			"flr bus",
		},
		"a function without reset methods has no attributes for them": {
			nil, []step{{others + "/reset", "1", unix.ENOENT}, {others + "/reset_method", "flr", unix.ENOENT}}, nil, "flr bus",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k := sysfstest.New(t)
			k.AddGPU(0x3b)
			k.AddGPUWithAudio(0x41, 15)
			k.OnReset(a, func(method string) (sysfstest.ResetEffect, error) {
				return sysfstest.ResetWorks, tt.fail[method]
			})
			take(t, k, tt.steps...)
			if diff := cmp.Diff(tt.calls, k.Resets(), cmpopts.EquateErrors()); diff != "" {
				t.Errorf("resets (-want +got):\n%s", diff)
			}
			if got := read(t, k, list); got != tt.list {
				t.Errorf("reset_method reads %q, want %q", got, tt.list)
			}
		})
	}
}

// What a tenant leaves behind the header goes with a reset that works, and
// only with that.
func TestResetEffects(t *testing.T) {
	const dirty = 0x800
	tests := map[string]struct {
		effect sysfstest.ResetEffect
		err    error
		want   func(before, dirty []byte) []byte
	}{
		"works":   {sysfstest.ResetWorks, nil, func(before, _ []byte) []byte { return before }},
		"ignored": {sysfstest.ResetIgnored, nil, func(_, dirty []byte) []byte { return dirty }},
		"kills":   {sysfstest.ResetKills, nil, func(_, _ []byte) []byte { return bytes.Repeat([]byte{0xff}, 4096) }},
		"fails":   {sysfstest.ResetWorks, unix.EIO, func(_, dirty []byte) []byte { return dirty }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k := sysfstest.New(t)
			gpu := k.AddGPU(0x3b)
			config := devices + gpu.String() + "/config"
			before := []byte(read(t, k, config))
			k.SetConfig(gpu, dirty, 0xde, 0xad)
			left := []byte(read(t, k, config))
			if bytes.Equal(before, left) {
				t.Fatal("the tenant left no trace")
			}
			k.OnReset(gpu, func(string) (sysfstest.ResetEffect, error) { return tt.effect, tt.err })
			take(t, k, step{devices + gpu.String() + "/reset", "1", tt.err})
			if !bytes.Equal([]byte(read(t, k, config)), tt.want(before, left)) {
				t.Errorf("configuration space differs from byte %#x on", differs(tt.want(before, left), []byte(read(t, k, config))))
			}
		})
	}
}

// differs returns where a and b do.
func differs(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// The kernel saves the header before a reset and writes it back.
func TestResetKeepsTheHeader(t *testing.T) {
	k := sysfstest.New(t)
	gpu := k.AddGPU(0x3b)
	k.SetConfig(gpu, 0x04, 0x02)
	take(t, k, step{devices + gpu.String() + "/reset", "1", nil})
	if got := read(t, k, devices+gpu.String()+"/config")[0x04]; got != 0x02 {
		t.Errorf("command register reads %#x after the reset, want 0x02", got)
	}
}

func TestHotReset(t *testing.T) {
	k := sysfstest.New(t)
	gpu, audio := k.AddGPUWithAudio(0x3b, 15)
	set := []pci.Address{gpu, audio}
	take(t, k, toVFIO(gpu, "nvidia")...)
	if err := k.HotReset(t.Context(), set); !errors.Is(err, unix.EPERM) {
		t.Errorf("with the host's driver on one: %v, want EPERM", err)
	}
	take(t, k, toVFIO(audio, "snd_hda_intel")...)
	if err := k.HotReset(t.Context(), set); err != nil {
		t.Error(err)
	}
	want := []sysfstest.ResetCall{{Address: gpu, Method: "vfio_hot_reset"}, {Address: audio, Method: "vfio_hot_reset"}}
	if diff := cmp.Diff(want, k.Resets()); diff != "" {
		t.Errorf("resets (-want +got):\n%s", diff)
	}
}

// onVFIO binds functions to vfio-pci.
func onVFIO(t *testing.T, k *sysfstest.Kernel, driver string, a pci.Address) {
	t.Helper()
	for _, write := range [][2]string{
		{"sys/bus/pci/devices/" + a.String() + "/driver_override", "vfio-pci"},
		{"sys/bus/pci/drivers/" + driver + "/unbind", a.String()},
		{"sys/bus/pci/drivers_probe", a.String()},
	} {
		if err := k.Write(write[0], []byte(write[1])); err != nil {
			t.Fatalf("write %q: %v", write, err)
		}
	}
}

// A hot reset reaches all that is below the bridge. The kernel refuses it unless the
// caller has shown that all of that is its own, and free.
func TestHotResetByBusMembership(t *testing.T) {
	k := sysfstest.New(t)
	gpu, audio := k.AddGPUWithAudio(0x3b, 15)
	both := []pci.Address{audio, gpu}
	wantErrno := func(set []pci.Address, want error) {
		t.Helper()
		if err := k.HotReset(t.Context(), set); !errors.Is(err, want) {
			t.Errorf("hot reset of %v: %v, want %v", set, err, want)
		}
	}
	wantErrno(both, unix.EPERM) // on host drivers
	onVFIO(t, k, "nvidia", gpu)
	onVFIO(t, k, "snd_hda_intel", audio)
	wantErrno([]pci.Address{gpu}, unix.EINVAL)
	other := k.AddGPU(0x41)
	onVFIO(t, k, "nvidia", other)
	wantErrno([]pci.Address{gpu, audio, other}, unix.EINVAL)
	h := k.Hold("/dev/vfio/15", 4711, "qemu", "")
	wantErrno(both, unix.EBUSY)
	h.Release()
	if n := len(k.Resets()); n > 0 {
		t.Errorf("%d functions were reset", n)
	}
	wantErrno(both, nil)
	if n := len(k.Resets()); n != 2 {
		t.Errorf("%d functions were reset, want 2", n)
	}
}

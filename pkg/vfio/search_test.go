package vfio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

func openRoot(t *testing.T) *sysfs.FS {
	t.Helper()
	f, err := sysfs.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// On a live node a file counts by its number, whatever it is called: this
// process looks at itself.
func TestSearchLiveProcess(t *testing.T) {
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = zero.Close() }()
	s := &search{fs: openRoot(t), names: map[string]bool{"/dev/other-name": true}, numbers: map[number]string{}, limit: maxDescriptors}
	if s.live, _, err = readProc(s.fs); err != nil || !s.live {
		t.Fatalf("proc is live: %v, %v", s.live, err)
	}
	s.numbers[number{kind: unix.S_IFCHR, major: 1, minor: 5}] = "/dev/other-name"
	holders, err := s.process(t.Context(), os.Getpid())
	if err != nil || len(holders) != 1 {
		t.Fatalf("holders: %v, %v; want this process", holders, err)
	}
	if h := holders[0]; h.PID != os.Getpid() || h.Node != "/dev/other-name" || h.Comm == "" || h.StartTime == 0 {
		t.Errorf("holder: %+v", h)
	}
	_ = zero.Close()
	if holders, err := s.process(t.Context(), os.Getpid()); err != nil || holders != nil {
		t.Errorf("after close: %v, %v", holders, err)
	}
}

// A node that can't be stat'ed, because it was removed while open for one, is
// found by name.
func TestSearchLiveByName(t *testing.T) {
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = zero.Close() }()
	s := &search{fs: openRoot(t), live: true, names: map[string]bool{"/dev/zero": true}, unnumbered: true, limit: maxDescriptors}
	holders, err := s.process(t.Context(), os.Getpid())
	if err != nil || len(holders) != 1 || holders[0].Node != "/dev/zero" {
		t.Errorf("holders: %v, %v", holders, err)
	}
}

func TestNumberOf(t *testing.T) {
	f := openRoot(t)
	if n, ok, err := readNumber(f, "/dev/zero"); err != nil || !ok || n != (number{unix.S_IFCHR, 1, 5}) {
		t.Errorf("/dev/zero is %+v, %v, %v", n, ok, err)
	}
	for _, node := range []string{"/dev/no-such-node", "/proc/version"} {
		if n, ok, err := readNumber(f, node); err != nil || ok {
			t.Errorf("%s is %+v, %v, %v; want no number", node, n, ok, err)
		}
	}
}

func TestSeen(t *testing.T) {
	for _, ended := range []error{fs.ErrNotExist, unix.ESRCH, fmt.Errorf("list: %w", unix.ESRCH)} {
		if err := seen(ended); err != nil {
			t.Errorf("%v became %v, want a process that has ended", ended, err)
		}
	}
	for _, hidden := range []error{unix.EACCES, unix.EPERM} {
		if err := seen(hidden); !errors.Is(err, ErrCannotSee) || !errors.Is(err, hidden) {
			t.Errorf("%v became %v, want ErrCannotSee", hidden, err)
		}
	}
	if err := seen(unix.EIO); !errors.Is(err, unix.EIO) || errors.Is(err, ErrCannotSee) {
		t.Errorf("EIO became %v", err)
	}
}

func TestParseContainer(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	other := strings.Repeat("fedcba9876543210", 4)
	tests := []struct{ name, cgroup, want string }{
		{"systemd, containerd", "0::/kubepods.slice/kubepods-burstable.slice/kubepods-pod1.slice/cri-containerd-" + id + ".scope\n", id},
		{"systemd, docker", "0::/system.slice/docker-" + id + ".scope\n", id},
		{"systemd, CRI-O", "0::/kubepods.slice/crio-" + id + ".scope/container\n", id},
		{"containerd with colons", "0::/system.slice/kubepods-pod1.slice:cri-containerd:" + id + "\n", id},
		{"cgroupfs", "0::/kubepods/besteffort/podc0ffee/" + id + "\n", id},
		{"kata's own group in it", "0::/kubepods/pod1/kata_overhead/" + id + "\n", id},
		{"a container in a container", "0::/docker/" + other + "/kubelet/pod1/" + id + "\n", id},
		{"cgroup v1", "12:pids:/kubepods/pod1/" + id + "\n11:memory:/kubepods/pod1/" + id + "\n0::/\n", id},
		{"cgroup v1 with an empty hierarchy", "12:pids:/\n11:memory:/docker/" + id + "\n", id},
		{"none", "0::/user.slice/user-0.slice/session-1.scope\n", ""},
		{"a hash that is not an id", "0::/x/" + id[1:] + "\n", ""},
		{"upper case", "0::/x/" + strings.ToUpper(id) + "\n", ""},
		{"nothing", "", ""},
	}
	for _, tt := range tests {
		if got := parseContainer(tt.cgroup); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func FuzzContainer(f *testing.F) {
	f.Add("0::/system.slice/docker-" + strings.Repeat("a", 64) + ".scope")
	f.Add("::")
	f.Fuzz(func(t *testing.T, cgroup string) {
		if id := parseContainer(cgroup); id != "" && (len(id) != 64 || !strings.Contains(cgroup, id)) {
			t.Errorf("%q is in container %q", cgroup, id)
		}
	})
}

// sleeper starts a process that ends when its input does.
func sleeper(t *testing.T, f *sysfs.FS) (h Holder, end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil && cmd.ProcessState == nil {
			t.Error(err)
		}
	}
	t.Cleanup(end)
	if h, err = describe(f, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return h, end
}

func TestWait(t *testing.T) {
	f := openRoot(t)
	first, endFirst := sleeper(t, f)
	second, _ := sleeper(t, f)
	done := make(chan error)
	go func() { done <- Wait(t.Context(), f, []Holder{second, first}) }()
	endFirst()
	if err := <-done; err != nil {
		t.Errorf("one of two has ended: %v", err)
	}
	if err := Wait(t.Context(), f, []Holder{first, second}); err != nil {
		t.Errorf("one of two ended before: %v", err)
	}
	reused := second
	reused.StartTime++
	if err := Wait(t.Context(), f, []Holder{reused}); err != nil {
		t.Errorf("another process has the number now: %v", err)
	}
}

func TestWaitGivesUp(t *testing.T) {
	f := openRoot(t)
	h, _ := sleeper(t, f)
	tired := errors.New("tired")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() { done <- Wait(ctx, f, []Holder{h}) }()
	cancel(tired)
	if err := <-done; !errors.Is(err, tired) {
		t.Errorf("error %v, want the context's cause", err)
	}
	if err := Wait(ctx, f, []Holder{h}); !errors.Is(err, tired) {
		t.Errorf("error %v with a context that is over, want its cause", err)
	}
}

// NVIDIA's nodes are known by the numbers of the driver's parts: a container may have
// them where the node's own /dev does not.
func TestSearchNumbersOfNVIDIA(t *testing.T) {
	k := sysfstest.New(t)
	k.AddNVIDIANodes()
	fsys, err := sysfs.Open(k.Root())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fsys.Close() })
	gpu := &device.Function{Driver: "nvidia", Children: device.Children{Nodes: []string{"nvidia3"}}}
	s, err := newSearch(fsys, Nodes(gpu))
	if err != nil {
		t.Fatal(err)
	}
	want := map[number]string{
		{unix.S_IFCHR, 195, 3}: "/dev/nvidia3", {unix.S_IFCHR, 195, 255}: "/dev/nvidiactl", {unix.S_IFCHR, 195, 254}: "/dev/nvidia-modeset",
		{unix.S_IFCHR, 508, 0}: "/dev/nvidia-uvm", {unix.S_IFCHR, 508, 1}: "/dev/nvidia-uvm-tools",
	}
	if diff := cmp.Diff(want, s.numbers, cmp.AllowUnexported(number{})); diff != "" {
		t.Errorf("numbers (-want +got):\n%s", diff)
	}
	if s.majors[234] != "/dev/nvidia-caps/" || len(s.majors) != 1 || s.unnumbered {
		t.Errorf("majors %v, unnumbered %t; want those of nvidia-caps, and all numbered", s.majors, s.unnumbered)
	}
	if found := s.byName("/dev/nvidia-caps/nvidia-cap7 (deleted)"); !slices.Equal(found, []string{"/dev/nvidia-caps/"}) {
		t.Errorf("a node of nvidia-caps is of %v", found)
	}
}

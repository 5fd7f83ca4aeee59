package nri_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/nri"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

func TestMajorsFollowTheKernel(t *testing.T) {
	n := newNode(t)
	for text, want := range map[string][]int64{
		"Character devices:\n  1 mem\n510 vfio-dev\n511 vfio\n\nBlock devices:\n  8 sd\n": {510, 511},
		"Character devices:\n  1 mem\n240 vfio_user\n":                                    nil, // not loaded
	} {
		n.write("proc/devices", text)
		got, err := n.kernel.Majors()
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("Majors: %v (-want +got):\n%s", err, diff)
		}
	}
	n.write("proc/devices", "511x vfio\n")
	if got, err := n.kernel.Majors(); err == nil {
		t.Errorf("Majors of a damaged list = %v", got)
	}
}

func TestNumbersComeFromTheNodesClass(t *testing.T) {
	n := tenants(t)
	n.write("sys/class/vfio/99/dev", "nonsense\n")
	for node, want := range map[string][2]int64{
		"/dev/vfio/15": {511, 3}, "/dev/vfio/devices/vfio7": {510, 7}, "/dev/vfio/vfio": {10, 196}, "/dev/iommu": {10, 121},
	} {
		major, minor, err := n.kernel.Number(node)
		if err != nil || major != want[0] || minor != want[1] {
			t.Errorf("Number(%s) = %d:%d, %v; want %v", node, major, minor, err, want)
		}
	}
	for _, node := range []string{"/dev/vfio/1", "/dev/vfio/99", "/dev/vfio/devices/vfio1"} {
		if major, minor, err := n.kernel.Number(node); err == nil {
			t.Errorf("Number(%s) = %d:%d, want an error", node, major, minor)
		}
	}
}

func TestStartTimeOfARealProcess(t *testing.T) {
	fs, err := sysfs.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fs.Close() }()
	k := nri.Kernel{FS: fs}
	if start, err := k.StartTime(os.Getpid()); err != nil || start == 0 {
		t.Errorf("StartTime of this process = %d, %v", start, err)
	}
	if _, err := k.StartTime(1 << 30); err == nil {
		t.Error("a process that can't be has a start time")
	}
}

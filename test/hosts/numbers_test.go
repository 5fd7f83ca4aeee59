package hosts_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// TestNumbersOfVFsThatDriversRefuse: what drivers answer to a number of VFs, and what a person does about it.
func TestNumbersOfVFsThatDriversRefuse(t *testing.T) {
	for name, tt := range map[string]struct {
		answer error // of the write
		says   string
		want   string
	}{
		"a NIC whose interrupts RDMA has":       {answer: unix.ENOSPC, want: "unload what else uses them, such as irdma beside ice"},
		"a board without room for VFs' BARs":    {answer: unix.ENOMEM, want: "pci=realloc"},
		"a driver without SR-IOV":               {answer: unix.ENOENT, want: "the PF's driver makes no VFs"},
		"a NIC that is down and says 0":         {says: "0\n", want: "set the PF's interface up"},
		"a NIC that makes fewer VFs than asked": {says: "1\n", want: "the kernel took it and says 1"},
	} {
		t.Run(name, func(t *testing.T) {
			k := sysfstest.New(t)
			pf, _ := k.AddNIC(0x21, 4)
			e := executor(t, k)
			if err := e.SetVFs(t.Context(), pf, 0); err != nil {
				t.Fatal(err)
			}
			k.OnWrite(func(path, value string) error {
				if strings.HasSuffix(path, "/sriov_numvfs") && strings.TrimSpace(value) != "0" {
					return tt.answer
				}
				return nil
			})
			k.AfterWrite(func(path, value string) { answer(t, k, pf, path, tt.says) })
			err := e.SetVFs(t.Context(), pf, 4)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// answer has the kernel show another number of VFs than the one that was written.
func answer(t *testing.T, k *sysfstest.Kernel, pf pci.Address, path, says string) {
	if says == "" || !strings.HasSuffix(path, "/sriov_numvfs") {
		return
	}
	if err := os.WriteFile(k.Path("sys/bus/pci/devices/"+pf.String()+"/sriov_numvfs"), []byte(says), 0o644); err != nil {
		t.Error(err)
	}
}

func executor(t *testing.T, k *sysfstest.Kernel) *bind.Executor {
	t.Helper()
	fs, err := sysfs.Open(k.Root())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	return bind.New(fs, control.New(k, fs, 10*time.Second), k, k.Exclude)
}

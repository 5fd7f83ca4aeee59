package control_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// TestManyVFsTakeTheirTime: 127 VFs take 25 seconds on mlx5, which is no reason to give the PF up.
func TestManyVFsTakeTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sysfstest.New(t)
		k.AddRootPort(0x21)
		hca := sysfstest.HCA(pci.Address{Bus: 0x21})
		hca.Capabilities.SRIOV.TotalVFs = 127
		k.Add(hca)
		const each = 200 * time.Millisecond
		k.SlowVFs(hca.Address, each)
		fs, err := sysfs.Open(k.Root())
		if err != nil {
			t.Fatal(err)
		}
		defer fs.Close()
		begun := time.Now()
		if err := control.New(k, fs, 20*time.Second).SetNumVFs(t.Context(), hca.Address, 127); err != nil {
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
		err := control.New(b, b, time.Second).SetNumVFs(t.Context(), pci.Address{Bus: 0x21}, 4)
		want := &control.StuckError{Address: pci.Address{Bus: 0x21}, Path: "/" + path, Value: "4", Since: begun}
		wantStuck(t, err, want)
		if waited := time.Since(begun); waited != control.NumVFsLimit {
			t.Errorf("waited %s", waited)
		}
		close(b.until[path])
	})
}

//go:build lab

package claims_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// TestFrameBufferSurvivesReset shows what the proof of a reset does not: a tenant's bytes in a GPU's frame buffer are there
// after a reset whose registers are as before. What users read of that reset must not claim more.
func TestFrameBufferSurvivesReset(t *testing.T) {
	for name, address := range map[string]string{"bochs-display": topology.GPU0, "VGA": topology.GPU1, "ati-vga": topology.GPU2} {
		t.Run(name, func(t *testing.T) {
			kernel.Bind(t, address, "vfio-pci") // and it stays there, so that no driver of the host clears it
			n := open(t, stage.WithAudio())
			mustPrepare(t, n, stage.Request(t, "memory", address))
			secret := []byte("tenant-a's 16 by")
			onBAR0(t, address, func(memory []byte) { copy(memory, secret) })
			mustUnprepare(t, n, "memory")
			onBAR0(t, address, func(memory []byte) {
				if got := bytes.Clone(memory[:len(secret)]); !bytes.Equal(got, secret) {
					t.Errorf("BAR 0 has %q after the reset, want %q: it does clear memory, and what is said of it may change", got, secret)
				}
			})
			told := lastReset(t, stage.Address(t, address))
			words := (&facts.Cleaning{Event: told.Seq, Result: told.Result, Proof: *told.Reset}).Words()
			if !told.Reset.Match || told.Reset.Memory != ledger.MemoryNotChecked || !strings.Contains(words, "memory not checked") {
				t.Errorf("the ledger has %+v, and users read %q; want a proven reset, whose memory is not checked", told.Reset, words)
			}
		})
	}
}

// beyondScreen is where no console of the machine draws, in a frame buffer of 16 MiB.
const beyondScreen = 8 << 20

// onBAR0 maps a page of a function's BAR 0, as a VM with the function does, and leaves its registers as they were.
func onBAR0(t *testing.T, address string, use func(memory []byte)) {
	t.Helper()
	power := kernel.Path(address, "power/control")
	before := kernel.Read(t, power)
	kernel.Write(t, power, "on") // vfio-pci suspends a function that nobody has open
	defer kernel.Write(t, power, before)
	defer decode(t, address)()
	f, err := os.OpenFile(kernel.Path(address, "resource0"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // the mapping has no use of it
	memory, err := unix.Mmap(int(f.Fd()), beyondScreen, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatalf("map BAR 0 of %s: %v", address, err)
	}
	use(memory)
	if err := unix.Munmap(memory); err != nil {
		t.Error(err)
	}
}

// The command register, and its bit by which a function answers for its memory.
const (
	command       = 0x04
	commandMemory = 0x0002
)

// decode has a function answer for its memory until the returned function is called.
func decode(t *testing.T, address string) (restore func()) {
	t.Helper()
	f, err := os.OpenFile(kernel.Path(address, "config"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var before [2]byte
	if _, err := f.ReadAt(before[:], command); err != nil {
		t.Fatal(err)
	}
	with := binary.LittleEndian.AppendUint16(nil, binary.LittleEndian.Uint16(before[:])|commandMemory)
	if _, err := f.WriteAt(with, command); err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := f.WriteAt(before[:], command); err != nil {
			t.Error(err)
		}
		_ = f.Close() // what was written has reached the function
	}
}

// lastReset returns the ledger's last reset of a function.
func lastReset(t *testing.T, a pci.Address) *ledger.Event {
	t.Helper()
	c := stage.Config()
	return lastEvent(t, c.LedgerDir(), ledger.Reset, a)
}

// lastEvent returns the last event of a type about a function in a ledger's directory.
func lastEvent(t *testing.T, dir string, of ledger.Type, a pci.Address) *ledger.Event {
	t.Helper()
	var last *ledger.Event
	for e, err := range ledger.Events(os.DirFS(dir)) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Event.Type == of && e.Event.Concerns(a) {
			last = e.Event
		}
	}
	if last == nil {
		t.Fatalf("the ledger has no %s of %s", of, a)
	}
	return last
}

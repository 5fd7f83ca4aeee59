package ledger_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// full is an event with a value in each part.
func full() *ledger.Event {
	gpu := pci.Address{Bus: 0x3b}
	return &ledger.Event{
		Version: 1, Seq: 7, Time: time.Date(2026, 11, 21, 2, 11, 49, 123456789, time.UTC), BootTime: 88, Elapsed: 99, BootID: "b-1",
		Node: "gpu-07", Machine: "abc", Type: ledger.Reset, Actor: ledger.Actor{Component: "kata-vfio-plugin", Version: "v1", PID: 3},
		Claim: &ledger.Claim{UID: "u-1", Namespace: "t1", Name: "c1"}, Pods: []ledger.Pod{{UID: "p-1", Name: "p"}},
		VM: &ledger.VM{Sandbox: "s-1", PID: 4711, StartTime: 8812345, Since: "2026-11-21T02:00:00Z"},
		Devices: []ledger.Device{{
			Address: gpu, Name: "gpu-0000-3b-00-0", Vendor: 0x10de, Device: 0x2330, Group: new(42), GroupMembers: []pci.Address{gpu},
			Node: "/dev/vfio/42", DriverBefore: new(""), DriverAfter: new("vfio-pci"),
			Isolation: &ledger.Isolation{Isolated: true, Notes: []rule.Code{rule.ATSEnabled}, Evidence: []rule.Evidence{{Path: "/sys/x", Value: "0x1d"}}},
		}},
		Reset:  &ledger.ResetProof{Method: "flr", OK: true, Milliseconds: 118, Set: []pci.Address{gpu}, Match: true, Memory: ledger.MemoryNotChecked},
		Result: ledger.OK,
	}
}

func TestEventIsOneLineWithFieldsInOrder(t *testing.T) {
	line, err := full().Encode()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"v":1,"seq":7,"prev":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","time":"2026-11-21T02:11:49.123456789Z","bootTime":88,"elapsed":99,` +
		`"bootID":"b-1","node":"gpu-07","machine":"abc","type":"reset","actor":{"component":"kata-vfio-plugin","version":"v1","pid":3},` +
		`"devices":[{"address":"0000:3b:00.0","name":"gpu-0000-3b-00-0","vendor":"10de","device":"2330","iommuGroup":42,"groupMembers":["0000:3b:00.0"],` +
		`"vfioNode":"/dev/vfio/42","driverBefore":"","driverAfter":"vfio-pci",` +
		`"isolation":{"isolated":true,"notes":["ATSEnabled"],"evidence":[{"path":"/sys/x","value":"0x1d"}]}}],` +
		`"claim":{"uid":"u-1","namespace":"t1","name":"c1"},"pods":[{"uid":"p-1","name":"p"}],` +
		`"vm":{"sandbox":"s-1","pid":4711,"startTime":8812345,"since":"2026-11-21T02:00:00Z"},` +
		`"reset":{"method":"flr","ok":true,"ms":118,"set":["0000:3b:00.0"],"match":true,"memory":"notChecked"},"result":"ok"}`
	if diff := cmp.Diff(want, string(line)); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
	back, err := ledger.DecodeEvent(line)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full(), back); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
}

func TestEventRefusesOtherInput(t *testing.T) {
	for _, line := range []string{``, `{}`, `{"v":0}`, `[]`, `{"v":1`, `{"v":1,"seq":"x"}`, strings.Repeat(" ", ledger.MaxLine+1)} {
		if e, err := ledger.DecodeEvent([]byte(line)); err == nil {
			t.Errorf("%.20q became %+v", line, e)
		}
	}
	e := full()
	e.Reason = strings.Repeat("x", ledger.MaxLine)
	if _, err := e.Encode(); err == nil {
		t.Error("an event of more than a line was encoded")
	}
}

func TestEventConcernsItsDevicesAndItsResetSet(t *testing.T) {
	e := full()
	e.Reset.Set = append(e.Reset.Set, pci.Address{Bus: 0x3c})
	for bus, want := range map[uint8]bool{0x3b: true, 0x3c: true, 0x3d: false} {
		if got := e.Concerns(pci.Address{Bus: bus}); got != want {
			t.Errorf("bus %x: %v", bus, got)
		}
	}
}

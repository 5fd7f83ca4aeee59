package facts_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// snapshot has a port with ACS, a function with ATS, one with neither, and a VF.
func snapshot(bootID string) *device.Snapshot {
	at := func(fn uint8) pci.Address { return pci.Address{Bus: 0x3b, Function: fn} }
	acs, ats := &pci.ACS{Capability: 0x1f, Control: 0x1d}, &pci.Switchable{Enabled: true}
	return &device.Snapshot{Host: device.Host{BootID: bootID}, Functions: []device.Function{
		{Address: at(0), Capabilities: pci.Capabilities{ACS: acs}},
		{Address: at(1), Capabilities: pci.Capabilities{ATS: ats}},
		{Address: at(2)},
		{Address: at(3), VF: &device.VF{PF: at(1)}, Capabilities: pci.Capabilities{ATS: ats}},
	}}
}

func TestBaselineHoldsTheRegistersOfAllButVFs(t *testing.T) {
	data, err := json.Marshal(facts.NewBaseline(snapshot("b1")))
	if err != nil {
		t.Fatal(err)
	}
	id := `"identity":{"vendor":"0000","device":"0000","subsystemVendor":"0000","subsystemDevice":"0000","class":"000000","revision":0,"bootID":"b1"}`
	want := fmt.Sprintf(`{"bootID":"b1","functions":{"0000:3b:00.0":{%[1]s,"acs":29},"0000:3b:00.1":{%[1]s,"ats":true},"0000:3b:00.2":{%[1]s}}}`, id)
	if string(data) != want {
		t.Errorf("baseline:\n%s\nwant\n%s", data, want)
	}
}

func TestBaselineIsOfThisBootOnly(t *testing.T) {
	own, err := json.Marshal(facts.NewBaseline(snapshot("b1")))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, content string
		status        facts.Status
	}{
		{"of this boot", string(own), facts.Present},
		{"of another boot", `{"bootID":"b0","functions":{}}`, facts.Absent},
		{"none", "", facts.Absent},
		{"damaged", `{"bootID":`, facts.Broken},
		{"not by the plugin", `{"bootID":"b1","functions":{"x":{}}}`, facts.Broken},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := sysfstest.New(t)
			if c.content != "" {
				tree.PutFile("run/kata-vfio/"+facts.BaselineFile, c.content)
			}
			fsys, err := sysfs.Open(tree.Root())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = fsys.Close() })
			got, fact := facts.New(fsys, snapshot("b1")).Baseline()
			if fact.Status != c.status {
				t.Errorf("status %v (%s), want %v", fact.Status, fact.Err, c.status)
			}
			var want *facts.Baseline
			if c.status == facts.Present {
				want = facts.NewBaseline(snapshot("b1"))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("baseline (-want +got):\n%s", diff)
			}
		})
	}
}

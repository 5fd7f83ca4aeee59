package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// TestStatusAndPlanShowWarmDevices, and no others as such.
func TestStatusAndPlanShowWarmDevices(t *testing.T) {
	k := sysfstest.New(t)
	cold := k.AddGPU(0x3c)
	gpu := sysfstest.GPU(pci.Address{Bus: 0x3b})
	gpu.Driver = "vfio-pci"
	k.AddRootPort(0x3b)
	k.Add(gpu)
	records, err := journal.Open(filepath.Join(k.Root(), "var/lib/kata-vfio/journal"))
	if err != nil {
		t.Fatal(err)
	}
	for a, policy := range map[pci.Address]v1alpha1.BindPolicy{gpu.Address: v1alpha1.PolicyOnDemand, cold: v1alpha1.PolicyBound} {
		rec := &journal.Record{Kind: journal.Bound, State: journal.Prepared, BootID: "b"}
		rec.Plan.Claim = plan.Ref{UID: "standing-" + a.Label()}
		rec.Plan.Devices = []plan.Device{{Name: "gpu-" + a.Label(), Address: a, Policy: policy, Give: []pci.Address{a}}}
		rec.Plan.Functions = []plan.Function{{Address: a, Role: plan.RoleDevice}}
		if err := records.Save(rec); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(invoke(t, "status", "--root", k.Root()).stdout) {
		if strings.Contains(line, "standing-") && strings.HasPrefix(line, "(kept warm)") != strings.Contains(line, gpu.Address.Label()) {
			t.Errorf("status prints %q", line)
		}
	}
	var status statusView
	if err := json.Unmarshal([]byte(invoke(t, "status", "--root", k.Root(), "-o", "json").stdout), &status); err != nil || len(status.Records) != 2 {
		t.Fatalf("%+v, %v", status, err)
	}
	for _, v := range status.Records {
		if v.Warm != strings.Contains(v.UID, gpu.Address.Label()) {
			t.Errorf("status has %+v", v)
		}
	}
	plans := invoke(t, "plan", "--root", k.Root(), "--audit-taint", "off", "--all").stdout
	for line := range strings.Lines(plans) {
		if strings.HasPrefix(line, "gpu-") && strings.Contains(line, "accepted, warm") != strings.Contains(line, "gpu-"+gpu.Address.Label()) {
			t.Errorf("plan prints %q", line)
		}
	}
	if !strings.Contains(plans, "accepted, warm") {
		t.Errorf("plan prints\n%s", plans)
	}
}

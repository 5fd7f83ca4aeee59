package inventory

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// place3b is where the function 0000:3b:00.0 is.
const place3b = "/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0"

func TestRelevant(t *testing.T) {
	tests := []struct {
		subsystem, path string
		want            bool
	}{
		{"pci", place3b, true},
		{"pci_bus", "/devices/pci0000:3a/pci_bus/0000:3a", false},
		{"net", place3b + "/net/eth0", true},
		{"net", "/devices/virtual/net/veth0", false},
		{"queues", place3b + "/net/eth0/queues/rx-0", false},
		{"block", place3b + "/nvme/nvme0/nvme0n1", true},
		{"block", "/devices/virtual/block/dm-0", true},
		{"block", "/devices/virtual/block/loop3", false},
		{"vfio", "/devices/virtual/vfio/15", true},
		{"vfio-dev", place3b + "/vfio-dev/vfio0", true},
		{"drm", place3b + "/drm/card0", true},
		{"iommu", "/devices/virtual/iommu/dmar0", true},
		{"drivers", "/bus/pci/drivers/vfio-pci", true},
		{"module", "/module/vfio_iommu_type1", true},
		{"module", "/module/iommufd", true},
		{"module", "/module/ext4", false},
		{"misc", "/devices/virtual/misc/iommu", true},
		{"misc", "/devices/virtual/misc/fuse", false},
		{"usb", place3b + "/usb1", false},
		{"", "/devices/system/x", false},
	}
	for _, tt := range tests {
		if got := relevant(Uevent{Action: "add", Path: tt.path, Subsystem: tt.subsystem}); got != tt.want {
			t.Errorf("%s at %s: relevant %v, want %v", tt.subsystem, tt.path, got, tt.want)
		}
	}
}

func TestScopeOf(t *testing.T) {
	gpu, audio, nvme := pci.Address{Bus: 0x3b}, pci.Address{Bus: 0x3b, Function: 1}, pci.Address{Bus: 0x41}
	snap := &device.Snapshot{
		Functions: []device.Function{
			{Address: gpu},
			{Address: audio},
			{Address: nvme, Children: device.Children{NVMe: []string{"nvme0"}, Block: []string{"nvme0n1"}}},
		},
		Groups: []device.Group{{Number: 15, Members: []pci.Address{gpu, audio}}},
	}
	tests := []struct {
		subject subject
		want    scope
	}{
		{subject{"pci", place3b}, scope{addrs: []pci.Address{gpu}}},
		{subject{"net", "/devices/pci0000:00/0000:00:02.0/virtio0/net/eth0"}, scope{addrs: []pci.Address{{Device: 2}}}},
		{subject{"vfio", "/devices/virtual/vfio/15"}, scope{addrs: []pci.Address{gpu, audio}}},
		{subject{"vfio", "/devices/virtual/vfio/noiommu-15"}, scope{addrs: []pci.Address{gpu, audio}}},
		{subject{"vfio", "/devices/virtual/vfio/16"}, scope{all: true}},
		{subject{"vfio", "/devices/virtual/vfio/vfio"}, scope{}},
		{subject{"block", "/devices/virtual/block/dm-0"}, scope{addrs: []pci.Address{nvme}}},
		{subject{"iommu", "/devices/virtual/iommu/dmar0"}, scope{all: true}},
		{subject{"drivers", "/bus/pci/drivers/vfio-pci"}, scope{}},
	}
	for _, tt := range tests {
		got := newScope(map[subject]bool{tt.subject: true}, snap)
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(scope{})); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.subject, diff)
		}
	}
	both := newScope(map[subject]bool{tests[0].subject: true, tests[7].subject: true}, snap)
	if !both.all || !slices.Equal(both.addrs, []pci.Address{gpu}) {
		t.Errorf("two subjects: %+v", both)
	}
}

// A storm of events becomes a full scan before it fills the memory.
func TestPendingIsBounded(t *testing.T) {
	p := newPending()
	for i := range maxPending + 1 {
		p.add(subject{"pci", fmt.Sprintf("/%d", i)})
	}
	all, subjects := p.take()
	if !all || len(subjects) != maxPending+1 {
		t.Errorf("all %v, %d subjects", all, len(subjects))
	}
	if all, subjects := p.take(); all || len(subjects) > 0 {
		t.Errorf("what was taken is still there: %v, %v", all, subjects)
	}
}

package archive

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// TestCensorBundleKeepsWhatIsJudged: a check says of a copy what it says of the node, and the copy has no secrets.
func TestCensorBundleKeepsWhatIsJudged(t *testing.T) {
	const text = `{
		"annotations": {"io.kubernetes.cri.sandbox-id": "s", "io.kubernetes.cri.sandbox-namespace": "tenant-a",
			"io.kubernetes.cri.sandbox-name": "train", "token": "hunter2"},
		"mounts": [{"source": "/dev/vfio", "destination": "/x"}],
		"process": {"args": ["hunter2"], "env": ["PASSWORD=hunter2"], "capabilities": {"bounding": ["CAP_SYS_ADMIN"]}},
		"linux": {"devices": [{"path": "/dev/vfio/15", "type": "c", "major": 511, "minor": 3}, {"path": "/dev/xvda", "type": "b", "major": 253, "minor": 7}], "resources": {"devices": [{"allow": true, "access": "rwm"}]}}
	}`
	want, err := facts.DescribeContainer([]byte(text))
	if err != nil || !want.Privileged || len(want.Devices) != 2 || len(want.BlockDevices) != 1 || want.CharDevices["/dev/vfio/15"] != "511:3" {
		t.Fatalf("the bundle is %+v, error %v; want a privileged container with two devices, a block device and a character device", want, err)
	}
	kept := censorBundle([]byte(text))
	got, err := facts.DescribeContainer(kept)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the copy differs (-node +copy):\n%s", diff)
	}
	if strings.Contains(string(kept), "hunter2") {
		t.Errorf("the copy has a secret: %s", kept)
	}
}

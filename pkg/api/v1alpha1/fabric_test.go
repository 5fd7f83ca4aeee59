package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

const nodeConfigHead = "apiVersion: resource.kata-vfio.dev/v1alpha1\nkind: NodeConfig\n"

// TestFabricHasDefaults: an empty fabric asks the socket that bootstrap sets up, by the helper.
func TestFabricHasDefaults(t *testing.T) {
	c, err := v1alpha1.DecodeNodeConfig([]byte(nodeConfigHead + "fabric: {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Fabric == nil || c.Fabric.Address != v1alpha1.DefaultFabricAddress || c.Fabric.Client != v1alpha1.FabricHelper {
		t.Errorf("got %+v", c.Fabric)
	}
	if c, err := v1alpha1.DecodeNodeConfig([]byte(nodeConfigHead)); err != nil || c.Fabric != nil {
		t.Errorf("without it: %+v, %v", c, err)
	}
}

// TestFabricIsValidated: the error of each value that can't work names the field and the reason.
func TestFabricIsValidated(t *testing.T) {
	for text, want := range map[string]string{
		`{address: "tcp:127.0.0.1:6666", client: FMPM, program: /opt/fmpm}`: "",
		`{address: "vsock:16:6666"}`:                                        "",
		`{modules: [{module: 1, address: "0000:86:00.0", serialNumber: "00-11"}, {module: 3, address: "0000:87:00.0"}]}`: "",
		`{address: "/run/fm.sock"}`:                           "fabric.address: \"/run/fm.sock\" begins with none of unix:, tcp: and vsock:",
		`{address: "unix:fm.sock"}`:                           "fabric.address: \"unix:fm.sock\" does not name a socket by its absolute path",
		`{address: "unix:/run/../fm.sock"}`:                   "does not name a socket by its absolute path",
		`{address: "tcp:127.0.0.1"}`:                          "has no port",
		`{address: "unix:/run/fm", client: FMPM}`:             "is of no use to fmpm, which connects by TCP alone",
		`{client: FMPM}`:                                      "is of no use to fmpm",
		`{client: Helfer}`:                                    `fabric.client: "Helfer" is not one of Helper, FMPM`,
		`{program: fmpm}`:                                     `fabric.program: "fmpm" is not an absolute path`,
		`{modules: []}`:                                       "fabric.modules: the list is empty",
		`{modules: [{address: "0000:86:00.0"}]}`:              "fabric.modules[0].module: missing",
		`{modules: [{module: 1}]}`:                            "fabric.modules[0].address: missing",
		`{modules: [{module: 256, address: "0000:86:00.0"}]}`: "fabric.modules[0].module: 256 is not a number from 0 to 255",
		`{modules: [{module: 1, address: "0000:86:00.0"}, {module: 1, address: "0000:87:00.0"}]}`: "fabric.modules[1]: module 1 at 0000:87:00.0: fabric.modules[0] has one of the two already",
		`{modules: [{module: 1, address: "0000:86:00.0"}, {module: 2, address: "0000:86:00.0"}]}`: "has one of the two already",
		`{sockets: x}`: "sockets",
	} {
		_, err := v1alpha1.DecodeNodeConfig([]byte(nodeConfigHead + "fabric: " + text + "\n"))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(withoutLines(err), want)):
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

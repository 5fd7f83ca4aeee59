package guestnet_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/network/guestnet"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// metadataDir makes a tree of metadata files: path below it to content.
func metadataDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const ownFile = "kata-vfio.dev-metadata.json"

// metadataVersions are those that the plugin writes, in the order of its files.
func metadataVersions() []string { return []string{"v1beta1", "v1alpha1"} }

// metadataOf is a file with one request's devices, as the kubelet plugin's library writes it: an object for each version.
func metadataOf(request, devices string) string {
	var file strings.Builder
	for _, version := range metadataVersions() {
		file.WriteString(metadataIn(version, request, devices) + "\n")
	}
	return file.String()
}

// metadataIn is one object of such a file.
func metadataIn(version, request, devices string) string {
	return `{"kind":"DeviceMetadata","apiVersion":"metadata.resource.k8s.io/` + version + `","metadata":{"name":"c","namespace":"team-a","uid":"u"},
		"requests":[{"name":"` + request + `","devices":[` + devices + `]}]}`
}

const (
	withData = `{"driver":"kata-vfio.dev","pool":"node","name":"vf-1","networkData":
		{"interfaceName":"net1","ips":["192.0.2.10/24"],"hardwareAddress":"02:00:5E:10:00:01"}}`
	withAttribute = `{"driver":"kata-vfio.dev","pool":"node","name":"vf-2","attributes":
		{"guestNetwork":{"string":"{\"interface\":\"net2\",\"mtu\":9000}"},"resource.kubernetes.io/pciBusID":{"string":"0000:3b:02.1"}},
		"networkData":{"interfaceName":"ignored","hardwareAddress":"02:00:5e:10:00:02"}}`
	withDomain = `{"driver":"kata-vfio.dev","pool":"node","name":"vf-3","attributes":
		{"kata-vfio.dev/guestNetwork":{"string":"{}"},"resource.kubernetes.io/pciBusID":{"string":"0000:3b:02.2"}}}`
	withGUID = `{"driver":"kata-vfio.dev","pool":"node","name":"vf-4","attributes":
		{"guestNetwork":{"string":"{\"interface\":\"ib0\"}"},"portGUID":{"string":"02:00:5E:10:00:00:00:01"},"resource.kubernetes.io/pciBusID":{"string":"0000:3b:02.3"}},
		"networkData":{"interfaceName":"ib0"}}`
	aGPU = `{"driver":"kata-vfio.dev","pool":"node","name":"gpu-1","attributes":{"resource.kubernetes.io/pciBusID":{"string":"0000:41:00.0"}}}`
)

func TestMetadataGivesTheDevicesWithANetwork(t *testing.T) {
	dir := metadataDir(t, map[string]string{
		"resourceclaims/b/vf/" + ownFile:                      metadataOf("vf/fast", withAttribute+","+aGPU),
		"resourceclaims/b/vf/other.example-metadata.json":     `not even JSON`,
		"resourceclaims/gpus/gpu/" + ownFile:                  metadataOf("gpu", aGPU),
		"resourceclaimtemplates/a/nic/" + ownFile:             metadataOf("nic", withData),
		"resourceclaimtemplates/a/nic/" + ownFile + ".backup": `{`,
	})
	got, err := guestnet.ReadMetadata(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []guestnet.Device{
		{
			Claim: "b", Request: "vf", Name: "node/vf-2", MAC: net.HardwareAddr{2, 0, 0x5e, 0x10, 0, 2},
			Network: v1alpha1.GuestNetwork{Interface: "net2", MTU: new(9000)},
		},
		{
			Claim: "a", Request: "nic", Name: "node/vf-1", MAC: net.HardwareAddr{2, 0, 0x5e, 0x10, 0, 1},
			Network: v1alpha1.GuestNetwork{Interface: "net1", Addresses: []string{"192.0.2.10/24"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

// TestGuestReadsTheFirstVersionItKnows: a plugin that is newer than the guest's program writes a version before the others, and an older
// one writes v1alpha1 alone.
func TestGuestReadsTheFirstVersionItKnows(t *testing.T) {
	const file = "resourceclaims/c/vf/" + ownFile
	unknown := `{"kind":"DeviceMetadata","apiVersion":"metadata.resource.k8s.io/v1","devices":["in another form"]}` + "\n"
	alpha := metadataIn("v1alpha1", "vf", withData)
	for name, content := range map[string]string{
		"v1alpha1 alone": alpha, "unknown version first, v1alpha1 second": unknown + alpha,
		"unknown version first, then both": unknown + metadataOf("vf", withData), "unknown version last": alpha + "\n" + unknown,
	} {
		devices, err := guestnet.ReadMetadata(metadataDir(t, map[string]string{file: content}))
		if err != nil || len(devices) != 1 || devices[0].MAC.String() != "02:00:5e:10:00:01" {
			t.Errorf("%s: devices %+v, %v; want the VF once", name, devices, err)
		}
	}
}

// TestHostsAddressIsNotTheGuests: neither the metadata's address nor a variable of the container is the guest's with
// Kata, so that a device of which nothing else is known is refused.
func TestHostsAddressIsNotTheGuests(t *testing.T) {
	t.Setenv("PCIDEVICE_KATA_VFIO_DEV_MY_NIC", "0000:3b:02.2")
	file := "resourceclaims/c/my-nic/" + ownFile
	_, err := guestnet.ReadMetadata(metadataDir(t, map[string]string{file: metadataOf("my-nic", withDomain)}))
	wantError[*guestnet.InputError](t, err, "device node/vf-3 (claim c, request my-nic)", "neither a MAC nor a port GUID", "mac or portGUID")
	devices, err := guestnet.ReadMetadata(metadataDir(t, map[string]string{file: metadataOf("my-nic", withData)}))
	if err != nil || len(devices) != 1 || devices[0].PCI != nil {
		t.Errorf("devices %+v, err %v; want one without a PCI address", devices, err)
	}
}

func TestInfiniBandVFHasItsPortGUID(t *testing.T) {
	devices, err := guestnet.ReadMetadata(metadataDir(t, map[string]string{"resourceclaims/c/ib/" + ownFile: metadataOf("ib", withGUID)}))
	if err != nil {
		t.Fatal(err)
	}
	want := []guestnet.Device{{
		Claim: "c", Request: "ib", Name: "node/vf-4", PortGUID: net.HardwareAddr{2, 0, 0x5e, 0x10, 0, 0, 0, 1},
		Network: v1alpha1.GuestNetwork{Interface: "ib0"},
	}}
	if diff := cmp.Diff(want, devices); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

func TestBadMetadataIsRefused(t *testing.T) {
	const file = "resourceclaims/c/vf/" + ownFile
	withNetwork := func(attribute string) map[string]string {
		return map[string]string{file: metadataOf("vf", `{"driver":"kata-vfio.dev","pool":"node","name":"vf-1",
			"attributes":{"guestNetwork":`+attribute+`},"networkData":{"hardwareAddress":"02:00:5e:10:00:01"}}`)}
	}
	withMAC := func(mac string) map[string]string {
		return map[string]string{file: metadataOf("vf", `{"driver":"kata-vfio.dev","pool":"node","name":"vf-1","networkData":{"hardwareAddress":"`+mac+`"}}`)}
	}
	withPort := func(guid string) map[string]string {
		return map[string]string{file: metadataOf("vf", `{"driver":"kata-vfio.dev","pool":"node","name":"vf-1","attributes":{"guestNetwork":{"string":"{}"},"portGUID":`+guid+`}}`)}
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"a short GUID":        {withPort(`{"string":"02:00:5e:10:00:01"}`), "want eight bytes"},
		"the zero GUID":       {withPort(`{"string":"00:00:00:00:00:00:00:00"}`), "is not a port's GUID"},
		"all ones for a GUID": {withPort(`{"string":"ff:ff:ff:ff:ff:ff:ff:ff"}`), "is not a port's GUID"},
		"a GUID as a number":  {withPort(`{"int":1}`), "attribute portGUID is not a string"},
		"nothing":             {nil, "has 0 devices of kata-vfio.dev"},
		"only GPUs":           {map[string]string{file: metadataOf("vf", aGPU)}, "has 1 device of kata-vfio.dev, none with a network"},
		"another's device":    {map[string]string{file: metadataOf("vf", `{"driver":"other","networkData":{"hardwareAddress":"02:00:5e:10:00:01"}}`)}, "has 0 devices"},
		"no JSON":             {map[string]string{file: "{"}, file},
		"empty":               {map[string]string{file: ""}, "no metadata objects found"},
		"a later version":     {map[string]string{file: `{"apiVersion":"metadata.resource.k8s.io/v99","kind":"DeviceMetadata"}`}, "v99"},
		"no JSON in it":       {withNetwork(`{"string":"net1"}`), "attribute guestNetwork"},
		"an unknown field":    {withNetwork(`{"string":"{\"iface\":\"net1\"}"}`), `unknown field "iface"`},
		"a field twice":       {withNetwork(`{"string":"{\"mtu\":1400,\"mtu\":1500}"}`), `duplicate field "mtu"`},
		"a field in capitals": {withNetwork(`{"string":"{\"MTU\":1400}"}`), `unknown field "MTU"`},
		"more after it":       {withNetwork(`{"string":"{} {}"}`), "attribute guestNetwork"},
		"null":                {withNetwork(`{"string":"null"}`), "null is not a network"},
		"a number":            {withNetwork(`{"int":1}`), "is not a string"},
		"no MAC":              {withMAC("net1"), `"net1" is no MAC`},
		"an EUI-64":           {withMAC("02:00:5e:10:00:00:00:01"), "want six bytes"},
		"a group's MAC":       {withMAC("01:00:5e:00:00:01"), "is not an interface's MAC"},
		"the zero MAC":        {withMAC("00:00:00:00:00:00"), "is not an interface's MAC"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := guestnet.ReadMetadata(metadataDir(t, c.files))
			wantError[*guestnet.InputError](t, err, c.want)
		})
	}
	_, err := guestnet.ReadMetadata(filepath.Join(t.TempDir(), "none"))
	wantError[*guestnet.InputError](t, err, "resources.claims")
}

func TestMetadataThatLeavesItsDirectoryIsNotRead(t *testing.T) {
	dir := metadataDir(t, map[string]string{"resourceclaims/c/vf/x": ""})
	outside := filepath.Join(metadataDir(t, map[string]string{ownFile: metadataOf("vf", withData)}), ownFile)
	if err := os.Symlink(outside, filepath.Join(dir, "resourceclaims/c/vf", ownFile)); err != nil {
		t.Fatal(err)
	}
	if devices, err := guestnet.ReadMetadata(dir); err == nil {
		t.Errorf("devices %+v", devices)
	}
}

func TestConfigListsDevices(t *testing.T) {
	file := filepath.Join(metadataDir(t, map[string]string{"n.yaml": `
- mac: 02:00:5e:10:00:01
  network:
    interface: net1
    addresses: [192.0.2.10/24, 2001:db8::10/64]
    routes: [{to: default, via: 192.0.2.1}]
- pci: 0000:02:00.0
  network: {mtu: 9000}
- portGUID: 02:00:5e:10:00:00:00:01
  network: {interface: ib0}
`}), "n.yaml")
	got, err := guestnet.ReadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	want := []guestnet.Device{
		{Name: file + "[0]", MAC: net.HardwareAddr{2, 0, 0x5e, 0x10, 0, 1}, Network: v1alpha1.GuestNetwork{
			Interface: "net1", Addresses: []string{"192.0.2.10/24", "2001:db8::10/64"}, Routes: []v1alpha1.GuestRoute{{To: "default", Via: "192.0.2.1"}},
		}},
		{Name: file + "[1]", PCI: &pci.Address{Bus: 2}, Network: v1alpha1.GuestNetwork{MTU: new(9000)}},
		{Name: file + "[2]", PortGUID: net.HardwareAddr{2, 0, 0x5e, 0x10, 0, 0, 0, 1}, Network: v1alpha1.GuestNetwork{Interface: "ib0"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

func TestBadConfigIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":            {"", "empty"},
		"an empty list":    {"[]", "the list is empty; want a list with an entry for each interface"},
		"a text":           {"hello", "it is not a list; want a list"},
		"no list":          {"mac: x", "it is not a list; want a list"},
		"an unknown field": {`[{"mac":"02:00:5e:10:00:01","netwrk":{}}]`, `unknown field "[0].netwrk"`},
		"neither":          {`[{"network":{}}]`, "[0]: want one of mac, portGUID and pci"},
		"both":             {`[{"mac":"02:00:5e:10:00:01","pci":"0000:02:00.0"}]`, "want one of mac, portGUID and pci"},
		"a short GUID":     {`[{"portGUID":"02:00:5e:10:00:01"}]`, "want eight bytes"},
		"no PCI address":   {`[{"pci":"2:0.0"}]`, "not a PCI address"},
		"two documents":    {"[]\n---\n[]", "more than one"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := guestnet.ReadConfig(filepath.Join(metadataDir(t, map[string]string{"n.yaml": c.text}), "n.yaml"))
			wantError[*guestnet.InputError](t, err, c.want)
		})
	}
	_, err := guestnet.ReadConfig(filepath.Join(t.TempDir(), "none"))
	wantError[*guestnet.InputError](t, err, "none")
}

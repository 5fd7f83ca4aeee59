package guestnet_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/network/guestnet"
)

// aVM has two functions, of which one has a driver.
func aVM() fstest.MapFS {
	at := "bus/pci/devices/0000:01:00.0/"
	disk := "bus/pci/devices/0000:00:02.0/"
	return fstest.MapFS{
		at + "vendor": {Data: []byte("0x10de\n")}, at + "device": {Data: []byte("0x2330\n")}, at + "class": {Data: []byte("0x030200\n")},
		at + "driver":   {Data: []byte("../../../../bus/pci/drivers/nvidia"), Mode: 0o777 | 1<<27},
		disk + "vendor": {Data: []byte("0x1af4\n")}, disk + "device": {Data: []byte("0x1042\n")}, disk + "class": {Data: []byte("0x010000\n")},
	}
}

func TestFunctionsAreThoseOfTheVM(t *testing.T) {
	got, err := guestnet.ReadFunctions(aVM())
	if err != nil {
		t.Fatal(err)
	}
	want := &guestnet.Seen{Functions: []guestnet.Function{
		{Address: "0000:00:02.0", Vendor: "1af4", Device: "1042", Class: "010000"},
		{Address: "0000:01:00.0", Vendor: "10de", Device: "2330", Class: "030200", Driver: "nvidia"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("functions (-want +got):\n%s", diff)
	}
	if got, err := guestnet.ReadFunctions(fstest.MapFS{}); err != nil || len(got.Functions) != 0 {
		t.Errorf("without PCI: got %+v, %v; want no function", got, err)
	}
	if _, err := guestnet.ReadFunctions(fstest.MapFS{"bus/pci/devices/0000:00:02.0/vendor": {}}); err == nil {
		t.Error("a function that can't be read: got no error")
	}
}

// TestLackingComparesIDs: as many functions as the claims give, no fewer and no more.
func TestLackingComparesIDs(t *testing.T) {
	const file = "resourceclaims/c/gpu/" + ownFile
	of := func(device string) string {
		return `{"driver":"kata-vfio.dev","pool":"node","name":"gpu","attributes":{"kata-vfio.dev/vendor":{"string":"10de"},"device":{"string":"` + device + `"}}}`
	}
	seen, err := guestnet.ReadFunctions(aVM())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		devices, want string
		compared      int
	}{
		"its device":     {of("2330"), "", 1},
		"another device": {of("2331"), "0 functions 10de:2331, the claims give 1", 1},
		"one of two":     {of("2330") + "," + of("2330"), "1 function 10de:2330, the claims give 2", 2},
	} {
		compared, missing, err := seen.Lacking(metadataDir(t, map[string]string{file: metadataOf("gpu", c.devices)}))
		if err != nil || compared != c.compared || strings.Join(missing, "; ") != c.want {
			t.Errorf("%s: got %d, %q, %v; want %d, %q", name, compared, missing, err, c.compared, c.want)
		}
	}
	_, _, err = seen.Lacking(metadataDir(t, nil))
	wantError[*guestnet.InputError](t, err, "0 devices of kata-vfio.dev, none with PCI ids")
}

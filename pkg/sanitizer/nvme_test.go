package sanitizer

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
)

// run erases a drive.
func (d *drive) run(t *testing.T, o NVMeOptions) *sanitize.Result {
	t.Helper()
	o.Options = options("")
	if o.Method == "" {
		o.Method = Auto
	}
	r, err := bounded(t.Context(), time.Minute, func(ctx context.Context, p *progress) error {
		p.update(func(r *sanitize.Result) { r.Device = &sanitize.Device{Vendor: "0x1b36", Device: "0x0010"} })
		return o.erase(ctx, p, d)
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestNVMe(t *testing.T) {
	d := newDrive(1000)
	r := d.run(t, NVMeOptions{})
	expectVerdict(t, r, sanitize.Clean, "")
	if !d.empty() {
		t.Error("the drive has data")
	}
	if len(r.Checks) != 1 || r.Checks[0].Name != "namespace1" || r.Checks[0].Method != "FormatCryptoEraseVerifyMarkers" || r.Checks[0].Bytes != 512_000 {
		t.Errorf("checks: %+v", r.Checks)
	}
	if r.Device.Serial != "SN0001" {
		t.Errorf("serial: %q", r.Device.Serial)
	}
	version := func(name, value string) sanitize.Measurement {
		return sanitize.Measurement{Name: name, Algorithm: sanitize.Version, Value: value}
	}
	want := []sanitize.Measurement{
		version("firmware", "1.0.0"), version("active-slot", "1"), version("next-slot", "2"), version("slot1", "1.0.0"), version("slot2", "2.0.?"),
	}
	if diff := cmp.Diff(want, r.Firmware); diff != "" {
		t.Errorf("firmware (-want +got):\n%s", diff)
	}
	if slices.Contains(d.opcodes, adminNSManage) {
		t.Error("the one namespace was not left as it is")
	}
}

func TestNVMeResults(t *testing.T) {
	for name, row := range map[string]struct {
		change  func(*drive)
		options NVMeOptions
		verdict sanitize.Verdict
		reason  string
		method  string
	}{
		"crypto":                     {func(*drive) {}, NVMeOptions{Method: Crypto}, sanitize.Clean, "", "FormatCryptoEraseVerifyMarkers"},
		"no crypto":                  {func(d *drive) { d.formats = 0 }, NVMeOptions{}, sanitize.Clean, "", "FormatUserDataEraseVerifyMarkers"},
		"crypto is wanted":           {func(d *drive) { d.formats = 0 }, NVMeOptions{Method: Crypto}, sanitize.Unknown, "does not support the method crypto", ""},
		"user data":                  {func(*drive) {}, NVMeOptions{Method: UserData}, sanitize.Clean, "", "FormatUserDataEraseVerifyMarkers"},
		"no format":                  {func(d *drive) { d.admins = 0 }, NVMeOptions{}, sanitize.Clean, "", "WriteZeroesVerifyAll"},
		"a format is wanted":         {func(d *drive) { d.admins = 0 }, NVMeOptions{Method: UserData}, sanitize.Unknown, "does not support the method user-data", ""},
		"nothing":                    {func(d *drive) { d.admins, d.commands = 0, 0 }, NVMeOptions{}, sanitize.Unknown, "neither Format NVM nor Write Zeroes", ""},
		"zeros are wanted":           {func(d *drive) { d.commands = 0 }, NVMeOptions{Method: WriteZeroes}, sanitize.Unknown, "does not support the method write-zeroes", ""},
		"zeros":                      {func(*drive) {}, NVMeOptions{Method: WriteZeroes}, sanitize.Clean, "", "WriteZeroesVerifyAll"},
		"verify all":                 {func(*drive) {}, NVMeOptions{VerifyAll: true}, sanitize.Clean, "", "FormatCryptoEraseVerifyAll"},
		"formats all namespaces":     {func(d *drive) { d.formats |= formatsAll }, NVMeOptions{}, sanitize.Clean, "", "FormatCryptoEraseVerifyMarkers"},
		"erases all namespaces":      {func(d *drive) { d.formats |= erasesAll }, NVMeOptions{}, sanitize.Clean, "", "FormatCryptoEraseVerifyMarkers"},
		"format does nothing":        {func(d *drive) { d.keeps = func(uint64) bool { return true } }, NVMeOptions{}, sanitize.Dirty, "namespace1: block 0 still has the data", "FormatCryptoEraseVerifyMarkers"},
		"format keeps the last":      {func(d *drive) { d.keeps = func(b uint64) bool { return b == 999 } }, NVMeOptions{}, sanitize.Dirty, "block 999 still has the data", "FormatCryptoEraseVerifyMarkers"},
		"zeros keep a block":         {func(d *drive) { d.keeps = func(b uint64) bool { return b == 123 } }, NVMeOptions{Method: WriteZeroes}, sanitize.Dirty, "block 123 ", "WriteZeroesVerifyAll"},
		"format leaves ones":         {func(d *drive) { d.fills = 0xff }, NVMeOptions{}, sanitize.Clean, "", "FormatCryptoEraseVerifyMarkers"},
		"format leaves ones, all":    {func(d *drive) { d.fills = 0xff }, NVMeOptions{VerifyAll: true}, sanitize.Unknown, "block 0 is not zero after the format", "FormatCryptoEraseVerifyAll"},
		"forgets writes":             {func(d *drive) { d.forgets = true }, NVMeOptions{}, sanitize.Unknown, "block 0 does not keep what is written", ""},
		"metadata":                   {func(d *drive) { d.spaces[1].format = 1 }, NVMeOptions{}, sanitize.Clean, "", "FormatCryptoEraseVerifyMarkers"},
		"metadata and zeros":         {func(d *drive) { d.spaces[1].format = 1 }, NVMeOptions{Method: WriteZeroes}, sanitize.Unknown, "blocks with metadata", ""},
		"no namespace":               {func(d *drive) { d.admins = adminHasFormat; clear(d.spaces) }, NVMeOptions{}, sanitize.Unknown, "no namespace", ""},
		"no namespace, can make one": {func(d *drive) { clear(d.spaces) }, NVMeOptions{}, sanitize.Clean, "", "FormatCryptoEraseVerifyMarkers"},
		"no namespace, no capacity":  {func(d *drive) { clear(d.spaces); d.capacity = 100 }, NVMeOptions{}, sanitize.Unknown, "100 bytes are not allocated", ""},
		"namespaces stay":            {func(d *drive) { d.undeletable = true; d.spaces[1].attached = false; d.capacity *= 2 }, NVMeOptions{}, sanitize.Unknown, "2 was to be the only one", ""},
		"shrinks":                    {func(d *drive) { d.afterFormat = func(d *drive) { d.spaces[1].blocks-- } }, NVMeOptions{}, sanitize.Unknown, "has 511488 bytes after the erase, and had 512000", ""},
		"is in ruins":                {func(d *drive) { d.afterFormat = func(d *drive) { clear(d.spaces) } }, NVMeOptions{}, sanitize.Unknown, "status 0xb (invalid namespace or format)", ""},
		"no serial":                  {func(d *drive) { d.serial = "" }, NVMeOptions{}, sanitize.Clean, "", "FormatCryptoEraseVerifyMarkers"},
		"a serial that is not ASCII": {func(d *drive) { d.serial = "S\x00\xff\n1" }, NVMeOptions{}, sanitize.Clean, "", "FormatCryptoEraseVerifyMarkers"},
		"one block":                  {func(d *drive) { d.capacity = driveBlock; d.put(1, 1, true) }, NVMeOptions{}, sanitize.Clean, "", "FormatCryptoEraseVerifyMarkers"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDrive(1000)
			row.change(d)
			r := d.run(t, row.options)
			expectVerdict(t, r, row.verdict, row.reason)
			if method := ""; len(r.Checks) > 0 {
				if method = r.Checks[0].Method; method != row.method {
					t.Errorf("method: got %q, want %q", method, row.method)
				}
			} else if row.method != "" {
				t.Errorf("there is no check, want one by %s", row.method)
			}
			if row.verdict == sanitize.Clean && d.fills == 0 && !d.empty() {
				t.Error("the verdict is Clean, and the drive has data")
			}
		})
	}
}

// TestNVMeRefusals: whatever command the controller refuses, the result is Unknown and says its status.
func TestNVMeRefusals(t *testing.T) {
	for name, opcode := range map[string]uint16{
		"identify": adminIdentify, "get log page": adminGetLogPage, "format": adminFormat, "delete": adminNSManage, "attach": adminNSAttach,
		"read": ioCommand | nvmRead, "write": ioCommand | nvmWrite, "write zeroes": ioCommand | nvmWriteZeroes, "flush": ioCommand | nvmFlush,
	} {
		t.Run(name, func(t *testing.T) {
			d, o := newDrive(1000), NVMeOptions{}
			d.put(2, 0, true) // so that namespaces are managed
			if opcode == ioCommand|nvmWriteZeroes || opcode == ioCommand|nvmFlush {
				o.Method = WriteZeroes
			}
			d.refuse[opcode] = 0x286
			r := d.run(t, o)
			expectVerdict(t, r, sanitize.Unknown, "status 0x286 (access denied: the drive is locked)")
			if !slices.Contains(d.opcodes, opcode) {
				t.Errorf("opcode 0x%x was not used", opcode)
			}
		})
	}
}

// TestNVMeNamespaces makes one namespace over all capacity of what a tenant made of the drive, and erases it.
func TestNVMeNamespaces(t *testing.T) {
	for name, change := range map[string]func(*drive){
		"three":       func(d *drive) { d.put(1, 300, true); d.put(5, 300, true); d.put(9, 400, true) },
		"detached":    func(d *drive) { d.put(1, 300, true); d.put(2, 700, false) },
		"unallocated": func(d *drive) { d.put(1, 300, true) },
		"only detached": func(d *drive) {
			d.put(1, 1000, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDrive(1000)
			change(d)
			r := d.run(t, NVMeOptions{})
			expectVerdict(t, r, sanitize.Clean, "")
			if len(d.spaces) != 1 || d.spaces[1] == nil || d.spaces[1].blocks != 1000 || !d.empty() || d.rescans != 1 {
				t.Errorf("namespaces %v, empty %t, %d rescans", slices.Collect(maps.Keys(d.spaces)), d.empty(), d.rescans)
			}
			if len(r.Checks) != 1 || r.Checks[0].Bytes != 1000*driveBlock {
				t.Errorf("checks: %+v", r.Checks)
			}
		})
	}
}

// TestNVMeWithoutManagement erases each namespace of a drive that can't make one of them.
func TestNVMeWithoutManagement(t *testing.T) {
	for _, all := range []uint8{0, formatsAll} {
		d := newDrive(1000)
		d.admins, d.formats = adminHasFormat, hasCryptoErase|all
		d.put(1, 500, true)
		d.put(2, 500, true)
		r := d.run(t, NVMeOptions{})
		expectVerdict(t, r, sanitize.Clean, "")
		if !d.empty() || len(r.Checks) != 2 || r.Checks[1].Name != "namespace2" {
			t.Errorf("FNA %d: empty %t, checks %+v", d.formats, d.empty(), r.Checks)
		}
	}
}

// TestNVMeKeepsSecond finds data in a namespace that is not the first.
func TestNVMeKeepsSecond(t *testing.T) {
	d := newDrive(1000)
	d.admins = adminHasFormat
	d.put(2, 2000, true)
	d.keeps = func(b uint64) bool { return b == 1999 }
	r := d.run(t, NVMeOptions{})
	expectVerdict(t, r, sanitize.Dirty, "namespace2: block 1999")
	if len(r.Checks) != 2 || r.Checks[0].Verdict != sanitize.Clean {
		t.Errorf("checks: %+v", r.Checks)
	}
}

// TestPassthru holds the layout of the kernel's struct and the requests (include/uapi/linux/nvme_ioctl.h).
func TestPassthru(t *testing.T) {
	var p passthru
	got := map[string]uintptr{
		"size": unsafe.Sizeof(p), "nsid": unsafe.Offsetof(p.nsid), "metadata": unsafe.Offsetof(p.metadata), "addr": unsafe.Offsetof(p.addr),
		"data_len": unsafe.Offsetof(p.dataLen), "cdw10": unsafe.Offsetof(p.cdw10), "timeout_ms": unsafe.Offsetof(p.msec), "result": unsafe.Offsetof(p.result),
		"NVME_IOCTL_ADMIN_CMD": ioctlAdmin, "NVME_IOCTL_IO_CMD": ioctlIO, "NVME_IOCTL_RESCAN": ioctlRescan,
	}
	want := map[string]uintptr{
		"size": 72, "nsid": 4, "metadata": 16, "addr": 24, "data_len": 36, "cdw10": 40, "timeout_ms": 64, "result": 68,
		"NVME_IOCTL_ADMIN_CMD": 0xc0484e41, "NVME_IOCTL_IO_CMD": 0xc0484e43, "NVME_IOCTL_RESCAN": 0x4e46,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("layout (-want +got):\n%s", diff)
	}
}

const (
	disk    = "0000:00:07.0"
	diskDir = "sys/bus/pci/devices/" + disk + "/"
)

// withDisk is a VM with a controller nvme0 and its namespace, whose devices are those of /dev/null and of no driver.
func withDisk() vm {
	v := usual().add(disk, "1b36:0010", "010802", registers)
	v[diskDir+"nvme/nvme0/dev"] = "1:3\n"
	v[diskDir+"nvme/nvme0/nvme0c0n1/nsid"] = "1\n"
	v["sys/class/block/nvme0n1/dev"] = "259:7\n"
	return v
}

// TestNVMeNode finds the controller and makes a node for it: the command reaches the driver, which is not NVMe's.
func TestNVMeNode(t *testing.T) {
	for name, row := range map[string]struct {
		change func(vm)
		reason string
	}{
		"opens":         {func(vm) {}, "identify the controller: NVMe command 0x06: inappropriate ioctl for device"},
		"no controller": {func(v vm) { v.without(diskDir) }, "no device to sanitize"},
		"two":           {func(v vm) { v.add(other, "1b36:0010", "010802") }, "2 devices to sanitize"},
		"no driver":     {func(v vm) { v.without(diskDir + "nvme/") }, "not bound to the driver nvme"},
		"no number":     {func(v vm) { v[diskDir+"nvme/nvme0/dev"] = "x" }, `"x" is not MAJOR:MINOR`},
	} {
		t.Run(name, func(t *testing.T) {
			v := withDisk()
			row.change(v)
			root := v.make(t)
			r, err := NVMe(t.Context(), NVMeOptions{Options: options(root), Method: Auto})
			if err != nil {
				t.Fatal(err)
			}
			expectVerdict(t, r, sanitize.Unknown, row.reason)
			if left, err := os.ReadDir(filepath.Join(root, "dev")); err != nil || len(left) != 0 {
				t.Errorf("left in dev: %v, %v", left, err)
			}
		})
	}
}

// without removes a directory.
func (v vm) without(dir string) {
	maps.DeleteFunc(v, func(path, _ string) bool { return strings.HasPrefix(path, dir) })
}

// TestNVMeNamespaceDevice finds a namespace's device, also with native multipath, and waits for one that is not there yet.
func TestNVMeNamespaceDevice(t *testing.T) {
	v := withDisk()
	v[diskDir+"nvme/nvme0/nvme0n2/nsid"] = "2\n"
	root := v.make(t)
	g, err := openGuest(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.close() }()
	n := &nvmeNode{g: g, root: root, dir: diskDir + "nvme/nvme0"}
	for id, want := range map[uint32]string{1: "nvme0n1", 2: "nvme0n2"} {
		if dir, name, err := n.find(id); err != nil || name != want || dir != "sys/class/block/"+want {
			t.Errorf("namespace %d: got %s, %s, %v; want %s", id, dir, name, err, want)
		}
	}
	if _, err := n.namespace(3); err == nil || !strings.Contains(err.Error(), "namespace 3: the VM's kernel has no device for it") {
		t.Errorf("namespace 3: got %v", err)
	}
}

// TestNVMeNodeOfVM uses the node in /dev if it is the device's, and not a file that has its name.
func TestNVMeNodeOfVM(t *testing.T) {
	root := withDisk().make(t)
	node := filepath.Join(root, "dev/nvme0")
	g, err := openGuest(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.close() }()
	n := &nvmeNode{g: g, root: root}
	for name, make := range map[string]func() error{
		"a file":         func() error { return os.WriteFile(node, nil, 0o600) },
		"another device": func() error { return unix.Mknod(node, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))) },
		"the device":     func() error { return unix.Mknod(node, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		f, err := n.open(diskDir+"nvme/nvme0", "nvme0", unix.S_IFCHR)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var is unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &is); err != nil || is.Rdev != unix.Mkdev(1, 3) {
			t.Errorf("%s: opened device %d, %v", name, is.Rdev, err)
		}
		if (f.Name() == node) != (name == "the device") {
			t.Errorf("%s: opened %s", name, f.Name())
		}
		_ = f.Close()
		if err := os.Remove(node); err != nil {
			t.Fatal(err)
		}
	}
}

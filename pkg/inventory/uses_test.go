package inventory_test

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

const (
	nicAddress = "0000:00:03.0"
	nicPlace   = "sys/devices/pci0000:00/0000:00:03.0"
)

// uses returns what uses the function as phrases.
func uses(f *device.Function) []string {
	var phrases []string
	for _, u := range f.Uses {
		phrases = append(phrases, u.String())
	}
	return phrases
}

func checkUses(t *testing.T, f *device.Function, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, uses(f)); diff != "" {
		t.Errorf("uses of %v (-want +got):\n%s", f.Address, diff)
	}
}

// nicTree is a node with one NIC, eth0.
func nicTree(t *testing.T) tree {
	t.Helper()
	tr := newTree(t)
	tr.driver(tr.function("pci0000:00/"+nicAddress, nil), "igb")
	tr.put(nicPlace+"/net/eth0/mtu", "1500\n")
	tr.link("sys/class/net/eth0", nicPlace+"/net/eth0")
	return tr
}

func nic(t *testing.T, tr tree) *device.Function {
	t.Helper()
	return function(t, scan(t, tr.open()), addr(t, nicAddress))
}

const routeTitle = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"

// The files are those of a node with address 192.0.2.2/24, as they read.
func TestUseAddressAndRoute(t *testing.T) {
	tr := nicTree(t)
	tr.put("proc/self/net/route", routeTitle+
		"eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"+
		"eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"+
		"docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"+
		"*\t0000000A\t00000000\t0200\t0\t0\t0\t000000FF\t0\t0\t0\n")
	tr.put("proc/self/net/fib_trie", `Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
           |-- 127.0.0.1
              /32 host LOCAL
     +-- 192.0.2.0/24 2 0 2
           |-- 192.0.2.0
              /24 link UNICAST
           |-- 192.0.2.2
              /32 host LOCAL
        |-- 192.0.2.255
           /32 link BROADCAST
           |-- 172.17.0.1
              /32 host LOCAL
Local:
           |-- 192.0.2.2
              /32 host LOCAL
`)
	tr.put("proc/self/net/if_inet6", "fd000000000000000000000000000002 04 40 00 82     eth0\n"+
		"00000000000000000000000000000001 01 80 10 80       lo\n"+
		"fe8000000000000000fc00fffe000001 04 40 20 80     eth0\n")
	tr.put("proc/self/net/ipv6_route",
		"fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0\n"+
			"fe800000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0\n"+
			"fd000000000000000000000000000002 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 00000003 00000000 80200001     eth0\n"+
			"ff000000000000000000000000000000 08 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000004 00000000 00000001     eth0\n")
	checkUses(t, nic(t, tr),
		"netdev eth0 has address 192.0.2.2/24",
		"netdev eth0 has address fd00::2/64",
		"netdev eth0 carries the route default via 192.0.2.1 and 2 more")
}

// What the node's first process sees goes before what the reader sees, which
// may be a container.
func TestUseOfTheNodeNotTheContainer(t *testing.T) {
	tr := nicTree(t)
	tr.put("proc/1/net/route", routeTitle+"eth0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n")
	tr.put("proc/self/net/route", routeTitle)
	checkUses(t, nic(t, tr), "netdev eth0 carries the route 10.0.0.0/8")
}

func TestUseThroughStack(t *testing.T) {
	k := sysfstest.New(t)
	pf, _ := k.AddNIC(0x5e, 0)
	k.SetMaster("eth0", "bond0")
	k.SetMaster("bond0", "br0")
	k.AddDefaultRoute("br0", "10.0.0.5/24", "10.0.0.1")
	node := open(t, k)
	checkUses(t, function(t, scan(t, node), pf),
		"netdev eth0 is part of bond0",
		"netdev eth0 has address 10.0.0.5/24 on br0",
		"netdev eth0 carries the route default via 10.0.0.1 and 1 more on br0")
}

// A /32 (BGP on the host, a virtual address) and an address with the flag noprefixroute have no route to their network.
func TestUseOfAddressWithoutRoute(t *testing.T) {
	for name, tt := range map[string]struct {
		address func(k *sysfstest.Kernel)
		want    string
	}{
		"of one host":      {func(k *sysfstest.Kernel) { k.AddAddress("eth0", "10.0.0.5/32") }, "netdev eth0 has address 10.0.0.5/32"},
		"noprefixroute":    {func(k *sysfstest.Kernel) { k.AddAddressOnly("eth0", "10.1.2.3/24") }, "netdev eth0 has address 10.1.2.3/24"},
		"IPv6":             {func(k *sysfstest.Kernel) { k.AddAddressOnly("eth0", "fd00:7::5/128") }, "netdev eth0 has address fd00:7::5/128"},
		"on what is above": {func(k *sysfstest.Kernel) { k.AddAddress("bond0", "10.0.0.5/32") }, "netdev eth0 has address 10.0.0.5/32 on bond0"},
	} {
		t.Run(name, func(t *testing.T) {
			k := sysfstest.New(t)
			pf, _ := k.AddNIC(0x5e, 0)
			k.AddNIC(0x5f, 0)
			k.SetMaster("eth0", "bond0")
			tt.address(k)
			checkUses(t, function(t, scan(t, open(t, k)), pf), "netdev eth0 is part of bond0", tt.want)
		})
	}
}

// A copy that is older than the file with addresses has those of subnets with a route only.
func TestUseOfAddressInAnOlderCopy(t *testing.T) {
	k := sysfstest.New(t)
	pf, _ := k.AddNIC(0x5e, 0)
	k.AddAddress("eth0", "10.0.0.5/24")
	if err := os.Remove(k.Path(inventory.AddressesFile)); err != nil {
		t.Fatal(err)
	}
	checkUses(t, function(t, scan(t, open(t, k)), pf), "netdev eth0 has address 10.0.0.5/24", "netdev eth0 carries the route 10.0.0.0/24")
}

// A copy whose file can't be understood is not one without addresses.
func TestUseOfDamagedAddresses(t *testing.T) {
	k := sysfstest.New(t)
	k.AddNIC(0x5e, 0)
	k.PutFile(inventory.AddressesFile, `[{"interface": 2, "prefix": "10.0.0.5"}]`)
	if _, err := inventory.Scan(t.Context(), open(t, k)); err == nil {
		t.Error("the node was read")
	}
}

// Two stacks that end in each other must not keep the scan.
func TestUseThroughLoop(t *testing.T) {
	tr := nicTree(t)
	for _, pair := range [][2]string{{"a", "b"}, {"b", "a"}} {
		where := "sys/devices/virtual/net/" + pair[0]
		tr.link(where+"/upper_"+pair[1], "sys/devices/virtual/net/"+pair[1])
		tr.link("sys/class/net/"+pair[0], where)
	}
	tr.link(nicPlace+"/net/eth0/upper_a", "sys/devices/virtual/net/a")
	tr.link(nicPlace+"/net/eth0/master", "sys/devices/virtual/net/a")
	checkUses(t, nic(t, tr), "netdev eth0 is part of a")
}

func TestUseInOtherNamespace(t *testing.T) {
	tr := nicTree(t)
	tr.remove(nicPlace + "/net/eth0")
	tr.remove("sys/class/net/eth0")
	checkUses(t, nic(t, tr), "its netdev is in another network namespace")
}

// A netdev that hangs on a USB controller makes the controller used.
func TestUseByNestedNetdev(t *testing.T) {
	tr := newTree(t)
	where := tr.function("pci0000:00/"+nicAddress, map[string]string{"class": "0x0c0330\n"})
	tr.driver(where, "xhci_hcd")
	netdev := where + "/usb1/1-1/1-1:1.0/net/enx0"
	tr.put(netdev+"/mtu", "1500\n")
	tr.link(netdev+"/master", "sys/devices/virtual/net/bond0")
	tr.link("sys/class/net/enx0", netdev)
	tr.put("proc/1/net/route", routeTitle+"enx0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n")
	f := nic(t, tr)
	checkUses(t, f, "netdev enx0 is part of bond0", "netdev enx0 carries the route 10.0.0.0/8")
	if !slices.Equal(f.Children.Net, []string{"enx0"}) {
		t.Errorf("netdevs are %v", f.Children.Net)
	}
}

func TestUseOfVirtio(t *testing.T) {
	tr := newTree(t)
	tr.driver(tr.function("pci0000:00/"+nicAddress, nil), "virtio-pci")
	tr.put(nicPlace+"/virtio2/net/eth0/mtu", "1500\n")
	tr.put(nicPlace+"/virtio2/block/vda/dev", "254:0\n")
	tr.put("proc/1/mountinfo", "22 1 254:0 / / rw - ext4 /dev/root rw\n")
	tr.link("sys/class/block/vda", nicPlace+"/virtio2/block/vda")
	f := nic(t, tr)
	want := device.Children{Net: []string{"eth0"}, Block: []string{"vda"}, Nodes: []string{"vda"}}
	if diff := cmp.Diff(want, f.Children); diff != "" {
		t.Errorf("children (-want +got):\n%s", diff)
	}
	checkUses(t, f, "block device vda is mounted on /")
}

func TestUseOfStorage(t *testing.T) {
	k := sysfstest.New(t)
	mounted := k.AddNVMe(0x3b)
	swap := k.AddNVMe(0x41)
	stack := k.AddNVMe(0x42)
	free := k.AddNVMe(0x43)
	k.AddMount("nvme0n1p1", "/data")
	k.AddMount("nvme0n1p1", `/data/with\040space`)
	k.AddSwap("nvme1n1p1")
	k.AddStack("nvme2n1p1", "dm-0")
	k.PutFile("sys/devices/virtual/block/dm-0/holders/dm-1", "")
	k.PutFile("sys/devices/virtual/block/dm-0/dm/name", "vg0-data\n")
	k.PutFile("proc/1/mountinfo", "22 1 0:45 /sub /srv rw - btrfs /dev/dm-1 rw\n"+
		"23 1 259:1 / /data rw - ext4 /dev/nvme0n1p1 rw\n24 1 259:1 /x /data/with\\040space rw - ext4 /dev/nvme0n1p1 rw\n")
	snap := scan(t, open(t, k))
	checkUses(t, function(t, snap, mounted), "block device nvme0n1p1 is mounted on /data and 1 more")
	checkUses(t, function(t, snap, swap), "block device nvme1n1p1 is used as swap")
	checkUses(t, function(t, snap, stack),
		"block device nvme2n1p1 backs dm-0 (vg0-data)",
		"block device nvme2n1p1 is mounted on /srv through dm-0 and dm-1")
	f := function(t, snap, free)
	checkUses(t, f)
	want := device.Children{NVMe: []string{"nvme3"}, Block: []string{"nvme3n1"}, Nodes: []string{"nvme3", "nvme3n1", "nvme3n1p1"}}
	if diff := cmp.Diff(want, f.Children); diff != "" {
		t.Errorf("children (-want +got):\n%s", diff)
	}
}

// With NVMe's native multipath the disk is a virtual device, and both
// controllers lead to it.
func TestUseOfMultipath(t *testing.T) {
	tr := newTree(t)
	const subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys0"
	for i, a := range []string{"0000:00:03.0", "0000:00:04.0"} {
		where := tr.function("pci0000:00/"+a, map[string]string{"class": "0x010802\n"})
		tr.driver(where, "nvme")
		name := "nvme" + string(rune('0'+i))
		tr.put(where+"/nvme/"+name+"/"+name+"c"+name[4:]+"n1/size", "8\n") // its own path, which nobody mounts
		tr.link(subsystem+"/"+name, where+"/nvme/"+name)
	}
	tr.put(subsystem+"/nvme0n1/dev", "259:0\n")
	tr.put(subsystem+"/nvme0n1/nvme0n1p2/dev", "259:2\n")
	tr.link("sys/class/block/nvme0n1", subsystem+"/nvme0n1")
	tr.link("sys/class/block/nvme0n1p2", subsystem+"/nvme0n1/nvme0n1p2")
	tr.put("proc/1/mountinfo", "22 1 259:2 / /var rw - xfs /dev/mapper/x rw\n")
	snap := scan(t, tr.open())
	for _, a := range []string{"0000:00:03.0", "0000:00:04.0"} {
		f := function(t, snap, addr(t, a))
		checkUses(t, f, "block device nvme0n1p2 is mounted on /var")
		if !slices.Equal(f.Children.Block, []string{"nvme0n1"}) || !slices.Contains(f.Children.Nodes, "nvme0n1p2") {
			t.Errorf("%s has disks %v, nodes %v", a, f.Children.Block, f.Children.Nodes)
		}
	}
}

// A disk of a SCSI controller is four devices away from it.
func TestUseOfSCSI(t *testing.T) {
	tr := newTree(t)
	where := tr.function("pci0000:00/"+nicAddress, map[string]string{"class": "0x010700\n"})
	tr.driver(where, "mpt3sas")
	disk := where + "/host0/target0:0:1/0:0:1:0/block/sda"
	tr.put(disk+"/dev", "8:0\n")
	tr.put(disk+"/sda1/dev", "8:1\n")
	tr.link("sys/class/block/sda", disk)
	tr.link("sys/class/block/sda1", disk+"/sda1")
	tr.put("proc/1/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
	f := nic(t, tr)
	checkUses(t, f, "block device sda1 is mounted on /")
	if want := []string{"sda", "sda1"}; !slices.Equal(f.Children.Nodes, want) {
		t.Errorf("nodes are %v, want %v", f.Children.Nodes, want)
	}
}

func TestUseByConsole(t *testing.T) {
	const gpu = "sys/devices/pci0000:00/0000:00:03.0"
	tests := []struct {
		name    string
		bootVGA string
		console string // the name of a console that is bound
		buffer  string // the place of fb0
		want    []string
	}{
		{"text mode", "1\n", "(S) VGA+\n", "", []string{"it drives the boot console"}},
		{"its own frame buffer", "1\n", "(M) frame buffer device\n", gpu + "/graphics/fb0", []string{"it drives the boot console"}},
		{"the firmware's frame buffer", "1\n", "(M) frame buffer device\n", "sys/devices/platform/efi-framebuffer.0/graphics/fb0", []string{"it drives the boot console"}},
		{"another's frame buffer", "1\n", "(M) frame buffer device\n", "sys/devices/pci0000:00/0000:00:04.0/graphics/fb0", nil},
		{"no console", "1\n", "(S) dummy device\n", gpu + "/graphics/fb0", nil},
		{"not the boot adapter", "0\n", "(M) frame buffer device\n", gpu + "/graphics/fb0", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr := newTree(t)
			tr.function("pci0000:00/0000:00:03.0", map[string]string{"class": "0x030000\n", "boot_vga": tt.bootVGA})
			for i, c := range []struct{ name, bind string }{{tt.console, "1\n"}, {"(S) VGA+\n", "0\n"}} {
				where := "sys/devices/virtual/vtconsole/vtcon" + string(rune('0'+i))
				tr.put(where+"/name", c.name)
				tr.put(where+"/bind", c.bind)
				tr.link("sys/class/vtconsole/vtcon"+string(rune('0'+i)), where)
			}
			tr.link("sys/class/graphics/fbcon", "sys/devices/virtual/graphics/fbcon")
			if tt.buffer != "" {
				tr.link("sys/class/graphics/fb0", tt.buffer)
			}
			f := nic(t, tr)
			checkUses(t, f, tt.want...)
			if f.BootVGA != (tt.bootVGA == "1\n") {
				t.Errorf("BootVGA is %v", f.BootVGA)
			}
		})
	}
}

// A function that nobody uses has children, and no uses.
func TestUnused(t *testing.T) {
	tr := nicTree(t)
	tr.put("proc/1/net/route", routeTitle)
	tr.put("proc/1/net/if_inet6", "fe8000000000000000fc00fffe000001 04 40 20 80     eth0\n")
	tr.put("proc/1/net/fib_trie", "")
	f := nic(t, tr)
	checkUses(t, f)
	if !slices.Equal(f.Children.Net, []string{"eth0"}) {
		t.Errorf("netdevs are %v", f.Children.Net)
	}
}

// Device nodes of everything that hangs on a function lead to it.
func TestNodes(t *testing.T) {
	tr := newTree(t)
	where := tr.function("pci0000:00/"+nicAddress, nil)
	other := tr.function("pci0000:00/0000:00:04.0", nil)
	for number, d := range map[string][2]string{
		"231:192": {where + "/infiniband_verbs/uverbs0", "MAJOR=231\nMINOR=192\nDEVNAME=infiniband/uverbs0\n"},
		"116:2":   {where + "/sound/card0/controlC0", "DEVNAME=snd/controlC0\n"},
		"511:0":   {where + "/vfio-dev/vfio7", ""},
		"4:64":    {"sys/devices/pnp0/00:00/tty/ttyS0", "DEVNAME=ttyS0\n"},
		"226:0":   {other + "/drm/card0", "DEVNAME=dri/card0\n"},
		"1:1":     {where + "/odd", "MAJOR=1\n"},
	} {
		tr.put(d[0]+"/uevent", d[1])
		tr.link("sys/dev/char/"+number, d[0])
	}
	want := []string{"infiniband/uverbs0", "snd/controlC0", "vfio/devices/vfio7"}
	if diff := cmp.Diff(want, nic(t, tr).Children.Nodes); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

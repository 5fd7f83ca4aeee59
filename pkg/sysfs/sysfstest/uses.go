package sysfstest

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A netAddress is an address of a netdev.
type netAddress struct {
	netdev  string
	prefix  netip.Prefix
	gateway netip.Addr // of a default route; invalid for none
	noRoute bool       // to the network
}

// AddAddress gives a netdev an address with its prefix, "10.0.0.5/24", and so a route to its network, unless it is an IPv4
// address with /32 (fib_add_ifaddr in net/ipv4/fib_frontend.c). It goes with the netdev.
func (k *Kernel) AddAddress(netdev, prefix string) {
	k.addAddress(netdev, prefix, "", false)
}

// AddAddressOnly is AddAddress with the flag noprefixroute: there is no route to the network.
func (k *Kernel) AddAddressOnly(netdev, prefix string) {
	k.addAddress(netdev, prefix, "", true)
}

// AddDefaultRoute gives a netdev an address as AddAddress does and makes it the
// way to everywhere through the gateway.
func (k *Kernel) AddDefaultRoute(netdev, prefix, gateway string) {
	k.addAddress(netdev, prefix, gateway, false)
}

// RemoveAddresses takes all addresses of a netdev, and the routes through it.
func (k *Kernel) RemoveAddresses(netdev string) {
	k.build(func() {
		k.host.addresses = slices.DeleteFunc(k.host.addresses, func(a netAddress) bool { return a.netdev == netdev })
		k.showNetwork()
	})
}

func (k *Kernel) addAddress(netdev, prefix, gateway string, noRoute bool) {
	k.build(func() {
		p, err := netip.ParsePrefix(prefix)
		if err != nil || !k.taken[netdev] {
			k.wrong("add address %s to %s: no such address or no such netdev", prefix, netdev)
			return
		}
		a := netAddress{netdev: netdev, prefix: p, noRoute: noRoute || p.Addr().Is4() && p.IsSingleIP()}
		if gateway != "" {
			if a.gateway, err = netip.ParseAddr(gateway); err != nil {
				k.wrong("add a default route: %w", err)
				return
			}
		}
		k.host.addresses = append(k.host.addresses, a)
		k.showNetwork()
	})
}

// firstMaster is more than the index of any netdev of a function.
const firstMaster = 10_000

// SetMaster enslaves a netdev to a bond or bridge that is made with it.
func (k *Kernel) SetMaster(netdev, master string) {
	k.build(func() {
		if !k.taken[netdev] {
			k.wrong("enslave %s: no such netdev", netdev)
			return
		}
		dir := path.Join("sys/devices/virtual/net", master)
		lower := path.Join("sys/class/net", netdev)
		k.mkdir(dir)
		if !k.exists(path.Join("sys/class/net", master)) {
			k.link(path.Join("sys/class/net", master), dir)
			k.create(path.Join(dir, "ifindex"), fmt.Sprintln(firstMaster+len(k.taken)), readOnly)
		}
		k.symlinkInto(lower, "master", dir)
		k.symlinkInto(lower, "upper_"+master, dir)
		k.symlinkInto(dir, "lower_"+netdev, lower)
		k.taken[master] = true
	})
}

// symlinkInto makes a link in a directory that is itself reached by a link, so
// that relative targets are counted from where the directory really is.
func (k *Kernel) symlinkInto(dir, name, to string) {
	k.link(path.Join(k.real(dir), name), k.real(to))
}

// showNetwork writes proc/net from the addresses whose netdev is there, and the IPv4 addresses that the kernel says by
// rtnetlink, where a copy of a node has them. Callers hold mu.
func (k *Kernel) showNetwork() {
	fib := &strings.Builder{}
	route := &strings.Builder{}
	if6 := &strings.Builder{}
	route6 := &strings.Builder{}
	known := []string{}
	fmt.Fprintln(fib, "Main:")
	fmt.Fprintln(route, "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT")
	for _, a := range k.host.addresses {
		switch {
		case !k.taken[a.netdev]:
		case a.prefix.Addr().Is4():
			known = append(known, fmt.Sprintf(`{"interface": %d, "prefix": %q}`, k.interfaceIndex(a.netdev), a.prefix))
			fmt.Fprintf(fib, "     |-- %s\n        /32 host LOCAL\n", a.prefix.Addr())
			a.writeRoutes(route)
		default:
			fmt.Fprintf(if6, "%s %02x %02x 00 80 %8s\n", hex.EncodeToString(a.prefix.Addr().AsSlice()), 2, a.prefix.Bits(), a.netdev)
			a.writeRoutes6(route6)
		}
	}
	for name, text := range map[string]*strings.Builder{"fib_trie": fib, "route": route, "if_inet6": if6, "ipv6_route": route6} {
		k.put(path.Join("proc/1/net", name), text.String(), readOnly)
	}
	k.put("kata-vfio/addresses.json", "["+strings.Join(known, ", ")+"]\n", readOnly)
}

// interfaceIndex returns a netdev's index. Callers hold mu.
func (k *Kernel) interfaceIndex(netdev string) int {
	text, err := os.ReadFile(k.Path(path.Join("sys/class/net", netdev, "ifindex")))
	index, err2 := strconv.Atoi(strings.TrimSpace(string(text)))
	if err := errors.Join(err, err2); err != nil {
		k.wrong("find the index of %s: %w", netdev, err)
	}
	return index
}

// writeRoutes writes lines of proc/net/route: words are hexadecimal in the
// machine's byte order, which is little-endian here.
func (a netAddress) writeRoutes(w *strings.Builder) {
	line := func(to netip.Addr, gateway uint32, flags, bits int) {
		fmt.Fprintf(w, "%s\t%08X\t%08X\t%04X\t0\t0\t0\t%08X\t0\t0\t0\n",
			a.netdev, word32(to), gateway, flags, mask(bits))
	}
	if a.gateway.IsValid() {
		line(netip.IPv4Unspecified(), word32(a.gateway), 3, 0)
	}
	if !a.noRoute {
		line(a.prefix.Masked().Addr(), 0, 1, a.prefix.Bits())
	}
}

// writeRoutes6 writes lines of proc/net/ipv6_route.
func (a netAddress) writeRoutes6(w *strings.Builder) {
	line := func(to netip.Addr, bits int, gateway netip.Addr, flags int) {
		zero := netip.IPv6Unspecified()
		fmt.Fprintf(w, "%s %02x %s 00 %s 00000400 00000001 00000000 %08x %8s\n", hex.EncodeToString(to.AsSlice()), bits,
			hex.EncodeToString(zero.AsSlice()), hex.EncodeToString(gateway.AsSlice()), flags, a.netdev)
	}
	if a.gateway.IsValid() {
		line(netip.IPv6Unspecified(), 0, a.gateway, 3)
	}
	if !a.noRoute {
		line(a.prefix.Masked().Addr(), a.prefix.Bits(), netip.IPv6Unspecified(), 1)
	}
}

// word32 returns an IPv4 address as proc/net/route's number.
func word32(a netip.Addr) uint32 { return binary.LittleEndian.Uint32(a.AsSlice()) }

// mask returns a netmask as proc/net/route's number.
func mask(bits int) uint32 {
	var m [4]byte
	binary.BigEndian.PutUint32(m[:], ^uint32(0)<<(32-bits))
	return binary.LittleEndian.Uint32(m[:])
}

// AddMount mounts the file system of a block device: ("nvme0n1p1", "/data").
func (k *Kernel) AddMount(device, point string) {
	k.build(func() {
		n, ok := k.nodes["/dev/"+device]
		if !ok {
			k.wrong("mount %s: no such block device", device)
			return
		}
		k.host.mounts = append(k.host.mounts, fmt.Sprintf("%d 1 %s / %s rw,relatime shared:1 - ext4 /dev/%s rw",
			len(k.host.mounts)+30, n, point, device))
		k.showMounts()
	})
}

// AddSwap uses a block device as swap.
func (k *Kernel) AddSwap(device string) {
	k.build(func() {
		k.host.swaps = append(k.host.swaps, fmt.Sprintf("%-40spartition\t1048572\t\t0\t\t-2", "/dev/"+device))
		k.showMounts()
	})
}

// AddStack puts a device-mapper device on a block device: ("nvme0n1p1", "dm-0").
func (k *Kernel) AddStack(device, upper string) {
	k.build(func() {
		dir := path.Join("sys/devices/virtual/block", upper)
		lower := k.real(path.Join("sys/class/block", device))
		k.mkdir(path.Join(dir, "slaves"))
		k.link(path.Join("sys/class/block", upper), dir)
		k.link(path.Join(dir, "slaves", device), lower)
		k.link(path.Join(lower, "holders", upper), dir)
	})
}

// showMounts writes what proc says about mounts and swap. Callers hold mu.
func (k *Kernel) showMounts() {
	info := []string{"20 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw"}
	mounts := []string{"/dev/root / ext4 rw,relatime 0 0"}
	for _, m := range k.host.mounts {
		f := strings.Fields(m)
		info = append(info, m)
		mounts = append(mounts, fmt.Sprintf("%s %s ext4 rw,relatime 0 0", f[len(f)-2], f[4]))
	}
	k.put("proc/1/mountinfo", lines(info...), readOnly)
	k.put("proc/1/mounts", lines(mounts...), readOnly)
	k.put("proc/swaps", lines(append([]string{"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"}, k.host.swaps...)...), readOnly)
}

// real returns where a path of the tree leads, itself a path of the tree.
// Callers hold mu.
func (k *Kernel) real(name string) string {
	whole, err := filepath.EvalSymlinks(k.Path(name))
	if err != nil {
		k.wrong("follow %s: %w", name, err)
		return name
	}
	base, err := filepath.EvalSymlinks(k.dir)
	if err != nil {
		k.wrong("follow %s: %w", k.dir, err)
		return name
	}
	rel, err := filepath.Rel(base, whole)
	if err != nil {
		k.wrong("follow %s: %w", name, err)
		return name
	}
	return rel
}

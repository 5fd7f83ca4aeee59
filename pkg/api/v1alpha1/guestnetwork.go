package v1alpha1

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// GuestNetwork is the configuration of a VF's interface inside the guest, by kata-vfio-guestnet. A claim may set all of
// it except the pool: the PF decides about the VF's traffic outside the guest.
type GuestNetwork struct {
	// Interface is the interface's name in the guest. If empty, it keeps the kernel's name.
	Interface string `json:"interface,omitempty"`
	// MTU is in bytes, 68 to 65535. Nil leaves it unchanged.
	MTU *int `json:"mtu,omitempty"`
	// Addresses are in CIDR form, of both families: "192.0.2.10/24".
	Addresses []string `json:"addresses,omitempty"`
	// AddressPool names a pool of the node's config. It gives addresses, in place of Addresses, and routes, in addition
	// to Routes: a route of Routes replaces the pool's route to the same network. All tenants use the same pools, so
	// only a DeviceClass may name one.
	AddressPool string `json:"addressPool,omitempty"`
	// Routes are added after the addresses.
	Routes []GuestRoute `json:"routes,omitempty"`
	// Table puts the routes into a separate routing table, 1 to 252 or from 256 on, which applies to packets from one of
	// the addresses. With several interfaces, replies then leave by the interface that got the request.
	Table *int `json:"table,omitempty"`
}

// GuestRoute is a route of a [GuestNetwork].
type GuestRoute struct {
	// To is a prefix in CIDR form, or "default" for the default route of Via's family.
	To string `json:"to"`
	// Via is the next hop. If it is empty, the network is directly on the link.
	Via string `json:"via,omitempty"`
	// Metric is the priority. If it is nil, the kernel chooses it.
	Metric *int `json:"metric,omitempty"`
}

// AttrGuestNetwork is the attribute of a prepared device's metadata file (KEP-5304) with its [GuestNetwork] as JSON.
const AttrGuestNetwork = "guestNetwork"

// AttrPortGUID is the attribute of a prepared InfiniBand VF's metadata file with its port's GUID. The guest finds the
// interface by it, because IPoIB's hardware address is unknown until the guest's driver has created the interface.
const AttrPortGUID = "portGUID"

// DefaultRoute is the [GuestRoute.To] of a default route.
const DefaultRoute = "default"

const (
	minMTU   = 68      // RFC 791
	maxMTU   = 1 << 16 // exclusive
	maxTable = 1<<31 - 1
	// mostAddresses is the API's limit for status.devices[].networkData.ips.
	mostAddresses = 16
	firstSpecial  = 253 // default, main, local: include/uapi/linux/rtnetlink.h
	lastSpecial   = 255
)

// check adds the problems of n, whose field is at path.
func (n *GuestNetwork) check(p *problems, path string) {
	if n.Interface != "" && !interfaceName(n.Interface) {
		p.add(join(path, "interface"), "%s is not a name of an interface; want 1 to 15 printable characters without spaces, '/', ':' and '%%', and neither \"all\" nor \"default\"", show(n.Interface))
	}
	if n.MTU != nil && (*n.MTU < minMTU || *n.MTU >= maxMTU) {
		p.add(join(path, "mtu"), "%d is not a number from %d to %d", *n.MTU, minMTU, maxMTU-1)
	}
	if len(n.Addresses) > mostAddresses {
		p.add(join(path, "addresses"), "%d entries; at most %d are allowed", len(n.Addresses), mostAddresses)
	}
	for i, a := range n.Addresses {
		if slices.Contains(n.Addresses[:i], a) {
			p.add(index(join(path, "addresses"), i), "%s is given twice; keep one", show(a))
		}
		if _, err := netip.ParsePrefix(a); err != nil {
			p.add(index(join(path, "addresses"), i), "%s is not an address with a prefix length; want one such as 192.0.2.10/24 or 2001:db8::10/64", show(a))
		}
	}
	n.checkPool(p, path)
	for i := range n.Routes {
		n.Routes[i].check(p, index(join(path, "routes"), i))
	}
	if t := n.Table; t != nil && (*t < 1 || *t > maxTable || *t >= firstSpecial && *t <= lastSpecial) {
		p.add(join(path, "table"), "%d is a reserved table; use 1 to 252, or 256 and more", *t)
	}
}

// checkPool checks the pool and the fields that it excludes.
func (n *GuestNetwork) checkPool(p *problems, path string) {
	if n.AddressPool != "" && !isLabel(n.AddressPool) {
		p.add(join(path, "addressPool"), "%s is not a name of a pool; want lower-case letters, digits and \"-\"", show(n.AddressPool))
	}
	if n.AddressPool != "" && len(n.Addresses) > 0 {
		p.add(join(path, "addresses"), "given beside addressPool: %s, which gives the addresses; want one of the two", n.AddressPool)
	}
}

// SameNetwork reports whether two routes are to the same network, so that one replaces the other.
func (r GuestRoute) SameNetwork(o GuestRoute) bool {
	to, ok := r.network()
	other, alike := o.network()
	return ok && alike && to == other
}

// network returns the network that the route is to.
func (r *GuestRoute) network() (netip.Prefix, bool) {
	if r.To != DefaultRoute {
		to, err := netip.ParsePrefix(r.To)
		return to, err == nil
	}
	via, err := netip.ParseAddr(r.Via)
	if err != nil {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(via, 0).Masked(), true
}

func (r *GuestRoute) check(p *problems, path string) {
	to, toErr := netip.ParsePrefix(r.To)
	via, viaErr := netip.ParseAddr(r.Via)
	// The kernel refuses an IPv4 destination with host bits (EINVAL), and masks an IPv6 one silently.
	if r.To != DefaultRoute && (toErr != nil || to != to.Masked()) {
		p.add(join(path, "to"), "%s is neither %q nor a network such as 198.51.100.0/24", show(r.To), DefaultRoute)
	}
	if r.Via != "" && viaErr != nil {
		p.add(join(path, "via"), "%s is not an address", show(r.Via))
	}
	if r.To == DefaultRoute && r.Via == "" {
		p.add(join(path, "via"), "missing; a default route needs a next hop")
	}
	if toErr == nil && viaErr == nil && to.Addr().Is4() != via.Is4() {
		p.add(join(path, "via"), "%s is not in the same IP family as %s", r.Via, r.To)
	}
	if r.Metric != nil && (*r.Metric < 0 || *r.Metric > maxTable) {
		p.add(join(path, "metric"), "%d is not a number from 0 to %d", *r.Metric, maxTable)
	}
}

// interfaceName reports whether the kernel accepts text as the name of one interface. It replaces a "%d" with a number
// (dev_alloc_name in net/core/dev.c), and two names are those of the sysctls for all interfaces.
func interfaceName(name string) bool {
	bad := func(r rune) bool { return r == '%' || r == unicode.ReplacementChar || !unicode.IsPrint(r) }
	return isNetdev(name) && !strings.ContainsFunc(name, bad) && name != "all" && name != "default"
}

// Validate reports all problems of n as an [InvalidError]. It is for the guest and other readers that do not decode a
// claim. A pool is a problem there, because the node replaces it by addresses before the guest starts.
func (n *GuestNetwork) Validate() error {
	var p problems
	n.check(&p, "")
	if n.AddressPool != "" {
		p.add("addressPool", "%s is a pool of the node's, which gives its addresses before the guest starts; list addresses", show(n.AddressPool))
	}
	return p.err(fmt.Sprintf("%s.network", KindVFConfig))
}

// AddressPool is a source of addresses for VFs' interfaces: a CNI IPAM plugin of the node with its configuration.
type AddressPool struct {
	// Name is the name for [GuestNetwork.AddressPool], a DNS label.
	Name string `json:"name"`
	// CNIVersion is the version of the CNI specification for calls of the plugin. Default: 1.0.0.
	CNIVersion string `json:"cniVersion,omitempty"`
	// IPAM is passed to the plugin unchanged. Its field "type" is the name of the plugin's binary: host-local,
	// whereabouts.
	IPAM json.RawMessage `json:"ipam"`
}

// DefaultCNIBinDir is the directory of CNI plugins' binaries if the node's config names none. It is containerd's
// default.
const DefaultCNIBinDir = "/opt/cni/bin"

// defaultCNIVersion is the first version with the present form of a result.
const defaultCNIVersion = "1.0.0"

// cniVersions are the versions whose results have all needed fields.
func cniVersions() []string { return []string{"0.3.1", "0.4.0", defaultCNIVersion, "1.1.0"} }

// networkPrefix separates the names of kata-vfio's networks from the node's own. Plugins store leases under the
// network's name, and a runtime's GC (CNI 1.1) frees the leases of a network that it does not know.
const networkPrefix = "kata-vfio-"

// Plugin returns the name of the plugin's binary, empty if IPAM names none.
func (a *AddressPool) Plugin() string {
	var ipam struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(a.IPAM, &ipam) != nil {
		return ""
	}
	return ipam.Type
}

// NetworkConfig returns the CNI network configuration for the plugin of a valid pool. The network's name is
// kata-vfio-<pool>.
func (a *AddressPool) NetworkConfig() (json.RawMessage, error) {
	// IPAM plugins such as host-local keep leases by the network's name. With another name they would not find the
	// leases to release.
	config, err := json.Marshal(map[string]any{"cniVersion": a.CNIVersion, "name": networkPrefix + a.Name, "ipam": a.IPAM})
	if err != nil {
		return nil, fmt.Errorf("network configuration of address pool %s: %w", a.Name, err)
	}
	return config, nil
}

// checkPools adds the problems of the pools and of the plugins' directories.
func (c *NodeConfig) checkPools(p *problems) {
	for i := range c.AddressPools {
		pool, at := &c.AddressPools[i], index("addressPools", i)
		pool.check(p, at)
		same := func(o AddressPool) bool { return o.Name == pool.Name }
		if first := slices.IndexFunc(c.AddressPools, same); first < i {
			p.add(at+".name", "%s is the name of %s too; no two pools may have one name", show(pool.Name), index("addressPools", first))
		}
	}
	if c.CNIBinDirs != nil && len(c.CNIBinDirs) == 0 {
		p.add("cniBinDirs", "the list is empty, so that no plugin is found; remove it for %s", DefaultCNIBinDir)
	}
	for i, dir := range c.CNIBinDirs {
		if !strings.HasPrefix(dir, "/") || strings.Contains(dir, ":") {
			p.add(index("cniBinDirs", i), "%s is not an absolute path without ':'", show(dir))
		}
	}
}

// check adds the problems of the pool at path.
func (a *AddressPool) check(p *problems, path string) {
	if !isLabel(a.Name) {
		p.add(path+".name", "%s is not a name of a pool; want lower-case letters, digits and \"-\"", show(a.Name))
	}
	among(p, path+".cniVersion", a.CNIVersion, cniVersions()...)
	if a.IPAM == nil {
		p.add(path+".ipam", "missing; want the ipam object of a CNI network configuration")
		return
	}
	// The type is joined to a directory of cniBinDirs and executed.
	if plugin := a.Plugin(); plugin == "" || plugin == "." || plugin == ".." || strings.ContainsAny(plugin, "/\x00") {
		p.add(path+".ipam.type", "%s is not a name of a plugin's binary; want one such as host-local", show(plugin))
	}
}

// unicastMAC reports whether text is a valid MAC address of one function: six octets, the group bit clear, not all zero.
// Package net parses MAC addresses too, but imports network code.
func unicastMAC(text string) bool {
	mac, ok := octets(text, 6)
	return ok && mac[0]&1 == 0 && !all(mac, 0)
}

// checkGUID adds a problem unless text is empty (not set) or a valid GUID of a port: not zero, and not all ones, which
// means none.
func checkGUID(p *problems, path, text string) {
	if guid, ok := octets(text, 8); text != "" && (!ok || all(guid, 0) || all(guid, 0xff)) {
		p.add(path, "%s is not a GUID; want eight pairs of hexadecimal digits such as 02:00:5e:10:00:00:00:01", show(text))
	}
}

// octets reads n pairs of hexadecimal digits with colons between them.
func octets(text string, n int) ([]uint8, bool) {
	pairs := strings.Split(text, ":")
	if len(pairs) != n {
		return nil, false
	}
	read := make([]uint8, n)
	for i, pair := range pairs {
		octet, err := strconv.ParseUint(pair, 16, 8)
		if err != nil || len(pair) != 2 {
			return nil, false
		}
		read[i] = uint8(octet)
	}
	return read, true
}

func all(octets []uint8, value uint8) bool {
	for _, o := range octets {
		if o != value {
			return false
		}
	}
	return true
}

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

// GuestNetwork says how a VF's interface is configured inside the guest, by
// kata-vfio-guestnet. A claim may set all of it but the pool: what leaves the VF
// is the PF's business.
type GuestNetwork struct {
	// Interface is the interface's name in the guest; it keeps the kernel's
	// when empty.
	Interface string `json:"interface,omitempty"`
	// MTU is in bytes, 68 to 65535; nil leaves it.
	MTU *int `json:"mtu,omitempty"`
	// Addresses are in CIDR form, of both families: "192.0.2.10/24".
	Addresses []string `json:"addresses,omitempty"`
	// AddressPool names a pool of the node's config that addresses and routes are
	// taken from, in place of Addresses and beside Routes: a route of Routes wins
	// over the pool's to the same network. All tenants draw on a pool: from a
	// DeviceClass only.
	AddressPool string `json:"addressPool,omitempty"`
	// Routes are added when the addresses are there.
	Routes []GuestRoute `json:"routes,omitempty"`
	// Table puts the routes into a separate routing table, 1 to 252 or from 256 on, which applies to packets from one of
	// the addresses. With several interfaces, replies then leave by the interface that got the request.
	Table *int `json:"table,omitempty"`
}

// GuestRoute is a route of a [GuestNetwork].
type GuestRoute struct {
	// To is a prefix in CIDR form, "default" for both families' default (of the
	// family of Via).
	To string `json:"to"`
	// Via is the next hop; what To names is on the link when it is empty.
	Via string `json:"via,omitempty"`
	// Metric is the priority, the kernel's own when nil.
	Metric *int `json:"metric,omitempty"`
}

// AttrGuestNetwork is the attribute of a prepared device's metadata file
// (KEP-5304) that holds its [GuestNetwork] as JSON.
const AttrGuestNetwork = "guestNetwork"

// AttrPortGUID is the attribute of a prepared InfiniBand VF's metadata file that
// holds its port's GUID, by which the guest finds the interface: IPoIB's hardware
// address is not known before the guest's driver has made it.
const AttrPortGUID = "portGUID"

// DefaultRoute is the [GuestRoute.To] of a default route.
const DefaultRoute = "default"

const (
	minMTU   = 68      // RFC 791
	maxMTU   = 1 << 16 // exclusive
	maxTable = 1<<31 - 1
	// mostAddresses is what status.devices[].networkData.ips may have.
	mostAddresses = 16
	firstSpecial  = 253 // default, main, local: include/uapi/linux/rtnetlink.h
	lastSpecial   = 255
)

// check notes what is wrong with n, whose field is at path.
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

// SameNetwork reports whether two routes are to one network, so that one replaces the other.
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

// interfaceName reports whether the kernel takes the name, as that of one
// interface: it counts up a "%d" (dev_alloc_name in net/core/dev.c), and has
// sysctls for all interfaces under two names.
func interfaceName(name string) bool {
	bad := func(r rune) bool { return r == '%' || r == unicode.ReplacementChar || !unicode.IsPrint(r) }
	return isNetdev(name) && !strings.ContainsFunc(name, bad) && name != "all" && name != "default"
}

// Validate reports everything that is wrong with n as an [InvalidError], for the
// guest or whoever else has it from elsewhere than a claim. There a pool has
// given its addresses.
func (n *GuestNetwork) Validate() error {
	var p problems
	n.check(&p, "")
	if n.AddressPool != "" {
		p.add("addressPool", "%s is a pool of the node's, which gives its addresses before the guest starts; list addresses", show(n.AddressPool))
	}
	return p.err(fmt.Sprintf("%s.network", KindVFConfig))
}

// AddressPool is where VFs get the addresses of their interfaces from: a CNI
// IPAM plugin of the node with its configuration.
type AddressPool struct {
	// Name is what [GuestNetwork.AddressPool] says, a DNS label.
	Name string `json:"name"`
	// CNIVersion is the version of the CNI specification by which the plugin is
	// called. Default: 1.0.0.
	CNIVersion string `json:"cniVersion,omitempty"`
	// IPAM is handed to the plugin as it is written. Its field "type" is the name
	// of the plugin's binary: host-local, whereabouts.
	IPAM json.RawMessage `json:"ipam"`
}

// DefaultCNIBinDir is where the binaries of CNI plugins are unless the node's
// config says otherwise, as in containerd's own default.
const DefaultCNIBinDir = "/opt/cni/bin"

// defaultCNIVersion is the first version with the present form of a result.
const defaultCNIVersion = "1.0.0"

// cniVersions are those whose results say all that is needed here.
func cniVersions() []string { return []string{"0.3.1", "0.4.0", defaultCNIVersion, "1.1.0"} }

// networkPrefix keeps the names of our networks apart from those of the node's
// own: plugins keep leases by that name, and a runtime's GC (CNI 1.1) frees
// those of a network that it does not know.
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

// NetworkConfig returns the CNI network configuration that the plugin reads,
// of a valid pool. The network is called kata-vfio-<pool>.
func (a *AddressPool) NetworkConfig() (json.RawMessage, error) {
	config, err := json.Marshal(map[string]any{"cniVersion": a.CNIVersion, "name": networkPrefix + a.Name, "ipam": a.IPAM})
	if err != nil {
		return nil, fmt.Errorf("network configuration of address pool %s: %w", a.Name, err)
	}
	return config, nil
}

// checkPools notes what is wrong with the pools and where their plugins are.
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

// check notes what is wrong with the pool at path.
func (a *AddressPool) check(p *problems, path string) {
	if !isLabel(a.Name) {
		p.add(path+".name", "%s is not a name of a pool; want lower-case letters, digits and \"-\"", show(a.Name))
	}
	oneOf(p, path+".cniVersion", a.CNIVersion, cniVersions()...)
	if a.IPAM == nil {
		p.add(path+".ipam", "missing; want the ipam object of a CNI network configuration")
		return
	}
	if plugin := a.Plugin(); plugin == "" || plugin == "." || plugin == ".." || strings.ContainsAny(plugin, "/\x00") {
		p.add(path+".ipam.type", "%s is not a name of a plugin's binary; want one such as host-local", show(plugin))
	}
}

// unicastMAC reports whether text is a MAC address that one function may
// have: six octets, the group bit clear, not all zero. (Package net, which
// parses them too, reaches the network.)
func unicastMAC(text string) bool {
	mac, ok := octets(text, 6)
	return ok && mac[0]&1 == 0 && !all(mac, 0)
}

// checkGUID notes a problem unless text is empty (not set) or a GUID that a port may have: not zero, nor all ones,
// which means none.
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

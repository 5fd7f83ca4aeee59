package v1alpha1

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

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

// Plugin returns the name of the plugin's binary, empty where IPAM names none.
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
			p.add(index("cniBinDirs", i), "%s is no absolute path without ':'", show(dir))
		}
	}
}

// check notes what is wrong with the pool at path.
func (a *AddressPool) check(p *problems, path string) {
	if !isLabel(a.Name) {
		p.add(path+".name", "%s is no name of a pool; want lower-case letters, digits and \"-\"", show(a.Name))
	}
	oneOf(p, path+".cniVersion", a.CNIVersion, cniVersions()...)
	if a.IPAM == nil {
		p.add(path+".ipam", "missing; want the ipam object of a CNI network configuration")
		return
	}
	if plugin := a.Plugin(); plugin == "" || plugin == "." || plugin == ".." || strings.ContainsAny(plugin, "/\x00") {
		p.add(path+".ipam.type", "%s is no name of a plugin's binary; want one such as host-local", show(plugin))
	}
}

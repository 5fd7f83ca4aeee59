package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// VFChange are the settings that a claim changes on a VF through its PF.
type VFChange struct {
	// Index is the VF's index at its PF.
	Index int `json:"index"`
	// Want are the settings that the PF applies while the claim is prepared. If the MAC address or a GUID is [Choose],
	// it is generated later. If a bound of the rate is [device.AsFound], or if OwnMaxTxRate is set, SettleRate decides
	// the rate.
	Want device.VFSettings `json:"want"`
	// OwnMaxTxRate says whether the maximum rate in Want is set only by the claim, and not by its class. Such a maximum
	// can lower the maximum that is found on the VF, but not raise it.
	OwnMaxTxRate bool `json:"ownMaxTxRate,omitempty"`
	// Original are the values that the settings in Want had before the claim, to be restored after it. They are empty
	// in a plan that is only shown.
	Original device.VFSettings `json:"original,omitzero"`
	// Representor is the interface that represents the VF on the node, if its PF is in switchdev mode.
	Representor string `json:"representor,omitempty"`
}

// Choose stands for a MAC address or a GUID that is generated.
const Choose = "generated"

// GenerateMAC returns the locally administered address of a claim's device. The same arguments give the same address.
// If the address is in use on the node, the caller increments try.
func GenerateMAC(claimUID, deviceName string, try int) string {
	return generate(claimUID, deviceName, try, 6)
}

// GenerateGUID returns the locally administered EUI-64 of a claim's device, as
// GenerateMAC does.
func GenerateGUID(claimUID, deviceName string, try int) string {
	return generate(claimUID, deviceName, try, 8)
}

func generate(claimUID, deviceName string, try, octets int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%d", claimUID, deviceName, try))
	sum[0] = sum[0]&^0x03 | 0x02 // unicast, locally administered (IEEE 802, section 8.4)
	return strings.ReplaceAll(fmt.Sprintf("% x", sum[:octets]), " ", ":")
}

// SettleRate completes the bounds of the rate with the bounds that the PF applies already. They count for a bound that
// is not set, and limit a maximum that only the claim sets. found is nil if the driver reports no rates. SettleRate
// returns an error if the resulting bounds contradict each other.
func (c *VFChange) SettleRate(found *device.TxRate) error {
	if c.Want.Rate == nil {
		return nil
	}
	rate, there := *c.Want.Rate, device.TxRate{}
	if found != nil {
		there = *found
	}
	if rate.Min == device.AsFound {
		rate.Min = there.Min
	}
	// 0 means no limit. A maximum that only the claim sets may lower the PF's maximum, but never lift it.
	if rate.Max == device.AsFound || c.OwnMaxTxRate && there.Max != 0 && (rate.Max == 0 || rate.Max > there.Max) {
		rate.Max = there.Max
	}
	c.Want.Rate, c.OwnMaxTxRate = &rate, false
	if rate.Max != 0 && rate.Min > rate.Max {
		return &RateError{Rate: rate, Found: there}
	}
	return nil
}

// RateError says that the bounds of a VF's rate contradict each other: the class or the claim sets one of them, and the
// other was found on the VF.
type RateError struct{ Rate, Found device.TxRate }

func (e *RateError) Error() string {
	return fmt.Sprintf("a minimum of %d Mbit/s is more than the maximum of %d, where the PF imposes %s already", e.Rate.Min, e.Rate.Max, e.Found.String())
}

// configured refuses a claimed VF whose PF can't apply the required settings.
func (c *candidate) configured() *rule.Verdict {
	if c.f.VF == nil {
		return nil
	}
	if said := c.saidOfNIC(); c.f.Class.Base() != pci.BaseNetwork && len(said) > 0 {
		return c.mate(c.f, rule.UnsupportedSetting,
			fmt.Sprintf("%s (class %s) is no VF of a NIC, and has no %s", c.f.Address, c.f.Class, strings.Join(said, ", ")),
			"leave those out of the VFConfig, or name the requests of NIC VFs in it; earlier versions published this device as a vf, too")
	}
	if said := c.ethernetOnly(); c.f.Class.Sub() == pci.ClassInfiniBand && len(said) > 0 {
		return c.mate(c.f, rule.UnsupportedSetting,
			fmt.Sprintf("%s is a VF of an InfiniBand NIC, whose PF can't set %s", c.f.Address, strings.Join(said, ", ")),
			"leave those out of the VFConfig: an InfiniBand VF takes nodeGUID, portGUID, linkState and network")
	}
	pf, able := c.settingPF()
	if able || c.wantedSettings() == (device.VFSettings{}) {
		return nil
	}
	// The class accepts that the defaults, which guard other tenants, can't be applied. Nothing else is to be set.
	if len(c.settingsSaid()) == 0 && c.claimed.VFIO.AllowUnisolated != nil && *c.claimed.VFIO.AllowUnisolated {
		return nil
	}
	return c.mate(cmp.Or(pf, c.f), rule.UnsupportedSetting,
		fmt.Sprintf("PF %s has no network interface on this node, so %s of its VF %s can't be set", c.f.VF.PF, c.toBeSet(), c.f.Address),
		"bind the PF to its driver, load ib_ipoib if it is InfiniBand, and move its interface back if it is in another network namespace")
}

// settingPF returns the PF of a VF, and whether it can set anything: it does so by its network interface.
func (c *candidate) settingPF() (pf *device.Function, able bool) {
	pf, ok := c.node.Snapshot.Function(c.f.VF.PF)
	return pf, ok && len(pf.Children.Net) > 0
}

// wantedSettings returns the settings that the PF applies to a claimed VF. An Ethernet VF gets its own MAC address, spoof
// checking and no trust unless the parameters say otherwise. An InfiniBand VF gets its own GUIDs: otherwise it would keep
// those of the previous tenant.
func (c *candidate) wantedSettings() device.VFSettings {
	cfg := c.claimed.VF
	if cfg == nil {
		cfg = &v1alpha1.VFConfig{}
	}
	want := newSettings(cfg)
	switch c.f.Class.Sub() {
	case pci.ClassEthernet:
		guardEthernet(&want)
	case pci.ClassInfiniBand:
		want.NodeGUID, want.PortGUID = cmp.Or(want.NodeGUID, Choose), cmp.Or(want.PortGUID, Choose)
	}
	return want
}

// vfChange returns the settings for the PF to apply. It is nil if there are none, or if the device is not a VF.
func (c *candidate) vfChange() *VFChange {
	if c.f.VF == nil {
		return nil
	}
	want := c.wantedSettings()
	if _, able := c.settingPF(); !able || want == (device.VFSettings{}) {
		return nil
	}
	return &VFChange{Index: c.f.VF.Index, Want: want, OwnMaxTxRate: c.claimed.OwnMaxTxRate}
}

// newSettings returns the settings of a VFConfig in the kernel's terms.
func newSettings(cfg *v1alpha1.VFConfig) device.VFSettings {
	want := device.VFSettings{
		MAC: strings.ToLower(cfg.MAC), LinkState: strings.ToLower(string(cfg.LinkState)),
		SpoofCheck: cfg.SpoofCheck, RSSQuery: cfg.RSSQuery, Trust: cfg.Trust,
		NodeGUID: strings.ToLower(cfg.NodeGUID), PortGUID: strings.ToLower(cfg.PortGUID),
	}
	if cfg.VLAN != nil {
		want.VLAN = &device.VLAN{ID: *cfg.VLAN, QoS: orZero(cfg.VLANQoS), Protocol: string(cfg.VLANProtocol)}
	}
	if cfg.MinTxRate != nil || cfg.MaxTxRate != nil {
		want.Rate = &device.TxRate{Min: orAsFound(cfg.MinTxRate), Max: orAsFound(cfg.MaxTxRate)}
	}
	return want
}

// guardEthernet adds the settings that keep a tenant from sending as another one.
func guardEthernet(want *device.VFSettings) {
	want.MAC = cmp.Or(want.MAC, Choose)
	if want.SpoofCheck == nil {
		want.SpoofCheck = new(true)
	}
	if want.Trust == nil {
		want.Trust = new(false)
	}
}

// saidOfNIC returns the names of the fields that class or claim set and that only a VF of a NIC has.
func (c *candidate) saidOfNIC() []string {
	if c.claimed.VF == nil {
		return nil
	}
	return slices.DeleteFunc(c.claimed.VF.Fields(), func(name string) bool { return name == "allowUntagged" })
}

// settingsSaid returns the names of the PF's settings that class or claim set.
func (c *candidate) settingsSaid() []string {
	if c.claimed.VF == nil {
		return nil
	}
	var said []string
	for _, name := range c.claimed.VF.Fields() {
		if name != "network" && name != "attachment" && name != "allowUntagged" {
			said = append(said, name)
		}
	}
	return said
}

// ethernetOnly returns the names of the settings that class or claim set and that a PF on InfiniBand does not have.
func (c *candidate) ethernetOnly() []string {
	return slices.DeleteFunc(c.settingsSaid(), func(name string) bool {
		return name == "nodeGUID" || name == "portGUID" || name == "linkState"
	})
}

// toBeSet names the settings that can't be applied.
func (c *candidate) toBeSet() string {
	if said := c.settingsSaid(); len(said) > 0 {
		return strings.Join(said, ", ")
	}
	if c.f.Class.Sub() == pci.ClassInfiniBand {
		return "GUIDs"
	}
	return "address and spoof check"
}

func orZero(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

func orAsFound(n *int) int {
	if n == nil {
		return device.AsFound
	}
	return *n
}

// isEndpoint reports whether the VM gets the device as a physical endpoint.
func (c *candidate) isEndpoint() bool {
	return c.claimed.VF != nil && c.claimed.VF.Attachment == v1alpha1.AttachPhysicalEndpoint
}

// endpoint refuses a VF that Kata does not accept as a physical endpoint: Kata needs a PCI function with an Ethernet
// interface, alone in its group, and supports legacy groups only.
func (c *candidate) endpoint() *rule.Verdict {
	if !c.isEndpoint() {
		return nil
	}
	no := func(text, fix string) *rule.Verdict {
		return &rule.Verdict{Code: rule.UnsupportedSetting, Driver: c.f.Driver, Text: text, Fix: fix}
	}
	change := c.vfChange()
	const fix = "leave `attachment: PhysicalEndpoint` out, so that the VM gets the function and kata-vfio-guestnet configures it, or claim another VF"
	switch {
	case c.f.VF == nil || c.f.Class.Sub() != pci.ClassEthernet:
		return no(fmt.Sprintf("%s (class %s) is not a virtual function of an Ethernet controller, so Kata can't use it as a physical endpoint", c.f.Address, c.f.Class), fix)
	case change == nil || change.Want.MAC == "":
		return no(fmt.Sprintf("the address of %s can't be set by its PF, but Kata finds a physical endpoint's interface by its address", c.f.Address), fix)
	case len(c.set.functions) > 1:
		return no(fmt.Sprintf("%s is one of %d functions that are assigned together, but a physical endpoint must be alone in its IOMMU group", c.f.Address, len(c.set.functions)), fix)
	case c.claimed.VFIO.Backend == v1alpha1.BackendIOMMUFD:
		return no("the claim requests backend IOMMUFD, but Kata uses the IOMMU group of a physical endpoint", "set `backend: Auto`")
	}
	return nil
}

// endpointBinding is the binding on which an endpoint waits. The override lets its driver bind it even if the PF's
// sriov_drivers_autoprobe is off (pci_device_can_probe in drivers/pci/pci-driver.c).
func endpointBinding(f *device.Function) *Binding {
	driver := f.Driver
	if driver == "" || device.IsVFIO(driver) {
		driver = FindDriver
	}
	return &Binding{Driver: driver, Override: driver}
}

// Lease says how a VF's addresses are taken from a pool of the node config and returned to it. It contains all input of
// the pool's CNI IPAM plugin, so that the plugin gets the same input when the addresses are returned, even if the node
// config has changed meanwhile.
type Lease struct {
	// Pool is the pool's name.
	Pool string `json:"pool"`
	// Plugin is the name of the plugin's binary.
	Plugin string `json:"plugin"`
	// Config is the CNI network configuration that the plugin reads.
	Config json.RawMessage `json:"config"`
	// Container (CNI_CONTAINERID) and Interface (CNI_IFNAME) identify the lease for the plugin.
	Container string `json:"container"`
	Interface string `json:"interface"`
	// Args (CNI_ARGS) name the first pod, for plugins that show or check it.
	Args string `json:"args"`
}

// anyInterface is the name that the CNI plugin gets for the interface if neither class nor claim names it. The guest's
// kernel chooses the real name later. The name may be the same for several devices of a claim, because their container
// IDs differ.
const anyInterface = "vf"

// pooled refuses a VF whose addresses come from a pool that the node does not have.
func (c *candidate) pooled() *rule.Verdict {
	_, refusal := c.lease()
	return refusal
}

// lease returns how a VF's addresses are taken from their pool, or why they can't be. Both are nil if the device gets
// no addresses from a pool.
func (c *candidate) lease() (*Lease, *rule.Verdict) {
	if c.claimed.VF == nil || c.claimed.VF.Network == nil || c.claimed.VF.Network.AddressPool == "" {
		return nil, nil
	}
	name := c.claimed.VF.Network.AddressPool
	i := slices.IndexFunc(c.node.AddressPools, func(a v1alpha1.AddressPool) bool { return a.Name == name })
	if i < 0 {
		return nil, &rule.Verdict{
			Code: rule.NoAddressPool,
			Text: fmt.Sprintf("its addresses come from pool %s, but this node's config %s", name, describePools(c.node.AddressPools)),
			Fix:  "add the pool to addressPools of the node config, or correct network.addressPool in the DeviceClass",
		}
	}
	pool := &c.node.AddressPools[i]
	config, err := pool.NetworkConfig()
	if err != nil {
		return nil, &rule.Verdict{Code: rule.NoAddressPool, Text: err.Error(), Fix: "correct addressPools of the node config"}
	}
	// CNI knows an allocation by the container's ID and the interface. The claim's UID is unique, and outlives the pod's sandbox.
	container := c.ref.UID + "-" + c.claimed.Name
	return &Lease{
		Pool: name, Plugin: pool.Plugin(), Config: config, Container: container,
		Interface: cmp.Or(c.claimed.VF.Network.Interface, anyInterface), Args: leaseArgs(c.ref, container),
	}, nil
}

// describePools lists the node's pools.
func describePools(pools []v1alpha1.AddressPool) string {
	if len(pools) == 0 {
		return "has no addressPools"
	}
	names := make([]string, len(pools))
	for i := range pools {
		names[i] = pools[i].Name
	}
	return "has " + strings.Join(names, ", ")
}

// leaseArgs are CNI_ARGS as container runtimes set them. A value that contains a separator is left out, because the
// plugin would read it as further arguments. The API server accepts no such name.
func leaseArgs(claim Ref, container string) string {
	// Without IgnoreUnknown, CNI's library fails for each key that a plugin does not know.
	args := "IgnoreUnknown=1"
	add := func(key, value string) {
		if value != "" && !strings.ContainsAny(value, ";=") {
			args += ";" + key + "=" + value
		}
	}
	if len(claim.Pods) > 0 {
		add("K8S_POD_NAMESPACE", claim.Namespace)
		add("K8S_POD_NAME", claim.Pods[0].Name)
		add("K8S_POD_UID", claim.Pods[0].UID)
	}
	add("K8S_POD_INFRA_CONTAINER_ID", container)
	return args
}

// LeaseStep returns the step that takes or returns the addresses of d, which has a lease.
func (d *Device) LeaseStep(op Op) Step {
	return Step{Operation: op, Address: d.Address, Value: d.Lease.Pool}
}

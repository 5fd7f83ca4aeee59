package fleet

import (
	"cmp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// Use says whether a claim can get a device, and if not, why.
type Use string

// Uses. What claims have was not seen is Unseen, unless a taint says enough.
const (
	Free    Use = "free"
	Claimed Use = "claimed"
	// Withheld: no claim has the device, and it shares hardware with one that is claimed.
	Withheld    Use = "withheld"
	Tainted     Use = "tainted"
	Quarantined Use = "quarantined"
	Unseen      Use = "unknown"
)

// Device is one device of ours as its node publishes it. Its JSON form is stable:
// names are added, never changed; what the node does not say is left out.
type Device struct {
	Node string `json:"node"`
	Pool string `json:"pool"`
	Name string `json:"name"`
	// Address is the function's, of a pair the GPU's; VF is a pair's second.
	Address string `json:"address,omitempty"`
	VF      string `json:"vf,omitempty"`
	Kind    string `json:"kind,omitempty"`
	Model   string `json:"model,omitempty"`
	Driver  string `json:"driver,omitempty"`
	Root    string `json:"pcieRoot,omitempty"`
	// Switch is the lowest switch above the device; where there is none, what is
	// closest to the root complex on the way to it.
	Switch  string `json:"pcieSwitch,omitempty"`
	PF      string `json:"pf,omitempty"`
	VFIndex *int64 `json:"vfIndex,omitempty"`
	NUMA    *int64 `json:"numaNode,omitempty"`
	Group   *int64 `json:"iommuGroup,omitempty"`
	Reset   string `json:"reset,omitempty"`
	// LinkSpeed is the highest speed per lane of the PCIe link in MT/s.
	LinkSpeed *int64 `json:"linkSpeed,omitempty"`
	// Interface is the PF's on the node, PortSpeed its port's in Mbit/s. RDMA says that the PF has an RDMA device.
	Interface string `json:"interface,omitempty"`
	PortSpeed *int64 `json:"portSpeed,omitempty"`
	RDMA      bool   `json:"rdma,omitempty"`
	// PluginVersion and KataVersion are those of the node, "4.1.0"; GPUs and pairs have them.
	PluginVersion string `json:"pluginVersion,omitempty"`
	KataVersion   string `json:"kataVersion,omitempty"`

	Use Use `json:"use"`
	// Claim is the one that has the device, and Pods the pods that it is reserved for.
	Claim string   `json:"claim,omitempty"`
	Pods  []string `json:"pods,omitempty"`
	// By are the claimed devices on account of which a device is withheld.
	By []string `json:"withheldBy,omitempty"`
	// Taints are those that keep claims away. Ours are shown without the domain: "audit=IOM-003".
	Taints []string `json:"taints"`
	// Isolated is the node's verdict, nil for none; NotIsolated the worst reason's code
	// where it is severe.
	Isolated    *bool  `json:"isolated,omitempty"`
	NotIsolated string `json:"notIsolated,omitempty"`
	// Health lists what the node says of the device's state: "dead", "link-lost".
	Health []string `json:"health"`
	// Failed are the checks of the audit that fail, the worst first.
	Failed   []string           `json:"auditFailed"`
	Severity isolation.Severity `json:"auditSeverity,omitempty"`

	taints []resourceapi.DeviceTaint
}

// Devices returns the devices of all nodes, by node and address.
func (s *State) Devices() []Device {
	held := s.holders()
	_, unseen := s.Missing[Claims]
	unseen = unseen || s.Namespace != ""
	devices := []Device{}
	for _, p := range s.pools() {
		for i := range p.devices {
			d := deviceOf(p, &p.devices[i])
			d.resolve(p, &p.devices[i], held, unseen)
			devices = append(devices, d)
		}
	}
	slices.SortStableFunc(devices, compareDevices)
	return devices
}

func compareDevices(a, b Device) int {
	return cmp.Or(cmp.Compare(a.Node, b.Node), compareAddresses(a.Address, b.Address), cmp.Compare(a.Name, b.Name))
}

// compareAddresses puts malformed addresses last.
func compareAddresses(a, b string) int {
	left, err1 := pci.ParseAddress(a)
	right, err2 := pci.ParseAddress(b)
	switch {
	case err1 == nil && err2 == nil:
		return left.Compare(right)
	case err1 == nil:
		return -1
	case err2 == nil:
		return 1
	}
	return cmp.Compare(a, b)
}

// deviceOf is what the node says of a device.
func deviceOf(p *pool, d *resourceapi.Device) Device {
	text := func(name resourceapi.QualifiedName) string { return deref(d.Attributes[name].StringValue) }
	number := func(name resourceapi.QualifiedName) *int64 { return d.Attributes[name].IntValue }
	return Device{
		Node: p.node, Pool: p.name, Name: d.Name,
		Address: cmp.Or(text(publish.AttrPCIBusID), addressOf(d.Name)), VF: text(publish.AttrVF), Kind: text(publish.AttrType),
		Model: cmp.Or(text(publish.AttrModel), ids(text(publish.AttrVendor), text(publish.AttrDevice))), Driver: text(publish.AttrDriver),
		Root: text(publish.AttrPCIeRoot), Switch: text(publish.AttrPCIeSwitch), PF: cmp.Or(text(publish.AttrPF), pfOf(p.name, text(publish.AttrType))), VFIndex: number(publish.AttrVFIndex),
		NUMA: number(publish.AttrNUMANode), Group: number(publish.AttrIOMMUGroup), Reset: text(publish.AttrReset),
		LinkSpeed: number(publish.AttrLinkSpeed), Interface: text(publish.AttrPFInterface), PortSpeed: number(publish.AttrPortSpeed),
		RDMA:          deref(d.Attributes[publish.AttrRDMA].BoolValue),
		PluginVersion: deref(d.Attributes[publish.AttrPluginVersion].VersionValue), KataVersion: deref(d.Attributes[publish.AttrKataVersion].VersionValue),
		Isolated: d.Attributes[publish.AttrIsolated].BoolValue,
		Failed:   split(text(publish.AttrAuditFailed)), Severity: isolation.Severity(text(publish.AttrAuditSeverity)),
		Taints: []string{}, Health: []string{}, taints: d.Taints,
	}
}

// addressOf is the address that a device's name says; empty for none.
func addressOf(name string) string {
	parts, err := device.ParseParts(name)
	if err != nil {
		return ""
	}
	return parts[0].Address.String()
}

// pfOf returns the PF of a VF by its pool, for nodes that publish few attributes of VFs; empty for another device.
func pfOf(pool, kind string) string {
	if pf, ok := device.PFOfPool(pool); ok && kind == string(device.VFType) {
		return pf.String()
	}
	return ""
}

func ids(vendor, id string) string {
	if vendor == "" {
		return ""
	}
	return vendor + ":" + id
}

func split(list string) []string {
	if list == "" {
		return []string{}
	}
	return strings.Split(list, ",")
}

// resolve adds taints, and from them and the claims how the device is used.
func (d *Device) resolve(p *pool, raw *resourceapi.Device, held map[allocated]*resourceapi.ResourceClaim, unseen bool) {
	quarantined := false
	for _, t := range raw.Taints {
		if t.Effect != resourceapi.DeviceTaintEffectNoSchedule && t.Effect != resourceapi.DeviceTaintEffectNoExecute {
			continue
		}
		quarantined = quarantined || t.Key == publish.TaintQuarantined
		d.Taints = append(d.Taints, taintWord(t))
		switch {
		case t.Key == publish.TaintNotIsolated:
			d.NotIsolated = t.Value
		case t.Key != publish.TaintAudit && strings.HasPrefix(t.Key, v1alpha1.DriverName+"/"):
			d.Health = append(d.Health, taintWord(t))
		}
	}
	claim := held[allocated{p.name, raw.Name}]
	d.By = p.withheldBy(raw, held)
	switch {
	case claim != nil:
		d.Use, d.Claim, d.Pods, d.By = Claimed, nameOf(claim), podsOf(claim), nil
	case quarantined:
		d.Use = Quarantined
	case len(d.Taints) > 0:
		d.Use = Tainted
	case len(d.By) > 0:
		d.Use = Withheld
	case unseen:
		d.Use = Unseen
	default:
		d.Use = Free
	}
}

func taintWord(t resourceapi.DeviceTaint) string {
	word := strings.TrimPrefix(t.Key, v1alpha1.DriverName+"/")
	if t.Value != "" {
		word += "=" + t.Value
	}
	return word
}

// State says in words how the device is used: "claimed team-a/train, tainted: audit".
func (d *Device) State() string {
	switch d.Use {
	case Claimed:
		text := "claimed " + d.Claim
		if len(d.Taints) > 0 {
			text += ", tainted: " + d.taintKeys()
		}
		return text
	case Withheld:
		text := "withheld: " + d.By[0] + " is claimed"
		if more := len(d.By) - 1; more > 0 {
			text += ", and more"
		}
		return text
	case Tainted:
		return "tainted: " + d.taintKeys()
	case Free, Quarantined, Unseen:
	}
	return string(d.Use)
}

// taintKeys lists the taints without their values, which other columns have.
func (d *Device) taintKeys() string {
	keys := make([]string, len(d.Taints))
	for i, t := range d.Taints {
		keys[i], _, _ = strings.Cut(t, "=")
	}
	return strings.Join(keys, ",")
}

// Isolation says in words whether the device is isolated, or why not.
func (d *Device) Isolation() string {
	switch {
	case d.Isolated == nil:
		return "unknown"
	case *d.Isolated:
		return "yes"
	case d.NotIsolated != "":
		return "no: " + d.NotIsolated
	}
	return "no"
}

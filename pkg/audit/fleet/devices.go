package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Use says whether a claim can get a device, and if not, why.
type Use string

// Uses. A device is Unseen if the claims were not listed, unless a taint shows its use.
const (
	Free    Use = "free"
	Claimed Use = "claimed"
	// Withheld: no claim has the device, and it shares hardware with one that is claimed, of kata-vfio or of the driver that shares the GPU.
	Withheld    Use = "withheld"
	Tainted     Use = "tainted"
	Quarantined Use = "quarantined"
	// Sanitizing: the device waits for its sanitizing stage, and nothing else keeps claims away. A claim has it during the
	// stage.
	Sanitizing Use = "sanitizing"
	// Kept: the device is free for one tenant only, which has another device in the same exclusive domain, and nothing else keeps
	// claims away.
	Kept   Use = "kept"
	Unseen Use = "unknown"
)

// Device is one device of ours as its node publishes it. Its JSON form is stable: names are added,
// never changed. Attributes that the node does not publish are left out.
type Device struct {
	Node string `json:"node"`
	Pool string `json:"pool"`
	Name string `json:"name"`
	cluster.Attributes

	Use Use `json:"use"`
	// Claim is the claim that has the device, and Pods are the pods for which it is reserved.
	Claim string   `json:"claim,omitempty"`
	Pods  []string `json:"pods,omitempty"`
	// By are the claimed devices because of which a device is withheld. They are kata-vfio's: a device can be withheld without any.
	By []string `json:"withheldBy,omitempty"`
	// Taints are the taints that keep claims away. Taints of kata-vfio are shown without the domain: "audit=IOM-003".
	Taints []string `json:"taints"`
	// Isolated is the node's verdict, nil if there is none. NotIsolated is the code of the worst
	// reason, if it is severe.
	Isolated    *bool  `json:"isolated,omitempty"`
	NotIsolated string `json:"notIsolated,omitempty"`
	// KeptFor is the ID of the only tenant that can get the device, if the device is in an exclusive domain of that tenant. It is
	// "several" if the domain has several tenants, so that no tenant can get the device.
	KeptFor string `json:"keptFor,omitempty"`
	// QuarantinedFor is the code of the reason for the device's quarantine, and QuarantinedAt is when the node published it. Both are
	// missing if the device is not quarantined. A node with an older version does not publish the code.
	QuarantinedFor string     `json:"quarantinedFor,omitempty"`
	QuarantinedAt  *time.Time `json:"quarantinedAt,omitempty"`
	// Health lists the published faults of the device: "dead", "link-lost".
	Health []string `json:"health"`
	// Failed are the checks of the audit that fail, the worst first.
	Failed   []string      `json:"auditFailed"`
	Severity rule.Severity `json:"auditSeverity,omitempty"`

	published *cluster.Device
	// lent is set if a claim has the other driver's device for the same GPU.
	lent bool
}

// Devices returns the devices of all nodes, by node and address. Don't change them: they are made once.
func (s *State) Devices() []Device {
	if s.devices == nil {
		s.rowDevices()
	}
	return s.devices
}

func (s *State) rowDevices() {
	_, unseen := s.Missing[Claims]
	// If the claims of only one namespace were listed, a device of a claim in another namespace would look free.
	unseen = unseen || s.Namespace != ""
	s.devices = []Device{}
	for _, p := range s.Cluster.Pools() {
		withheld := s.Cluster.Withheld(p)
		for _, d := range p.Devices {
			rules := s.rulesOn(d)
			row := published(tainted(d, rules))
			row.By, row.lent = withheld[d], slices.ContainsFunc(rules, isOfTwinsClaim)
			row.resolve(s.Cluster.Holder(d.ID), unseen)
			// The row has the pointer of the model, because the index below needs it. tainted returned a copy.
			row.published = d // rows are found by this pointer
			s.devices = append(s.devices, row)
		}
	}
	slices.SortStableFunc(s.devices, compareDevices)
	s.rows = make(map[*cluster.Device]int, len(s.devices))
	for i := range s.devices {
		s.rows[s.devices[i].published] = i
	}
}

// tainted returns the device with the taints of the rules on it.
func tainted(d *cluster.Device, rules []*resourceapi.DeviceTaintRule) *cluster.Device {
	own := *d
	own.Taints = slices.Clone(d.Taints)
	for _, r := range rules {
		own.Taints = append(own.Taints, r.Spec.Taint)
	}
	return &own
}

// rulesOn returns the rules whose taints keep claims from a device.
func (s *State) rulesOn(d *cluster.Device) []*resourceapi.DeviceTaintRule {
	var rules []*resourceapi.DeviceTaintRule
	for i := range s.TaintRules {
		r := &s.TaintRules[i]
		if cluster.KeepsAway(&r.Spec.Taint) && cluster.Selects(r, d.ID) {
			rules = append(rules, r)
		}
	}
	return rules
}

// row returns the device's row; nil if no current slice has it.
func (s *State) row(id cluster.ID) *Device {
	devices := s.Devices()
	if i, ok := s.rows[s.Cluster.Device(id)]; ok {
		return &devices[i]
	}
	return nil
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

// published returns the node's attributes of a device.
func published(d *cluster.Device) Device {
	return Device{
		Node: d.Node, Pool: d.ID.Pool, Name: d.ID.Name, Attributes: d.Details.Attributes,
		Isolated: d.Details.Isolated, Failed: d.Details.Failed, Severity: d.Details.Severity,
		Taints: []string{}, Health: []string{}, published: d,
	}
}

// resolve adds taints, and derives the use from them and from the claim that has the device.
func (d *Device) resolve(holder *cluster.Claim, unseen bool) {
	quarantined := d.addTaints()
	switch {
	// A claim comes first: its tenant has the device even if it is tainted.
	case holder != nil:
		d.Use, d.Claim, d.Pods, d.By = Claimed, holder.Name(), holder.Pods, nil
	case quarantined:
		d.Use = Quarantined
	case d.isFaulty():
		d.Use = Tainted
	case slices.ContainsFunc(d.Taints, isOfStage):
		d.Use = Sanitizing
	case d.KeptFor != "":
		d.Use = Kept
	case len(d.By) > 0, d.lent:
		d.Use = Withheld
		// If claims were not listed, only a device that looks free is in doubt. The taints and the other claims decide about all others.
	case unseen:
		d.Use = Unseen
	default:
		d.Use = Free
	}
}

// addTaints adds the taints that keep claims away, and reports whether one is a quarantine.
func (d *Device) addTaints() (quarantined bool) {
	for _, t := range d.published.Taints {
		if !cluster.KeepsAway(&t) {
			continue
		}
		quarantined = quarantined || t.Key == publish.TaintQuarantined
		d.Taints = append(d.Taints, taintWord(t))
		switch {
		case t.Key == publish.TaintQuarantined:
			d.QuarantinedFor = t.Value
			if t.TimeAdded != nil {
				d.QuarantinedAt = &t.TimeAdded.Time
			}
			d.Health = append(d.Health, string(Quarantined))
		case t.Key == publish.TaintNotIsolated:
			d.NotIsolated = t.Value
		case t.Key == v1alpha1.TaintTenant:
			d.KeptFor = cmp.Or(t.Value, plan.UnknownTenant)
		case t.Key != publish.TaintAudit && !d.isOfUse(taintWord(t)) && strings.HasPrefix(t.Key, v1alpha1.DriverName+"/"):
			d.Health = append(d.Health, taintWord(t))
		}
	}
	return quarantined
}

// isFaulty reports whether a taint keeps claims away that does not belong to the normal use of the device.
func (d *Device) isFaulty() bool { return len(d.taintKeys()) > 0 }

func taintWord(t resourceapi.DeviceTaint) string {
	word := strings.TrimPrefix(t.Key, v1alpha1.DriverName+"/")
	if t.Value != "" {
		word += "=" + t.Value
	}
	return word
}

// State describes the use of the device: "claimed team-a/train, tainted: audit".
func (d *Device) State() string {
	switch d.Use {
	case Claimed:
		text := "claimed " + d.Claim
		if d.isFaulty() {
			text += ", tainted: " + strings.Join(d.taintKeys(), ",")
		}
		return text
	case Withheld:
		if len(d.By) == 0 {
			return "withheld: " + d.lentWords()
		}
		text := "withheld: " + d.By[0] + " is claimed"
		if more := len(d.By) - 1; more > 0 {
			text += ", and more"
		}
		return text
	case Tainted:
		return "tainted: " + strings.Join(d.taintKeys(), ",")
	case Kept:
		return plan.KeptWords(d.KeptFor)
	case Free, Quarantined, Sanitizing, Unseen:
	}
	return string(d.Use)
}

// taintKeys lists the taints except for those of normal use, without their values, which other columns have.
func (d *Device) taintKeys() []string {
	var keys []string
	for _, t := range d.Taints {
		if key, _, _ := strings.Cut(t, "="); !d.isOfUse(t) {
			keys = append(keys, key)
		}
	}
	return keys
}

// tenantWord is the key of the taint of exclusive domains, without the prefix of kata-vfio.
const tenantWord = "tenant"

// isOfUse reports whether a taint belongs to the normal use of the device: it is the sanitizing stage's, an exclusive domain's, or that of a
// GPU which the other driver's claim has. A device has the stage's taint while its tenant has it, too. A GPU that claims of both drivers have
// is not in normal use.
func (d *Device) isOfUse(taint string) bool {
	key, _, _ := strings.Cut(taint, "=")
	return key == string(Sanitizing) || key == tenantWord || key == twinWord && d.lent && d.Claim == ""
}

// isOfStage reports whether a taint is the sanitizing stage's.
func isOfStage(taint string) bool {
	key, _, _ := strings.Cut(taint, "=")
	return key == string(Sanitizing)
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

// Together returns the devices of a node that stand for the hardware of one of them, which is named by its name or its address: a GPU
// is published alone and in pairs. Without a name, it returns all devices of the node. The error is a [NotFoundError].
func (s *State) Together(node, name string) ([]Device, error) {
	var all []Device
	places := map[cluster.Place]bool{}
	for _, d := range s.Devices() {
		if d.Node == node && (name == "" || d.Name == name || strings.EqualFold(d.Address, name)) {
			all = append(all, d)
			for _, p := range d.published.Places {
				places[p] = true
			}
		}
	}
	switch {
	case len(all) == 0 && name == "":
		return nil, &NotFoundError{fmt.Sprintf("node %s with devices of kata-vfio; `kubectl kata-vfio status` lists the nodes", node)}
	case len(all) == 0:
		return nil, &NotFoundError{fmt.Sprintf("device %s on node %s; `kubectl kata-vfio devices --node %s` lists them", name, node, node)}
	case name == "":
		return all, nil
	}
	all = nil
	for _, d := range s.Devices() {
		if slices.ContainsFunc(d.published.Places, func(p cluster.Place) bool { return places[p] }) {
			all = append(all, d)
		}
	}
	return all, nil
}

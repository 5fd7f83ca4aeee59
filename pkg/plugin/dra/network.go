package dra

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceac "k8s.io/client-go/applyconfigurations/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// networkData returns a VF's MAC address and its network in the guest; nil for a device that is no NIC.
func networkData(p *plan.Plan, d *plan.Device) *resourceapi.NetworkDeviceData {
	data := &resourceapi.NetworkDeviceData{}
	if fn, ok := p.Function(d.Address); ok && fn.VF != nil {
		data.HardwareAddress = fn.VF.Want.MAC
	}
	if d.Network != nil {
		data.InterfaceName, data.IPs = d.Network.Interface, d.Network.Addresses
	}
	if data.HardwareAddress == "" && d.Network == nil {
		return nil
	}
	return data
}

// applyNetwork returns the data for server-side apply, without unknown fields.
func applyNetwork(data *resourceapi.NetworkDeviceData) *resourceac.NetworkDeviceDataApplyConfiguration {
	ac := resourceac.NetworkDeviceData().WithIPs(data.IPs...)
	if data.HardwareAddress != "" {
		ac.WithHardwareAddress(data.HardwareAddress)
	}
	if data.InterfaceName != "" {
		ac.WithInterfaceName(data.InterfaceName)
	}
	return ac
}

// guestMetadata returns the data for which DRA has no standard field, by attribute name.
func guestMetadata(p *plan.Plan, d *plan.Device) map[string]string {
	told := map[string]string{}
	if text, ok := guestNetwork(d); ok {
		told[v1alpha1.AttrGuestNetwork] = text
	}
	if fn, ok := p.Function(d.Address); ok && fn.VF != nil && fn.VF.Want.PortGUID != "" {
		told[v1alpha1.AttrPortGUID] = fn.VF.Want.PortGUID
	}
	return told
}

// guestNetwork returns the device's network as JSON for kata-vfio-guestnet: DRA has no standard fields for routes and the MTU.
func guestNetwork(d *plan.Device) (string, bool) {
	if d.Network == nil {
		return "", false
	}
	text, err := json.Marshal(d.Network)
	return string(text), err == nil
}

// Uplink returns the interface of a PF; [vf.Policy.Uplink] implements it.
type Uplink func(ctx context.Context, pf pci.Address) (*vf.Link, error)

// once returns an uplink that reads each PF once, for one look at several VFs: to read a PF is to read all of its VFs. A later look needs
// another one. It is not safe for concurrent use.
func (u Uplink) once() Uplink {
	if u == nil {
		return nil
	}
	type answer struct {
		link *vf.Link
		err  error
	}
	known := map[pci.Address]answer{}
	return func(ctx context.Context, pf pci.Address) (*vf.Link, error) {
		a, isKnown := known[pf]
		if !isKnown {
			a.link, a.err = u(ctx, pf)
			known[pf] = a
		}
		return a.link, a.err
	}
}

// vfLink is the state of a VF's link.
type vfLink struct {
	status  metav1.ConditionStatus
	reason  rule.Code
	message string
}

// isLost reports whether the VF has no link although its claim wants one.
func (l *vfLink) isLost() bool { return l.reason == rule.PFDown || l.reason == rule.PFNoCarrier }

// links returns the links of a record's VFs, by address. It leaves out VFs without a MAC address: such a VF is no NIC, or the interface of
// its PF does not show its link, as with InfiniBand.
func (u Uplink) links(ctx context.Context, rec *journal.Record) map[pci.Address]vfLink {
	links := map[pci.Address]vfLink{}
	if u == nil {
		return links
	}
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		if fn.PF == nil || fn.VF == nil || fn.VF.Want.MAC == "" {
			continue
		}
		uplink, err := u(ctx, *fn.PF)
		if err != nil {
			links[fn.Address] = vfLink{metav1.ConditionUnknown, rule.PFUnreadable, fmt.Sprintf("the link of PF %s could not be read: %v", fn.PF, err)}
			continue
		}
		links[fn.Address] = newVFLink(fn, uplink)
	}
	return links
}

// newVFLink returns the link of a VF, from the interface of its PF.
func newVFLink(fn *plan.Function, uplink *vf.Link) vfLink {
	state := fn.VF.Want.LinkState
	// A PF can have fewer VFs now than when the claim was planned.
	if i := fn.VF.Index; i >= 0 && i < len(uplink.VFs) {
		state = cmp.Or(state, uplink.VFs[i].Settings.LinkState)
	}
	const symptom = "the VF has no link, and the guest's driver may give it a random MAC address"
	switch {
	case !uplink.Up:
		return vfLink{metav1.ConditionFalse, rule.PFDown, fmt.Sprintf("interface %s of PF %s is down: %s; run `ip link set %s up` on the node, then create the pod again",
			uplink.Name, fn.PF, symptom, uplink.Name)}
	case state == "disable":
		return vfLink{metav1.ConditionFalse, rule.LinkDisabled, "its linkState is Disable, which its VFConfig says or its PF did before"}
	case state == "enable":
		return vfLink{metav1.ConditionTrue, rule.LinkEnabled, "its linkState is Enable: it has a link to the other VFs, whatever the PF's is"}
	case !uplink.Carrier:
		return vfLink{metav1.ConditionFalse, rule.PFNoCarrier, fmt.Sprintf("interface %s of PF %s has no carrier: %s; check the cable and the switch's port, then create the pod again",
			uplink.Name, fn.PF, symptom)}
	}
	return vfLink{metav1.ConditionTrue, rule.PFHasCarrier, fmt.Sprintf("interface %s of PF %s has a carrier", uplink.Name, fn.PF)}
}

// linkWords returns the state of links as text to compare.
func linkWords(links map[pci.Address]vfLink) string {
	var words strings.Builder
	for _, a := range slices.SortedFunc(maps.Keys(links), pci.Address.Compare) {
		fmt.Fprintf(&words, " %s=%s", a, links[a].reason)
	}
	return words.String()
}

// linkCondition returns the condition for the link of a device's VF; nil if the device has no such VF. The condition's time changes only
// with its status.
func linkCondition(links map[pci.Address]vfLink, parts []plan.Device, before *metav1.Condition, since metav1.Time) *metaac.ConditionApplyConfiguration {
	i := slices.IndexFunc(parts, func(d plan.Device) bool { return links[d.Address] != vfLink{} })
	if i < 0 {
		return nil
	}
	now := links[parts[i].Address]
	switch {
	case before == nil:
	// lastTransitionTime is when the status changed, not when it was last looked at (API conventions, "Typical status
	// properties").
	case before.Status == now.status:
		since = before.LastTransitionTime
	default:
		since = metav1.NewTime(time.Now())
	}
	return condition(ConditionLinkUp, now.status, now.reason, now.message, since)
}

// showsLinks reports whether the status of a prepared claim shows the links of its VFs.
func showsLinks(c *resourceapi.ResourceClaim, rec *journal.Record, links map[pci.Address]vfLink) bool {
	for _, parts := range rec.Plan.Allocated() {
		for i := range parts {
			now, has := links[parts[i].Address]
			if !has {
				continue
			}
			told := meta.FindStatusCondition(listConditions(c, parts[0].Pool, parts[0].Published()), ConditionLinkUp)
			if told == nil || told.Status != now.status || told.Reason != string(now.reason) {
				return false
			}
		}
	}
	return true
}

package device

import (
	"fmt"
	"strconv"
)

// VFSettings are the settings that a PF imposes on one of its VFs, as in rtnetlink (IFLA_VF_INFO in
// include/uapi/linux/if_link.h). A field without a value is not requested or, in settings that were read, not
// reported by the PF's driver.
type VFSettings struct {
	// MAC is the administrative MAC address, "02:00:5e:10:00:01". All zero means that the PF does not impose
	// one.
	MAC  string  `json:"mac,omitempty"`
	VLAN *VLAN   `json:"vlan,omitempty"`
	Rate *TxRate `json:"txRate,omitempty"`
	// LinkState is "auto", "enable" or "disable".
	LinkState  string `json:"linkState,omitempty"`
	SpoofCheck *bool  `json:"spoofCheck,omitempty"`
	// RSSQuery lets the VF read the PF's hash key and redirection table.
	RSSQuery *bool `json:"rssQuery,omitempty"`
	Trust    *bool `json:"trust,omitempty"`
	// NodeGUID and PortGUID are the GUIDs of an InfiniBand VF, "02:00:5e:10:00:00:00:01". All zero means that none was
	// set through its PF.
	NodeGUID string `json:"nodeGUID,omitempty"`
	PortGUID string `json:"portGUID,omitempty"`
}

// VLAN is the tag that a PF puts on a VF's frames; the ID 0 is none.
type VLAN struct {
	ID  int `json:"id"`
	QoS int `json:"qos,omitempty"`
	// Protocol is "802.1Q" or "802.1ad".
	Protocol string `json:"protocol"`
}

// AsFound is the value of a bound that keeps the PF's present bound. It occurs only in unfinished settings. It exists
// because the kernel can only set both bounds at once.
const AsFound = -1

// TxRate has the bounds of a VF's transmit rate in Mbit/s. 0 means unlimited.
type TxRate struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// VFSetting names one of the settings.
type VFSetting string

// The settings. Each is written by itself, the rates together.
const (
	VFLinkState  VFSetting = "linkState"
	VFTxRate     VFSetting = "txRate"
	VFVLAN       VFSetting = "vlan"
	VFSpoofCheck VFSetting = "spoofCheck"
	VFRSSQuery   VFSetting = "rssQuery"
	VFTrust      VFSetting = "trust"
	VFNodeGUID   VFSetting = "nodeGUID"
	VFPortGUID   VFSetting = "portGUID"
	VFMAC        VFSetting = "mac"
)

// AllVFSettings returns all settings in the order of writing. The settings that drivers refuse most often are
// first, so that a refusal comes before the first change. Trust and the addresses are last, after all bounds.
func AllVFSettings() []VFSetting {
	return []VFSetting{VFLinkState, VFTxRate, VFVLAN, VFSpoofCheck, VFRSSQuery, VFTrust, VFNodeGUID, VFPortGUID, VFMAC}
}

// VFAddresses returns the settings that must differ between all VFs.
func VFAddresses() []VFSetting { return []VFSetting{VFNodeGUID, VFPortGUID, VFMAC} }

// Value returns a setting as text, "100 802.1Q qos 3", or "" if it has no value. Equal texts are equal values.
func (v *VFSettings) Value(s VFSetting) string {
	switch s {
	case VFMAC:
		return v.MAC
	case VFLinkState:
		return v.LinkState
	case VFVLAN:
		return v.VLAN.String()
	case VFTxRate:
		return v.Rate.String()
	case VFSpoofCheck:
		return onOff(v.SpoofCheck)
	case VFRSSQuery:
		return onOff(v.RSSQuery)
	case VFTrust:
		return onOff(v.Trust)
	case VFNodeGUID:
		return v.NodeGUID
	case VFPortGUID:
		return v.PortGUID
	}
	return ""
}

// Take sets one setting to its value in from, or to none.
func (v *VFSettings) Take(s VFSetting, from *VFSettings) {
	switch s {
	case VFMAC:
		v.MAC = from.MAC
	case VFLinkState:
		v.LinkState = from.LinkState
	case VFVLAN:
		v.VLAN = from.VLAN
	case VFTxRate:
		v.Rate = from.Rate
	case VFSpoofCheck:
		v.SpoofCheck = from.SpoofCheck
	case VFRSSQuery:
		v.RSSQuery = from.RSSQuery
	case VFTrust:
		v.Trust = from.Trust
	case VFNodeGUID:
		v.NodeGUID = from.NodeGUID
	case VFPortGUID:
		v.PortGUID = from.PortGUID
	}
}

// Only returns the values of the settings that have values in want.
func (v *VFSettings) Only(want *VFSettings) VFSettings {
	var out VFSettings
	for _, s := range AllVFSettings() {
		if want.Value(s) != "" {
			out.Take(s, v)
		}
	}
	return out
}

// Differ returns the settings that have values in want which differ from those in v, in the order of writing.
func (v *VFSettings) Differ(want *VFSettings) []VFSetting {
	var names []VFSetting
	for _, s := range AllVFSettings() {
		if w := want.Value(s); w != "" && w != v.Value(s) {
			names = append(names, s)
		}
	}
	return names
}

// String lists the settings that have values: "vlan 100 802.1Q, trust off".
func (v *VFSettings) String() string {
	text := ""
	for _, s := range AllVFSettings() {
		value := v.Value(s)
		if value == "" {
			continue
		}
		if text != "" {
			text += ", "
		}
		text += string(s) + " " + value
	}
	return text
}

// String returns "100 802.1Q qos 3", "none" for the ID 0, and "" for nil.
func (t *VLAN) String() string {
	switch {
	case t == nil:
		return ""
	case t.ID == 0 && t.QoS == 0:
		return "none"
	case t.QoS == 0:
		return strconv.Itoa(t.ID) + " " + t.Protocol
	}
	return fmt.Sprintf("%d %s qos %d", t.ID, t.Protocol, t.QoS)
}

// String returns "100 to 1000 Mbit/s" with "any" for no bound and "as found" for
// [AsFound], and "" for nil.
func (r *TxRate) String() string {
	if r == nil {
		return ""
	}
	bound := func(n int) string {
		switch n {
		case 0:
			return "any"
		case AsFound:
			return "as found"
		}
		return strconv.Itoa(n)
	}
	return bound(r.Min) + " to " + bound(r.Max) + " Mbit/s"
}

func onOff(b *bool) string {
	switch {
	case b == nil:
		return ""
	case *b:
		return "on"
	}
	return "off"
}

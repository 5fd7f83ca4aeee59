package cluster

import (
	"encoding/json"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// AnnotationHealth is the annotation of a node's ResourceSlice with the [NodeHealth]. The plugin of the node has the right to write the
// node's slices anyway, and users who may read devices may read it.
const AnnotationHealth = v1alpha1.DriverName + "/node-health"

// Times of [NodeHealth], in seconds.
const (
	// HealthRenewed is how often the plugin writes a health that has not changed. After each write of a slice the scheduler looks at
	// waiting pods again, so the period is long.
	HealthRenewed = 60 * 60
	// HealthOutdated is the age from which a health says nothing about the node, because its plugin has missed two writes.
	HealthOutdated = 2*HealthRenewed + 15*60
)

// NodeHealth is what a node's plugin knows of its node besides its devices. It names no tenant. The JSON form is stable: names are added,
// never changed.
type NodeHealth struct {
	// Updated is when it was written, in RFC 3339.
	Updated string `json:"updated"`
	// NRI says that the container runtime asks the plugin about sandboxes and containers.
	NRI bool `json:"nri"`
	// Refuses is why the node refuses all new claims, "DiskFull: ..."; empty if it does not.
	Refuses string `json:"refuses,omitempty"`
	// Bootstrap is what bootstrap found when it last compared the node with its blueprint; nil if it never did.
	Bootstrap *BootstrapHealth `json:"bootstrap,omitempty"`
	// Alerts are the causes of alerts, in the order of their names.
	Alerts []NodeAlert `json:"alerts,omitempty"`
}

// BootstrapHealth is the outcome of bootstrap's last verify.
type BootstrapHealth struct {
	// Outcome is "fit", "changes needed", "reboot needed", "can't be made fit", "unknown", or "unreadable" where it can't be read.
	Outcome string `json:"outcome"`
	// Drift has the first differences from the blueprint, and More counts the others.
	Drift []Drift `json:"drift,omitempty"`
	More  int     `json:"more,omitempty"`
}

// Drift is one difference of a node from its blueprint.
type Drift struct {
	// Part is the part of the blueprint, such as "kernel", Path the file or the setting, or empty, and What the kind of difference:
	// "changed", "removed", "missing", "setting", "reboot" or "problem".
	Part string `json:"part"`
	Path string `json:"path,omitempty"`
	What string `json:"what"`
	// Since is when it began, in RFC 3339.
	Since string `json:"since,omitempty"`
}

// Bounds of a health, which is part of an object that all nodes have.
const (
	mostDrift = 8
	longest   = 256
)

// AddDrift adds a difference. It keeps the first [mostDrift] differences, and counts the others.
func (b *BootstrapHealth) AddDrift(d Drift) {
	if len(b.Drift) == mostDrift {
		b.More++
		return
	}
	d.Path = short(d.Path)
	b.Drift = append(b.Drift, d)
}

// NodeAlert is the cause of an alert of the chart's.
type NodeAlert struct {
	// Name is the alert's, "KataVFIODiskScarce".
	Name string `json:"name"`
	Text string `json:"text"`
}

// AddAlert adds the cause of an alert.
func (h *NodeHealth) AddAlert(name, text string) {
	h.Alerts = append(h.Alerts, NodeAlert{name, short(text)})
}

// short cuts a text, at a rune's begin.
func short(text string) string {
	if len(text) <= longest {
		return text
	}
	end := 0
	for i := range text {
		if i > longest-3 {
			break
		}
		end = i
	}
	return text[:end] + "..."
}

// Encode returns the health as it is published.
func (h *NodeHealth) Encode() (string, error) {
	text, err := json.Marshal(h)
	return string(text), err
}

// DecodeHealth returns the health in a slice's annotation; nil if the slice has none.
func DecodeHealth(s *resourceapi.ResourceSlice) (*NodeHealth, error) {
	text, ok := s.Annotations[AnnotationHealth]
	if !ok {
		return nil, nil
	}
	h := &NodeHealth{}
	if err := json.Unmarshal([]byte(text), h); err != nil {
		return nil, fmt.Errorf("read the annotation %s of ResourceSlice %s: %w", AnnotationHealth, s.Name, err)
	}
	return h, nil
}

// addHealth keeps the newest health of a node. It ignores a health that can't be read.
func (c *Cluster) addHealth(node string, s *resourceapi.ResourceSlice) {
	h, err := DecodeHealth(s)
	// Times in RFC 3339 and UTC are ordered as their texts are.
	if known := c.health[node]; err == nil && h != nil && (known == nil || known.Updated < h.Updated) {
		put(&c.health, node, h)
	}
}

// Health returns the newest health that the plugin of a node has published, in a slice of any pool; nil if there is none.
func (c *Cluster) Health(node string) *NodeHealth { return c.health[node] }

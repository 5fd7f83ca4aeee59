package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// heartbeat is the pause after which unchanged health is sent again. The kubelet forgets health after 30 seconds.
const heartbeat = 10 * time.Second

// Health is the health of the published devices. The publisher, the kubelet's health stream and the readiness probe share it.
type Health struct {
	mu        sync.Mutex // guards all below
	devices   []kubeletplugin.DeviceHealth
	withdrawn error
	stale     string
	refused   string
	published bool
	changed   chan struct{} // closed and replaced at each change
}

// NewHealth returns the health of a plugin that has published nothing yet.
func NewHealth() *Health { return &Health{changed: make(chan struct{})} }

// Set sets the health of all published devices, and why the inventory is stale, if it is.
func (h *Health) Set(devices []kubeletplugin.DeviceHealth, stale string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.devices, h.stale = slices.Clone(devices), stale
	// Closing the channel wakes all streams. A send would wake one of them, and block without a reader.
	close(h.changed)
	h.changed = make(chan struct{})
}

// Refuse sets why the node refuses all new claims; nil if it does not.
func (h *Health) Refuse(why *plan.NotReady) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refused = ""; why != nil {
		h.refused = string(why.Obstacle) + ": " + why.Text
	}
}

// Published records that the devices were published.
func (h *Health) Published() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.published = true
}

// Withdraw forbids publishing from now on; err is the reason.
func (h *Health) Withdraw(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.withdrawn = err
}

// Withdrawn returns why nothing may be published; nil if it may.
func (h *Health) Withdrawn() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.withdrawn
}

// Ready returns why the plugin is not ready to serve claims; empty if it is.
func (h *Health) Ready() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var why []string
	if !h.published {
		why = append(why, "the inventory is not published yet")
	}
	if h.withdrawn != nil {
		why = append(why, h.withdrawn.Error())
	}
	if h.stale != "" {
		why = append(why, "the inventory is stale: "+h.stale)
	}
	if h.refused != "" {
		why = append(why, "the node refuses all new claims: "+h.refused)
	}
	return strings.Join(why, "; ")
}

// Stream sends the health of all devices now, after each change and after each heartbeat, until ctx ends.
func (h *Health) Stream(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		report, changed := h.report()
		// A kubelet that stopped reading must not keep the stream from ending.
		select {
		case <-ctx.Done():
			return nil
		case reports <- report:
		}
		// A change between the send and this select is not lost: changed belongs to the report that was sent.
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
		}
	}
}

// report returns the current health, and a channel that closes when it changes. If the inventory is stale, every device's health is
// unknown.
func (h *Health) report() (kubeletplugin.DeviceHealthReport, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// The kubelet calls a device's health unknown if no report comes within the helper's HealthCheckTimeout (30 seconds).
	now := time.Now()
	report := kubeletplugin.DeviceHealthReport{Devices: slices.Clone(h.devices)}
	for i := range report.Devices {
		report.Devices[i].LastUpdated = now
		if h.stale != "" {
			report.Devices[i].Health = kubeletplugin.HealthStatusUnknown
			report.Devices[i].Message = h.stale
		}
	}
	return report, h.changed
}

// DroppedError says that the API server dropped fields of our slices, because feature gates are off. Without counters two claims could
// get the same hardware, so nothing is published until the gates are on.
type DroppedError struct{ Gates []string }

func (e *DroppedError) Error() string {
	gates := strings.Join(e.Gates, ", ")
	if gates == "" {
		gates = "of DRA that this version uses (the API server does not say which ones are off)"
	}
	return fmt.Sprintf("the API server drops fields that keep devices apart: enable the feature gates %s and restart the plugin; until then no device is published", gates)
}

// droppedFields returns a [DroppedError] if err says that fields were dropped; otherwise nil.
func droppedFields(err error) *DroppedError {
	var dropped *resourceslice.DroppedFieldsError
	if !errors.As(err, &dropped) {
		return nil
	}
	return &DroppedError{Gates: dropped.DisabledFeatures()}
}
